"""Progress in the terminal: one line per stage of a job."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from .complaint import printable


class StageBars:
    """Called with what is being done: the stage, a comma, the step. A stage that begins ends the ones before."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, text: str, fraction: float | None, rounds: int) -> None:
        stage, _, step = text.partition(", ")
        if stage not in self._tasks:
            self.finish()
            self._tasks[stage] = self._bars.add_task(stage, total=None, detail="")
        detail = ", ".join(part for part in (escape(printable(step)), f"{rounds:,} rounds" if rounds else "") if part)
        known = fraction is not None and fraction > 0
        self._bars.update(self._tasks[stage], total=1.0 if known else None, completed=fraction or 0.0, detail=detail)

    def finish(self) -> None:
        """All stages shown so far are over."""
        for task in self._tasks.values():
            self._bars.update(task, total=1.0, completed=1.0)


@contextmanager
def stage_bars() -> Iterator[StageBars]:
    """Lines on standard error while a job runs; they stay when it is done."""
    columns = (
        SpinnerColumn(finished_text="[green]✓[/]"),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[detail]}", style="dim"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bars:
        shown = StageBars(bars)
        yield shown
        shown.finish()
