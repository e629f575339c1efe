"""`ppca fit`: joint PCA of several owners' files on four local servers."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from .complaint import complaints, printable
from .options import (
    COLUMNS,
    KINDS,
    RESULT,
    SOLVER,
    TABLES,
    FoldCase,
    Force,
    IdColumn,
    Namespace,
    ServersState,
    Timeout,
    Tls,
    Way,
    allowed_in,
    names_in,
    partition_of,
)

if TYPE_CHECKING:
    from ..estimator.pca import PCA
    from ..owner.tables.table import Table

TITLE = "Joint PCA"


def fit(
    files: Annotated[list[Path], typer.Argument(help=f"one table per owner: {KINDS}")],
    components: Annotated[
        str,
        typer.Option("--components", "-k", help="how many; or the part of the variance to explain, as 0.95; or 'all'"),
    ] = "all",
    standardize: Annotated[
        bool, typer.Option("--standardize", help="divide columns by their joint deviation (correlation)")
    ] = False,
    columns: Annotated[
        list[str] | None,
        typer.Option("--columns", help="columns to take: a,b,c; may be repeated", rich_help_panel=TABLES),
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option("--drop", help="columns to leave out: a,b,c; may be repeated", rich_help_panel=TABLES),
    ] = None,
    vertical: Annotated[
        bool,
        typer.Option(
            "--vertical", help="owners hold different columns of the same individuals", rich_help_panel=COLUMNS
        ),
    ] = False,
    id_column: IdColumn = None,
    alignment: Way = "psi",
    namespace: Namespace = None,
    fold_case: FoldCase = False,
    minimum: Annotated[
        int, typer.Option(min=1, help="stop if fewer ids are common to all owners", rich_help_panel=COLUMNS)
    ] = 10,
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
    solver: Annotated[str, typer.Option(help="eigensolver", rich_help_panel=SOLVER)] = "allpairs",
    tol: Annotated[
        float, typer.Option(help="where the eigensolver stops, relative to the matrix", rich_help_panel=SOLVER)
    ] = 1e-6,
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
    profile: Annotated[
        bool, typer.Option("--profile", help="show where the time went", rich_help_panel=RESULT)
    ] = False,
    force: Force = False,
    tls: Tls = False,
    timeout: Timeout = 60.0,
    servers_state: ServersState = None,
) -> None:
    """Joint PCA of several owners' files, on four servers that this command starts on this machine.

    A file is opened once for its columns and once for its rows; only shares of its sums reach the servers. The result folder gets
    components.csv, explained_variance.csv, model.json and report.html, all of them or none. With --keep the servers
    keep the model in shares, one folder per server outside of the result, which gets shared.json with their name for it; with
    --no-reveal only that.

    With --vertical owners hold different columns of the same individuals, joined by --id; their rows reach the servers as shares.
    """
    with complaints(), ExitStack() as work:
        count = component_count(components)

        from ..estimator.pca import PCA
        from ..owner.tables.opening import open_columns, open_rows
        from .folder import check_free, whole_folder
        from .result import (
            FILES,
            KEPT,
            KNOWN,
            SHARED,
            print_account,
            print_openings,
            print_profile,
            print_scree,
            write_result,
        )
        from .shares import NOTE, erase, kept_as, new_name, state_folder

        check_free(output, KNOWN, replace=force)
        keep = keep or not reveal
        if allow and not keep:
            raise ValueError("--allow is about a model that servers keep: add --keep.")
        state = state_folder(servers_state) if keep else None
        former = kept_as(output)
        pca = PCA(
            count,
            standardize=standardize,
            solver=solver,
            tol=tol,
            fixed_iterations=fixed_iterations,
            max_iterations=max_iterations,
            keep=None if state is None else new_name(),
            allow=allowed_in(allow),
            reveal=reveal,
        )
        if state is not None:
            work.callback(erase, state, str(pca.keep))
        if vertical:
            pca.partition = partition_of(id_column, alignment, namespace, fold_case, minimum, pieces, workers)
            tables = open_columns(files, id_column, columns=names_in(columns), drop=names_in(drop))
        else:
            if id_column is not None or namespace is not None:
                raise ValueError("--id and --namespace are for owners of different columns: add --vertical.")
            if columns and drop:
                raise ValueError(
                    "--columns and --drop exclude each other: name the columns to take, or those to leave out."
                )
            tables = open_rows(files, columns=names_in(columns), drop=names_in(drop))
        _print_notes(files, tables)
        fit_shown(pca, tables, tls=tls, timeout=timeout, state=state)
        settings = settings_of(pca, tls, columns="all" if columns is drop is None else None)
        with whole_folder(output, KNOWN, replace=force) as folder:
            if reveal:
                owners = [table.label for table in tables]
                write_result(folder, pca.model_, pca.account_, title=title, settings=settings, owners=owners)
            if state is not None:
                pca.shared_facts().save(folder / SHARED)
        work.pop_all()  # the result is there, and with it what the servers keep
        if former is not None:
            erase(state or state_folder(servers_state), former)
        console = Console()
        if reveal:
            print_scree(console, pca.model_)
        print_openings(console, pca.account_)
        if profile:
            print_profile(console, pca.account_)
        print_account(console, pca.model_ if reveal else pca.shared_facts(), pca.account_)
        if not reveal:
            console.print(
                "Nobody received the model: the servers keep it in shares, for ppca transform and ppca detect."
            )
        if state is not None:
            said = f"kept in shares: {state} (one folder per server); allowed: {', '.join(pca.allowed_)}. {NOTE}"
            console.print(Text(said), soft_wrap=True, highlight=False)
        written = [*(FILES if reveal else ()), *(KEPT if keep else ())]
        console.print(Text(f"written: {output} ({', '.join(written)})"), soft_wrap=True, highlight=False)


def fit_shown(pca: PCA, owners: Any, *, tls: bool, timeout: float = 60.0, state: Path | None = None) -> None:
    """Fits on four local servers with the progress in the terminal. `state`: the folder in which the servers keep shares."""
    from ..servers import LocalServers
    from .progress import stage_bars

    pca.servers = LocalServers(tls=tls, timeout=timeout, state=state)
    with stage_bars() as show:
        pca.fit(owners, progress=show)
    if not pca.verified_:
        raise ValueError(
            "the check on shares failed: the decomposition is less accurate than --tol promises. Nothing was written. "
            "Fit again with a larger --tol, without --fixed-iterations, or with --solver jacobi."
        )


def settings_of(pca: PCA, tls: bool, **more: str | None) -> dict[str, Any]:
    """What was chosen, for the report."""
    from ..estimator.columns import Columns

    settings: dict[str, Any] = {
        "components": "all" if pca.n_components is None else pca.n_components,
        "standardize": "yes" if pca.standardize else "no",
        "eigensolver": pca.solver,
        "tolerance": f"{pca.tol:g}",
        "iterations": "until converged" if pca.fixed_iterations is None else f"{pca.fixed_iterations}, fixed",
        "columns": f"{pca.n_features_in_} chosen",
        "servers": "four processes on one machine" + (", mutual TLS" if tls else ", plain TCP"),
    }
    if isinstance(pca.partition, Columns):
        way = pca.partition
        settings |= {"partition": "by columns", "alignment": way.alignment, "id": way.id or "none"}
    return settings | {name: value for name, value in more.items() if value is not None}


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


def _print_notes(files: list[Path], tables: list[Table]) -> None:
    """What a user should know of the tables before they are read."""
    places = [path.resolve() for path in files]
    twice = sorted({path.name for path, place in zip(files, places, strict=True) if places.count(place) > 1})
    notes = [note for table in tables for note in table.notes if note]
    for note in notes + [f"{name} is given more than once: its rows count each time" for name in twice]:
        line = Text.assemble(("note: ", "yellow"), printable(note, 400))
        Console(stderr=True).print(line, soft_wrap=True, highlight=False)
