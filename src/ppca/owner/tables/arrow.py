"""Tables that come as Arrow columns: Parquet, Arrow IPC (Feather), and pandas, polars or PyArrow frames in memory.

pandas and polars are not imported: a frame is known by the module of its class and used through its own methods.
"""

from __future__ import annotations

import copy
import json
import mmap
import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
import pyarrow.parquet
from numpy.typing import NDArray

from ..errors import BadValue
from .addresses import Address, Place, source
from .arrays import MAPPED_BYTES, exact_dtype
from .integers import Rest, rest_of
from .options import APOSTROPHES, SPACES
from .table import Piece, Table, check_choice, listed, reading

PORTION_NUMBERS = 1 << 25
"""Numbers of a portion of a Parquet file: a second or less of work, so that many workers share a file and few wait at
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

    def stream(self, rows: int, ids: list[Any]) -> Iterator[Piece]:
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
            threads = self.groups is None  # a portion is read by the thread of a worker that sums it
            for batch in file.iter_batches(rows, columns=self.wanted, row_groups=self.groups, use_threads=threads):
                yield [batch.column(name) for name in self.wanted]

    def portions(self) -> list[Table]:
        """Neighbouring row groups, of `PORTION_NUMBERS` together if one has less."""
        most = max(1, PORTION_NUMBERS // max(1, self.n_columns))
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
                    piece = batch.slice(start, rows)
                    yield [piece.column(name) for name in self.wanted]

    def portions(self) -> list[Table]:
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
                piece = batch.slice(start, rows)
                yield [piece.column(name) for name in self.wanted]
                passed += piece.nbytes
                if passed > MAPPED_BYTES:
                    pages.madvise(mmap.MADV_DONTNEED)
                    passed = 0

    def portions(self) -> list[Table]:
        return [copy.copy(self)]

    def _record_batches(self, pages: mmap.mmap) -> Iterator[Any]:
        """Whole batches: views of the mapped file, so columns that are not used are not read (unless compressed)."""
        if self.is_file:
            reader = pa.ipc.open_file(pa.py_buffer(pages))
            for index in range(reader.num_record_batches):
                yield reader.get_batch(index)
        else:
            yield from pa.ipc.open_stream(pa.py_buffer(pages))


class FrameTable(ArrowTable):
    """A PyArrow table or a polars frame in memory."""

    def __init__(self, label: str, frame: Any) -> None:
        self.frame = frame
        head = frame if isinstance(frame, pa.Table) else frame.slice(0, 0).to_arrow()
        self.rows = len(frame)
        super().__init__(label, head.schema)

    def batches(self, rows: int) -> Iterator[list[Any]]:
        for start in range(0, len(self.frame), rows):
            piece = self.frame.slice(start, rows)
            table = piece if isinstance(piece, pa.Table) else piece.select(self.wanted).to_arrow()
            yield [flat(table.column(name)) for name in self.wanted]


class LazyTable(ArrowTable):
    """A polars LazyFrame, collected batch by batch; its query runs once for every pass."""

    rows = None

    def __init__(self, label: str, frame: Any) -> None:
        self.frame = frame
        super().__init__(label, frame.limit(0).collect().to_arrow().schema)

    def batches(self, rows: int) -> Iterator[list[Any]]:
        for piece in self.frame.select(self.wanted).collect_batches(chunk_size=rows):
            table = piece.to_arrow()
            yield [flat(table.column(name)) for name in self.wanted]


class PandasTable(ArrowTable):
    """A pandas frame in memory; the named levels of its index are columns that are taken only if chosen."""

    def __init__(self, label: str, frame: Any) -> None:
        self.frame = frame
        self.rows = len(frame)
        names = [str(name) for name in frame.columns]
        self.index = [str(name) for name in frame.index.names if name is not None and str(name) not in names]
        fields = [
            pa.field(name, pa.float64() if self._objects(position) else self._array(position, 0, 0).type)
            for position, name in enumerate(names + self.index)
        ]
        super().__init__(label, pa.schema(fields), index=self.index)

    def _series(self, position: int) -> Any:
        """A column, or behind them a level of the index."""
        width = self.frame.shape[1]
        if position < width:
            return self.frame.iloc[:, position]
        levels = [str(name) for name in self.frame.index.names]
        return self.frame.index.get_level_values(levels.index(self.index[position - width])).to_series()

    def _objects(self, position: int) -> bool:
        return bool(self._series(position).dtype == np.dtype(object))

    def _array(self, position: int, start: int, stop: int) -> Any:
        series = self._series(position).iloc[start:stop]
        dense = series.sparse.to_dense() if str(series.dtype).startswith("Sparse") else series
        return flat(pa.array(dense, from_pandas=True))

    def batches(self, rows: int) -> Iterator[list[Any]]:
        for start in range(0, len(self.frame), rows):
            batch = [
                self._object_array(name, position, start, start + rows)
                if self._objects(position)
                else self._array(position, start, start + rows)
                for name, position in zip(self.names, map(self.stored.index, self.names), strict=True)
            ]
            bad = [column for column in batch if isinstance(column, BadCells)]
            if bad:
                raise not_numbers(self.label, bad)
            yield batch

    def joined_ids(self, pieces: list[Any]) -> Any:
        return None if self.id is None else self._series(self.stored.index(self.id))

    def _object_array(self, name: str, position: int, start: int, stop: int) -> Any:
        """A column of Python objects as numbers; `BadCells` with the first value that is neither a number nor None."""
        values = self._series(position).iloc[start:stop]
        whole = all(isinstance(value, int | np.integer) for value in values.dropna())
        for kind in (None, pa.uint64()) if whole else (None,):  # Arrow would cut fractions off
            try:
                array = pa.array(values, kind, from_pandas=True)
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
                continue
            if is_numeric(array.type):
                return flat(array)
        for offset, (value, absent) in enumerate(zip(values, values.isna(), strict=True)):
            try:
                numeric = absent or isinstance(value, int) or is_numeric(pa.scalar(value).type)
            except (pa.ArrowInvalid, pa.ArrowTypeError):
                numeric = False
            if not numeric:
                return BadCells(name, start + offset + 1, value, pa.string())
        return pa.array([None if absent else float(value) for value, absent in zip(values, values.isna(), strict=True)])

    def as_given(self, names: Sequence[str]) -> dict[str, Any]:
        return {name: self._array(self.stored.index(name), 0, self.rows or 0) for name in names}


def numbers(column: Any) -> tuple[NDArray[Any], Rest | None]:
    """An Arrow array as numbers, and what doubles lose of them; nulls become NaN."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.dictionary_decode(), kind.value_type
    if pa.types.is_integer(kind):
        whole = view(pc.fill_null(column, 0) if column.null_count else column)
        if not column.null_count:
            return whole, rest_of(whole)
        return view(pc.fill_null(pc.cast(column, pa.float64(), safe=False), np.nan)), rest_of(whole)
    if not (pa.types.is_float32(kind) or pa.types.is_float64(kind)):
        column = pc.cast(column, pa.float64(), safe=False)
    return view(pc.fill_null(column, np.nan) if column.null_count else column), None


