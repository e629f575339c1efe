"""Owners of columns of the same individuals: how their rows come together, and what a fit and an upload take."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from ..jobs import columns as programs
from ..jobs import uploads, wide_columns
from ..jobs.checks import SpecError
from ..jobs.loading import as_data
from ..jobs.matching import MatchError
from ..jobs.spec import COLUMNS, MIN_COMMON_IDS, WIDE_COLUMNS, Align, Data, JobSpec, local_owners, numbered
from ..jobs.workers import Workers, check_workers
from ..owner.alignment.arrangement import Alignment, Arranged, arrange
from ..owner.alignment.ids import DECIMALS, LETTERS, ZEROS, spellings
from ..owner.columns import Centred, Piece
from ..owner.errors import OwnerError
from ..owner.tables.owners import IdNames
from ..owner.tables.records import Records
from ..owner.tables.table import listed
from ..owner.wide import WideColumns
from ..protocol import InputPacket
from ..receiver.unsealing import received
from .job import Job

T = TypeVar("T")


@dataclass(frozen=True)
class Columns:
    """A partition by columns: owners hold different columns of the same individuals.

    id : the name of the id column (or of a pandas index) in every owner's table; where names differ, a list in the order of the
        owners, or a dictionary by their names
    alignment : "psi" (private join by id), "aligned" (same rows in the same order), "namespace" (ids 0 .. namespace - 1)
    namespace : the number of ids, for that alignment only
    minimum : the fewest common ids that are worked on (psi)
    fold_case : whether ids that differ in case only are equal
    pieces : row pieces of the second moments; None: as few as the ring allows
    workers : worker processes of every server that compute the pieces, or "dask": its operator's cluster; 0: the server itself
    """

    id: IdNames = None
    alignment: str = "psi"
    namespace: int | None = None
    minimum: int = MIN_COMMON_IDS
    fold_case: bool = False
    pieces: int | None = None
    workers: Workers = 0

    def __post_init__(self) -> None:
        self.way  # noqa: B018 - refuses what cannot be
        check_workers(self.workers)
        if self.pieces is not None and self.pieces < 1:
            raise SpecError("pieces", self.pieces, "must be at least 1")

    @property
    def align(self) -> Align:
        """The alignment as a job has it."""
        return Align(alignment=self.alignment, namespace=self.namespace, minimum=self.minimum, fold_case=self.fold_case)

    @property
    def way(self) -> Alignment:
        return Alignment(self.alignment, self.namespace, self.minimum, self.fold_case)


class FewMatches(OwnerError, MatchError):
    """Too few rows are common to all owners. What may be wrong with the ids is said as far as owners see it in their own."""


@dataclass
class ColumnFit:
    """What came out of a fit: what the servers returned, columns, rows and bytes by owner, seconds by step.

    doubt: why so few rows are common, if it can be guessed.
    """

    result: dict[str, Any]
    widths: list[int]
    rows_of_owners: list[int]
    bytes_sent: list[int]
    seconds: dict[str, float]
    doubt: FewMatches | None


def upload(job: Job, table: str, pieces: Iterable[Piece], total: int) -> dict[int, int]:
    """Uploads pieces as they are made, the next one while one travels; bytes by owner."""
    sent: dict[int, int] = {}
    done = 0
    for piece in _one_ahead(iter(pieces)):
        size = sum(len(packet.row) + len(packet.column) for packet in piece.packets)
        size += 0 if piece.tags is None else 4 * piece.tags.nbytes
        job.run(uploads.upload, piece.packets, table=table, owner=piece.owner, tags=piece.tags)
        sent[piece.owner] = sent.get(piece.owner, 0) + size
        done += piece.rows
        job.progress(f"upload, {piece.label}", done / total)
    return sent


def check_number(owners: int) -> None:
    """Refuse a sole owner of columns."""
    if owners < 2:
        raise OwnerError("a partition by columns needs at least two owners: give one table for each.")


def check_matched(answer: dict[str, Any], partition: Columns, owners: Sequence[Records]) -> None:
    """Raises `MatchError` if the servers found too few common rows to go on."""
    if "refused" in answer:
        doubts, options = doubts_of(owners, partition.fold_case)
        message = "; ".join([answer["refused"], *doubts])
        raise FewMatches(f"{message}.", options=[*options, *(["minimum"] if partition.minimum > 1 else [])])


def doubts_of(owners: Sequence[Records], fold_case: bool) -> tuple[list[str], list[str]]:
    """What may keep ids from matching, and parameters that may help. Every owner looks at its own ids only."""
    seen = {owner.label: spellings(owner.ids, owner.label) for owner in owners if owner.ids is not None}
    doubts, options = [], []
    for form, meaning in (
        (DECIMALS, "ids of {} end in '.0', as integers do that were written as decimals"),
        (ZEROS, "ids of {} begin with zeros, which count"),
    ):
        whose = [label for label, forms in seen.items() if form in forms]
        if 0 < len(whose) < len(seen):
            doubts.append(meaning.format(listed(whose)))
    if not fold_case and any(LETTERS in forms for forms in seen.values()):
        doubts.append("ids have letters, whose case counts")
        options.append("fold_case")
    return doubts, options


def _one_ahead(items: Iterator[T]) -> Iterator[T]:
    """The same items; each is made in a thread while the caller works with the one before."""
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = pool.submit(next, items, None)
            yield item


class _Clock:
    """Seconds by step."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def done(self, step: str) -> None:
        now = time.perf_counter()
        self.seconds[step], self._last = now - self._last, now


