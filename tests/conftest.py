"""Servers for tests: four processes once per module, or four seats in lock-step in this thread."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.lockstep import LockstepServers
from ppca.servers import LocalServers

STARTS_PROCESSES = {"CliRunner", "browser", "LocalServers", "distributed", "multiprocessing", "submitter", "subprocess"}


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of modules that import what starts processes stay on one worker: four servers at a time share the machine
    with the other workers, not eight."""
    for item in items:
        if isinstance(item, pytest.Function) and STARTS_PROCESSES & vars(item.module).keys():
            item.add_marker(pytest.mark.processes)
            item.add_marker(pytest.mark.xdist_group("processes"))


@pytest.fixture(autouse=True, scope="session")
def interruptible() -> None:
    """A shell that starts the tests in the background lets them ignore Ctrl-C, and every process that they start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Shares that commands keep do not reach the state of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("state")
        patch.setenv("XDG_STATE_HOME", str(home))
        yield home


@pytest.fixture(scope="module")
def servers() -> Iterator[LocalServers]:
    with LocalServers(timeout=120, developer=True) as running:
        yield running


@pytest.fixture
def seats() -> LockstepServers:
    return LockstepServers()
