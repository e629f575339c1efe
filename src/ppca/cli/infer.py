"""`ppca transform` and `ppca detect`: new rows under a fitted model, model and rows both secret. One body, two
endings."""

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

from ..html.formats import counted
from ..jobs.checks import SpecError
from ..jobs.infer import verdict_parts
from ..owner.tables.options import DEFAULTS, ReadOptions
from .options import (
    COLUMNS,
    KINDS,
    RESULT,
    AlignOptions,
    Help,
    IdColumns,
    OutputOptions,
    ServerOptions,
    command,
    names_in,
)
from .terminal import Terminal

if TYPE_CHECKING:
    from ..estimator.partition import Columns
    from ..estimator.shared_model import SharedModel
    from ..owner.tables.table import Table
    from ..receiver import PCAModel
    from ..receiver.joined import Joined
    from ..runtime import Account

Floats = NDArray[np.float64]
Found = dict[str, Any]
"""Columns of the table that is written, by name."""


class Ending(Protocol):
    """Part of a command that depends on the requested result."""

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
        if not self.operations:
            raise ValueError("ppca detect needs one of --threshold, --contamination or --scores.")

    @property
    def operations(self) -> Sequence[str]:
        return verdict_parts(self.threshold, self.contamination, self.scores)

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


@dataclass(frozen=True, kw_only=True)
class InferOptions(ServerOptions, OutputOptions, AlignOptions):
    """Options for the new rows, the model, and the columns copied into the result."""

    result: Annotated[Path, typer.Argument(help="Folder of a result, from `ppca fit --keep`.")]
    rows: Annotated[
        list[Path], typer.Argument(help=f"Table with the new rows: {KINDS}. For a vertical fit: one per owner.")
    ]
    revealed: Annotated[
        bool, typer.Option("--revealed", help="Use the revealed model here, in the clear, without servers.")
    ] = False
    keep_columns: Annotated[
        list[str] | None,
        typer.Option(
            "--keep-columns",
            help="Columns of the new rows to copy into the result, such as ids: a,b,c.",
            rich_help_panel=RESULT,
        ),
    ] = None
    read: Annotated[
        ReadOptions, Help(missing="New rows with missing values: 'refuse' the table, or 'drop' these rows.")
    ] = DEFAULTS
    id: IdColumns = None
    receiver: Annotated[
        Path | None,
        typer.Option(
            "--receiver",
            help="File of the owner that receives the result, one of ROWS. Default: the first.",
            rich_help_panel=COLUMNS,
        ),
    ] = None

    @property
    def copied(self) -> list[str]:
        """The columns that are copied into the result."""
        return names_in(self.keep_columns) or []

    @property
    def position(self) -> int:
        """The position of the owner that gets the result."""
        if self.receiver is not None and self.receiver not in self.rows:
            raise ValueError(f"--receiver {self.receiver} is none of the owners' files.")
        return 0 if self.receiver is None else self.rows.index(self.receiver)

    def partition(self) -> Columns | None:
        """Return how several owners' tables are joined; None if there is one table with all columns."""
        if len(self.rows) == 1 and not self.id:
            return None
        if self.revealed:
            raise ValueError(
                "--revealed needs all columns in one table: rows of several owners are only joined on shares."
            )
        return self.matched_by(self.id, minimum=1)

    def table(self, names: Sequence[str] | None, width: int) -> Table:
        """Open the one table with all columns of the model."""
        from ..owner.tables.owners import open_like
        from .kept import check_kept

        table = open_like(self.rows[0], names, width, self.read)
        check_kept(table, self.copied)
        return table


@command()
def transform(
    options: InferOptions,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="File for the coordinates: .csv or .parquet.", rich_help_panel=RESULT)
    ] = Path("projected.csv"),
) -> None:
    """Project new rows onto the components of a fitted model.

    The four servers hold the model and receive the rows as shares; only the coordinates are revealed. Signs of
    components are those of the revealed model.

    For a vertical fit give every owner's table in the order of the fit. The rows that all owners have are projected,
    and the receiver gets them with its own ids.
    """
    _infer(Coordinates(), options, output)


