"""Memory of this machine, as far as this process may use it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")


def machine_bytes() -> int:
    """Return the bytes of memory of this machine, or of the control group of this process if it may use less."""
    found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([found, *_limits()])


def _limits() -> list[int]:
    """Return the memory limits of the control groups of this process (version 2), if the system shows them."""
    try:
        (line,) = [line for line in OWN_CGROUP.read_text().splitlines() if line.startswith("0::")]
    except (OSError, ValueError):
        return []
    group, found = CGROUPS / line.removeprefix("0::/"), []
    while group.is_relative_to(CGROUPS):
        with suppress(OSError, ValueError):  # the text "max" means no limit
            found.append(int((group / "memory.max").read_text()))
        group = group.parent
    return found
