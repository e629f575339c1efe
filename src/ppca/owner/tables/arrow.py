"""Tables that come as Arrow columns, and files of them: Parquet and Arrow IPC (Feather)."""

from __future__ import annotations

import copy
import json
import mmap
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
import pyarrow.parquet

from .addresses import Address, Place, source
from .arrays import MAPPED_BYTES
from .bad_cells import BadCells, not_numbers
from .columns import chunk_dtype, is_numeric, numbers
from .integers import Rest
from .table import ChunkWithRest, Table, check_choice, reading

PART_NUMBERS = 1 << 25
"""Numbers of a part of a Parquet file: a second or less of work, so that many workers share a file and few wait at
the end."""

PAGE_BUFFER = 128 << 10
"""Read-ahead per Parquet column, so that a row group of any size is streamed."""


class ArrowTable(Table):
    """Named columns that arrive as batches of Arrow arrays. Subclasses say how to open, and how to get batches."""

    def __init__(self, label: str, schema: Any, *, index: Sequence[str] = ()) -> None:
        """`index` names columns that are taken only if chosen (a pandas index that was stored with the table)."""
        self.label = label
        self.schema = schema
        self.stored = [str(name) for name in schema.names]
        self.held: list[str] = [name for name in self.stored if name not in index]

    @property
    def offered(self) -> list[str]:
        return self.stored

    def choose(self, columns: Sequence[str] | None = None, id: str | None = None) -> Self:
        known = self.held if columns is None and id in (None, *self.held) else self.stored
        names = check_choice(self.label, known, columns, id)
        names = [name for name in names if columns is not None or name in self.held]
        other = copy.copy(self)
        other.names, other.n_columns, other.id, other.chosen = names, len(names), id, True
        other.wanted = names if id is None else [*names, id]
        other.dtype = np.result_type(*[chunk_dtype(other.kind_of(name)) for name in names])
        return other

    names: list[str]
    dtype: np.dtype[Any]
    wanted: list[str]
    """The chosen columns, and the ids behind them."""

    def kind_of(self, name: str) -> Any:
        return self.schema.field(self.stored.index(name)).type

    def check_types(self) -> None:
        """Refuse chosen columns whose declared type is not numeric, with the first value of each as evidence."""
        bad = {name: BadCells(name, kind=kind) for name in self.names if not is_numeric(kind := self.kind_of(name))}
        if not bad:
            return
        only, row = copy.copy(self), 0
        only.names = only.wanted = list(bad)
        for batch in only.batches(1 << 16):
            for cells, column in zip(bad.values(), batch, strict=True):
                if cells.row is None and column.null_count < len(column):
                    offset = pc.index(pc.is_valid(column), True).as_py()
                    cells.row, cells.value = row + offset + 1, column[offset].as_py()
            row += len(batch[0])
            if all(cells.row is not None for cells in bad.values()):
                break
        raise not_numbers(self.label, list(bad.values()))

    def as_given(self, names: Sequence[str]) -> dict[str, Any]:
        only = copy.copy(self)
        only.names = only.wanted = list(names)
        only.id = None
        with reading(self.label):
            batches = list(only.batches(1 << 16))
        return {name: pa.chunked_array([batch[at] for batch in batches]) for at, name in enumerate(names)}

    @abstractmethod
    def batches(self, rows: int) -> Iterator[list[Any]]:
        """Yield lists of equally long Arrow arrays, one per wanted column, of any length (preferably `rows`)."""

    def stream(self, rows: int, ids: list[Any]) -> Iterator[ChunkWithRest]:
        """Fill column-major chunks of `rows` rows from batches of any length."""
        chunk, filled = np.empty((self.n_columns, 0), self.dtype), 0
        rest: Rest | None = None
        for batch in self.batches(rows):
            length, used = len(batch[0]), 0
            columns = [numbers(column) for column in batch[: self.n_columns]]
            ids += batch[self.n_columns :]
            while used < length:
                if filled == chunk.shape[1]:
                    chunk, rest, filled = np.empty((self.n_columns, rows), self.dtype), None, 0
                count = min(length - used, rows - filled)
                for k, (values, left) in enumerate(columns):
                    chunk[k, filled : filled + count] = values[used : used + count]
                    if left is not None:
                        rest = np.zeros(chunk.shape, np.int16) if rest is None else rest
                        rest[k, filled : filled + count] = left[used : used + count]
                used, filled = used + count, filled + count
                if filled == rows:
                    yield chunk.T, None if rest is None else rest.T
        if 0 < filled < chunk.shape[1]:
            yield np.ascontiguousarray(chunk[:, :filled]).T, None if rest is None else rest[:, :filled].T


