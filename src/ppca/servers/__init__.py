"""How four servers run a program. Everything here sees shares only: packets of inputs, messages, sealed parts of results."""

from .codec import CodecError, PerSeat
from .failure import ServersFailed
from .interface import Servers
from .local import LocalServers
from .operator import DaskCluster, OperatorError
from .outcome import Account, Outcome
from .programs import ProgramError

__all__ = [
    "Account",
    "CodecError",
    "DaskCluster",
    "LocalServers",
    "OperatorError",
    "Outcome",
    "PerSeat",
    "ProgramError",
    "Servers",
    "ServersFailed",
]
