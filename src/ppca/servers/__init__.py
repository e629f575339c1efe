"""How four servers run a program. Everything here sees shares only: packets of inputs, messages, sealed parts of results."""

from .codec import CodecError, PerSeat
from .failure import ServersFailed
from .interface import Servers
from .local import LocalServers
from .outcome import Account, Outcome
from .programs import ProgramError

__all__ = [
    "Account",
    "CodecError",
    "LocalServers",
    "Outcome",
    "PerSeat",
    "ProgramError",
    "Servers",
    "ServersFailed",
]