def view(column: Any) -> NDArray[Any]:
    """An Arrow array of numbers without nulls as it lies in memory."""
    if not len(column):
        return np.empty(0)
    # `to_numpy` would import pandas, which takes longer than a small job
    values = np.frombuffer(column.buffers()[1], numpy_dtype(column.type))
    return values[column.offset : column.offset + len(column)]


def numpy_dtype(kind: Any) -> np.dtype[Any]:
    """The NumPy type of an Arrow type of booleans, integers or floats; Arrow's own function needs pandas."""
    if pa.types.is_boolean(kind):
        return np.dtype(bool)
    letter = "f" if pa.types.is_floating(kind) else "u" if pa.types.is_unsigned_integer(kind) else "i"
    return np.dtype(f"{letter}{kind.bit_width // 8}")


def is_numeric(kind: Any) -> bool:
    """Integers, floats, decimals, booleans; dictionaries of these; and columns that are all null (refused as
    missing)."""
    if pa.types.is_dictionary(kind):
        return is_numeric(kind.value_type)
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_null(kind)
    )


def chunk_dtype(kind: Any) -> np.dtype[Any]:
    """float32 for types that it holds exactly, else float64."""
    if pa.types.is_dictionary(kind):
        return chunk_dtype(kind.value_type)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return exact_dtype(numpy_dtype(kind))
    return np.dtype(np.float64)


