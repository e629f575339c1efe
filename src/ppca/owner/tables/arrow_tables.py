"""Tables that come as Arrow columns: CSV, Parquet, Arrow IPC (Feather), and pandas, polars or PyArrow frames in memory.

pandas and polars are not imported: a frame is known by the module of its class and used through its own methods.
"""

from __future__ import annotations

import copy
import gzip
import json
import mmap
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet
from numpy.typing import NDArray

from ..errors import BadColumns, BadValue, UnreadableData
from .arrays import MAPPED_BYTES, exact_dtype
from .table import Chunk, Source, check_names, positions_of

CSV_BLOCK = 8 << 20
"""Bytes of text parsed at a time; a line must fit."""

PAGE_BUFFER = 128 << 10
"""Read-ahead per Parquet column, so that a row group of any size is streamed."""


class ArrowSource(Source):
    """Named columns that arrive as batches of Arrow arrays. Subclasses say how to open, and how to get batches."""

    def __init__(self, label: str, schema: Any, columns: Sequence[str] | None, *, index: Sequence[str] = ()) -> None:
        """`index` names columns that are taken only if chosen (a pandas index that was stored with the table)."""
        self.label = label
        self.schema = schema
        everything = [str(name) for name in schema.names]
        check_names(label, [name for name in everything if name not in index], chosen=columns is not None)
        self.everything = everything
        self._choose([name for name in everything if name not in index] if columns is None else columns)

    def _choose(self, columns: Sequence[str]) -> None:
        self.positions = positions_of(self.label, self.everything, columns)
        self.names: list[str] = list(columns)
        self.n_columns = len(self.names)
        types = [self.schema.field(position).type for position in self.positions]
        self.dtype = np.result_type(*[chunk_dtype(kind) for kind in types])

    def select(self, columns: Sequence[str]) -> Source:
        other = copy.copy(self)
        other._choose(columns)
        return other

    def renamed(self, names: Sequence[str], note: str) -> Source:
        raise BadColumns(f"{self.label}: the columns already have names.")

    def check_types(self) -> None:
        """Refuse chosen columns whose declared type is not numeric, with the first value as evidence."""
        for name, position in zip(self.names, self.positions, strict=True):
            kind = self.schema.field(position).type
            if not is_numeric(kind):
                self._refuse_type(name, kind)

    def _refuse_type(self, name: str, kind: Any) -> None:
        row = 0
        for batch in self.select([name]).batches(1 << 16):  # type: ignore[attr-defined]
            column = batch[0]
            if column.null_count < len(column):
                offset = next(i for i in range(len(column)) if column[i].is_valid)
                raise not_a_number(self.label, name, row + offset + 1, column[offset].as_py(), kind)
            row += len(column)
        raise not_a_number(self.label, name, 1, None, kind)

    @abstractmethod
    def batches(self, rows: int) -> Iterator[list[Any]]:
        """Yield lists of equally long Arrow arrays, one per chosen column, of any length (preferably `rows`)."""

    def stream(self, rows: int) -> Iterator[Chunk]:
        """Fill column-major chunks of `rows` rows from batches of any length."""
        chunk, filled = np.empty((self.n_columns, 0), self.dtype), 0
        for batch in self.batches(rows):
            length, used = len(batch[0]), 0
            columns = [self._numbers(name, column) for name, column in zip(self.names, batch, strict=True)]
            while used < length:
                if filled == chunk.shape[1]:
                    chunk, filled = np.empty((self.n_columns, rows), self.dtype), 0
                count = min(length - used, rows - filled)
                for values, column in zip(chunk, columns, strict=True):
                    values[filled : filled + count] = column[used : used + count]
                used, filled = used + count, filled + count
                if filled == rows:
                    yield chunk.T
        if 0 < filled < chunk.shape[1]:
            yield np.ascontiguousarray(chunk[:, :filled]).T

    def _numbers(self, name: str, column: Any) -> NDArray[Any]:
        """An Arrow array as floats; nulls become NaN."""
        kind = column.type
        if pa.types.is_dictionary(kind):
            column, kind = column.dictionary_decode(), kind.value_type
        if not (pa.types.is_floating(kind) or (pa.types.is_integer(kind) and column.null_count == 0)):
            column = pc.cast(column, pa.float64(), safe=False)
        return np.asarray(column.to_numpy(zero_copy_only=False))


class ParquetSource(ArrowSource):
    """A Parquet file, streamed page by page."""

    def __init__(self, label: str, path: Path, columns: Sequence[str] | None) -> None:
        self.path = path
        with pa.parquet.ParquetFile(path) as file:
            schema = file.schema_arrow
            self.rows = file.metadata.num_rows
        super().__init__(label, schema, columns, index=pandas_index(schema))
        self.check_types()

    def batches(self, rows: int) -> Iterator[list[Any]]:
        with pa.parquet.ParquetFile(self.path, buffer_size=PAGE_BUFFER, pre_buffer=False) as file:
            for batch in file.iter_batches(batch_size=rows, columns=self.names):
                yield [batch.column(name) for name in self.names]


