"""Options that several commands share, in the groups in which --help shows them."""

from __future__ import annotations

import csv
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..owner.tables.options import ReadOptions, settable
from .complaint import complaints

if TYPE_CHECKING:
    from ..estimator.columns import Columns

TABLES, RESULT, SOLVER = "Tables", "Result", "Eigensolver"
DASK = "Dask cluster that reads the tables"
SOLVER_HELP = (
    "auto: topk for few components of many columns, else allpairs; or jacobi, jacobi-classic, jacobi-eo, qr, power"
)
COLUMNS, SERVERS = "Owners of columns (--vertical, or several tables of new rows)", "Servers"

KINDS = ".csv, .parquet, .arrow, .npy, .npz, a folder of them, or a pattern in quotes"
ADDRESSES = "also as an address, like s3://bucket/folder"

Tls = Annotated[bool, typer.Option("--tls", help="mutual TLS between the servers", rich_help_panel=SERVERS)]
Timeout = Annotated[float, typer.Option(help="seconds a communication round may take", rich_help_panel=SERVERS)]
Force = Annotated[bool, typer.Option("--force", help="replace an earlier result", rich_help_panel=RESULT)]
Threads = Annotated[
    int | None,
    typer.Option(
        min=1, help="threads of each local server; by default a quarter of the cores each", rich_help_panel=SERVERS
    ),
]
ServersState = Annotated[
    Path | None,
    typer.Option(
        "--servers-state",
        help="folder in which the servers keep shares; else $XDG_STATE_HOME/ppca or ~/.local/state/ppca",
        rich_help_panel=SERVERS,
    ),
]
MinRows = Annotated[
    int,
    typer.Option("--min-rows", min=1, help="fewest rows per owner: with fewer nothing is sent", rich_help_panel=TABLES),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="print nothing but errors", rich_help_panel=RESULT)]
AsJson = Annotated[
    bool, typer.Option("--json", help="print what came out as JSON on standard output", rich_help_panel=RESULT)
]
Components = Annotated[
    str,
    typer.Option("--components", "-k", help="number of components, a fraction of the variance such as 0.95, or 'all'"),
]
Standardize = Annotated[
    bool, typer.Option("--standardize", help="divide columns by their joint deviation (correlation)")
]
ChosenColumns = Annotated[
    list[str] | None,
    typer.Option("--columns", help="columns to take: a,b,c; may be repeated", rich_help_panel=TABLES),
]
DroppedColumns = Annotated[
    list[str] | None,
    typer.Option("--drop", help="columns to leave out: a,b,c; may be repeated", rich_help_panel=TABLES),
]
Vertical = Annotated[
    bool,
    typer.Option("--vertical", help="owners hold different columns of the same individuals", rich_help_panel=COLUMNS),
]
Minimum = Annotated[
    int, typer.Option(min=1, help="stop if fewer ids are common to all owners", rich_help_panel=COLUMNS)
]
IdColumns = Annotated[
    list[str] | None,
    typer.Option(
        "--id",
        help="the column that names the individuals; if owners call it differently, once for each, in the order of the files",
        rich_help_panel=COLUMNS,
    ),
]
Way = Annotated[
    str,
    typer.Option(
        "--alignment",
        help="psi (private join by id), aligned (same order), namespace (ids 0..N-1)",
        rich_help_panel=COLUMNS,
    ),
]
Namespace = Annotated[
    int | None, typer.Option("--namespace", help="number of ids of alignment namespace", rich_help_panel=COLUMNS)
]
FoldCase = Annotated[bool, typer.Option("--fold-case", help="ids may differ in case", rich_help_panel=COLUMNS)]

Dask = Annotated[
    str | None,
    typer.Option(
        "--dask",
        help="tls://scheduler:8786 of your cluster, whose workers see the files; or 'local:4', four workers of this machine",
        rich_help_panel=DASK,
    ),
]
DaskAuthority = Annotated[
    Path | None, typer.Option("--dask-ca", help="certificate of the cluster's authority (PEM)", rich_help_panel=DASK)
]
DaskCertificate = Annotated[
    Path | None, typer.Option("--dask-cert", help="your certificate for the cluster (PEM)", rich_help_panel=DASK)
]
DaskKey = Annotated[
    Path | None, typer.Option("--dask-key", help="the key of that certificate (PEM)", rich_help_panel=DASK)
]


