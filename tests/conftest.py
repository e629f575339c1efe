"""Servers for tests: four processes once per module, or four seats in lock-step in this thread."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.lockstep import LockstepServers
from ppca.servers import LocalServers

STARTS_PROCESSES = {"CliRunner", "LocalServers", "distributed", "multiprocessing", "submitter", "subprocess"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of modules that import what starts processes stay on one worker: four servers at a time share the machine
    with the other workers, not eight."""
    for item in items:
        if isinstance(item, pytest.Function) and STARTS_PROCESSES & vars(item.module).keys():
            item.add_marker(pytest.mark.processes)
            item.add_marker(pytest.mark.xdist_group("processes"))


@pytest.fixture(scope="module")
def servers() -> Iterator[LocalServers]:
    with LocalServers(timeout=120) as running:
        yield running


@pytest.fixture
def seats() -> LockstepServers:
    return LockstepServers()