class ParquetTable(ArrowTable):
    """A Parquet file, or some of its row groups: streamed page by page, from a store row group by row group."""

    groups: list[int] | None = None
    """The row groups that are read; None: all."""

    def __init__(self, label: str, path: Place) -> None:
        self.path = path
        with source(path) as opened, pa.parquet.ParquetFile(opened) as file:
            schema = file.schema_arrow
            found = file.metadata
            self.rows = found.num_rows
            self.sizes = [found.row_group(group).num_rows for group in range(found.num_row_groups)]
        super().__init__(label, schema, index=pandas_index(schema))

    def batches(self, rows: int) -> Iterator[list[Any]]:
        pages = (
            {"buffer_size": PAGE_BUFFER, "pre_buffer": False} if isinstance(self.path, Path) else {"pre_buffer": True}
        )
        with source(self.path) as opened, pa.parquet.ParquetFile(opened, **pages) as file:
            threads = self.groups is None  # a part is read by the thread of a worker that sums it
            for batch in file.iter_batches(rows, columns=self.wanted, row_groups=self.groups, use_threads=threads):
                yield [batch.column(name) for name in self.wanted]

    def independent_parts(self) -> list[Table]:
        """Neighbouring row groups, of `PART_NUMBERS` together if one has less."""
        most = max(1, PART_NUMBERS // max(1, self.n_columns))
        found: list[Table] = []
        first, held = 0, 0
        for group, size in enumerate(self.sizes):
            held += size
            if held >= most or group + 1 == len(self.sizes):
                other = copy.copy(self)
                other.groups, other.rows = list(range(first, group + 1)), held
                found.append(other)
                first, held = group + 1, 0
        return found


class StoredIpcTable(ArrowTable):
    """An Arrow IPC file or stream in a store, one record batch after the other."""

    rows = None

    def __init__(self, label: str, address: Address) -> None:
        self.address = address
        with self._reader() as reader:
            schema = reader.schema
        super().__init__(label, schema, index=pandas_index(schema))

    @contextmanager
    def _reader(self) -> Iterator[Any]:
        with self.address.open() as file:
            is_file = file.read(6) == b"ARROW1"
            file.seek(0)
            with pa.ipc.open_file(file) if is_file else pa.ipc.open_stream(file) as reader:
                yield reader

    def batches(self, rows: int) -> Iterator[list[Any]]:
        with self._reader() as reader:
            known = getattr(reader, "num_record_batches", None)
            for batch in reader if known is None else map(reader.get_batch, range(known)):
                for start in range(0, batch.num_rows, rows):
                    part = batch.slice(start, rows)
                    yield [part.column(name) for name in self.wanted]

    def independent_parts(self) -> list[Table]:
        return [copy.copy(self)]


class IpcTable(ArrowTable):
    """An Arrow IPC file (.arrow, .feather) or stream, mapped; pages are given back as it is read."""

    def __init__(self, label: str, path: Path) -> None:
        self.path = path
        pages = self._map()
        self.is_file = pages[:6] == b"ARROW1"
        buffer = pa.py_buffer(pages)
        reader = pa.ipc.open_file(buffer) if self.is_file else pa.ipc.open_stream(buffer)
        schema = reader.schema
        self.rows = count_rows(reader, buffer) if self.is_file else None
        super().__init__(label, schema, index=pandas_index(schema))

    def _map(self) -> mmap.mmap:
        with self.path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def batches(self, rows: int) -> Iterator[list[Any]]:
        pages, passed = self._map(), 0
        for batch in self._record_batches(pages):
            for start in range(0, batch.num_rows, rows):
                part = batch.slice(start, rows)
                yield [part.column(name) for name in self.wanted]
                passed += part.nbytes
                if passed > MAPPED_BYTES:
                    pages.madvise(mmap.MADV_DONTNEED)
                    passed = 0

    def independent_parts(self) -> list[Table]:
        return [copy.copy(self)]

    def _record_batches(self, pages: mmap.mmap) -> Iterator[Any]:
        """Whole batches: views of the mapped file, so columns that are not used are not read (unless compressed)."""
        if self.is_file:
            reader = pa.ipc.open_file(pa.py_buffer(pages))
            for index in range(reader.num_record_batches):
                yield reader.get_batch(index)
        else:
            yield from pa.ipc.open_stream(pa.py_buffer(pages))


def count_rows(reader: Any, buffer: Any) -> int | None:
    """Rows of an IPC file, if its batches are views of `buffer`; None if they would have to be decompressed."""
    rows = 0
    for index in range(reader.num_record_batches):
        batch = reader.get_batch(index)
        parts = [part for column in batch.columns for part in column.buffers() if part is not None and part.size]
        if not all(0 <= part.address - buffer.address < buffer.size for part in parts):
            return None
        rows += batch.num_rows
    return rows


def pandas_index(schema: Any) -> list[str]:
    """Columns that pandas stored as the index of its frame."""
    stored = (schema.metadata or {}).get(b"pandas")
    if not stored:
        return []
    return [name for name in json.loads(stored).get("index_columns", []) if isinstance(name, str)]