def reading_options(
    *, without: Sequence[str] = (), help: Mapping[str, str] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command one option for every field of `ReadOptions`; the command gets them together, as its parameter `read`.

    without: fields that the command has no option for; they keep their defaults. help: help texts that differ from the usual.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        known = inspect.signature(command, eval_str=True)
        fields = settable(without=without)
        parameters: list[inspect.Parameter] = []
        for parameter in known.parameters.values():
            if parameter.name == "read":
                parameters += [_option_of(name, **each, **_texts(name, help)) for name, each in fields.items()]
            else:
                parameters.append(parameter)

        @functools.wraps(command)
        def wrapper(**given: Any) -> None:
            values = {name: given.pop(name) for name in fields}
            values["na_values"] = tuple(names_in(values["na_values"]) or ())
            with complaints(wrapper):
                read = ReadOptions(**values)
            command(**given, read=read)

        wrapper.__signature__ = known.replace(parameters=parameters)  # type: ignore[attr-defined]
        wrapper.__annotations__ = {each.name: each.annotation for each in parameters} | {"return": None}
        return wrapper

    return decorate


def _texts(name: str, help: Mapping[str, str] | None) -> dict[str, str]:
    return {"text": help[name]} if help and name in help else {}


def _option_of(
    name: str, *, default: Any, label: str, help: str, choices: Sequence[str], text: str | None = None
) -> inspect.Parameter:
    """A field of `ReadOptions` as a parameter of a command."""
    several = isinstance(default, tuple)
    option = typer.Option(f"--{name.replace('_', '-')}", help=text or help, rich_help_panel=TABLES)
    kind = Annotated[list[str] | None if several else type(default), option]  # type: ignore[valid-type]
    keyword = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Parameter(name, keyword, default=None if several else default, annotation=kind)


@contextmanager
def dask_in_use(where: str | None, *files: Path | None) -> Iterator[None]:
    """The Dask cluster that the options name, for the time of a command; files: authority, certificate and key."""
    given = [file for file in files if file is not None]
    if where is None and given:
        raise ValueError("--dask-ca, --dask-cert and --dask-key are for a cluster: name it with --dask.")
    if given and (len(given) < len(files) or not str(where).startswith("tls://")):
        raise ValueError("--dask tls://host:port takes --dask-ca, --dask-cert and --dask-key, all three or none.")
    if where is None:
        yield
        return
    from ..owner.cluster import TlsFiles, cluster

    with cluster(where, TlsFiles(*given) if given else None):
        yield


def names_in(options: Sequence[str] | None) -> list[str] | None:
    """Column names out of `a,b,c`; the option may be repeated, and a name with a comma be put in double quotes."""
    if not options:
        return None
    return [name.strip() for line in csv.reader(options, skipinitialspace=True) for name in line]


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


def partition_of(
    id: Sequence[str] | None,
    alignment: str,
    namespace: int | None,
    fold_case: bool,
    minimum: int,
    pieces: int | None = None,
    workers: str = "0",
) -> Columns:
    """How owners of columns come together, from the options of a command."""
    from ..estimator.columns import Columns

    if not id and alignment != "aligned":
        raise ValueError("owners of columns are joined by id: name its column with --id, or give --alignment aligned.")
    names = None if not id else id[0] if len(id) == 1 else list(id)
    return Columns(names, alignment, namespace, minimum, fold_case, pieces, workers_of(workers))


def workers_of(text: str) -> int | str:
    """What --workers means: a number of processes, or each operator's Dask cluster."""
    return int(text) if text.isascii() and text.isdigit() else text


def allowed_in(options: Sequence[str] | None) -> tuple[str, ...] | dict[str, list[str]]:
    """What --allow means: operations, as scores,inverse; each may name the owner of columns that gets results, as transform:2."""
    from ..jobs.kept import owner_name

    found: dict[str, list[str]] = {}
    plain = names_in(options) or []
    for text in plain:
        operation, _, owner = text.partition(":")
        if operation == "partial_fit":
            raise ValueError("--allow partial_fit: there is no command for partial fits; fit with ppca.PCA instead.")
        if owner and not (owner.isascii() and owner.isdigit() and int(owner) >= 1):
            raise ValueError(f"--allow {text}: write an operation, or operation:N for the N-th owner's eyes only.")
        found.setdefault(operation, []).extend([owner_name(int(owner) - 1)] if owner else [])
    if all(found.values()) and found:
        return found
    if any(found.values()):
        raise ValueError("--allow: name the owner with every operation, or with none.")
    return tuple(found) or USUAL


USUAL = ("transform", "flags")
"""What a kept model is good for unless the user says otherwise. There is no command for partial fits, so no sums are kept."""


def position_of(receiver: Path | None, rows: Sequence[Path]) -> int:
    """The owner (file) that gets a result."""
    if receiver is not None and receiver not in rows:
        raise ValueError(f"--receiver {receiver} is none of the owners' files.")
    return 0 if receiver is None else list(rows).index(receiver)