@command()
def detect(
    options: InferOptions,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="File for the flags: .csv or .parquet.", rich_help_panel=RESULT)
    ] = Path("flags.csv"),
    threshold: Annotated[float | None, typer.Option(help="Flag rows with a score above this.")] = None,
    contamination: Annotated[
        float | None, typer.Option(help="Flag this fraction of the rows: those with the largest scores.")
    ] = None,
    scores: Annotated[bool, typer.Option("--scores", help="Also reveal the scores.")] = False,
) -> None:
    """Flag rows that a fitted model describes badly.

    The score of a row is its squared distance to its projection; for a standardised model, in standardised units. The
    servers hold the model and receive the rows as shares. Only the requested flags and scores are revealed.

    For a vertical fit give every owner's table in the order of the fit. The rows that all owners have are scored, and
    the receiver gets the flags and scores with its own ids.
    """
    _infer(Verdicts(threshold, contamination, scores), options, output)


def _infer(wanted: Ending, options: InferOptions, output: Path) -> None:
    from .folder import check_file
    from .kept import ENDINGS, write_table
    from .result import account_summary, print_openings, print_traffic

    partition = options.partition()
    check_file(output, ENDINGS, replace=options.force)
    if options.read.missing == "mean":
        cause = "is for fits: a model's means are not known where new rows are read; use 'drop', or fill the values in"
        raise SpecError("missing", "mean", cause)
    if partition is not None and options.copied:
        raise ValueError(
            "--keep-columns is for one table with all columns; of several owners the receiver gets its ids."
        )
    found, account = _in_the_clear(wanted, options) if options.revealed else _on_shares(wanted, options, partition)
    write_table(output, found)
    if options.as_json:
        told: dict[str, Any] = {"rows": len(next(iter(found.values()))), "columns": list(found), "written": str(output)}
        if "anomaly" in found:
            told["flagged"] = int(found["anomaly"].sum())
        typer.echo(json.dumps(told | ({} if account is None else account_summary(account)), indent=1))
        return
    console = Terminal(quiet=options.quiet)
    console.print(wanted.summary(found, "in the clear" if options.revealed else "on shares"), highlight=False)
    if account is not None:
        print_openings(console, account.audit)
        print_traffic(console, account)
    console.print(Text(f"written: {output}"), soft_wrap=True, highlight=False)


def _in_the_clear(wanted: Ending, options: InferOptions) -> tuple[Found, None]:
    from .kept import chunks_of, load_revealed

    model = load_revealed(options.result)
    table = options.table(model.feature_names, len(model.mean))
    return _beside_own(table, options, wanted.in_the_clear(model, chunks_of(table))), None


def _on_shares(wanted: Ending, options: InferOptions, partition: Columns | None) -> tuple[Found, Account]:
    from ..jobs.kept import CLIENT, check_allowed, owner_name
    from ..owner.tables.owners import all_opened, id_names
    from .kept import chunks_of, kept_model, load_facts
    from .progress import stage_bars
    from .shares import state_folder

    state = state_folder(options.servers_state)
    facts, to = load_facts(options.result, state), options.position
    for operation in wanted.operations:  # the servers would refuse it, too
        check_allowed(facts.allowed, operation, CLIENT if partition is None else owner_name(to))
    table = options.table(facts.feature_names, len(facts.scale_exponents)) if partition is None else None
    with (
        stage_bars(quiet=options.quiet) as show,
        kept_model(options.local_servers(state), facts, show) as shared,
    ):
        if table is not None:
            return _beside_own(table, options, wanted.on_shares(shared, chunks_of(table))), shared.job.account
        assert partition is not None
        owners = all_opened(options.rows, options.read)
        joined = wanted.of_columns(shared, owners, partition, to)
        name = id_names(partition.id, [owner.label for owner in owners])[to]
        ids: Found = {} if joined.ids is None else {name or "row": joined.ids}
        return _side_by_side(ids, wanted.columns(joined)), shared.job.account


def _beside_own(table: Table, options: InferOptions, found: Found) -> Found:
    """Return the result with columns of the same rows copied in front of it."""
    from .fit import tell_dropped

    tell_dropped([table], options.quiet)
    own = table.as_given(options.copied) if options.copied else {}
    return _side_by_side(own, found)


def _side_by_side(own: Found, found: Found) -> Found:
    """An owner's columns before what was found; one of the same name is told apart, as the result needs its own."""
    return {f"{name} (own)" if name in found else name: column for name, column in own.items()} | found
