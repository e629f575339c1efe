"""Run a program on four servers: processes, messages, kept records. Everything here sees shares only."""

from ..jobs.operator import DaskCluster, OperatorError
from .codec import CodecError, PerServer
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
    "PerServer",
    "ProgramError",
    "Servers",
    "ServersFailed",
]
