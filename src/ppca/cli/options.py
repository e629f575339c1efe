"""Commands and the groups of options that they share.

`command` turns a function into a command of the command line. A parameter whose type is a dataclass is a group of
options: --help shows one option for every field, and the function gets them together, as one value.
"""

from __future__ import annotations

import csv
import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

import typer

from ..algorithms.solvers import AUTO, NAMES, TOLERANCE, TOPK
from ..jobs.spec import ALIGNED, NAMESPACE, PSI
from ..owner.tables.options import ReadOptions, settable
from .errors import error_messages

if TYPE_CHECKING:
    from ..estimator.partition import Columns
    from ..jobs.pca import JointPCA
    from ..jobs.spec import Align
    from ..runtime import LocalServers

TABLES, RESULT, SOLVER = "Tables", "Result", "Eigensolver"
DASK = "Dask cluster that reads the tables"
COLUMNS, SERVERS = "Column owners (--vertical, or several tables of new rows)", "Servers"

KINDS = ".csv, .parquet, .arrow, .npy, .npz, a folder of them, or a pattern in quotes"
ADDRESSES = "also as an address, like s3://bucket/folder"

Command = Callable[..., None]


# -- commands --------------------------------------------------------------------------------------------------------


class Help(dict[str, str | None]):
    """Help texts of fields of `ReadOptions` that differ from the usual ones; None: the command does not have the
    option."""


def command(advice: str = "") -> Callable[[Command], Command]:
    """Turn a function into a command: groups become options, and errors become messages (see `error_messages`).

    Options of groups are listed after the other ones. advice: a note below errors about owners' data.
    """

    def decorate(function: Command) -> Command:
        parameters = inspect.signature(function, eval_str=True).parameters.values()
        known = sorted(parameters, key=lambda each: _group(each.annotation)[0] is not None)
        options = [option for each in known for option in _options(each.name, each.annotation, each.default)]
        names = {option.name for option in options}

        @functools.wraps(function)
        def wrapper(**given: Any) -> None:
            with error_messages(names, advice):
                function(**{each.name: _value(each.name, each.annotation, given) for each in known})

        wrapper.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
        wrapper.__annotations__ = {option.name: option.annotation for option in options} | {"return": None}
        return wrapper

    return decorate


def _options(name: str, annotation: Any, default: Any) -> list[inspect.Parameter]:
    """Return the options of a parameter: one for every field of a group, else the parameter itself."""
    group, helps = _group(annotation)
    if group is None:
        return [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)]
    if group is ReadOptions:
        return [_read_option(name, helps.get(name), **each) for name, each in _read_fields(helps).items()]
    hints = get_type_hints(group, include_extras=True)
    defaults = {
        each.name: inspect.Parameter.empty if each.default is MISSING else each.default for each in fields(group)
    }
    return [option for name, default in defaults.items() for option in _options(name, hints[name], default)]


def _value(name: str, annotation: Any, given: dict[str, Any]) -> Any:
    """Return the value of a parameter, a group made of its options."""
    group, helps = _group(annotation)
    if group is None:
        return given[name]
    if group is ReadOptions:
        values = {name: given[name] for name in _read_fields(helps)}
        return ReadOptions(**values | {"na_values": tuple(names_in(values["na_values"]) or ())})
    hints = get_type_hints(group, include_extras=True)
    return group(**{each.name: _value(each.name, hints[each.name], given) for each in fields(group)})


def _group(annotation: Any) -> tuple[Any, Help]:
    """Return the dataclass of a group, or None, and help texts that differ."""
    kind, *more = get_args(annotation) if get_origin(annotation) is Annotated else [annotation]
    return kind if is_dataclass(kind) else None, next((each for each in more if isinstance(each, Help)), Help())


def _read_fields(helps: Help) -> Any:
    return settable(without=[name for name, text in helps.items() if text is None])


def _read_option(
    name: str, text: str | None, *, default: Any, label: str, help: str, choices: Sequence[str]
) -> inspect.Parameter:
    several = isinstance(default, tuple)
    option = typer.Option(f"--{name.replace('_', '-')}", help=text or help, rich_help_panel=TABLES)
    kind = Annotated[list[str] | None if several else type(default), option]  # type: ignore[valid-type]
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, keyword, default=None if several else default, annotation=kind)


