"""`ppca transform` and `ppca detect`: new rows under a fitted model, model and rows both secret. One body, two endings."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import numpy as np
import typer
from numpy.typing import NDArray
from rich.text import Text

from ..owner.errors import ParameterRefused
from ..owner.tables.options import DEFAULTS, ReadOptions
from ..pages.amounts import counted
from .complaint import complaints
from .options import (
    COLUMNS,
    KINDS,
    RESULT,
    AsJson,
    FoldCase,
    Force,
    IdColumns,
    Namespace,
    Quiet,
    ServersState,
    Timeout,
    Tls,
    Way,
    names_in,
    partition_of,
    position_of,
    reading_options,
)
from .terminal import Terminal

if TYPE_CHECKING:
    from ..estimator.columns import Columns
    from ..estimator.shared import SharedModel
    from ..owner.tables.table import Table
    from ..receiver import PCAModel
    from ..receiver.joined import Joined
    from ..servers import Account

Result = Annotated[Path, typer.Argument(help="folder of a result, from `ppca fit --keep`")]
Rows = Annotated[list[Path], typer.Argument(help=f"table with the new rows: {KINDS}; of a vertical fit one per owner")]
Revealed = Annotated[
    bool, typer.Option("--revealed", help="use the revealed model here, in the clear, without servers")
]
Receiver = Annotated[
    Path | None, typer.Option("--receiver", help="the owner (file) that gets the result", rich_help_panel=COLUMNS)
]

KeepColumns = Annotated[
    list[str] | None,
    typer.Option("--keep-columns", help="columns to copy into the result, as ids: a,b,c", rich_help_panel=RESULT),
]

MISSING_ROWS = {"missing": "new rows with missing values: 'refuse' the table, or 'drop' these rows"}

Floats = NDArray[np.float64]
Found = dict[str, Any]
"""Columns of the table that is written, by name."""


class Ending(Protocol):
    """What a command wants to know of the rows."""

    @property
    def operations(self) -> Sequence[str]: ...

    def in_the_clear(self, model: PCAModel, chunks: Iterable[Floats]) -> Found: ...

    def on_shares(self, model: SharedModel, chunks: Iterable[Floats]) -> Found: ...

    def of_columns(self, model: SharedModel, rows: Sequence[Any], partition: Columns, receiver: int) -> Joined: ...

    def columns(self, joined: Joined) -> Found: ...

    def summary(self, found: Found, where: str) -> str: ...


class Coordinates:
    """The ending of `ppca transform`."""

    operations = ("transform",)

    def in_the_clear(self, model: PCAModel, chunks: Iterable[Floats]) -> Found:
        return self._named(np.vstack([model.project(chunk) for chunk in chunks]))

    def on_shares(self, model: SharedModel, chunks: Iterable[Floats]) -> Found:
        return self._named(np.vstack(list(model.transform_batches(chunks))))

    def of_columns(self, model: SharedModel, rows: Sequence[Any], partition: Columns, receiver: int) -> Joined:
        return model.transform_columns(list(rows), partition, receiver)

    def columns(self, joined: Joined) -> Found:
        assert joined.coordinates is not None
        return self._named(joined.coordinates)

    def _named(self, coordinates: Floats) -> Found:
        return {f"pca{i}": column for i, column in enumerate(np.ascontiguousarray(coordinates.T))}

    def summary(self, found: Found, where: str) -> str:
        count = len([name for name in found if name.startswith("pca")])
        return f"{counted(len(found['pca0']), 'row')} projected onto {counted(count, 'component')} {where}"


@dataclass
class Verdicts:
    """The ending of `ppca detect`."""

    threshold: float | None
    contamination: float | None
    scores: bool

    def __post_init__(self) -> None:
        from ..receiver.verdicts import check_limits

        check_limits(self.threshold, self.contamination, self.scores)

    @property
    def operations(self) -> Sequence[str]:
        flags = self.threshold is not None or self.contamination is not None
        return [*(["flags"] if flags else []), *(["scores"] if self.scores else [])]

    def in_the_clear(self, model: PCAModel, chunks: Iterable[Floats]) -> Found:
        from ..receiver.verdicts import flags_of

        scores = np.concatenate([model.scores(chunk) for chunk in chunks])
        return self._named(scores, flags_of(scores, self.threshold, self.contamination))

    def on_shares(self, model: SharedModel, chunks: Iterable[Floats]) -> Found:
        return self._named(*model.detect_batches(chunks, **vars(self)))

    def of_columns(self, model: SharedModel, rows: Sequence[Any], partition: Columns, receiver: int) -> Joined:
        return model.detect_columns(list(rows), partition, receiver, **vars(self))

    def columns(self, joined: Joined) -> Found:
        return self._named(joined.scores, joined.flags)

    def _named(self, scores: Floats | None, flags: NDArray[np.bool_] | None) -> Found:
        found: Found = {} if flags is None else {"anomaly": flags.astype(np.int8)}
        return found | ({"score": scores} if self.scores and scores is not None else {})

    def summary(self, found: Found, where: str) -> str:
        count = len(next(iter(found.values())))
        flagged = f", {int(found['anomaly'].sum()):,} flagged" if "anomaly" in found else ""
        return f"{counted(count, 'row')} scored {where}{flagged}"


@reading_options(help=MISSING_ROWS)
def transform(
    result: Result,
    rows: Rows,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="file for the coordinates: .csv or .parquet", rich_help_panel=RESULT)
    ] = Path("projected.csv"),
    revealed: Revealed = False,
    keep_columns: KeepColumns = None,
    read: ReadOptions = DEFAULTS,
    id: IdColumns = None,
    alignment: Way = "psi",
    namespace: Namespace = None,
    fold_case: FoldCase = False,
    receiver: Receiver = None,
    tls: Tls = False,
    timeout: Timeout = 60.0,
    servers_state: ServersState = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    force: Force = False,
) -> None:
    """Project new rows onto the components of a fitted model.

    On shares: four servers hold the model, the rows reach them as shares, and only the coordinates come back. Signs of components
    are those of the model that the fit revealed.

    Of a vertical fit give every owner's table, in the order of the fit: the rows that all owners have are projected, and the
    receiver gets them with its own ids.
    """
    with complaints(transform):
        partition = _partition(rows, revealed, id, alignment, namespace, fold_case)
        source = Source(result, rows, revealed, partition, receiver, names_in(keep_columns) or [], read)
        _infer(Coordinates(), source, output, Manner(tls, timeout, servers_state, quiet, as_json, force))


@reading_options(help=MISSING_ROWS)
def detect(
    result: Result,
    rows: Rows,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="file for the flags: .csv or .parquet", rich_help_panel=RESULT)
    ] = Path("flags.csv"),
    threshold: Annotated[float | None, typer.Option(help="flag rows with a score above this")] = None,
    contamination: Annotated[
        float | None, typer.Option(help="flag this fraction of the rows: those with the largest scores")
    ] = None,
    scores: Annotated[bool, typer.Option("--scores", help="also reveal the scores")] = False,
    revealed: Revealed = False,
    keep_columns: KeepColumns = None,
    read: ReadOptions = DEFAULTS,
    id: IdColumns = None,
    alignment: Way = "psi",
    namespace: Namespace = None,
    fold_case: FoldCase = False,
    receiver: Receiver = None,
    tls: Tls = False,
    timeout: Timeout = 60.0,
    servers_state: ServersState = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    force: Force = False,
) -> None:
    """Flag rows that a fitted model describes badly.

    The score of a row is its squared distance to its projection, of a standardised model in standardised units. On shares: the
    servers hold the model, the rows reach them as shares, and only flags (with --scores: also scores) come back.

    Of a vertical fit give every owner's table, in the order of the fit: the rows that all owners have are scored, and the
    receiver gets the verdicts with its own ids.
    """
    with complaints(detect):
        wanted = Verdicts(threshold, contamination, scores)
        partition = _partition(rows, revealed, id, alignment, namespace, fold_case)
        source = Source(result, rows, revealed, partition, receiver, names_in(keep_columns) or [], read)
        _infer(wanted, source, output, Manner(tls, timeout, servers_state, quiet, as_json, force))


def _partition(
    rows: Sequence[Path],
    revealed: bool,
    id: Sequence[str] | None,
    alignment: str,
    namespace: int | None,
    fold_case: bool,
) -> Columns | None:
    """How several owners' tables are joined; None if there is one table with all columns."""
    if len(rows) == 1 and not id:
        return None
    if revealed:
        raise ValueError("--revealed needs all columns in one table: rows of several owners are only joined on shares.")
    return partition_of(id, alignment, namespace, fold_case, minimum=1)


