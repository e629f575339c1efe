"""Servers for tests: four processes once per module, or four seats in lock-step in this thread."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.lockstep import LockstepServers
from ppca.servers import LocalServers


@pytest.fixture(scope="module")
def servers() -> Iterator[LocalServers]:
    with LocalServers(timeout=120) as running:
        yield running


@pytest.fixture
def seats() -> LockstepServers:
    return LockstepServers()
