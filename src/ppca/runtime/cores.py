"""Choose the cores on which each local server runs, and the number of threads of its kernels.

Results are bit-identical for any number of threads. A kernel call starts and ends its threads (about 20 microseconds
each), so short calls use fewer threads than allowed.
"""

from __future__ import annotations

import os

MAX_THREADS = 8
"""Default maximum of threads per server. More threads cost as much to start as they save in calls of a millisecond."""


def available() -> set[int]:
    """Return the cores that this process may use."""
    return os.sched_getaffinity(0)


def threads_for(servers: int) -> int:
    """Return the threads per server if this number of servers work on this machine at once: an equal share of the
    cores."""
    return max(1, min(MAX_THREADS, len(available()) // servers))


def cores_of(server: int, cores: set[int], threads: int = 1) -> set[int]:
    """Return the cores of a local server: a quarter of all, or one per row of the grid on two or three cores; more if
    its threads need them.

    Otherwise the system wakes the receiver of a message on the core of its sender, and four servers that communicate
    all the time share one core.
    """
    groups = 4 if len(cores) >= 4 else 2 if len(cores) >= 2 else 1
    while groups > 1 and len(cores) // groups < threads:
        groups //= 2
    own = server * groups // 4
    ordered = sorted(cores)
    return set(ordered[own * len(ordered) // groups : (own + 1) * len(ordered) // groups])
