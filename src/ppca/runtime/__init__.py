"""How four servers run a program. Everything here sees shares only: packets of inputs, messages, sealed parts of results."""

from ..jobs.operator import DaskCluster, OperatorError
from .codec import CodecError, PerSeat
from .failure import ServersFailed
from .local import LocalServers
from .outcome import Account, Outcome
from .programs import ProgramError
from .servers import Servers

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
