"""`ppca fit`: joint PCA of several owners' files on four local servers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from ..owner.tables.options import DEFAULTS, ReadOptions
from ..pages.amounts import counted
from .complaint import complaints, in_words, note
from .options import (
    ADDRESSES,
    COLUMNS,
    KINDS,
    RESULT,
    SERVERS,
    SOLVER,
    SOLVER_HELP,
    AsJson,
    ChosenColumns,
    Components,
    Dask,
    DaskAuthority,
    DaskCertificate,
    DaskKey,
    DroppedColumns,
    FoldCase,
    Force,
    IdColumns,
    Minimum,
    MinRows,
    Namespace,
    Quiet,
    ServersState,
    Standardize,
    Threads,
    Timeout,
    Tls,
    Vertical,
    Way,
    allowed_in,
    dask_in_use,
    names_in,
    partition_of,
    reading_options,
)
from .terminal import Terminal

if TYPE_CHECKING:
    from ..estimator.choices import Choices
    from ..estimator.fitting import Fitted
    from ..owner.tables.table import Table
    from ..servers import Servers

TITLE = "Joint PCA"
CHECK = "ppca check, with the same files and options, lists all problems of all files"
TWO_OWNERS = (
    "two owners: whoever has the result and one owner's rows can subtract that owner's part, and learns the number of rows, the "
    "means and the covariance of the other one"
)
"""What a result tells two owners of each other."""

LONG = 10.0
"""Seconds from which on a job's cost is told before it starts."""


