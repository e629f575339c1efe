"""Fixtures for all tests, hypothesis profiles, and the mark `processes`."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from harness.lockstep import LockstepServers
from ppca.servers import LocalServers

settings.register_profile("fast", max_examples=30, deadline=None)
settings.register_profile("thorough", max_examples=300, deadline=None)
settings.load_profile("fast")

STARTS_PROCESSES = {"CliRunner", "distributed", "multiprocessing", "submitter", "subprocess"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that start processes. Put files with such tests first: they are slow, and fast ones fill the gaps."""
    for item in items:
        if (
            "servers" in getattr(item, "fixturenames", ())
            or STARTS_PROCESSES & vars(getattr(item, "module", item)).keys()
        ):
            item.add_marker(pytest.mark.processes)
    slow = {item.path for item in items if item.get_closest_marker("processes")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(autouse=True, scope="session")
def interruptible() -> None:
    """Let Ctrl-C end tests and their processes also if a shell started them in the background, which ignores SIGINT."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep shares that commands store out of the user's own state folder."""
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("state")
        patch.setenv("XDG_STATE_HOME", str(home))
        yield home


@pytest.fixture(scope="session")
def servers() -> Iterator[LocalServers]:
    """Four local server processes, shared by all tests of a worker. A test that breaks servers starts its own."""
    with LocalServers(timeout=120, developer=True) as running:
        yield running


@pytest.fixture
def seats() -> LockstepServers:
    return LockstepServers()
