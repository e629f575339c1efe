"""Servers shared by the tests that leave them alive."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.processes import running
from ppca.servers import LocalServers


@pytest.fixture(scope="module")
def shared() -> Iterator[LocalServers]:
    with LocalServers(timeout=60, developer=True) as servers:
        yield servers


@pytest.fixture
def servers(shared: LocalServers) -> LocalServers:
    """Running; a test that needs a broken one starts its own."""
    assert all(running(pid) for pid in shared.start().pids)
    return shared
