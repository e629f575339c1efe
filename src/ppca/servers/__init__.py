"""Running programs on four servers: as processes of this machine (`LocalCluster`) or threads (`ThreadCluster`)."""

from .codec import CodecError, PerSeat
from .failure import ClusterError
from .local import LocalCluster
from .outcome import RunReport
from .programs import ProgramError
from .threads import ThreadCluster

__all__ = ["ClusterError", "CodecError", "LocalCluster", "PerSeat", "ProgramError", "RunReport", "ThreadCluster"]
