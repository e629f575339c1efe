"""Fixtures of a server: its admission, its door, and the loop that serves it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.admission import Door
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
def door(tmp_path: Path) -> Door:
    return Door(tmp_path)
