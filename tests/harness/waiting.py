"""Waiting for other threads and processes. The limit is reached only if a test fails, so it is generous."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

PATIENCE = 120.0
"""Seconds. A machine that is loaded ten times needs less for every single step of a test in `make test`."""

STEP = 0.02


def until(fact: Callable[[], object], what: str = "it did not happen") -> None:
    """Wait until `fact` is true."""
    deadline = time.monotonic() + PATIENCE
    while not fact():
        assert time.monotonic() < deadline, what
        time.sleep(STEP)


async def eventually(fact: Callable[[], object], what: str = "it did not happen") -> None:
    """`until` for code in an event loop."""
    deadline = time.monotonic() + PATIENCE
    while not fact():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(STEP)
