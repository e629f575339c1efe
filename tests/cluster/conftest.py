"""A cluster shared by the tests that leave it alive, and checks that processes and files are gone."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ppca.cluster import LocalCluster

sys.path.append(str(Path(__file__).parents[1] / "protocol"))  # the lock-step harness


def program(function: str) -> str:
    return f"{Path(__file__).parent / 'programs_for_tests.py'}:{function}"


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


@pytest.fixture(scope="module")
def shared() -> Iterator[LocalCluster]:
    with LocalCluster(timeout=10) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: LocalCluster) -> LocalCluster:
    """Running; a test that needs a broken one starts its own."""
    assert all(running(pid) for pid in shared.start().pids)
    return shared