def flat(column: Any) -> Any:
    """One array in place of a chunked one."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


@dataclass
class BadCells:
    """Cells of a column that are not numbers: the first one, and how many of how many there are (0: not counted).

    texts: some of the different texts in these cells. decimal: the decimal separator that is expected.
    """

    name: str
    row: int | None = None
    value: object = None
    kind: Any = None
    count: int = 0
    cells: int = 0
    texts: Sequence[str] = ()
    decimal: str = "."

    @property
    def what(self) -> str:
        if isinstance(self.value, str):
            return f"text {self.value[:40]!r}"
        return f"type {self.kind}" if self.value is None else f"{str(self.value)[:40]} ({self.kind})"

    @property
    def cause(self) -> tuple[str, str, Sequence[str]]:
        """Why it is not a number, what to do, and which options may help."""
        if not isinstance(self.value, str):
            dated = pa.types.is_temporal(self.kind) if self.kind is not None else False
            return ("a date or time" if dated else "not a number"), LEAVE_OUT, ["drop"]
        text = self.value.strip()
        texts = [text, *self.texts]
        if self.decimal == "," and re.fullmatch(r"[-+]?\d*\.\d+", text):
            return "a number with a decimal point", "Write all files with the same decimal separator.", ["decimal"]
        if any(re.fullmatch(r"[-+]?\d*,\d+", each) and not re.fullmatch(GROUPED_BY_COMMAS, each) for each in texts):
            return "a number with a decimal comma", "", ["decimal"]
        if re.fullmatch(GROUPED_BY_COMMAS, text):
            return "a number with a comma that separates thousands or decimals", "", ["thousands", "decimal"]
        if self.separator:
            comma = ["decimal"] if self.separator != "," and any("," in each for each in texts) else []
            return "a number with separators between thousands", "", ["thousands", *comma]
        if re.fullmatch(r"[-+]?[\d.,\s]+%", text):
            return (
                "a percentage",
                "Remove the % signs (format the cells as numbers), or leave the column out.",
                ["drop"],
            )
        if re.fullmatch(r"\d{4}-\d\d?-\d\d?([ T].*)?|\d\d?[./]\d\d?[./]\d{2,4}([ T].*)?", text):
            return "a date", "Leave the column out, or store it as a number.", ["drop"]
        if re.fullmatch(r"[-+]?[\d.,]+\s*[^\d\s.,]{1,4}|([A-Z]{3}\s|[$€£¥₹])\s*[-+]?[\d.,]+", text):
            return (
                "a number with a unit or currency",
                "Remove the unit from the cells, or leave the column out.",
                ["drop"],
            )
        return "not a number", LEAVE_OUT, ["na_values", "drop"] if self.may_mean_missing else ["drop"]

    @property
    def separator(self) -> str:
        """What separates thousands in the first cell; empty if nothing does."""
        found = re.fullmatch(
            rf"[-+]?\d{{1,3}}(?:([{SPACES}{APOSTROPHES}_.,])\d{{3}})+(?:[.,]\d*)?", str(self.value).strip()
        )
        if found is None or (found[1] == "." and "," not in str(self.value) and str(self.value).count(".") == 1):
            return ""
        return next((kind[0] for kind in (SPACES, APOSTROPHES) if found[1] in kind), found[1])

    @property
    def may_mean_missing(self) -> bool:
        """Whether the texts look like codes for missing values: few texts in a column that is mostly numbers."""
        return 0 < len(self.texts) <= MAX_CODES and 2 * self.count < self.cells


GROUPED_BY_COMMAS = r"[-+]?[1-9]\d{0,2}(,\d{3})+"
LEAVE_OUT = "Leave the column out, or correct the value."
MAX_CODES = 3
"""The largest number of different texts in a column of numbers that are taken for codes of missing values."""


def not_numbers(label: str, found: Sequence[BadCells]) -> BadValue:
    """The error that names all columns with cells that are not numbers."""
    values = list(dict.fromkeys(text for cells in found for text in cells.texts if "na_values" in cells.cause[2]))
    options = list(dict.fromkeys(option for cells in found for option in cells.cause[2]))
    columns, row = [cells.name for cells in found], min(cells.row or 1 for cells in found)
    if len(found) == 1:
        cause, advice, _ = found[0].cause
        others = f" ({found[0].count:,} such cells in all)" if found[0].count > 1 else ""
        where = f"in row {found[0].row or 1:,}{others}, which is {cause}."
        message = f"{label}: column {found[0].name!r} has {found[0].what} {where} {advice}".rstrip()
    else:
        places = [f"{cells.name!r} ({cells.what} in row {cells.row or 1:,}: {cells.cause[0]})" for cells in found]
        message = (
            f"{label}: {len(found):,} columns hold cells that are not numbers: {listed(places, str)}. Leave these "
            "columns out, or correct the values."
        )
    separator = next((cells.separator for cells in found if "thousands" in cells.cause[2]), "")
    return BadValue(message, columns=columns, row=row, options=options, values=values, separator=separator)


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
