"""`ppca transform` and `ppca detect`: new rows under a fitted model, model and rows both secret. One body, two endings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.text import Text

from .complaint import complaints
from .options import (
    COLUMNS,
    KINDS,
    RESULT,
    FoldCase,
    Force,
    IdColumn,
    Namespace,
    ServersState,
    Timeout,
    Tls,
    Way,
    partition_of,
    position_of,
)

if TYPE_CHECKING:
    from ..estimator.columns import Columns
    from ..estimator.shared import SharedModel
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

Floats = NDArray[np.float64]
Found = dict[str, NDArray[Any]]
"""Columns of the table that is written, by name."""


class Ending(Protocol):
    """What a command wants to know of the rows."""

    @property
    def operations(self) -> Sequence[str]: ...

    def in_the_clear(self, model: PCAModel, chunks: Iterable[Floats]) -> Found: ...

    def on_shares(self, model: SharedModel, chunks: Iterable[Floats]) -> Found: ...

    def of_columns(self, model: SharedModel, rows: Sequence[Path], partition: Columns, receiver: int) -> Joined: ...

    def columns(self, joined: Joined) -> Found: ...

    def summary(self, found: Found, where: str) -> str: ...


class Coordinates:
    """The ending of `ppca transform`."""

    operations = ("transform",)

    def in_the_clear(self, model: PCAModel, chunks: Iterable[Floats]) -> Found:
        return self._named(np.vstack([model.project(chunk) for chunk in chunks]))

    def on_shares(self, model: SharedModel, chunks: Iterable[Floats]) -> Found:
        return self._named(np.vstack(list(model.transform_batches(chunks))))

    def of_columns(self, model: SharedModel, rows: Sequence[Path], partition: Columns, receiver: int) -> Joined:
        return model.transform_columns(list(rows), partition, receiver)

    def columns(self, joined: Joined) -> Found:
        assert joined.coordinates is not None
        return self._named(joined.coordinates)

    def _named(self, coordinates: Floats) -> Found:
        return {f"pc{i + 1}": column for i, column in enumerate(np.ascontiguousarray(coordinates.T))}

    def summary(self, found: Found, where: str) -> str:
        count = len([name for name in found if name.startswith("pc")])
        return f"{len(found['pc1']):,} rows projected onto {count} component{'' if count == 1 else 's'} {where}"


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

    def of_columns(self, model: SharedModel, rows: Sequence[Path], partition: Columns, receiver: int) -> Joined:
        return model.detect_columns(list(rows), partition, receiver, **vars(self))

    def columns(self, joined: Joined) -> Found:
        return self._named(joined.scores, joined.flags)

    def _named(self, scores: Floats | None, flags: NDArray[np.bool_] | None) -> Found:
        found: Found = {} if flags is None else {"anomaly": flags.astype(np.int8)}
        return found | ({"score": scores} if self.scores and scores is not None else {})

    def summary(self, found: Found, where: str) -> str:
        count = len(next(iter(found.values())))
        flagged = f", {int(found['anomaly'].sum()):,} flagged" if "anomaly" in found else ""
        return f"{count:,} rows scored {where}{flagged}"


def transform(
    result: Result,
    rows: Rows,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="file for the coordinates: .csv or .parquet", rich_help_panel=RESULT)
    ] = Path("projected.csv"),
    revealed: Revealed = False,
    id_column: IdColumn = None,
    alignment: Way = "psi",
    namespace: Namespace = None,
    fold_case: FoldCase = False,
    receiver: Receiver = None,
    tls: Tls = False,
    timeout: Timeout = 60.0,
    servers_state: ServersState = None,
    force: Force = False,
) -> None:
    """Project new rows onto the components of a fitted model.

    On shares: four servers hold the model, the rows reach them as shares, and only the coordinates come back. Each component's
    sign is then the one the servers happen to have, the same in every call; nobody has looked at the components to choose it.

    Of a vertical fit give every owner's table, in the order of the fit: the rows that all owners have are projected, and the
    receiver gets them with its own ids.
    """
    with complaints():
        partition = _partition(rows, revealed, id_column, alignment, namespace, fold_case)
        _infer(Coordinates(), result, rows, output, revealed, partition, receiver, servers_state, tls, timeout, force)


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
    id_column: IdColumn = None,
    alignment: Way = "psi",
    namespace: Namespace = None,
    fold_case: FoldCase = False,
    receiver: Receiver = None,
    tls: Tls = False,
    timeout: Timeout = 60.0,
    servers_state: ServersState = None,
    force: Force = False,
) -> None:
    """Flag rows that a fitted model describes badly.

    The score of a row is its squared distance to its projection, of a standardised model in standardised units. On shares: the
    servers hold the model, the rows reach them as shares, and only flags (with --scores: also scores) come back.

    Of a vertical fit give every owner's table, in the order of the fit: the rows that all owners have are scored, and the
    receiver gets the verdicts with its own ids.
    """
    with complaints():
        wanted = Verdicts(threshold, contamination, scores)
        partition = _partition(rows, revealed, id_column, alignment, namespace, fold_case)
        _infer(wanted, result, rows, output, revealed, partition, receiver, servers_state, tls, timeout, force)


def _partition(
    rows: Sequence[Path], revealed: bool, id: str | None, alignment: str, namespace: int | None, fold_case: bool
) -> Columns | None:
    """How several owners' tables are joined; None if there is one table with all columns."""
    if len(rows) == 1 and id is None:
        return None
    if revealed:
        raise ValueError("--revealed needs all columns in one table: rows of several owners are only joined on shares.")
    return partition_of(id, alignment, namespace, fold_case, minimum=1)


def _infer(
    wanted: Ending,
    result: Path,
    rows: list[Path],
    output: Path,
    revealed: bool,
    partition: Columns | None,
    receiver: Path | None,
    servers_state: Path | None,
    tls: bool,
    timeout: float,
    force: bool,
) -> None:
    from ..jobs.kept import CLIENT, check_allowed, owner_name
    from .folder import check_file
    from .kept import ENDINGS, chunks_of, kept_model, load_facts, load_revealed, open_like, write_table
    from .progress import stage_bars
    from .result import print_openings, print_traffic
    from .shares import state_folder

    check_file(output, ENDINGS, replace=force)
    account: Account | None = None
    if revealed:
        model = load_revealed(result)
        found = wanted.in_the_clear(model, chunks_of(open_like(rows[0], model.feature_names, len(model.mean))))
    else:
        state = state_folder(servers_state)
        facts, to = load_facts(result, state), position_of(receiver, rows)
        for operation in wanted.operations:  # the servers would refuse it, too
            check_allowed(facts.allowed, operation, CLIENT if partition is None else owner_name(to))
        table = open_like(rows[0], facts.feature_names, len(facts.scale_exponents)) if partition is None else None
        with stage_bars() as show, kept_model(state, facts, show, tls=tls, timeout=timeout) as shared:
            if table is not None:
                found = wanted.on_shares(shared, chunks_of(table))
            else:
                assert partition is not None
                joined = wanted.of_columns(shared, rows, partition, to)
                ids: Found = {} if joined.ids is None else {partition.id or "row": joined.ids}
                found = ids | wanted.columns(joined)
            account = shared.job.account
    write_table(output, found)
    console = Console()
    console.print(wanted.summary(found, "in the clear" if revealed else "on shares"), highlight=False)
    if account is not None:
        print_openings(console, account)
        print_traffic(console, account)
    console.print(Text(f"written: {output}"), soft_wrap=True, highlight=False)
