"""Fixtures for all tests, hypothesis profiles, and the check that a test which starts a process has the mark `processes`."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from harness.lockstep import LockstepServers
from ppca.runtime import LocalServers
from ppca.transport import ports as port_module

# In CI the examples are the same in every run: a change fails for what it changes. Other runs look for new examples.
REPEATED = bool(os.environ.get("CI"))
# A loaded machine makes examples slowly: no limit depends on time.
COMMON: dict[str, Any] = {
    "deadline": None,
    "derandomize": REPEATED,
    "suppress_health_check": [HealthCheck.too_slow],
}
settings.register_profile("fast", max_examples=30, **COMMON)
settings.register_profile("thorough", max_examples=1000, **COMMON)
settings.load_profile("fast")

STARTING = {"subprocess.Popen", "os.fork", "os.posix_spawn", "os.system"}
_unmarked = ""  # id of the running test, if it must not start processes


@pytest.hookimpl(optionalhook=True)  # tests run without xdist, too
def pytest_xdist_auto_num_workers() -> int:
    """Start one worker more than there are cores. Tests wait for timers and processes in about a fifth of their time."""
    return len(os.sched_getaffinity(0)) + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that use local servers. Put files that start processes first: they are slow, and fast ones fill the gaps."""
    for item in items:
        if "servers" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.processes)
    slow = {item.path for item in items if item.get_closest_marker("processes")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    global _unmarked
    _unmarked = "" if item.get_closest_marker("processes") else item.nodeid
    try:
        return (yield)
    finally:
        _unmarked = ""


def _check_start(event: str, arguments: Any) -> None:
    if _unmarked and event in STARTING and arguments[0] != "uname":  # platform.processor
        raise RuntimeError(f"{_unmarked} starts a process: {str(arguments)[:200]}. Mark it with pytest.mark.processes.")


def _start(process: BaseProcess) -> None:
    _check_start("os.fork", (process,))  # multiprocessing raises no audit event
    _start_process(process)


sys.addaudithook(_check_start)
_start_process, BaseProcess.start = BaseProcess.start, _start  # type: ignore[method-assign]


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


@pytest.fixture(autouse=True, scope="session")
def ports() -> Iterator[None]:
    """Give each worker its own ports, also beside other runs of the tests: no one binds one between `free_ports` and its use."""
    slices = 40
    with ExitStack() as held, pytest.MonkeyPatch.context() as patch:
        for number in range(slices):
            lock = held.enter_context(Path(tempfile.gettempdir(), f"ppca-tests-{os.getuid()}-{number}.lock").open("w"))
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
        else:
            number = os.getpid() % slices  # more workers than slices: shared with another one
        patch.setattr(port_module, "FREE_PORT_RANGE", port_module.FREE_PORT_RANGE[number::slices])
        yield


@pytest.fixture(scope="session")
def servers() -> Iterator[LocalServers]:
    """Four local server processes, shared by all tests of a worker. A test that breaks servers starts its own."""
    with LocalServers(timeout=120, developer=True) as running:
        yield running


@pytest.fixture
def lockstep_servers() -> LockstepServers:
    return LockstepServers()