def fit_columns(
    job: Job,
    owners: Sequence[Records],
    partition: Columns,
    make_job: Callable[[Data], JobSpec],
    check_rows: Callable[[int], None],
) -> ColumnFit:
    """The whole job: owners arrange and share their rows, servers align and analyse them."""
    check_number(len(owners))
    way, clock = partition.way, _Clock()
    arranged = arrange(owners, way)
    wide = is_wide(arranged)
    spec = make_job(column_data(WIDE_COLUMNS if wide else COLUMNS, arranged, partition))
    sending = _wide(arranged, spec) if wide else _tall(arranged, partition)
    clock.done("arrange")
    with job.table() as table:
        sent = upload(job, table, sending.pieces, sending.total)
        clock.done("upload")
        packets = [packet for owner in sending.packets() for packet in owner]
        result = job.run(sending.program, *packets, table=table, job=as_data(spec), **sending.public)
        if "rows" in result:
            check_rows(result["rows"])  # as the servers did, in the words of this surface
        check_matched(result, partition, owners)
    clock.done("analysis")
    return ColumnFit(
        received(result),
        spec.data.widths,
        [len(owner.values) for owner in owners],
        [sent[number] for number in range(len(owners))],
        clock.seconds,
        _doubt(owners, partition, result["rows"]),
    )


def column_data(form: str, arranged: Sequence[Arranged], partition: Columns, **more: Any) -> Data:
    """Return the data of column owners on local servers."""
    owners, columns, start = local_owners(len(arranged)), {}, 0
    for name, rows in zip(owners, arranged, strict=True):
        columns[name] = numbered(rows.values.shape[1], start)
        start += rows.values.shape[1]
    pieces = partition.pieces if form == COLUMNS else None
    return Data(form=form, owners=owners, columns=columns, align=partition.align, pieces=pieces, **more)


def is_wide(arranged: Sequence[Arranged]) -> bool:
    """Whether there are more columns than rows that owners can have in common."""
    width: int = sum(owner.values.shape[1] for owner in arranged)
    return min(len(owner.values) for owner in arranged) < width


@dataclass
class _Sending:
    """What owners upload, how much of it there is, what they send then, and the program that takes it."""

    pieces: Iterable[Piece]
    total: int
    packets: Callable[[], list[list[list[InputPacket]]]]
    program: Any
    public: dict[str, Any]


def _tall(arranged: Sequence[Arranged], partition: Columns) -> _Sending:
    """Rows, and where owners know the common ones their own sums."""
    own = partition.way.owners_know_rows
    parts = [Centred.of(owner) for owner in arranged]
    return _Sending(
        (piece for number, part in enumerate(parts) for piece in part.pieces(number, own)),
        sum(len(owner.values) for owner in arranged),
        lambda: [[*part.share_scales(), part.share_own()] if own else part.share_scales() for part in parts],
        programs.fit,
        {"workers": partition.workers},
    )


def _wide(arranged: Sequence[Arranged], job: JobSpec) -> _Sending:
    """Columns, and products of rows."""
    parts = [WideColumns.of(owner, job.data.standardize) for owner in arranged]
    return _Sending(
        (piece for number, part in enumerate(parts) for piece in part.pieces(number)),
        sum(part.width for part in parts),
        lambda: [part.share_sums() for part in parts],
        wide_columns.fit,
        {},
    )


def _doubt(owners: Sequence[Records], partition: Columns, rows: int) -> FewMatches | None:
    """What may be wrong with the ids, if less than half of the rows of every owner are common; it is told, not raised."""
    fewest = min(len(owner.values) for owner in owners)
    if partition.alignment != "psi" or 2 * rows >= fewest:
        return None
    doubts, options = doubts_of(owners, partition.fold_case)
    text = f"only {rows:,} of at least {fewest:,} ids are common: {'; '.join(doubts)}."
    return FewMatches(text, options=options) if doubts else None
