"""A fitted model as files, and as tables in the terminal."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console, Group
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ..html.formats import counted
from ..receiver import PCAModel, SharedFacts
from ..receiver.angles import DETERMINED
from ..receiver.model import MODEL_FILE
from ..runtime import Account
from ..web.report import (
    angle_error,
    below_resolution,
    duration,
    kind_lines,
    opening_lines,
    percent,
    size,
    stage_lines,
    write_report,
)
from .errors import printable

if TYPE_CHECKING:
    from ..estimator.partition import ColumnFit
    from ..receiver.results import PCAResult

COMPONENTS, VARIANCE, MODEL, REPORT = "components.csv", "explained_variance.csv", MODEL_FILE, "report.html"
FILES = (COMPONENTS, VARIANCE, MODEL, REPORT)

SHARED = "shared.json"
KEPT = (SHARED,)
"""Files that a fit with --keep adds: the public facts of the kept model. `shares` manages its shares."""

KNOWN = (*FILES, *KEPT)

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""First characters of a cell that spreadsheets interpret as a formula."""

BAR_WIDTH = 20
MAX_LINES = 20
STRONGEST = 5


def write_result(
    folder: Path,
    fitted: PCAResult,
    *,
    title: str,
    settings: dict[str, Any],
    owners: Sequence[str],
    scores: dict[str, NDArray[np.float64]] | None = None,
) -> None:
    """Write the four files of a result. Numbers carry all digits. scores: coordinates of rows for the report."""
    model = fitted.model
    with (folder / COMPONENTS).open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(csv_names(model.column_names))
        table.writerows(model.components.tolist())
    with (folder / VARIANCE).open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        heads = ["explained_variance", "explained_variance_ratio", "cumulative_ratio", "singular_value"]
        table.writerow(["component", *heads, "component_error", "resolved"])
        ratios = model.explained_variance_ratio
        columns = [
            model.explained_variance,
            ratios,
            np.cumsum(ratios),
            model.singular_values,
            model.component_error,
        ]
        for i, values in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
            table.writerow([i + 1, *values, int(model.resolved[i])])
    model.save(folder / MODEL)
    by_columns = fitted.job.data.by_columns
    write_report(
        folder / REPORT,
        model,
        fitted.account,
        title=title,
        settings=settings,
        owners=owners,
        by_columns=by_columns,
        scores=scores,
    )


def csv_names(names: Iterable[str]) -> list[str]:
    """Column names for a CSV file. A spreadsheet would run a name that begins like a formula: it gets an apostrophe in
    front."""
    return [f"'{name}" if name.startswith(FORMULA) else name for name in names]


def fit_summary(fitted: PCAResult, columns: ColumnFit | None, owners: Sequence[str], output: Path) -> str:
    """Return the output of `ppca fit --json`."""
    result, account = fitted.values, fitted.account
    summary: dict[str, Any] = {
        "rows": fitted.rows,
        "columns": fitted.names or fitted.width,
        "owners": list(owners),
        "components": fitted.count,
        "solver": result["solver"],
        "iterations": result["iterations"],
        "verified": result["verified"],
        "fell_back": result["fell_back"],
        "tolerance": result["tolerance"],
    }
    if columns is not None:
        summary["rows_of_owners"] = columns.rows_of_owners
    if fitted.whole:
        model = fitted.model
        summary["explained_variance"] = model.explained_variance.tolist()
        summary["explained_variance_ratio"] = model.explained_variance_ratio.tolist()
        summary["total_variance"] = model.total_variance
        summary["resolution"] = model.resolution
        summary["component_error"] = model.component_error.tolist()
        summary["spaces"] = model.spaces
        summary["noise_variance"] = model.noise_variance
        summary["noise_resolved"] = model.noise_resolved
    return json.dumps(summary | account_summary(account) | {"written": str(output)}, indent=1)


def account_summary(account: Account) -> dict[str, Any]:
    """Openings and traffic of a job, for JSON."""
    return {
        "openings": account.audit,
        "rounds": account.rounds,
        "bytes_sent": list(account.bytes_sent),
        "seconds": account.seconds,
    }


def print_rows(console: Console, owners: Sequence[str], found: ColumnFit) -> None:
    """Print the numbers of rows that each owner uploaded and that all have. The servers saw both."""
    each = ", ".join(f"{printable(owner)} {rows:,}" for owner, rows in zip(owners, found.rows_of_owners, strict=True))
    text = f"rows: {each}; {found.result['rows']:,} common to all"
    console.print(Text(text), soft_wrap=True)


def print_scree(console: Console, model: PCAModel) -> None:
    table = Table(title="Explained variance", title_justify="left")
    for heading in ("component", "variance", "ratio", "cumulative", "error"):
        table.add_column(heading, justify="right")
    table.add_column("", width=BAR_WIDTH)
    sums = np.cumsum(model.explained_variance_ratio)
    noise = below_resolution(model.resolution, model.total_variance)
    values = zip(model.explained_variance.tolist(), model.explained_variance_ratio.tolist(), sums.tolist(), strict=True)
    for i, (variance, ratio, total) in enumerate(values):
        if i == MAX_LINES:
            left = len(sums) - MAX_LINES
            table.add_row("…", f"{left} more", "", percent(float(sums[-1])), "", _bar(float(sums[-1])))
            break
        digits = (f"{variance:.6g}", percent(ratio)) if model.varies[i] else noise
        table.add_row(str(i + 1), *digits, percent(total), _error(model, i), _bar(total))
    console.print(table)
    console.print("error: a bound of the angle between a component and the exact one", highlight=False, soft_wrap=True)
    for remark in model.remarks():
        console.print(Text(remark), soft_wrap=True)
    if not model.noise_resolved:
        below = below_resolution(model.resolution, model.total_variance)[0]
        console.print(f"noise variance {below}: below the resolution", highlight=False, soft_wrap=True)


