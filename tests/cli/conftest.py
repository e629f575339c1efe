"""Fixtures of commands."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.commands import in_lockstep


@pytest.fixture
def lockstep_commands() -> Iterator[None]:
    """Commands use servers in lock-step."""
    with in_lockstep():
        yield
