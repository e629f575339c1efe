"""Running programs on four servers: as processes of this machine (`LocalCluster`) or threads (`ThreadCluster`)."""

from .local import ClusterError, LocalCluster
from .outcome import PerSeat, RunReport
from .programs import ProgramError
from .threads import ThreadCluster

__all__ = ["ClusterError", "LocalCluster", "PerSeat", "ProgramError", "RunReport", "ThreadCluster"]
