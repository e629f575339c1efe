"""Cores and threads: which cores a server of this machine runs on, and how many threads its kernels use.

Results do not depend on the number of threads, bit by bit. A call of a kernel starts its threads and ends them (about 20
microseconds each), so calls that are short use fewer than they may.
"""

from __future__ import annotations

import os

MOST_THREADS = 8
"""Threads of a server unless it is told otherwise: with more, starting them takes what they bring to calls of a millisecond."""


def available() -> set[int]:
    """The cores that this process may use."""
    return os.sched_getaffinity(0)


def threads_for(servers: int) -> int:
    """Threads of each of so many servers that work on this machine at the same time: its cores, shared equally."""
    return max(1, min(MOST_THREADS, len(available()) // servers))


def cores_of(seat: int, cores: set[int], threads: int = 1) -> set[int]:
    """The cores a local server may use: a quarter of them each, or one per row of the grid on two or three; more, if its threads
    need them.

    Without this the system wakes the receiver of a message on the core of its sender, and four servers that talk all the time
    take turns on one core.
    """
    groups = 4 if len(cores) >= 4 else 2 if len(cores) >= 2 else 1
    while groups > 1 and len(cores) // groups < threads:
        groups //= 2
    own = seat * groups // 4
    ordered = sorted(cores)
    return set(ordered[own * len(ordered) // groups : (own + 1) * len(ordered) // groups])
