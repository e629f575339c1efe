"""A joint PCA on four local servers with its progress shown: owners' passes first, then the stages of the computation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from ..estimator import PCA
from ..owner import Moments, Source, moments
from ..owner.columns import read_owners
from ..report import combined
from ..servers import Account, LocalServers
from ..servers.programs import Program
from .complaint import printable

STAGES = ("servers", "survey", "upload", "second moments", "covariance", "eigendecomposition", "sort", "result")
"""What is shown, in this order; a stage begins when the servers first speak of it, and ends the ones before."""


class LazyCluster(LocalServers):
    """Starts its servers at the first run, so that refused parameters cost nothing; keeps the account of every run."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.runs: list[Account] = []

    def __enter__(self) -> Self:
        return self

    def run(self, program: Program | str, /, *secret: Any, progress: Any = None, **public: Any) -> Any:
        if not self.runs:
            if progress is not None:
                progress("servers", None, 0)
            self.start()
            if progress is not None:
                progress("survey", None, 0)
        result = super().run(program, *secret, progress=progress, **public)
        assert self.report is not None
        self.runs.append(self.report)
        return result


def fit_jointly(
    pca: PCA,
    sources: Sequence[Source],
    console: Console,
    *,
    tls: bool = False,
    timeout: float = 60.0,
    state: Path | None = None,
) -> Account:
    """Fits `pca` on the owners' tables and returns the account of the whole job.

    Parameters are checked first, then every table is read once, then four servers are started.
    state: the folder in which the servers keep shares.
    """
    pca.check_parameters(sources[0].n_columns)
    with progress_bars(console) as bars, LazyCluster(tls=tls, timeout=timeout, state=state) as servers:
        sums = [_pass(source, bars) for source in sources]
        _shown(pca, servers, bars, lambda show: pca.fit_moments(sums, progress=show))
        return combined(servers.runs)


def fit_vertically(
    pca: PCA,
    files: Sequence[Path],
    console: Console,
    *,
    labels: Sequence[str],
    columns: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
    tls: bool = False,
    timeout: float = 60.0,
    state: Path | None = None,
) -> Account:
    """The same for owners of different columns of the same individuals (`pca` has partition="columns")."""
    with progress_bars(console) as bars, LazyCluster(tls=tls, timeout=timeout, state=state) as servers:
        task = bars.add_task("owners read their tables", total=None, detail="")
        tables = read_owners(files, pca.id, columns=columns, drop=drop, labels=labels)
        bars.update(task, total=1, completed=1, detail=f"{sum(table.values.shape[1] for table in tables)} columns")
        _shown(pca, servers, bars, lambda show: pca.fit_tables(tables, progress=show))
        report: Account = pca.report_
        return report


def _shown(pca: PCA, servers: LazyCluster, bars: Progress, fit: Callable[[StageBars], Any]) -> None:
    """Runs a fit on the servers with a line per stage."""
    shown = StageBars(bars, servers)
    pca.set_params(servers=servers)
    try:
        fit(shown)
    finally:
        pca.set_params(servers=None)
    shown.finish()


def progress_bars(console: Console) -> Progress:
    return Progress(
        SpinnerColumn(finished_text="[green]✓[/]"),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[detail]}", style="dim"),
        TimeElapsedColumn(),
        console=console,
    )


def _pass(source: Source, bars: Progress) -> Moments:
    """One owner's pass over its table; the number of rows may be known only at the end."""
    label = str(Text(printable(source.label, 30)).markup)
    task = bars.add_task(f"owner {label}", total=source.rows, detail="")

    def show(done: int, total: int | None) -> None:
        bars.update(task, completed=done, total=total, detail=f"{done:,} rows")

    sums = moments(source, progress=show)
    bars.update(task, completed=sums.count, total=sums.count, detail=f"{sums.count:,} rows")
    return sums


class StageBars:
    """One line per stage; called with what the servers say of their progress."""

    def __init__(self, bars: Progress, servers: LazyCluster) -> None:
        self.bars = bars
        self.servers = servers
        self.tasks: dict[str, TaskID] = {}

    def __call__(self, text: str, fraction: float | None, rounds: int) -> None:
        stage, _, step = text.partition(", ")
        if stage not in self.tasks:
            self.finish()
            self.tasks[stage] = self.bars.add_task(stage, total=None, detail="")
        before = sum(run.rounds for run in self.servers.runs)
        detail = ", ".join(part for part in (step, f"{before + rounds:,} rounds" if before + rounds else "") if part)
        known = fraction is not None and fraction > 0
        self.bars.update(self.tasks[stage], total=1.0 if known else None, completed=fraction or 0.0, detail=detail)

    def finish(self) -> None:
        """All stages shown so far are over."""
        for task in self.tasks.values():
            self.bars.update(task, total=1.0, completed=1.0)
