"""What an owner sends for a job: its table becomes chunks of shares.

`contribution` reads the `Data` of a job and nothing else, so an analysis cannot change what owners send. Local jobs and
federations call it alike. A row ends here: what leaves is shares of its owner's sums, or shares of the row itself if the form of
data needs it.
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
from .alignment.arrangement import Alignment, Arranged, arrange_rows, order_digest
from .errors import OwnerError
from .tables.records import Records
from .tables.table import Table
from .wide import WideColumns, WideRows, padded

Key = Callable[[], bytes]
"""Returns the key that the owners of a job have in common. It is called only for tags and for digests of orders."""

Progress = Callable[[int, int | None], None]
"""Called with the number of rows (of columns, if the table is wide) so far, and of how many, if that is known."""


class Source:
    """An owner's table during one job. Rows that were read are kept, so that the table is not read twice.

    chunks: new rows that are not in a table. names: of their columns.
    """

    def __init__(
        self, table: Table | None, chunks: Iterable[Any] | None = None, names: Sequence[str] | None = None
    ) -> None:
        self._table, self._chunks, self._names = table, chunks, names
        self._records: Records | None = None
        self.arranged: Arranged | None = None
        """New rows in the order in which they were sent: by it a receiver knows whose result is whose."""

    @property
    def table(self) -> Table:
        """The table."""
        if self._table is None:
            raise OwnerError("these rows are no table.")
        return self._table

    @property
    def chunks(self) -> Iterable[Any]:
        """New rows, piece by piece."""
        return self.table.chunks() if self._chunks is None else self._chunks

    @property
    def names(self) -> Sequence[str] | None:
        """Names of the columns, if they have any."""
        return self.table.names if self._table is not None else self._names

    @property
    def label(self) -> str:
        """What messages call it."""
        return self._table.label if self._table is not None else "new rows"

    def records(self, data_width: int | None = None, align: Align | None = None, missing: str = REFUSE) -> Records:
        """All rows. data_width: number of columns of all owners, if rows are to be sent in the order of the table."""
        if self._records is None:
            fill = missing == MEAN
            if data_width is None:
                self._records = Records.of(self.table, fill=fill)
            else:
                in_order = align is not None and align.alignment == ALIGNED
                self._records = Records.for_upload(self.table, in_order=in_order, columns=data_width, fill=fill)
        return self._records


def way_of(align: Align) -> Alignment:
    """Return how an owner arranges its rows."""
    return Alignment(align.alignment, align.namespace, align.minimum, align.fold_case)


def missing_of(tables: Sequence[Table]) -> str:
    """Return how missing values count in a job of these tables.

    If one row owner wants the joint mean, all send the same inputs, and none shows by that whether it misses any value. An owner
    whose table refuses missing values refuses them still.
    """
    return MEAN if any(table.mean_for_missing for table in tables) else REFUSE


def form_of(sources: Sequence[Source], align: Align | None = None) -> str:
    """Return the form of data of a fit: whether there are more columns than rows, which may need a look at the tables.

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
    """Whether all row owners' rows, with those of zeros, are fewer than columns. No more rows than columns are looked at."""
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
    """Return all that an owner sends for one of its tables, as it is made.

    Whatever can be refused before rows are shared is refused by the call itself. table: number among the tables of all owners
    (`Data.widths`). Rows come before the other inputs.
    """
    return _FORMS[data.form](data, table, source, key, progress if progress is not None else _not_told)


def _not_told(done: int, total: int | None) -> None:
    """Progress that nobody asked for."""


def _rows(data: Data, table: int, source: Source, key: Key, progress: Progress) -> Iterator[Chunk]:
    """Sums of all rows, in one chunk whose size does not depend on their number."""
    tables = len(data.widths)
    if data.missing == MEAN:
        gaps = rows.gap_sums_of(source.table, progress)
        if data.check_inputs:
            rows.check_gaps(source.table, gaps)
        progress(gaps.count, gaps.count)
        yield Chunk(table, rows.share_gap_sums(gaps, tables))
    else:
        sums = rows.sums_of(source.table, progress)
        progress(sums.count, sums.count)
        yield Chunk(table, rows.share_sums(sums, tables))


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
    """Scale exponents of the columns of a table."""
    widths = data.widths
    start = sum(widths[:table]) if data.form in BY_COLUMNS else 0
    return np.asarray((data.scales or ())[start : start + widths[table]], np.int64)


def _arranged(data: Data, source: Source, key: Key) -> tuple[Arranged, bytes | None]:
    """Rows in the order in which they are sent; and a keyed digest of the order of their ids, if they are said to be aligned."""
    align = data.align
    if align is None:
        raise OwnerError(f"a job of the form {data.form!r} joins no columns.")
    width = data.width if data.form != NEW_COLUMNS else None
    records, way = source.records(width, align, data.missing), way_of(align)
    ordered = align.alignment == ALIGNED and records.ids is not None
    found = key() if align.alignment == PSI or ordered else b""
    order = order_digest(records, way, found) if ordered else None
    arranged = arrange_rows(records, way, found)
    source.arranged = arranged if data.form == NEW_COLUMNS else None
    return arranged, order


def _counted(
    chunks: Iterator[Chunk],
    total: int,
    progress: Progress,
    order: bytes | None = None,
    last: Callable[[], Chunk] | None = None,
) -> Iterator[Chunk]:
    """Chunks with rows, with progress; the digest of the order goes with the first. last: makes the chunk that follows them."""
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
    """Refuse rows that are not fewer than the columns of all owners, before any of them leaves."""
    if count >= data.width:
        raise OwnerError(
            f"{label}: the job is for fewer rows than its {data.width:,} columns; this table has {count:,}, rounded up as they "
            "are sent. Propose a job that is not wide.",
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
"""How each form of data is made."""