@dataclass(frozen=True)
class Source:
    """Which rows, under which model, and what of them is copied into the result."""

    result: Path
    rows: list[Path]
    revealed: bool
    partition: Columns | None
    receiver: Path | None
    keep_columns: list[str]
    read: ReadOptions


@dataclass(frozen=True)
class Manner:
    """How a command works and prints."""

    tls: bool
    timeout: float
    servers_state: Path | None
    quiet: bool
    as_json: bool
    force: bool


def _infer(wanted: Ending, source: Source, output: Path, manner: Manner) -> None:
    from .folder import check_file
    from .kept import ENDINGS, write_table
    from .result import account_summary, print_openings, print_traffic

    check_file(output, ENDINGS, replace=manner.force)
    if source.read.missing == "mean":
        cause = "is for fits: a model's means are not known where new rows are read; use 'drop', or fill the values in"
        raise ParameterRefused("missing", "mean", cause)
    if source.partition is not None and source.keep_columns:
        raise ValueError(
            "--keep-columns is for one table with all columns; of several owners the receiver gets its ids."
        )
    found, account = _in_the_clear(wanted, source, manner) if source.revealed else _on_shares(wanted, source, manner)
    write_table(output, found)
    if manner.as_json:
        told: dict[str, Any] = {"rows": len(next(iter(found.values()))), "columns": list(found), "written": str(output)}
        if "anomaly" in found:
            told["flagged"] = int(found["anomaly"].sum())
        typer.echo(json.dumps(told | ({} if account is None else account_summary(account)), indent=1))
        return
    console = Terminal(quiet=manner.quiet)
    console.print(wanted.summary(found, "in the clear" if source.revealed else "on shares"), highlight=False)
    if account is not None:
        print_openings(console, account)
        print_traffic(console, account)
    console.print(Text(f"written: {output}"), soft_wrap=True, highlight=False)


