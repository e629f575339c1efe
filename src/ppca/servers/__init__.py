"""Running programs on four servers: as processes of this machine (`LocalServers`) or threads (`ThreadCluster`)."""

from .codec import CodecError, PerSeat
from .failure import ServersFailed
from .local import LocalServers
from .outcome import Account
from .programs import ProgramError
from .threads import ThreadCluster

__all__ = ["Account", "CodecError", "LocalServers", "PerSeat", "ProgramError", "ServersFailed", "ThreadCluster"]
