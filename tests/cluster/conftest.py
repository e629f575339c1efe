"""A cluster shared by the tests that leave it alive."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import running

from ppca.cluster import LocalCluster

sys.path.append(str(Path(__file__).parents[1] / "protocol"))  # the lock-step harness


@pytest.fixture(scope="module")
def shared() -> Iterator[LocalCluster]:
    with LocalCluster(timeout=10) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: LocalCluster) -> LocalCluster:
    """Running; a test that needs a broken one starts its own."""
    assert all(running(pid) for pid in shared.start().pids)
    return shared
