"""Progress on standard error: bars in a terminal, plain lines in a file or a log, nothing if asked to be quiet."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from ..html.formats import counted
from ..runtime.servers import Progress as ProgressCallback
from .errors import printable
from .terminal import Terminal

EVERY = 10.0
"""Seconds between two plain lines of one stage."""


class StageBars:
    """Called with what is being done: the stage, a comma, the step. A stage that begins ends the ones before."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, text: str, fraction: float | None, rounds: int) -> None:
        stage, _, step = text.partition(", ")
        if stage not in self._tasks:
            self.finish()
            self._tasks[stage] = self._bars.add_task(escape(printable(stage)), total=None, detail="")
        detail = ", ".join(
            part for part in (escape(printable(step)), counted(rounds, "round") if rounds else "") if part
        )
        known = fraction is not None and fraction > 0
        self._bars.update(self._tasks[stage], total=1.0 if known else None, completed=fraction or 0.0, detail=detail)

    def finish(self) -> None:
        """All stages shown so far are over."""
        for task in self._tasks.values():
            self._bars.update(task, total=1.0, completed=1.0)


class StageLines:
    """The same as lines: one when a stage begins, and one now and then while it lasts."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._stage, self._said = "", 0.0

    def __call__(self, text: str, fraction: float | None, rounds: int) -> None:
        stage, now = text.partition(", ")[0], time.monotonic()
        if stage == self._stage and now < self._said + EVERY:
            return
        done = f" {fraction:.0%}" if fraction else ""
        after = f" ({counted(rounds, 'round')})" if rounds else ""
        self._console.print(f"{printable(text)}{done}{after}", markup=False, highlight=False, soft_wrap=True)
        self._stage, self._said = stage, now


@contextmanager
def stage_bars(*, quiet: bool = False) -> Iterator[ProgressCallback]:
    """Lines on standard error while a job runs; they stay when it is done."""
    console = Terminal(stderr=True, quiet=quiet)
    if quiet or not console.is_terminal:
        yield StageLines(console)
        return
    plain = console.options.ascii_only
    columns = (
        SpinnerColumn("line" if plain else "dots", finished_text="[green]✓[/]"),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[detail]}", style="dim"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as bars:
        shown = StageBars(bars)
        yield shown
        shown.finish()
