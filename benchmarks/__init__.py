"""Measurements that anyone can repeat: each is a command of `ppca bench`, prints a table and writes JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def table_console() -> Console:
    """A console for wide tables: the terminal as it is, or 150 columns where the output goes to a file."""
    from rich.console import Console  # here: peers run in environments that do not have it

    console = Console()
    return console if console.is_terminal else Console(width=150)
