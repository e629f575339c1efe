"""Fixtures of a server: its admission, its admission, and the loop that serves it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.admission import LocalAdmission
from harness.federation import Loop, served
from harness.one_server import OneServer


@pytest.fixture(scope="module")
def loop() -> Iterator[Loop]:
    running = Loop()
    yield running
    running.close()


@pytest.fixture
def seat(tmp_path: Path, loop: Loop) -> Iterator[OneServer]:
    made = OneServer(tmp_path / "server", loop)
    with served(made.server_state, loop):
        yield made


@pytest.fixture
def admission(tmp_path: Path) -> LocalAdmission:
    return LocalAdmission(tmp_path)