@reading_options()
def fit(
    files: Annotated[list[str], typer.Argument(help=f"one table per owner: {KINDS}; {ADDRESSES}")],
    components: Components = "all",
    standardize: Standardize = False,
    columns: ChosenColumns = None,
    drop: DroppedColumns = None,
    read: ReadOptions = DEFAULTS,
    dask: Dask = None,
    dask_ca: DaskAuthority = None,
    dask_cert: DaskCertificate = None,
    dask_key: DaskKey = None,
    vertical: Vertical = False,
    id: IdColumns = None,
    alignment: Way = "psi",
    namespace: Namespace = None,
    fold_case: FoldCase = False,
    minimum: Minimum = 10,
    pieces: Annotated[
        int | None, typer.Option(min=1, help="row pieces of the covariance step", rich_help_panel=COLUMNS)
    ] = None,
    workers: Annotated[
        str,
        typer.Option(
            help="worker processes of every server, or 'dask': its operator's cluster; 0: the server itself",
            rich_help_panel=COLUMNS,
        ),
    ] = "0",
    solver: Annotated[str, typer.Option(help=SOLVER_HELP, rich_help_panel=SOLVER)] = "auto",
    tol: Annotated[
        float, typer.Option(help="where the eigensolver stops, relative to the matrix", rich_help_panel=SOLVER)
    ] = 1e-9,
    fixed_iterations: Annotated[
        int | None,
        typer.Option(min=1, help="run so many and open no convergence bits", rich_help_panel=SOLVER),
    ] = None,
    max_iterations: Annotated[
        int | None, typer.Option(min=1, help="give up after so many; then jacobi takes over", rich_help_panel=SOLVER)
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="folder for the result", rich_help_panel=RESULT)
    ] = Path("result"),
    keep: Annotated[
        bool,
        typer.Option(
            "--keep",
            help="servers keep the model's shares (see --servers-state), for transform and detect",
            rich_help_panel=RESULT,
        ),
    ] = False,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow",
            help="all that a kept model is for: transform,flags (default), scores, inverse; transform:2 for owner 2 only",
            rich_help_panel=RESULT,
        ),
    ] = None,
    reveal: Annotated[
        bool,
        typer.Option(
            "--reveal/--no-reveal",
            help="whether you receive the model; if not, only servers keep it",
            rich_help_panel=RESULT,
        ),
    ] = True,
    title: Annotated[str, typer.Option(help="title of the report", rich_help_panel=RESULT)] = TITLE,
    min_rows: MinRows = 10,
    profile: Annotated[
        bool, typer.Option("--profile", help="show where time and bytes went", rich_help_panel=RESULT)
    ] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    force: Force = False,
    tls: Tls = False,
    timeout: Timeout = 60.0,
    threads: Threads = None,
    servers_state: ServersState = None,
    federation: Annotated[
        Path | None,
        typer.Option(
            help="compute on the seats of this federation.toml, as owner of all files", rich_help_panel=SERVERS
        ),
    ] = None,
    identity: Annotated[
        Path, typer.Option(help="your key, with --federation", envvar="PPCA_IDENTITY", rich_help_panel=SERVERS)
    ] = Path("identity.key"),
) -> None:
    """Joint PCA of several owners' files, on four servers that this command starts on this machine.

    A file is opened once for its columns and once for its rows; only shares of its sums reach the servers. The result folder gets
    components.csv, explained_variance.csv, model.json and report.html, all of them or none. With --keep the servers
    keep the model in shares, one folder per server outside of the result, which gets shared.json with their name for it; with
    --no-reveal only that.

    With --dask the workers of a Dask cluster read the files and sum their rows, portion by portion; sums come back.

    With --vertical owners hold different columns of the same individuals, joined by --id; their rows reach the servers as shares.
    """
    with complaints(fit, CHECK), ExitStack() as work:
        count = component_count(components)

        from ..estimator.choices import Choices
        from ..owner.tables.owners import open_columns, open_rows, set_min_rows
        from ..servers import LocalServers
        from ..servers.cores import threads_for
        from .folder import check_free, whole_folder
        from .result import KNOWN, SHARED, write_result
        from .shares import erase, kept_as, new_name, state_folder

        check_free(output, KNOWN, replace=force)
        keep = keep or not reveal
        if allow and not keep:
            raise ValueError("--allow is about a model that servers keep: add --keep.")
        if federation is not None and keep:
            raise ValueError("seats keep a model for its owners, not for a command: ppca job new --keep-for.")
        state = state_folder(servers_state) if keep else None
        former = kept_as(output)
        choices = Choices(
            count,
            standardize,
            solver,
            tol,
            fixed_iterations,
            max_iterations,
            None if state is None else new_name(),
            reveal,
            allowed_in(allow),
            partition_of(id, alignment, namespace, fold_case, minimum, pieces, workers) if vertical else "rows",
        )
        if state is not None:
            work.callback(erase, state, str(choices.keep))
        check_together(vertical, id, namespace, columns, drop)
        read = replace(read, dask=dask is not None)
        taken, left = names_in(columns), names_in(drop)
        with dask_in_use(dask, dask_ca, dask_cert, dask_key):
            if vertical:
                tables = open_columns(files, id, columns=taken, drop=left, options=read)
            else:
                tables = open_rows(files, columns=taken, drop=left, options=read)
            set_min_rows(tables, min_rows)
            for text in [text for table in tables for text in table.notes] + notes_of(files):
                note(text, quiet=quiet)
            if len(tables) == 2 and reveal and not vertical:
                note(TWO_OWNERS, quiet=quiet)
            here = LocalServers(tls=tls, timeout=timeout, threads=threads or threads_for(4), state=state)
            servers = here if federation is None else seats_of(federation, identity)
            fitted = fit_shown(choices, tables, servers, quiet=quiet)
        where = None if federation is None else "the four seats of a federation"
        settings = settings_of(fitted, tls, columns="all" if columns is drop is None else None, servers=where)
        owners = [table.label for table in tables]
        with whole_folder(output, KNOWN, replace=force) as folder:
            if reveal:
                write_result(folder, fitted, title=title, settings=settings, owners=owners)
            if state is not None:
                fitted.facts.save(folder / SHARED)
        work.pop_all()  # the result is there, and with it what the servers keep
        if former is not None:
            erase(state or state_folder(servers_state), former)
        tell_dropped(tables, quiet)
        if fitted.by_columns is not None and fitted.by_columns.doubt is not None:
            note(in_words(fitted.by_columns.doubt, signature(fit).parameters), quiet=quiet)
        _show(fitted, owners, output, state, quiet=quiet, as_json=as_json, profile=profile)


def seats_of(federation: Path, identity: Path) -> Servers:
    """The seats of a federation, for who acts for all owners."""
    from ..member.servers import Federation

    return Federation.open(federation, identity)


def check_together(
    vertical: bool, id: Sequence[str] | None, namespace: int | None, columns: object, drop: object
) -> None:
    """Refuses options that do not go together."""
    if not vertical and (id or namespace is not None):
        raise ValueError("--id and --namespace are for owners of different columns: add --vertical.")
    if not vertical and columns and drop:
        raise ValueError("--columns and --drop exclude each other: name the columns to take, or those to leave out.")


