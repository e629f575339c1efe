"""`ppca fit`: joint PCA of several owners' files on four local servers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from ..html.formats import counted
from .draft import DRAFT, DraftOptions, draft_fit
from .errors import in_words, note
from .fit_options import Files, FitOptions
from .options import command
from .terminal import Terminal

if TYPE_CHECKING:
    from ..estimator.partition import ColumnFit, Columns
    from ..estimator.plan import Plan
    from ..owner.tables.table import Table
    from ..receiver.results import PCAResult
    from ..runtime import Servers

CHECK = "ppca check, with the same files and options, lists all problems of all files"
TWO_OWNERS = (
    "two owners: anyone with the result and one owner's rows can subtract that owner's part, and learns the number "
    "of rows, the means and the covariance of the other one"
)
"""Note on what a result reveals to two owners about each other."""

LONG = 10.0
"""Seconds from which on a job's cost is told before it starts."""


@command(CHECK)
def fit(
    files: Files,
    options: FitOptions,
    proposal: DraftOptions,
    draft: Annotated[
        Path | None,
        typer.Option(
            "--draft",
            help="Write this job.toml for the members of --federation, and compute nothing.",
            rich_help_panel=DRAFT,
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the job of --draft.", rich_help_panel=DRAFT)
    ] = None,
) -> None:
    """Fit a joint PCA to the tables of several owners, on four local servers.

    The servers see only secret shares: of each owner's row count, means and second moments; or of the rows themselves
    with --vertical or if there are more columns than rows. Each file is opened twice: for its columns, then for its
    rows.

    The result folder gets components.csv, explained_variance.csv, model.json and report.html, all or none. With --keep
    it also gets shared.json, which names the model on the servers; with --no-reveal it gets only shared.json.

    With --dask, the workers of a Dask cluster read the files and sum the rows in chunks. Only the sums return to this
    process.

    With --draft nothing is computed. The column names of the files and the options are written to a job.toml, as by
    ppca job new.

    With --vertical, owners hold different columns of the same individuals, joined by --id.
    """
    if draft is not None:
        draft_fit(files, options, proposal, name, draft)
        return
    proposal.check_unused()
    _fit_here(files, options)


def _fit_here(files: Sequence[str], options: FitOptions) -> None:
    """Fit, and write and show the result."""
    with ExitStack() as work:
        from .folder import whole_folder
        from .kept import scores_of
        from .result import KNOWN, SHARED, write_result
        from .shares import erase, kept_as, new_name, state_folder

        options.check()
        state = state_folder(options.servers_state) if options.keeps else None
        former = kept_as(options.output)
        plan = options.plan(options.partition(), None if state is None else new_name())
        if state is not None:
            work.callback(erase, state, str(plan.keep))
        quiet, reveal = options.quiet, options.reveal
        with options.dask_cluster():
            tables = options.tables(files)
            for text in [text for table in tables for text in table.notes] + notes_of(files):
                note(text, quiet=quiet)
            if len(tables) == 2 and reveal and not options.vertical:
                note(TWO_OWNERS, quiet=quiet)
            fitted, by_columns = fit_shown(plan, tables, options.servers(state), quiet=quiet)
        settings = settings_of(
            fitted,
            options.tls,
            id=id_names(plan.partition),
            columns="all" if options.columns is options.drop is None else None,
            servers=None if options.federation is None else "the four servers of a federation",
        )
        owners = [table.label for table in tables]
        with whole_folder(options.output, KNOWN, replace=options.force) as folder:
            if reveal:
                scores = scores_of(fitted.model, tables) if options.scores else None
                write_result(folder, fitted, title=options.title, settings=settings, owners=owners, scores=scores)
            if state is not None:
                fitted.facts.save(folder / SHARED)
        work.pop_all()  # the result is there, and with it what the servers keep
        if former is not None:
            erase(state or state_folder(options.servers_state), former)
        tell_dropped(tables, quiet)
        if by_columns is not None and by_columns.doubt is not None:
            note(in_words(by_columns.doubt, signature(fit).parameters), quiet=quiet)
        _show(fitted, by_columns, owners, options, state)


def fit_shown(
    plan: Plan,
    tables: Sequence[Table],
    servers: Servers,
    *,
    quiet: bool = False,
) -> tuple[PCAResult, ColumnFit | None]:
    """Fit with the progress in the terminal."""
    from ..estimator.fitting import fit_tables
    from ..estimator.forecast import forecast_of
    from ..estimator.job import Job
    from ..jobs.spec import MEAN
    from ..owner.contribute import missing_of
    from ..web.report import duration, size
    from .progress import stage_bars

    widths = [table.n_columns for table in tables]
    expected = forecast_of(plan, widths, [table.rows for table in tables], missing_of(tables) == MEAN)
    if expected is not None and expected.seconds > LONG:
        cost = f"about {duration(expected.seconds)} and {size(expected.bytes)} for every server"
        width = widths[0] if plan.partition == "rows" else sum(widths)
        note(f"{width:,} columns take {cost}, on a machine with two cores", quiet=quiet)
    with stage_bars(quiet=quiet) as show, Job(servers, show) as job:
        fitted, by_columns = fit_tables(tables, plan, job)
    if not fitted.values["verified"]:
        reached = fitted.values["tolerance"]
        raise ValueError(
            "the check on shares failed: the decomposition is less accurate than --tol promises. Nothing was written. "
            + (
                f"The solver came to a residual below {reached:.0e} of the matrix. "
                if reached > plan.analysis.tol
                else ""
            )
            + "Fit again without --fixed-iterations and --max-iterations, with fewer components, a larger --tol, "
            "--standardize, or another --solver."
        )
    if plan.reveal and fitted.model.total_variance == 0:
        raise ValueError(
            f"no column varies: the joint variance of all {counted(fitted.width, 'column')} is 0 in "
            f"{counted(fitted.rows, 'row')}, so there are no components. Nothing was written. Check the files."
        )
    return fitted, by_columns


def _show(
    fitted: PCAResult,
    by_columns: ColumnFit | None,
    owners: Sequence[str],
    options: FitOptions,
    state: Path | None,
) -> None:
    """Print the result on standard output."""
    from .result import (
        FILES,
        KEPT,
        fit_summary,
        print_account,
        print_kinds,
        print_openings,
        print_profile,
        print_rows,
        print_scree,
    )
    from .shares import NOTE

    reveal, keep = fitted.whole, fitted.kept is not None
    quiet = options.quiet
    if options.as_json:
        typer.echo(fit_summary(fitted, by_columns, owners, options.output))
        return
    console = Terminal(quiet=quiet)
    if by_columns is not None:
        print_rows(console, owners, by_columns)
    if reveal:
        print_scree(console, fitted.model)
        if (notice := fitted.model.scale_notice()) is not None:
            note(f"{notice}: --standardize", quiet=quiet)
    print_openings(console, fitted.account.audit)
    if options.profile:
        print_profile(console, fitted.account)
        print_kinds(console, fitted.account)
    print_account(console, fitted.model if reveal else fitted.facts, fitted.account)
    if not reveal:
        console.print(
            "This model was not revealed to anyone. The servers keep it as shares, for ppca transform and ppca detect."
        )
    if state is not None:
        said = f"kept in shares: {state} (one folder per server); allowed: {', '.join(fitted.allowed)}. {NOTE}"
        console.print(Text(said), soft_wrap=True, highlight=False)
    written = [*(FILES if reveal else ()), *(KEPT if keep else ())]
    console.print(Text(f"written: {options.output} ({', '.join(written)})"), soft_wrap=True, highlight=False)


def settings_of(fitted: PCAResult, tls: bool, *, id: str | None = None, **more: str | None) -> dict[str, Any]:
    """Return the chosen settings, for the report. id: names of id columns, see `id_names`."""
    analysis, data = fitted.analysis, fitted.job.data
    settings: dict[str, Any] = {
        "components": "all" if analysis.components is None else analysis.components,
        "standardize": "yes" if data.standardize else "no",
        "eigensolver": fitted.values["solver"],
        "tolerance": _tolerance(analysis.tol, fitted.values["tolerance"]),
        "iterations": "until converged" if analysis.fixed_iterations is None else f"{analysis.fixed_iterations}, fixed",
        "columns": f"{fitted.width} chosen",
        "servers": "four processes on one machine" + (", mutual TLS" if tls else ", plain TCP"),
    }
    if data.align is not None:
        settings |= {"partition": "by columns", "alignment": data.align.alignment}
        settings |= {} if id is None else {"id": id}
    if fitted.mean_for_missing:
        whose = "mean of their column at its owner" if data.by_columns else "joint mean of their column"
        settings["missing values"] = f"count as the {whose}"
    return settings | {name: value for name, value in more.items() if value is not None}


def id_names(partition: str | Columns) -> str | None:
    """Return the names of the id columns of a partition by columns, for the report."""
    if isinstance(partition, str):
        return None
    return partition.id if isinstance(partition.id, str) else ", ".join(partition.id or ["none"])


def _tolerance(asked: float, reached: float) -> str:
    return f"{asked:g}" if reached <= asked else f"{reached:.1g} ({asked:g} was asked for, the solver did not reach it)"


def notes_of(files: Sequence[str]) -> list[str]:
    """Return notes about the files: tables that are given twice."""
    from ..owner.tables.addresses import is_address, local_path
    from ..owner.tables.files import copies

    places = [file if is_address(file) else str(local_path(file).resolve()) for file in files]
    twice = sorted({Path(file).name for file, place in zip(files, places, strict=True) if places.count(place) > 1})
    notes = [f"{name} is given more than once: its rows count each time" for name in twice]
    local = [Path(place) for place in dict.fromkeys(places) if Path(place).is_file()]
    return notes + [
        f"{one.name} and {other.name} hold the same bytes: their rows count twice" for one, other in copies(local)
    ]


def tell_dropped(tables: Sequence[Table], quiet: bool) -> None:
    """Tell how many rows were left out. The user of this command acts for all owners; no file or account has these
    numbers."""
    from ..owner.tables.reading import CompleteRows

    for table in tables:
        if isinstance(table, CompleteRows) and table.dropped:
            note(f"{table.label}: {counted(table.dropped, 'row')} with a missing value left out", quiet=quiet)
