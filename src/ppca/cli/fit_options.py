"""The options of `ppca fit`, which `ppca check` has too, and what they mean together."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_type_hints

import typer

from ..owner.tables.options import DEFAULTS, ReadOptions
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
    component_count,
    dask_in_use,
    names_in,
    partition_of,
    reading_options,
)

if TYPE_CHECKING:
    from ..estimator.choices import Choices
    from ..estimator.columns import Columns
    from ..owner.tables.owners import Collect
    from ..owner.tables.table import Table
    from ..servers import Servers

TITLE = "Joint PCA"
Files = Annotated[list[str], typer.Argument(help=f"one table per owner: {KINDS}; {ADDRESSES}")]


@dataclass(frozen=True)
class FitOptions:
    """One field per option. Methods raise ValueError for what a fit would refuse; none of them writes a file."""

    components: Components = "all"
    standardize: Standardize = False
    columns: ChosenColumns = None
    drop: DroppedColumns = None
    read: ReadOptions = DEFAULTS
    dask: Dask = None
    dask_ca: DaskAuthority = None
    dask_cert: DaskCertificate = None
    dask_key: DaskKey = None
    vertical: Vertical = False
    id: IdColumns = None
    alignment: Way = "psi"
    namespace: Namespace = None
    fold_case: FoldCase = False
    minimum: Minimum = 10
    pieces: Annotated[
        int | None, typer.Option(min=1, help="row pieces of the covariance step", rich_help_panel=COLUMNS)
    ] = None
    workers: Annotated[
        str,
        typer.Option(
            help="worker processes of every server, or 'dask': its operator's cluster; 0: the server itself",
            rich_help_panel=COLUMNS,
        ),
    ] = "0"
    solver: Annotated[str, typer.Option(help=SOLVER_HELP, rich_help_panel=SOLVER)] = "auto"
    tol: Annotated[
        float, typer.Option(help="where the eigensolver stops, relative to the matrix", rich_help_panel=SOLVER)
    ] = 1e-9
    fixed_iterations: Annotated[
        int | None,
        typer.Option(
            min=1, help="run exactly this many iterations and open no convergence bits", rich_help_panel=SOLVER
        ),
    ] = None
    max_iterations: Annotated[
        int | None,
        typer.Option(min=1, help="maximum iterations before falling back to jacobi", rich_help_panel=SOLVER),
    ] = None
    output: Annotated[Path, typer.Option("--output", "-o", help="folder for the result", rich_help_panel=RESULT)] = (
        Path("result")
    )
    keep: Annotated[
        bool,
        typer.Option(
            "--keep",
            help="servers keep the model's shares (see --servers-state), for transform and detect",
            rich_help_panel=RESULT,
        ),
    ] = False
    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow",
            help="what the kept model may be used for: transform,flags (default), scores, inverse; transform:2 for owner 2 only",
            rich_help_panel=RESULT,
        ),
    ] = None
    reveal: Annotated[
        bool,
        typer.Option(
            "--reveal/--no-reveal",
            help="whether you receive the model; if not, only servers keep it",
            rich_help_panel=RESULT,
        ),
    ] = True
    title: Annotated[str, typer.Option(help="title of the report", rich_help_panel=RESULT)] = TITLE
    min_rows: MinRows = 10
    profile: Annotated[
        bool, typer.Option("--profile", help="show where time and bytes went", rich_help_panel=RESULT)
    ] = False
    quiet: Quiet = False
    as_json: AsJson = False
    force: Force = False
    tls: Tls = False
    timeout: Timeout = 60.0
    threads: Threads = None
    servers_state: ServersState = None
    federation: Annotated[
        Path | None,
        typer.Option(
            help="compute on the servers of this federation.toml, as owner of all files", rich_help_panel=SERVERS
        ),
    ] = None
    identity: Annotated[
        Path, typer.Option(help="your key, with --federation", envvar="PPCA_IDENTITY", rich_help_panel=SERVERS)
    ] = Path("identity.key")

    @property
    def keeps(self) -> bool:
        """Whether servers keep the model."""
        return self.keep or not self.reveal

    def check(self, collect: Collect = nullcontext) -> None:
        """Refuse options that exclude each other, and folders and keys that cannot be used."""
        from .folder import check_free
        from .result import KNOWN
        from .shares import check_state_folder, kept_as

        with collect():
            check_free(self.output, KNOWN, replace=self.force)
            kept_as(self.output)
        with collect():
            if self.allow and not self.keeps:
                raise ValueError("--allow is about a model that servers keep: add --keep.")
            if self.federation is not None and self.keeps:
                raise ValueError("seats keep a model for its owners, not for a command: ppca job new --keep-for.")
            if self.keeps:
                check_state_folder(self.servers_state)
        with collect():
            if not self.vertical and (self.id or self.namespace is not None):
                raise ValueError("--id and --namespace are for owners of different columns: add --vertical.")
            if not self.vertical and self.columns and self.drop:
                raise ValueError(
                    "--columns and --drop exclude each other: name the columns to take, or those to leave out."
                )
        with collect():
            self.servers(None)

    def servers(self, state: Path | None) -> Servers:
        """The servers that compute; they are not started or connected yet."""
        from ..servers import LocalServers
        from ..servers.cores import threads_for

        if self.federation is not None:
            from ..member.servers import Federation

            return Federation.open(self.federation, self.identity)
        return LocalServers(tls=self.tls, timeout=self.timeout, threads=self.threads or threads_for(4), state=state)

    def partition(self) -> str | Columns:
        if not self.vertical:
            return "rows"
        return partition_of(
            self.id, self.alignment, self.namespace, self.fold_case, self.minimum, self.pieces, self.workers
        )

    def choices(self, partition: str | Columns, keep: str | None) -> Choices:
        """The parameters of the fit. keep: the name under which servers keep the model."""
        from ..estimator.choices import Choices

        return Choices(
            component_count(self.components),
            self.standardize,
            self.solver,
            self.tol,
            self.fixed_iterations,
            self.max_iterations,
            keep,
            self.reveal,
            allowed_in(self.allow),
            partition,
        )

    def dask_cluster(self) -> AbstractContextManager[None]:
        """Use the cluster of --dask, if it is given."""
        return dask_in_use(self.dask, self.dask_ca, self.dask_cert, self.dask_key)

    def tables(self, files: Sequence[str], collect: Collect = nullcontext) -> list[Table]:
        """Open all owners' tables; rows are not read yet."""
        from ..owner.tables.owners import open_columns, open_rows, set_min_rows

        columns, drop = names_in(self.columns), names_in(self.drop)
        read = replace(self.read, dask=self.dask is not None)
        if self.vertical:
            tables = open_columns(files, self.id, columns=columns, drop=drop, options=read, collect=collect)
        else:
            tables = open_rows(files, columns=columns, drop=drop, options=read, collect=collect)
        set_min_rows(tables, self.min_rows)
        return tables


def fit_options(command: Callable[[list[str], FitOptions], None]) -> Callable[..., None]:
    """Give a command the files of owners as arguments, and one option for every field of `FitOptions`."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    hints = get_type_hints(FitOptions, include_extras=True)
    parameters = [inspect.Parameter("files", kind, annotation=Files)] + [
        inspect.Parameter(each.name, kind, default=each.default, annotation=hints[each.name])
        for each in fields(FitOptions)
        if each.default is not MISSING
    ]

    @functools.wraps(command)
    def wrapper(files: list[str], **given: object) -> None:
        command(files, FitOptions(**given))  # type: ignore[arg-type]

    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return reading_options()(wrapper)