class IpcSource(ArrowSource):
    """An Arrow IPC file (.arrow, .feather) or stream, mapped; pages are given back as it is read."""

    def __init__(self, label: str, path: Path, columns: Sequence[str] | None) -> None:
        self.path = path
        with path.open("rb") as file:
            self.is_file = file.read(6) == b"ARROW1"
        if self.is_file:
            buffer = pa.py_buffer(self._map())
            reader = pa.ipc.open_file(buffer)
            schema = reader.schema
            self.rows = count_rows(reader, buffer)
        else:
            schema = pa.ipc.open_stream(pa.py_buffer(self._map())).schema
            self.rows = None
        super().__init__(label, schema, columns, index=pandas_index(schema))
        self.check_types()

    def _map(self) -> mmap.mmap:
        with self.path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def batches(self, rows: int) -> Iterator[list[Any]]:
        pages, passed = self._map(), 0
        for batch in self._record_batches(pages):
            for start in range(0, batch.num_rows, rows):
                piece = batch.slice(start, rows)
                yield [piece.column(position) for position in self.positions]
                passed += piece.nbytes
                if passed > MAPPED_BYTES:
                    pages.madvise(mmap.MADV_DONTNEED)
                    passed = 0

    def _record_batches(self, pages: mmap.mmap) -> Iterator[Any]:
        """Whole batches: views of the mapped file, so columns that are not used are not read (unless compressed)."""
        if self.is_file:
            reader = pa.ipc.open_file(pa.py_buffer(pages))
            for index in range(reader.num_record_batches):
                yield reader.get_batch(index)
        else:
            yield from pa.ipc.open_stream(pa.py_buffer(pages))


class FrameSource(ArrowSource):
    """A PyArrow table or a polars frame in memory."""

    def __init__(self, label: str, frame: Any, columns: Sequence[str] | None) -> None:
        self.frame = frame
        head = frame if isinstance(frame, pa.Table) else frame.slice(0, 0).to_arrow()
        self.rows = len(frame)
        super().__init__(label, head.schema, columns)
        self.check_types()

    def batches(self, rows: int) -> Iterator[list[Any]]:
        for start in range(0, len(self.frame), rows):
            piece = self.frame.slice(start, rows)
            table = piece if isinstance(piece, pa.Table) else piece.select(self.names).to_arrow()
            yield [flat(table.column(name)) for name in self.names]


class PandasSource(ArrowSource):
    """A pandas frame in memory; its index is not a column."""

    def __init__(self, label: str, frame: Any, columns: Sequence[str] | None) -> None:
        self.frame = frame
        self.rows = len(frame)
        fields = [
            pa.field(str(name), pa.float64() if self._objects(position) else self._array(position, 0, 0).type)
            for position, name in enumerate(frame.columns)
        ]
        super().__init__(label, pa.schema(fields), columns)
        self.check_types()

    def _objects(self, position: int) -> bool:
        return bool(self.frame.dtypes.iloc[position] == np.dtype(object))

    def _array(self, position: int, start: int, stop: int) -> Any:
        return flat(pa.array(self.frame.iloc[start:stop, position], from_pandas=True))

    def batches(self, rows: int) -> Iterator[list[Any]]:
        for start in range(0, len(self.frame), rows):
            yield [
                self._object_array(name, position, start, start + rows)
                if self._objects(position)
                else self._array(position, start, start + rows)
                for name, position in zip(self.names, self.positions, strict=True)
            ]

    def _object_array(self, name: str, position: int, start: int, stop: int) -> Any:
        """A column of Python objects: numbers and None pass, the first other value is refused."""
        values = self.frame.iloc[start:stop, position]
        try:
            array = pa.array(values, from_pandas=True)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            array = None
        if array is not None and is_numeric(array.type):
            return flat(array)
        for offset, (value, absent) in enumerate(zip(values, values.isna(), strict=True)):
            try:
                numeric = absent or is_numeric(pa.scalar(value).type)
            except (pa.ArrowInvalid, pa.ArrowTypeError):
                numeric = False
            if not numeric:
                raise not_a_number(self.label, name, start + offset + 1, value, pa.string())
        return pa.array([None if absent else float(value) for value, absent in zip(values, values.isna(), strict=True)])


