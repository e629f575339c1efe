"""Tables that are NumPy arrays: in memory, in a .npy file (mapped, never loaded), in a .npz archive (streamed)."""

from __future__ import annotations

import copy
import mmap
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from ..errors import BadColumns, BadValue, NotANumber, UnreadableData
from .integers import Rest, rest_of
from .table import ChunkWithRest, Table

MAPPED_BYTES = 128 << 20
"""Number of bytes of a mapped file after which its pages are released."""

WHOLE_BYTES = 256 << 20
"""Largest column-major array of an archive, which can only be read whole."""


class ArrayTable(Table):
    """A two-dimensional array of numbers whose rows can be cut out."""

    held: list[str] | None = None
    names: list[str] | None = None

    def __init__(self, label: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.label = label
        if len(shape) != 2:
            hint = "reshape(-1, 1) makes it one column" if len(shape) == 1 else "give one row per observation"
            raise BadColumns(f"{label}: the array has {len(shape)} dimension(s), a table has two; {hint}.")
        if dtype.kind not in "biuf":
            raise UnreadableData(
                f"{label}: the array holds {dtype}, not numbers. Convert it to float64 (or any integer or real type)."
                + (" Complex data not supported." if dtype.kind == "c" else "")
            )
        self.rows, self.n_columns = shape
        self.dtype = exact_dtype(dtype)

    def choose(self, columns: Sequence[str] | None = None, id: str | None = None) -> Table:
        if id is not None:
            raise BadColumns(f"{self.label}: there is no id column {id!r}; it does not have column names.")
        if columns is None or list(columns) == self.names:
            return self
        if self.names is not None:
            raise BadColumns(f"{self.label}: the columns of an array cannot be put into another order.")
        raise BadColumns(
            f"{self.label}: the data do not have column names, so columns cannot be chosen by name. "
            "Cut the columns out before saving, or use CSV, Parquet or Arrow."
        )

    def renamed(self, names: Sequence[str], note: str) -> Table:
        other = copy.copy(self)
        other.names = list(names)
        other.notes = (*self.notes, note)
        return other

    def with_rest(self, numbers: NDArray[Any]) -> ChunkWithRest:
        return np.asarray(numbers, dtype=self.dtype), rest_of(numbers)


class MemoryTable(ArrayTable):
    """An array in memory. A masked value counts as missing."""

    def __init__(self, label: str, array: NDArray[Any]) -> None:
        self.rest: Rest | None = None
        if array.dtype == object and array.ndim == 2:
            array, self.rest = numbers_of(label, array)
        super().__init__(label, array.shape, array.dtype)
        self.array = array

    def stream(self, rows: int, ids: list[Any]) -> Iterator[ChunkWithRest]:
        for start in range(0, len(self.array), rows):
            chunk = self.array[start : start + rows]
            if isinstance(chunk, np.ma.MaskedArray):
                yield np.ma.filled(chunk.astype(self.dtype), np.nan), rest_of(np.ma.getdata(chunk))
            else:
                numbers, rest = self.with_rest(chunk)
                yield numbers, rest if self.rest is None else self.rest[start : start + rows]


class SparseTable(ArrayTable):
    """A SciPy sparse matrix or array, of which a chunk at a time is made dense."""

    def __init__(self, label: str, matrix: Any) -> None:
        super().__init__(label, matrix.shape, matrix.dtype)
        self.matrix = matrix.tocsr()

    def stream(self, rows: int, ids: list[Any]) -> Iterator[ChunkWithRest]:
        for start in range(0, self.matrix.shape[0], rows):
            yield self.with_rest(self.matrix[start : start + rows].toarray())


class NpyTable(ArrayTable):
    """A .npy file, mapped into memory; pages are given back after each chunk, so memory stays bounded."""

    def __init__(self, label: str, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            self.shape, self.column_major, self.stored = read_header(label, file)
            self.offset = file.tell()
        super().__init__(label, self.shape, self.stored)
        if path.stat().st_size < self.offset + self.shape[0] * self.shape[1] * self.stored.itemsize:
            raise UnreadableData(f"{label}: the file ends in the middle of the array. Save it again.")

    def stream(self, rows: int, ids: list[Any]) -> Iterator[ChunkWithRest]:
        with self.path.open("rb") as file:
            pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        order: Literal["F", "C"] = "F" if self.column_major else "C"
        array: NDArray[Any] = np.ndarray(self.shape, self.stored, pages, self.offset, order=order)
        passed = 0
        for start in range(0, len(array), rows):
            chunk = array[start : start + rows]
            yield self.with_rest(chunk)
            passed += chunk.nbytes
            if passed > MAPPED_BYTES:
                pages.madvise(mmap.MADV_DONTNEED)  # a chunk still in use is simply mapped again
                passed = 0

    def independent_parts(self) -> list[Table]:
        return [copy.copy(self)]


class NpzTable(ArrayTable):
    """The only array of a .npz archive, or the one named X, decompressed as it is read."""

    def __init__(self, label: str, path: Path) -> None:
        self.path = path
        with zipfile.ZipFile(path) as archive:
            arrays = [name for name in archive.namelist() if name.endswith(".npy")]
            if len(arrays) != 1 and "X.npy" not in arrays:
                held = ", ".join(repr(name[:-4]) for name in arrays) or "no array"
                raise UnreadableData(f"{label}: the archive holds {held}; it must hold one array, or one named 'X'.")
            self.member = arrays[0] if len(arrays) == 1 else "X.npy"
            if archive.getinfo(self.member).flag_bits & 1:
                raise UnreadableData(f"{label}: the archive is encrypted. Save the array without a password.")
            with archive.open(self.member) as file:
                shape, self.column_major, self.stored = read_header(label, file)
        super().__init__(label, shape, self.stored)
        if self.column_major and shape[0] * shape[1] * self.stored.itemsize > WHOLE_BYTES:
            raise UnreadableData(
                f"{label}: the array is stored column by column, which cannot be streamed from an archive. "
                "Save it with numpy.save (.npy), or numpy.ascontiguousarray(X) in the archive."
            )

    def stream(self, rows: int, ids: list[Any]) -> Iterator[ChunkWithRest]:
        assert self.rows is not None
        with zipfile.ZipFile(self.path) as archive, archive.open(self.member) as file:
            read_header(self.label, file)
            if self.column_major:
                whole = self._take(file, self.rows * self.n_columns).reshape(self.n_columns, self.rows).T
                for start in range(0, self.rows, rows):
                    yield self.with_rest(whole[start : start + rows])
                return
            for start in range(0, self.rows, rows):
                count = min(rows, self.rows - start)
                values = self._take(file, count * self.n_columns)
                yield self.with_rest(values.reshape(count, self.n_columns))

    def independent_parts(self) -> list[Table]:
        return [copy.copy(self)]

    def _take(self, file: Any, count: int) -> NDArray[Any]:
        wanted = count * self.stored.itemsize
        data = file.read(wanted)
        if len(data) != wanted:
            raise UnreadableData(f"{self.label}: the archive ends in the middle of the array. Save it again.")
        return np.frombuffer(data, dtype=self.stored)


def read_header(label: str, file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether column-major, and type of the array that follows in an opened .npy stream."""
    version = npy_format.read_magic(file)
    try:
        if version == (1, 0):
            return npy_format.read_array_header_1_0(file)
        if version == (2, 0):
            return npy_format.read_array_header_2_0(file)
    except TypeError as error:  # NumPy sorts the keys of the header, which may be of any type in a damaged file
        raise UnreadableData(f"{label}: the header of the array is damaged ({error}). Save it again.") from None
    raise UnreadableData(f"{label}: the array has format version {version}, which only named fields need.")


def exact_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """float32 if it holds all values of the type exactly, else float64 (of integers beyond 2^53 `rest_of` has the
    rest)."""
    small = (dtype.kind in "biu" and dtype.itemsize <= 2) or (dtype.kind == "f" and dtype.itemsize <= 4)
    return np.dtype(np.float32 if small else np.float64)


def numbers_of(label: str, array: NDArray[Any]) -> tuple[NDArray[np.float64], Rest]:
    """An array of Python objects as float64, and the rest of integers of 64 bits: None is missing, text is refused."""
    numbers, rest = np.empty(array.shape), np.zeros(array.shape, np.int16)
    for (row, column), value in np.ndenumerate(array):
        try:
            if isinstance(value, str | bytes):
                raise TypeError
            numbers[row, column] = np.nan if value is None else float(value)
            if isinstance(value, int | np.integer) and abs(int(value)) < 1 << 64:
                rest[row, column] = int(value) - int(numbers[row, column])
        except (TypeError, ValueError):
            kind = BadValue if isinstance(value, str | bytes) else NotANumber
            raise kind(
                f"{label}: column {column + 1} has {value!r} in row {row + 1:,}, which is not a number. "
                "Leave the column out or correct the value. An argument must be a string or a number.",
                columns=[str(column + 1)],
                row=row + 1,
            ) from None
    return numbers, rest


def array_of_lists(label: str, rows: Sequence[Any]) -> NDArray[Any]:
    """Rows that are lists of numbers as an array."""
    lengths = {len(row) for row in rows}
    if len(lengths) > 1:
        raise BadColumns(
            f"{label}: its rows have different lengths ({min(lengths)} to {max(lengths)}); a table has one."
        )
    array = np.array(rows)
    return array if array.dtype.kind in "biuf" else np.array(rows, dtype=object)
