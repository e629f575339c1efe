"""Make an owner's contribution to a job: chunks of shares of its sums or rows.

`contribution` depends only on the `Data` of a job, so an analysis cannot change what owners send. Local jobs and
federations both call it. Plaintext rows do not leave this module: it returns shares of the owner's sums, or of the rows
if the form of data requires them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..jobs.chunks import Chunk
from ..jobs.input_types import COORDINATE, row_type
from ..jobs.spec import (
    ALIGNED,
    BY_COLUMNS,
    COLUMNS,
    COORDINATES,
    MEAN,
    NAMESPACE,
    NEW_COLUMNS,
    NEW_ROWS,
    PSI,
    REFUSE,
    ROWS,
    WIDE_COLUMNS,
    WIDE_ROWS,
    Align,
    Data,
)
from . import columns, rows
from .alignment.arrangement import Arranged, arrange_rows, order_digest
from .errors import OwnerError
from .tables.records import Records
from .tables.table import Table
from .wide import WideColumns, WideRows, padded

Key = Callable[[], bytes]
"""Function that returns the common key of the owners of a job. Called only for tags and for digests of orders."""

Progress = Callable[[int, int | None], None]
"""Progress callback: called with the number of rows (columns, if the table is wide) done, and the total if known."""


class Source:
    """An owner's table during one job. Rows are cached after reading, so that the table is read once.

    chunks: new rows that are not in a table. names: names of their columns.
    """

    def __init__(
        self, table: Table | None, chunks: Iterable[Any] | None = None, names: Sequence[str] | None = None
    ) -> None:
        self._table, self._chunks, self._names = table, chunks, names
        self._records: Records | None = None
        self.arranged: Arranged | None = None
        """New rows in the order in which they were sent, so that a receiver can assign results to rows."""

    @property
    def table(self) -> Table:
        """Table of the owner."""
        if self._table is None:
            raise OwnerError("these rows are not a table.")
        return self._table

    @property
    def chunks(self) -> Iterable[Any]:
        """New rows, in chunks."""
        return self.table.chunks() if self._chunks is None else self._chunks

    @property
    def names(self) -> Sequence[str] | None:
        """Names of the columns, or None."""
        return self.table.names if self._table is not None else self._names

    @property
    def label(self) -> str:
        """Name of the table in messages."""
        return self._table.label if self._table is not None else "new rows"

    def records(self, data_width: int | None = None, align: Align | None = None, missing: str = REFUSE) -> Records:
        """Return all rows. data_width: number of columns of all owners, if rows are sent in the order of the table."""
        if self._records is None:
            fill = missing == MEAN
            if data_width is None:
                self._records = Records.of(self.table, fill=fill)
            else:
                in_order = align is not None and align.alignment == ALIGNED
                self._records = Records.for_upload(self.table, in_order=in_order, columns=data_width, fill=fill)
        return self._records


def missing_of(tables: Sequence[Table]) -> str:
    """Return the treatment of missing values in a job of these tables.

    If one row owner chooses the joint mean, all owners send the same inputs, which do not reveal whether values are
    missing. An owner whose table refuses missing values still refuses them.
    """
    return MEAN if any(table.mean_for_missing for table in tables) else REFUSE


def form_of(sources: Sequence[Source], align: Align | None = None) -> str:
    """Return the form of data of a fit. To find out whether the table is wide, rows may have to be counted.

    align: of column owners; None: row owners.
    """
    if align is None:
        return WIDE_ROWS if are_wide([source.table for source in sources]) else ROWS
    width = sum(source.table.n_columns for source in sources)
    missing = missing_of([source.table for source in sources])
    counts = [len(source.records(width, align, missing).values) for source in sources]
    common = min(counts) if align.alignment != NAMESPACE else int(align.namespace or 0)
    return WIDE_COLUMNS if common < width else COLUMNS


def are_wide(tables: Sequence[Table]) -> bool:
    """Return whether all row owners' rows, including rows of zeros, are fewer than columns. Reads at most that many
    rows."""
    width, left = tables[0].n_columns, len(tables) * padded(1)
    if left > width or missing_of(tables) == MEAN:
        return False
    for table in tables:
        left -= padded(1)
        count = 0
        for size in [table.rows] if table.rows is not None else map(len, table.chunks(check=False)):
            count += size
            if left + padded(count) >= width:
                return False
        left += padded(count)
    return True


def contribution(data: Data, table: int, source: Source, key: Key, progress: Progress | None = None) -> Iterator[Chunk]:
    """Return an iterator of all chunks that an owner sends for one of its tables.

    The call itself raises for all errors that can be found before rows are shared. table: number among the tables of
    all owners (`Data.widths`). Rows come before the other inputs.
    """
    return _FORMS[data.form](data, table, source, key, progress if progress is not None else _not_told)


def _not_told(done: int, total: int | None) -> None:
    """Ignore progress."""


def _rows(data: Data, table: int, source: Source, key: Key, progress: Progress) -> Iterator[Chunk]:
    """Read the table. Return one chunk with the sums of all rows, whose size does not depend on their number. They are
    shared when the chunk is taken, so shares of several tables are not in memory at the same time."""
    tables = len(data.widths)
    if data.missing == MEAN:
        moments = rows.missing_moments_of(source.table, progress)
        if data.check_inputs:
            rows.check_missing(source.table, moments)
        progress(moments.count, moments.count)
        return map(lambda found: Chunk(table, rows.share_missing_moments(found, tables)), iter([moments]))
    sums = rows.sums_of(source.table, progress)
    progress(sums.count, sums.count)
    return map(lambda found: Chunk(table, rows.share_sums(found, tables)), iter([sums]))


def _wide_rows(data: Data, table: int, source: Source, key: Key, progress: Progress) -> Iterator[Chunk]:
    records = source.records()
    _refuse_tall(data, source.label, padded(len(records.values)))
    found = WideRows.of(records, data.standardize)
    return _counted(found.chunks(table), data.widths[table], progress, last=lambda: Chunk(table, found.share_sums()))


def _columns(data: Data, table: int, source: Source, key: Key, progress: Progress) -> Iterator[Chunk]:
    arranged, order = _arranged(data, source, key)
    own = data.owners_multiply
    found = columns.Centred.of(arranged)

    def last() -> Chunk:
        if data.align is not None and data.align.row_share_at_most is not None:
            found.check_row_shares(data.align.row_share_at_most)
        return Chunk(table, [*found.share_scales(), *([found.share_own()] if own else [])])

    return _counted(found.chunks(table, own), len(arranged.values), progress, order, last)


def _wide_columns(data: Data, table: int, source: Source, key: Key, progress: Progress) -> Iterator[Chunk]:
    arranged, order = _arranged(data, source, key)
    if data.align is not None and data.align.alignment != PSI:
        _refuse_tall(data, source.label, len(arranged.values))
    found = WideColumns.of(arranged, data.standardize, data.owners_multiply)
    return _counted(found.chunks(table), found.width, progress, order, lambda: Chunk(table, found.share_sums()))


def _new_rows(data: Data, table: int, source: Source, key: Key, progress: Progress) -> Iterator[Chunk]:
    kind, done = COORDINATE if data.form == COORDINATES else row_type(data.standardize), 0
    for packets in rows.new_rows(source.chunks, _scales(data, table), kind, source.names):
        done += packets[0].shape[0]
        yield Chunk(table, [packets], rows=True)
        progress(done, None)


def _new_columns(data: Data, table: int, source: Source, key: Key, progress: Progress) -> Iterator[Chunk]:
    arranged, order = _arranged(data, source, key)
    found = columns.new_rows(table, arranged, _scales(data, table), data.standardize)
    return _counted(found, len(arranged.values), progress, order)


def _scales(data: Data, table: int) -> NDArray[np.int64]:
    """Return the scale exponents of the columns of a table."""
    widths = data.widths
    start = sum(widths[:table]) if data.form in BY_COLUMNS else 0
    return np.asarray((data.scales or ())[start : start + widths[table]], np.int64)


def _arranged(data: Data, source: Source, key: Key) -> tuple[Arranged, bytes | None]:
    """Return rows in the order in which they are sent and, for aligned rows with ids, a keyed digest of the order of
    ids."""
    align = data.align
    if align is None:
        raise OwnerError(f"a job of the form {data.form!r} does not join columns.")
    width = data.width if data.form != NEW_COLUMNS else None
    records = source.records(width, align, data.missing)
    ordered = align.alignment == ALIGNED and records.ids is not None
    found = key() if align.alignment == PSI or ordered else b""
    order = order_digest(records, align, found) if ordered else None
    arranged = arrange_rows(records, align, found)
    source.arranged = arranged if data.form == NEW_COLUMNS else None
    return arranged, order


def _counted(
    chunks: Iterator[Chunk],
    total: int,
    progress: Progress,
    order: bytes | None = None,
    last: Callable[[], Chunk] | None = None,
) -> Iterator[Chunk]:
    """Yield chunks with rows and report progress. The first has the digest of the order. last: makes the chunk after
    them."""
    done = 0
    for chunk in chunks:
        if done == 0:
            chunk.order = order
        done += chunk.packets[0][0].shape[0]
        yield chunk
        progress(done, total)
    if last is not None:
        yield last()


def _refuse_tall(data: Data, label: str, count: int) -> None:
    """Raise `OwnerError`, before anything is sent, unless there are fewer rows than columns of all owners."""
    if count >= data.width:
        raise OwnerError(
            f"{label}: the job is for fewer rows than its {data.width:,} columns; this table has {count:,}, rounded "
            "up as they are sent. Propose a job that is not wide.",
            options=["wide"],
        )


_FORMS: dict[str, Callable[..., Iterator[Chunk]]] = {
    ROWS: _rows,
    COLUMNS: _columns,
    WIDE_ROWS: _wide_rows,
    WIDE_COLUMNS: _wide_columns,
    NEW_ROWS: _new_rows,
    COORDINATES: _new_rows,
    NEW_COLUMNS: _new_columns,
}
"""Function that makes the chunks of each form of data."""