class CsvSource(ArrowSource):
    """Comma-, semicolon- or tab-separated text with a header line, also gzip-compressed.

    Every chosen column is parsed as float64, save those that hold true / false in the first block.
    """

    rows = None

    def __init__(self, label: str, path: Path, columns: Sequence[str] | None) -> None:
        self.path = path
        self.delimiter = sniff_delimiter(label, path)
        parse = pa.csv.ParseOptions(delimiter=self.delimiter)
        with pa.csv.open_csv(path, pa.csv.ReadOptions(block_size=CSV_BLOCK), parse) as reader:
            schema = reader.schema
        refuse_headerless(label, list(schema.names))
        self.inferred = schema
        fields = [
            pa.field(field.name, field.type if pa.types.is_boolean(field.type) else pa.float64()) for field in schema
        ]
        super().__init__(label, pa.schema(fields), columns)
        if not all(is_numeric(schema.field(position).type) for position in self.positions):
            self._refuse_text()

    def _open(self, types: dict[str, Any], *, threads: bool) -> Any:
        return pa.csv.open_csv(
            self.path,
            pa.csv.ReadOptions(block_size=CSV_BLOCK, use_threads=threads),
            pa.csv.ParseOptions(delimiter=self.delimiter),
            pa.csv.ConvertOptions(column_types=types, include_columns=self.names, strings_can_be_null=True),
        )

    def batches(self, rows: int) -> Iterator[list[Any]]:
        types = {name: self.schema.field(where).type for name, where in zip(self.names, self.positions, strict=True)}
        try:
            with self._open(types, threads=True) as reader:
                for batch in reader:
                    yield batch.columns
        except pa.ArrowInvalid:
            self._refuse_text()
            raise

    def _refuse_text(self) -> None:
        """Read the file again as text and raise `BadValue` for the first cell that is no number; return if none is."""
        done = 0
        with self._open(dict.fromkeys(self.names, pa.string()), threads=False) as reader:
            for batch in reader:
                worst: tuple[int, str, str] | None = None
                for name, position, column in zip(self.names, self.positions, batch.columns, strict=True):
                    kind = self.schema.field(position).type
                    row = first_text(pc.utf8_trim_whitespace(column), kind)
                    if row is not None and (worst is None or row < worst[0]):
                        worst = row, name, column[row].as_py()
                if worst is not None:
                    row, name, text = worst
                    raise not_a_number(self.label, name, done + row + 1, text, pa.string())
                done += batch.num_rows


def first_text(column: Any, kind: Any) -> int | None:
    """Position of the first string that does not parse as `kind`, by halving; None if all do."""
    if parses(column, kind):
        return None
    start, stop = 0, len(column)
    while stop - start > 1:
        middle = (start + stop) // 2
        if parses(column.slice(start, middle - start), kind):
            start = middle
        else:
            stop = middle
    return start


def parses(column: Any, kind: Any) -> bool:
    try:
        pc.cast(column, kind)
    except pa.ArrowInvalid:
        return False
    return True


def is_numeric(kind: Any) -> bool:
    """Integers, floats, decimals, booleans; dictionaries of these; and columns that are all null (refused as missing)."""
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
        return exact_dtype(np.dtype(kind.to_pandas_dtype()))
    return np.dtype(np.float64)


def flat(column: Any) -> Any:
    """One array in place of a chunked one."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def not_a_number(label: str, name: str, row: int, value: object, kind: Any) -> BadValue:
    if isinstance(value, str):
        what = f"text {value[:40]!r}"
    elif value is None:
        what = f"type {kind}"
    else:
        what = f"{str(value)[:40]} ({kind})"
    return BadValue(
        f"{label}: column {name!r} has {what} in row {row:,}, which is not a number. "
        "Leave the column out (--columns), or correct the value.",
        column=name,
        row=row,
    )


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


def sniff_delimiter(label: str, path: Path) -> str:
    """Tab for .tsv; else whichever of comma, semicolon, tab and bar is most frequent in the header line."""
    if ".tsv" in (suffix.lower() for suffix in path.suffixes[-2:]):
        return "\t"
    with gzip.open(path, "rb") if path.suffix.lower() == ".gz" else path.open("rb") as file:
        header = file.readline(CSV_BLOCK).decode(errors="replace")
    if not header.strip():
        raise UnreadableData(f"{label}: the file is empty or starts with an empty line; a header line is needed.")
    return max(",;\t|", key=header.count)


def refuse_headerless(label: str, names: list[str]) -> None:
    """Refuse a first line of data where the names should be. Names 0, 1, 2, ... or 1, 2, 3, ... are taken as names."""
    try:
        numbers = [float(name) for name in names]
    except ValueError:
        return
    if names and numbers not in (list(range(len(names))), list(range(1, len(names) + 1))):
        raise BadColumns(
            f"{label}: the first line holds numbers ({', '.join(names[:3])}, ...) where column names should be. "
            "Put a line with the names of the columns at the top."
        )
