"""A cluster shared by the tests that leave it alive."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.processes import running
from ppca.servers import LocalCluster


@pytest.fixture(scope="module")
def shared() -> Iterator[LocalCluster]:
    with LocalCluster(timeout=10) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: LocalCluster) -> LocalCluster:
    """Running; a test that needs a broken one starts its own."""
    assert all(running(pid) for pid in shared.start().pids)
    return shared
