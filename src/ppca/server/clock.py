"""The time on which servers act: the second earliest of the servers' clocks.

Destroying keys cannot be undone, so no server does it by its own clock alone. With three clocks or more, the second
earliest is not moved into the future by one wrong clock, neither this server's nor another's; an early one only delays.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime

LATEST = 250e9
"""Seconds since 1970 that a datetime can still express."""

NEEDED = 2
"""Other servers whose clocks must be known before anything is destroyed because of the time."""


class Clock:
    """This server's clock and those that the others have told."""

    def __init__(self) -> None:
        self._others: dict[int, float] = {}

    def heard(self, server: int, told: object) -> None:
        """Record the time that another server reports (ISO 8601). Ignore anything else."""
        try:
            theirs = datetime.fromisoformat(str(told)).timestamp()
        except (ValueError, OverflowError):
            return
        if 0 < theirs < LATEST:
            self._others[server] = theirs - _since_boot()

    @property
    def agreed(self) -> bool:
        """Return whether enough clocks are known."""
        return len(self._others) >= NEEDED

    def now(self) -> datetime:
        """The second earliest clock; this server's own until enough others are known."""
        own = time.time()
        if not self.agreed:
            return datetime.fromtimestamp(own, UTC)
        since = _since_boot()
        return datetime.fromtimestamp(sorted([own, *(start + since for start in self._others.values())])[1], UTC)


def _since_boot() -> float:
    """Seconds that no change of a clock touches."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
