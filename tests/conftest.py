"""Servers for tests: four processes once per module, or four seats in lock-step in this thread."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.seats import SeatsInStep
from ppca.servers import LocalCluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(timeout=120) as running:
        yield running


@pytest.fixture
def seats() -> SeatsInStep:
    return SeatsInStep()