def _error(model: PCAModel, i: int) -> str:
    """The bound of the angle of a component, if that is determined."""
    return angle_error(float(model.component_error[i])) if model.resolved[i] else f"> {DETERMINED:g}"


def _bar(fraction: float) -> ProgressBar:
    return ProgressBar(total=1.0, completed=min(1.0, fraction), width=BAR_WIDTH, finished_style="bar.complete")


def print_openings(console: Console, audit: Sequence[dict[str, Any]]) -> None:
    table = Table("opened", "shape", "seen by", "why", title="Everything that was opened", title_justify="left")
    for line in opening_lines(audit):
        times = f" ({line.count} times)" if line.count > 1 else ""
        texts = (printable(line.what, 400) + times, line.shape_text, printable(line.to), printable(line.why, 400))
        table.add_row(*map(Text, texts))
    console.print(table if audit else "Nothing was opened.")


def print_account(console: Console, model: PCAModel | SharedFacts, run: Account) -> None:
    """Print iterations of the solver and traffic, in two lines."""
    console.print(Text(solver_text(model)), soft_wrap=True)
    print_traffic(console, run)


def print_traffic(console: Console, run: Account) -> None:
    sent = size(max(run.bytes_sent))
    console.print(
        f"{run.rounds:,} rounds, {sent} sent by the busiest server, {duration(run.seconds)} on the servers",
        highlight=False,
    )


def solver_text(model: PCAModel | SharedFacts) -> str:
    verified = "VERIFICATION FAILED: less accurate than promised"
    if model.verified:
        verified = f"verified on shares with a tolerance of {model.tolerance:.1g}"
    text = f"eigensolver {model.solver}: {model.iterations} iterations, {verified}"
    return f"{text}, after falling back to another solver" if model.fell_back else text


def print_profile(console: Console, run: Account) -> None:
    """Print the time of each stage, as mean of the four servers."""
    table = Table(title="Profile", title_justify="left")
    table.add_column("stage")
    for heading in (
        "rounds",
        "sent",
        "time",
        "ring products",
        "key making, evaluation",
        "network and waiting",
        "other",
    ):
        table.add_column(heading, justify="right")
    lines = stage_lines(run)
    for line in lines:
        other = max(0.0, line.elapsed - line.products - line.fss - line.waited)
        times = (line.elapsed, line.products, line.fss, line.waited, other)
        table.add_row(line.name, f"{line.rounds:,}", size(line.sent), *map(duration, times))
    table.add_section()
    sums = [sum(getattr(line, kind) for line in lines) for kind in ("elapsed", "products", "fss", "waited")]
    other = max(0.0, sums[0] - sum(sums[1:]))
    total = [duration(seconds) for seconds in (*sums, other)]
    table.add_row("total", f"{run.rounds:,}", size(max(run.bytes_sent)), *total)
    table.add_row("", "", "", "", *(percent(seconds / sums[0]) if sums[0] else "" for seconds in (*sums[1:], other)))
    note = "means of the four servers; with fewer cores than servers, waiting includes the others' turns to compute"
    console.print(Group(table, Text(note, style="dim")), soft_wrap=True)


def print_kinds(console: Console, run: Account) -> None:
    """Print the bytes of the busiest server by stage and kind of message."""
    table = Table(title="Bytes by kind of message", title_justify="left")
    for heading in ("stage", "kind", "sent", "part"):
        table.add_column(heading, justify="right" if heading in ("sent", "part") else "left")
    total, stage = max(run.bytes_sent), ""
    for line in kind_lines(run):
        table.add_row("" if line.stage == stage else line.stage, line.kind, size(line.sent), percent(line.sent / total))
        stage = line.stage
    console.print(table)


def print_loadings(console: Console, model: PCAModel, most: int = STRONGEST) -> None:
    """The strongest columns of each component."""
    names = model.column_names
    table = Table("component", "strongest columns", title="Loadings", title_justify="left")
    for i, component in enumerate(model.components[:MAX_LINES]):
        order = np.argsort(-np.abs(component), kind="stable")[:most].tolist()
        text = ", ".join(f"{printable(names[j])} {component[j]:+.3f}" for j in order)
        table.add_row(str(i + 1), Text(text))
    console.print(table)


def print_facts(console: Console, model: PCAModel) -> None:
    kept, width = model.components.shape
    what = "correlation (standardised columns)" if model.scale is not None else "covariance"
    console.print(
        f"PCA of the {what} of {model.rows:,} rows and {width} columns: {counted(kept, 'component')}, "
        f"{percent(float(model.explained_variance_ratio.sum()))} of the variance",
        highlight=False,
        soft_wrap=True,
    )