def fit_shown(
    choices: Choices,
    tables: Sequence[Table],
    servers: Servers,
    *,
    quiet: bool = False,
) -> Fitted:
    """Fits with the progress in the terminal."""
    from ..estimator.fitting import fit_tables
    from ..estimator.forecast import forecast_of
    from ..estimator.job import Job
    from ..report import duration, size
    from .progress import stage_bars

    widths = [table.n_columns for table in tables]
    expected = forecast_of(choices, widths, [table.rows for table in tables])
    if expected is not None and expected.seconds > LONG:
        cost = f"about {duration(expected.seconds)} and {size(expected.bytes)} for every server"
        width = widths[0] if choices.partition == "rows" else sum(widths)
        note(f"{width:,} columns take {cost}, on a machine with two cores", quiet=quiet)
    with stage_bars(quiet=quiet) as show, Job(servers, show) as job:
        fitted = fit_tables(tables, choices, job)
    if not fitted.result["verified"]:
        reached = fitted.result["tolerance"]
        raise ValueError(
            "the check on shares failed: the decomposition is less accurate than --tol promises. Nothing was written. "
            + (f"The solver came to a residual below {reached:.0e} of the matrix. " if reached > choices.tol else "")
            + "Fit again with fewer components, a larger --tol, --standardize, without --fixed-iterations, or another --solver."
        )
    if choices.reveal and fitted.model.total_variance == 0:
        raise ValueError(
            f"no column varies: the joint variance of all {counted(fitted.width, 'column')} is 0 in "
            f"{counted(fitted.rows, 'row')}, so there are no components. Nothing was written. Check the files."
        )
    return fitted


def _show(
    fitted: Fitted,
    owners: Sequence[str],
    output: Path,
    state: Path | None,
    *,
    quiet: bool,
    as_json: bool,
    profile: bool,
) -> None:
    """What came out, on standard output."""
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

    reveal, keep = fitted.choices.reveal, fitted.choices.keep is not None
    if as_json:
        typer.echo(fit_summary(fitted, owners, output))
        return
    console = Terminal(quiet=quiet)
    if fitted.by_columns is not None:
        print_rows(console, owners, fitted.by_columns)
    if reveal:
        print_scree(console, fitted.model)
        if (notice := fitted.model.scale_notice()) is not None:
            note(f"{notice}: --standardize", quiet=quiet)
    print_openings(console, fitted.account)
    if profile:
        print_profile(console, fitted.account)
        print_kinds(console, fitted.account)
    print_account(console, fitted.model if reveal else fitted.facts, fitted.account)
    if not reveal:
        console.print("Nobody received the model: the servers keep it in shares, for ppca transform and ppca detect.")
    if state is not None:
        said = f"kept in shares: {state} (one folder per server); allowed: {', '.join(fitted.allowed)}. {NOTE}"
        console.print(Text(said), soft_wrap=True, highlight=False)
    written = [*(FILES if reveal else ()), *(KEPT if keep else ())]
    console.print(Text(f"written: {output} ({', '.join(written)})"), soft_wrap=True, highlight=False)


def settings_of(fitted: Fitted, tls: bool, **more: str | None) -> dict[str, Any]:
    """What was chosen, for the report."""
    from ..estimator.columns import Columns

    choices = fitted.choices
    settings: dict[str, Any] = {
        "components": "all" if choices.n_components is None else choices.n_components,
        "standardize": "yes" if choices.standardize else "no",
        "eigensolver": fitted.result["solver"],
        "tolerance": _tolerance(choices.tol, fitted.result["tolerance"]),
        "iterations": "until converged" if choices.fixed_iterations is None else f"{choices.fixed_iterations}, fixed",
        "columns": f"{fitted.width} chosen",
        "servers": "four processes on one machine" + (", mutual TLS" if tls else ", plain TCP"),
    }
    if isinstance(choices.partition, Columns):
        way = choices.partition
        ids = way.id if isinstance(way.id, str) else ", ".join(way.id or ["none"])
        settings |= {"partition": "by columns", "alignment": way.alignment, "id": ids}
    if fitted.mean_for_missing:
        whose = "joint mean of their column" if fitted.by_columns is None else "mean of their column at its owner"
        settings["missing values"] = f"count as the {whose}"
    return settings | {name: value for name, value in more.items() if value is not None}


def _tolerance(asked: float, reached: float) -> str:
    return f"{asked:g}" if reached <= asked else f"{reached:.1g} ({asked:g} was asked for, the solver did not reach it)"


def component_count(text: str) -> int | float | None:
    """What -k means: a number of components, a part of the variance, or (None) all."""
    if text == "all":
        return None
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    raise ValueError(f"-k {text}: give a whole number, a part of the variance between 0 and 1, or 'all'.")


def notes_of(files: Sequence[str]) -> list[str]:
    """What a user should know about the files: tables that are given twice."""
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
    """Tell how many rows were left out. The user of this command acts for all owners; no file or account has these numbers."""
    from ..owner.tables.reading import CompleteRows

    for table in tables:
        if isinstance(table, CompleteRows) and table.dropped:
            note(f"{table.label}: {table.dropped:,} rows with a missing value were left out", quiet=quiet)