def _in_the_clear(wanted: Ending, source: Source, manner: Manner) -> tuple[Found, None]:
    from .kept import check_kept, chunks_of, load_revealed

    model = load_revealed(source.result)
    table = _table(source, model.feature_names, len(model.mean))
    check_kept(table, source.keep_columns)
    return _beside_own(table, source, wanted.in_the_clear(model, chunks_of(table)), manner), None


def _on_shares(wanted: Ending, source: Source, manner: Manner) -> tuple[Found, Account]:
    from ..jobs.kept import CLIENT, check_allowed, owner_name
    from ..owner.tables.owners import all_opened, id_names
    from .kept import check_kept, chunks_of, kept_model, load_facts
    from .progress import stage_bars
    from .shares import state_folder

    state, partition = state_folder(manner.servers_state), source.partition
    facts, to = load_facts(source.result, state), position_of(source.receiver, source.rows)
    for operation in wanted.operations:  # the servers would refuse it, too
        check_allowed(facts.allowed, operation, CLIENT if partition is None else owner_name(to))
    table = _table(source, facts.feature_names, len(facts.scale_exponents)) if partition is None else None
    if table is not None:
        check_kept(table, source.keep_columns)
    with (
        stage_bars(quiet=manner.quiet) as show,
        kept_model(state, facts, show, tls=manner.tls, timeout=manner.timeout) as shared,
    ):
        if table is not None:
            return _beside_own(table, source, wanted.on_shares(shared, chunks_of(table)), manner), shared.job.account
        assert partition is not None
        owners = all_opened(source.rows, source.read)
        joined = wanted.of_columns(shared, owners, partition, to)
        name = id_names(partition.id, [owner.label for owner in owners])[to]
        ids: Found = {} if joined.ids is None else {name or "row": joined.ids}
        return _side_by_side(ids, wanted.columns(joined)), shared.job.account


def _beside_own(table: Table, source: Source, found: Found, manner: Manner) -> Found:
    """What was found, behind the columns of the same rows that are copied into the result."""
    from .fit import tell_dropped

    tell_dropped([table], manner.quiet)
    own = table.as_given(source.keep_columns) if source.keep_columns else {}
    return _side_by_side(own, found)


def _side_by_side(own: Found, found: Found) -> Found:
    """An owner's columns before what was found; one of the same name is told apart, as the result needs its own."""
    return {f"{name} (own)" if name in found else name: column for name, column in own.items()} | found


def _table(source: Source, names: Sequence[str] | None, width: int) -> Table:
    """The one table with all columns of the model."""
    from ..owner.tables.owners import open_like

    return open_like(source.rows[0], names, width, source.read)