# -- single options --------------------------------------------------------------------------------------------------

Tls = Annotated[bool, typer.Option("--tls", help="Mutual TLS between the servers.", rich_help_panel=SERVERS)]
Timeout = Annotated[float, typer.Option(help="Timeout of one communication round in seconds.", rich_help_panel=SERVERS)]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing result.", rich_help_panel=RESULT)]
ServersState = Annotated[
    Path | None,
    typer.Option(
        "--servers-state",
        help="Folder for kept shares. Default: $XDG_STATE_HOME/ppca or ~/.local/state/ppca.",
        rich_help_panel=SERVERS,
    ),
]
MinRows = Annotated[
    int,
    typer.Option(
        "--min-rows",
        min=1,
        help="Minimum number of rows per owner. With fewer rows nothing is sent.",
        rich_help_panel=TABLES,
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors.", rich_help_panel=RESULT)]
AsJson = Annotated[
    bool,
    typer.Option("--json", help="Print a summary of the result as JSON to standard output.", rich_help_panel=RESULT),
]
Minimum = Annotated[
    int,
    typer.Option(
        min=1, help="Stop if the owners have fewer than this number of ids in common.", rich_help_panel=COLUMNS
    ),
]
Chunks = Annotated[
    int | None,
    typer.Option(
        min=1, help="Number of row chunks in the covariance step. Default: as few as possible.", rich_help_panel=COLUMNS
    ),
]
IdColumns = Annotated[
    list[str] | None,
    typer.Option(
        "--id",
        help="Id column. If names differ, repeat once per owner in the order of the tables.",
        rich_help_panel=COLUMNS,
    ),
]


# -- groups ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """Options of the output of a command."""

    quiet: Quiet = False
    as_json: AsJson = False
    force: Force = False


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """Four servers on this machine."""

    tls: Tls = False
    timeout: Timeout = 60.0
    threads: Annotated[
        int | None,
        typer.Option(
            min=1, help="Threads per local server. Default: a quarter of the cores, at most 8.", rich_help_panel=SERVERS
        ),
    ] = None
    servers_state: ServersState = None

    def local_servers(self, state: Path | None, workers: str = "0") -> LocalServers:
        """Return local servers that keep shares in `state`. They are not started yet.

        workers: number of worker processes of each server, or 'dask'.
        """
        from ..runtime import LocalServers
        from ..runtime.cores import threads_for

        pool = int(workers) if workers.isascii() and workers.isdigit() else workers
        threads = self.threads or threads_for(4)
        return LocalServers(tls=self.tls, timeout=self.timeout, threads=threads, state=state, workers=pool)


@dataclass(frozen=True, kw_only=True)
class AnalysisOptions:
    """Options of the analysis."""

    components: Annotated[
        str,
        typer.Option("--components", "-k", help="Number of components, fraction of variance such as 0.95, or 'all'."),
    ] = "all"
    standardize: Annotated[
        bool, typer.Option("--standardize", help="Divide columns by their joint standard deviation (correlation PCA).")
    ] = False
    solver: Annotated[
        str,
        typer.Option(
            help=f"Solver: {AUTO} ({TOPK} or allpairs), {', '.join(NAMES[1:])}.",
            rich_help_panel=SOLVER,
        ),
    ] = AUTO
    tol: Annotated[
        float,
        typer.Option(help="Tolerance of the eigensolver, relative to the norm of the matrix.", rich_help_panel=SOLVER),
    ] = TOLERANCE
    fixed_iterations: Annotated[
        int | None,
        typer.Option(
            min=1, help="Run exactly this many iterations and open no convergence bits.", rich_help_panel=SOLVER
        ),
    ] = None
    max_iterations: Annotated[
        int | None,
        typer.Option(min=1, help="Maximum number of iterations before falling back to jacobi.", rich_help_panel=SOLVER),
    ] = None
    until_converged: Annotated[
        bool,
        typer.Option(
            "--until-converged",
            help="In a job.toml: iterate until converged and open one bit per iteration. Default: a fixed number.",
            rich_help_panel=SOLVER,
        ),
    ] = False

    @property
    def analysis(self) -> JointPCA:
        """The parameters of the analysis."""
        from ..jobs.pca import JointPCA

        return JointPCA(
            components=self.component_count,
            solver=self.solver,
            tol=self.tol,
            fixed_iterations=self.fixed_iterations,
            max_iterations=self.max_iterations,
        )

    @property
    def component_count(self) -> int | float | None:
        """Value of -k: a number of components, a fraction of the variance, or None for all."""
        if self.components == "all":
            return None
        for convert in (int, float):
            try:
                return convert(self.components)
            except ValueError:
                continue
        raise ValueError(
            f"-k {self.components}: give a whole number, a fraction of the variance between 0 and 1, or 'all'."
        )


@dataclass(frozen=True, kw_only=True)
class AlignOptions:
    """Options of the join of rows of column owners."""

    alignment: Annotated[
        str,
        typer.Option(
            "--alignment",
            help=f"Join: {PSI} (private, by id), {ALIGNED} (same order) or {NAMESPACE} (ids 0 to N-1).",
            rich_help_panel=COLUMNS,
        ),
    ] = PSI
    namespace: Annotated[
        int | None,
        typer.Option("--namespace", help="Number of ids N for --alignment namespace.", rich_help_panel=COLUMNS),
    ] = None
    fold_case: Annotated[bool, typer.Option("--fold-case", help="Ignore the case of ids.", rich_help_panel=COLUMNS)] = (
        False
    )

    def align(self, minimum: int, row_share_at_most: float | None) -> Align:
        """Return how rows of column owners are joined in a job."""
        from ..jobs.spec import Align

        return Align(
            alignment=self.alignment,
            namespace=self.namespace,
            minimum=minimum,
            fold_case=self.fold_case,
            row_share_at_most=row_share_at_most,
        )

    def matched_by(self, id: Sequence[str] | None, minimum: int, chunks: int | None = None) -> Columns:
        """Return how tables with these columns of ids come together."""
        from ..estimator.partition import Columns

        if not id and self.alignment != ALIGNED:
            raise ValueError(
                "no id column: column owners are joined by id. Name it with --id, or use --alignment aligned if all "
                "rows are in the same order."
            )
        names = None if not id else id[0] if len(id) == 1 else list(id)
        return Columns(names, self.alignment, self.namespace, minimum, self.fold_case, chunks)


@dataclass(frozen=True, kw_only=True)
class DaskOptions:
    """The Dask cluster of an owner."""

    dask: Annotated[
        str | None,
        typer.Option(
            "--dask",
            help="Cluster that reads the files: tls://host:8786, or local:4 for four workers.",
            rich_help_panel=DASK,
        ),
    ] = None
    dask_ca: Annotated[
        Path | None,
        typer.Option("--dask-ca", help="CA certificate of the cluster (PEM).", rich_help_panel=DASK),
    ] = None
    dask_cert: Annotated[
        Path | None,
        typer.Option("--dask-cert", help="Your client certificate for the cluster (PEM).", rich_help_panel=DASK),
    ] = None
    dask_key: Annotated[
        Path | None, typer.Option("--dask-key", help="Private key of --dask-cert (PEM).", rich_help_panel=DASK)
    ] = None

    @contextmanager
    def dask_cluster(self) -> Iterator[None]:
        """Use the cluster of --dask, if it is given, for the time of a command."""
        files = (self.dask_ca, self.dask_cert, self.dask_key)
        given = [file for file in files if file is not None]
        if self.dask is None and given:
            raise ValueError("--dask-ca, --dask-cert and --dask-key are for a cluster: name it with --dask.")
        if given and (len(given) < len(files) or not str(self.dask).startswith("tls://")):
            raise ValueError("--dask tls://host:port takes --dask-ca, --dask-cert and --dask-key, all three or none.")
        if self.dask is None:
            yield
            return
        from ..owner.cluster import TlsFiles, cluster

        with cluster(self.dask, TlsFiles(*given) if given else None):
            yield


# -- values ----------------------------------------------------------------------------------------------------------


def names_in(options: Sequence[str] | None) -> list[str] | None:
    """Column names out of `a,b,c`; the option may be repeated, and a name with a comma be put in double quotes."""
    if not options:
        return None
    return [name.strip() for line in csv.reader(options, skipinitialspace=True) for name in line]
