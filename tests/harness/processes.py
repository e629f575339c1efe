"""Running the test programs on server processes, and checks that processes are gone."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from ppca.estimator.job import Job
from ppca.runtime import Servers


def program(function: str) -> str:
    return f"{Path(__file__).parent / 'programs_for_tests.py'}:{function}"


def run(servers: Servers, name: Any, /, *inputs: Any, progress: Any = None, **public: Any) -> Any:
    """Return what the program returned."""
    return Job(servers, progress).run(name, *inputs, **public)


def running(pid: int) -> bool:
    """A process that exists and is no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def assert_gone(pids: list[int], within: float = 0.0) -> None:
    assert len(pids) == 4
    deadline = time.monotonic() + within
    while (left := [pid for pid in pids if running(pid)]) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not left, f"orphans: {left}"
