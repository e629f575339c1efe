"""Common interface of all kinds of tables: columns chosen by name, rows streamed in chunks, ids separate."""

from __future__ import annotations

import difflib
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tokenize import TokenError
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..errors import BadColumns, BadValue, OwnerError, UnreadableData
from .integers import Rest

Chunk = NDArray[np.float32] | NDArray[np.float64]
ChunkWithRest = tuple[Chunk, Rest | None]
"""A chunk, and what rounding integers of 64 bits to its doubles left of them: to be added (None: nothing)."""

CHUNK_BYTES = 32 << 20
"""Size of a chunk once it is float64: large enough for BLAS at full speed, small enough for a few copies of it."""

CHUNK_ROWS = 1 << 16
"""Most rows of a chunk; the rounding error of a sum over a chunk grows with them (see moments.py)."""


def chunk_rows_for(n_columns: int) -> int:
    """Rows of a chunk of `n_columns` columns."""
    return max(1, min(CHUNK_ROWS, CHUNK_BYTES // (8 * max(1, n_columns))))


class Table(ABC):
    """Rows of finite numbers that can be streamed more than once, in bounded memory; and, apart, a column of ids.

    Opening one reads its schema only; `choose` says which columns are wanted, and checks that they are numbers.

    Attributes
    ----------
    label : what messages call it: the file's name, or "owner 1"
    held : names of all columns that the data have, numbers or not; None when they have none (NumPy arrays)
    names : names of the chosen columns in the order of the chunks' columns, or None
    n_columns : number of columns of a chunk
    id : the name of the id column, which is not in chunks, or None
    chosen : whether columns were chosen
    rows : number of rows if known without reading the data, otherwise None
    notes : what a user should be told: columns put into another order, names taken over from another owner
    min_rows : the fewest rows with which the owner takes part in a fit with other owners
    mean_for_missing : whether missing values count as a mean in a fit; else they are refused
    on_dask : whether the workers of the Dask client in use pass over the table, each over parts of it
    na_numbers : numbers that count as missing values
    unnamed : columns without a name in the data, called by their position
    """

    _stamp: Any = None
    label: str
    held: list[str] | None
    names: list[str] | None
    n_columns: int
    rows: int | None
    id: str | None = None
    chosen: bool = False
    notes: tuple[str, ...] = ()
    mean_for_missing: bool = False
    min_rows: int = 1
    on_dask: bool = False
    na_numbers: tuple[float, ...] = ()
    unnamed: Sequence[str] = ()

    @property
    def offered(self) -> list[str] | None:
        """Names of all columns that can be chosen: `held`, and those that are taken only if they are named."""
        return self.held

    @abstractmethod
    def choose(self, columns: Sequence[str] | None = None, id: str | None = None) -> Table:
        """The same rows with these columns, in this order (None: all but the ids), and the ids apart. Nothing is
        read."""

    def chunks(self, rows: int | None = None, *, check: bool = True, ids: list[Any] | None = None) -> Iterator[Chunk]:
        """Yield `chunks_with_rest` without the rests, which rounding integers beyond 2^53 leaves."""
        return (chunk for chunk, _ in self.chunks_with_rest(rows, check=check, ids=ids))

    def chunks_with_rest(
        self, rows: int | None = None, *, check: bool = True, ids: list[Any] | None = None
    ) -> Iterator[ChunkWithRest]:
        """Yield the table from the top, at most `rows` rows at a time (default: about 32 MB as float64).

        A chunk is float32 if that holds every value of the table exactly, else float64; row-major or column-major,
        whichever the data are; possibly a read-only view. With `check`, NaN or infinity raises `BadValue`; without, the
        caller looks for them itself and calls `refuse_values`. `ids` collects the chunks of the id column.
        """
        if rows is not None and rows < 1:
            raise ValueError(f"chunks of {rows} rows: at least 1 is needed")
        with reading(self.label):
            self._refuse_changed()
            for chunk, rest in self.stream(rows or chunk_rows_for(self.n_columns), [] if ids is None else ids):
                if self.na_numbers:
                    chunk, rest = self.marked((chunk, rest))
                if check and not np.isfinite(chunk.sum(dtype=np.float64)):
                    self.refuse_values(missing=True)
                yield chunk, rest
            self._refuse_changed()

    def stamp(self) -> Any:
        """Return size and modification time of a local file, to detect changes; None if the table is not a local
        file."""
        path = getattr(self, "path", None)
        if not isinstance(path, Path):
            return None
        found = path.stat()
        return found.st_size, found.st_mtime_ns

    def _refuse_changed(self) -> None:
        """Refuse a file that is not as it was when the first pass over it began: passes would be of different rows."""
        stamp = self.stamp()
        self._stamp = stamp if self._stamp is None else self._stamp
        if stamp != self._stamp:
            raise UnreadableData(
                f"{self.label}: the file has changed while it was read (size or time of the last change). Run again "
                "when no program writes to it."
            )

    @abstractmethod
    def stream(self, rows: int, ids: list[Any]) -> Iterator[ChunkWithRest]:
        """Yield chunks of at most `rows` rows. Text raises `BadValue`; missing values come as NaN."""

    def independent_parts(self) -> list[Table] | None:
        """The same rows, in the same order, as tables that another process can read by itself; None: the rows are only
        here."""
        return None

    def check_types(self) -> None:  # noqa: B027 - arrays have one type, which is checked when they are opened
        """Raise `BadValue` with all chosen columns that are not numbers, as far as their types tell."""

    def as_given(self, names: Sequence[str]) -> dict[str, Any]:
        """Columns as they stand in the data, numbers or not, in one pass."""
        raise BadColumns(f"{self.label}: the data do not have column names, so no columns can be kept.")

    def read_as(self, other: Table) -> Self:
        """This table, read by the options of another one."""
        self.mean_for_missing, self.on_dask, self.na_numbers = other.mean_for_missing, other.on_dask, other.na_numbers
        self.min_rows = other.min_rows
        return self

    def renamed(self, names: Sequence[str], note: str) -> Table:
        """The same table with names given to columns that had none."""
        raise BadColumns(f"{self.label}: the columns already have names.")

    def read(self) -> tuple[NDArray[np.float64], Any]:
        """`read_exactly` without the rest."""
        values, _, ids = self.read_exactly()
        return values, ids

    def read_exactly(self, *, check: bool = True) -> tuple[NDArray[np.float64], Rest | None, Any]:
        """All rows with their rest, and the id column as it stands in the data (None: none): one pass, checked as
        `chunks_with_rest`."""
        id_chunks: list[Any] = []
        chunks = self.chunks_with_rest(check=check, ids=id_chunks)
        found = [(np.asarray(chunk, np.float64), rest) for chunk, rest in chunks]
        values = np.concatenate([np.empty((0, self.n_columns)), *(chunk for chunk, _ in found)])
        rest = None
        if any(part is not None for _, part in found):
            rest = np.concatenate([np.zeros(chunk.shape, np.int16) if part is None else part for chunk, part in found])
        return np.ascontiguousarray(values), rest, self.joined_ids(id_chunks)

    def joined_ids(self, id_chunks: list[Any]) -> Any:
        """Return one id column made of the chunks that `chunks` collected."""
        return pa.chunked_array(id_chunks) if id_chunks else None

    def column_title(self, index: int) -> str:
        """Return the name of a column for messages."""
        return f"column {index + 1}" if self.names is None else f"column {self.names[index]!r}"

    def refuse_values(self, *, missing: bool, largest: float = np.inf) -> None:
        """Pass over the table and raise `BadValue` with all columns that hold values which cannot be analysed.

        missing: whether missing values are refused. largest: the largest magnitude that is accepted. Returns if all
        values can be analysed.
        """
        kinds = [MissingValues(self), InfiniteValues(self), LargeValues(self, largest)][0 if missing else 1 :]
        done = 0
        for chunk, _ in self.chunks_with_rest(check=False):
            for kind in kinds:
                kind.look(chunk, done)
            done += len(chunk)
        found = [kind for kind in kinds if kind.counts.any()]
        if found:
            columns = [index for index in range(self.n_columns) if any(kind.counts[index] for kind in found)]
            raise BadValue(
                f"{self.label}: {'; '.join(kind.text() for kind in found)}. {' '.join(kind.REMEDY for kind in found)}",
                columns=[str(index + 1) if self.names is None else self.names[index] for index in columns],
                row=min(int(kind.rows[kind.counts > 0].min()) for kind in found) + 1,
                options=[option for kind in found for option in kind.OPTIONS],
            )

    def marked(self, chunk_with_rest: ChunkWithRest) -> ChunkWithRest:
        """Return the chunk with NaN instead of the numbers that count as missing."""
        if not self.na_numbers:
            return chunk_with_rest
        chunk, rest = chunk_with_rest
        absent = np.isin(chunk, np.asarray(self.na_numbers, chunk.dtype))
        return (np.where(absent, np.asarray(np.nan, chunk.dtype), chunk), rest) if absent.any() else chunk_with_rest


class UnusableValues(Exception):
    """A chunk holds values that cannot be analysed; `Table.refuse_values` names them all."""


class MissingValues:
    """Counts the missing values of every column, and where the first one is."""

    ONE, SEVERAL = "a missing value (empty or NaN)", "missing values (empty or NaN)"
    REMEDY = "Remove these rows or fill the values in, then run again."
    OPTIONS: tuple[str, ...] = ("missing",)

    def __init__(self, table: Table) -> None:
        self.table = table
        self.counts = np.zeros(table.n_columns, np.int64)
        self.rows = np.zeros(table.n_columns, np.int64)
        self.values = np.zeros(table.n_columns)

    def bad(self, chunk: Chunk) -> NDArray[np.bool_]:
        return np.isnan(chunk)

    def look(self, chunk: Chunk, rows_before: int) -> None:
        bad = self.bad(chunk)
        new = np.flatnonzero(bad.any(axis=0) & (self.counts == 0))
        at = bad[:, new].argmax(axis=0)
        self.rows[new], self.values[new] = rows_before + at, chunk[at, new]
        self.counts += np.count_nonzero(bad, axis=0)

    def text(self) -> str:
        """Return what is wrong, with all affected columns."""
        found = np.flatnonzero(self.counts).tolist()
        if len(found) > 1:
            places = [f"{self._title(index)} ({self._place(index)})" for index in found]
            return f"{len(found):,} columns have {self.SEVERAL}: {listed(places, str)}"
        index = found[0]
        what = self.ONE.format(value=self.values[index])
        count = int(self.counts[index])
        extent = f"{count:,} such value{'s' if count > 1 else ''} in all"
        return f"{self.table.column_title(index)} has {what} in row {self.rows[index] + 1:,} ({extent})"

    def _title(self, index: int) -> str:
        return f"column {index + 1}" if self.table.names is None else repr(self.table.names[index])

    def _place(self, index: int) -> str:
        count, row = int(self.counts[index]), int(self.rows[index]) + 1
        return f"row {row:,}" if count == 1 else f"{count:,} values, the first in row {row:,}"


class InfiniteValues(MissingValues):
    """The same for infinite values."""

    ONE, SEVERAL = "an infinite value ({value})", "infinite values"
    REMEDY = "Remove the rows with infinite values, or correct them."
    OPTIONS = ()

    def bad(self, chunk: Chunk) -> NDArray[np.bool_]:
        return np.isinf(chunk)


class LargeValues(MissingValues):
    """The same for finite values beyond a limit."""

    ONE, OPTIONS = "{value:g}", ()

    def __init__(self, table: Table, largest: float) -> None:
        super().__init__(table)
        self.largest = largest
        self.SEVERAL = f"values beyond {largest:g}"
        self.REMEDY = f"Values beyond {largest:g} cannot be squared. Express the column in a larger unit."

    def bad(self, chunk: Chunk) -> NDArray[np.bool_]:
        return np.isfinite(chunk) & (np.abs(chunk) > self.largest)


DAMAGED = (
    *(OSError, EOFError, ValueError, zlib.error, pa.ArrowException),
    *(
        zipfile.BadZipFile,
        NotImplementedError,
    ),  # archives; of a version or with a compression that zipfile does not know
    *(SyntaxError, TokenError),  # headers of .npy files, which NumPy parses as Python literals
)
"""Exceptions that readers raise for damaged files."""


@contextmanager
def reading(label: str) -> Iterator[None]:
    """Turn what the readers raise about a damaged or forbidden file into `UnreadableData`."""
    try:
        yield
    except OwnerError:
        raise
    except PermissionError as error:
        raise UnreadableData(f"{label}: there is no permission to read the file.") from error
    except DAMAGED as error:
        cause = " ".join(str(error).split())[:300].rstrip(".")
        raise UnreadableData(
            f"{label}: the file cannot be read ({cause}). Check that it is complete and that "
            "its ending says what it is."
        ) from error


def check_present(table: Table, counts: NDArray[np.int64]) -> None:
    """Refuse columns without any present value, which do not have a mean."""
    absent = np.flatnonzero(counts == 0).tolist()
    if absent:
        titles = listed([table.column_title(index) for index in absent], str)
        raise BadValue(
            f"{table.label}: {titles} {'has' if len(absent) == 1 else 'have'} no value in any row, and so no mean. "
            f"Leave {'the column' if len(absent) == 1 else 'these columns'} out at all owners, or this owner.",
            columns=[str(index + 1) if table.names is None else table.names[index] for index in absent],
            row=1,
            options=("drop",),
        )


def check_names(label: str, names: Sequence[str]) -> None:
    """Refuse duplicate names, all of them at once."""
    if not names:
        raise BadColumns(f"{label}: there are no columns. Give a table with at least one numeric column.")
    places: dict[str, list[int]] = {}
    for position, name in enumerate(names, start=1):
        places.setdefault(name, []).append(position)
    twice = [
        f"columns {', '.join(map(str, found[:-1]))} and {found[-1]} are "
        f"{'both' if len(found) == 2 else 'all'} named {name!r}"
        for name, found in places.items()
        if len(found) > 1
    ]
    if twice:
        raise BadColumns(f"{label}: {listed(twice, str)}. Give every column its own name, then run again.")


def check_choice(label: str, held: Sequence[str], columns: Sequence[str] | None, id: str | None) -> list[str]:
    """The names of the wanted columns. Unknown, repeated or no names, and an id among the columns, raise
    `BadColumns`."""
    if id is not None and id not in held:
        raise BadColumns(f"{label}: there is no id column {id!r}; its columns are {listed(held)}.", options=("id",))
    if columns is None:
        chosen = [name for name in held if name != id]
        if id is not None and not chosen:
            raise BadColumns(f"{label}: there are no columns besides the ids {id!r}.")
        check_names(label, held)
        return chosen
    if not columns:
        raise BadColumns(f"{label}: no columns were chosen. Name at least one, or leave the choice out to take all.")
    if len(set(columns)) < len(columns):
        twice = next(name for index, name in enumerate(columns) if name in columns[:index])
        raise BadColumns(f"{label}: column {twice!r} was chosen twice. Name each column once.")
    if id is not None and id in columns:
        raise BadColumns(f"{label}: the id column {id!r} cannot be analysed, leave it out of the columns.")
    unknown = [name for name in columns if name not in held]
    if unknown:
        raise BadColumns(f"{label}: there is no column {unknown_names(unknown, held)}")
    check_names(label, held)
    return list(columns)


def near(name: str, held: Sequence[str]) -> str:
    """The names closest to one that is not there, as a question; or all of them."""
    lower = {known.lower(): known for known in held}
    found = [lower[key] for key in difflib.get_close_matches(name.lower(), lower, n=3)]
    return f"Did you mean {' or '.join(map(repr, found))}?" if found else f"The columns are {listed(held)}."


def unknown_names(names: Sequence[str], held: Sequence[str]) -> str:
    """Names that are not there, with the closest ones that are; the end of a sentence that says so."""
    if len(names) == 1:
        return f"{names[0]!r}. {near(names[0], held)}"
    closest = [near(name, held) for name in names]
    guesses = [
        f"{name!r} ({guess})" if "Did you" in guess else repr(name) for name, guess in zip(names, closest, strict=True)
    ]
    return f"{listed(guesses, str)}. The columns are {listed(held)}."


def listed(names: Sequence[str], form: Callable[[str], str] = repr, most: int = 8) -> str:
    """The first few names, in quotes, and how many more there are."""
    shown = ", ".join(map(form, names[:most]))
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more"
