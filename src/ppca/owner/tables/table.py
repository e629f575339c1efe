"""What every kind of file or frame looks like to the rest: columns chosen by name, rows streamed, ids apart."""

from __future__ import annotations

import difflib
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from tokenize import TokenError
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..errors import BadColumns, BadValue, OwnerError, UnreadableData
from .integers import Rest

Chunk = NDArray[np.float32] | NDArray[np.float64]
Piece = tuple[Chunk, Rest | None]
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
    id : the name of the id column, which is no column of a chunk, or None
    chosen : whether columns were chosen
    rows : number of rows where it is known without reading the data, else None
    notes : what a user should be told: columns put into another order, names taken over from another owner
    mean_for_missing : whether missing values count as a mean in a fit; else they are refused
    on_dask : whether the workers of the Dask client in use pass over the table, each over portions of it
    """

    label: str
    held: list[str] | None
    names: list[str] | None
    n_columns: int
    rows: int | None
    id: str | None = None
    chosen: bool = False
    notes: tuple[str, ...] = ()
    mean_for_missing: bool = False
    on_dask: bool = False

    @property
    def offered(self) -> list[str] | None:
        """Names of all columns that can be chosen: `held`, and those that are taken only if they are named."""
        return self.held

    @abstractmethod
    def choose(self, columns: Sequence[str] | None = None, id: str | None = None) -> Table:
        """The same rows with these columns, in this order (None: all but the ids), and the ids apart. Nothing is read."""

    def chunks(self, rows: int | None = None, *, check: bool = True, ids: list[Any] | None = None) -> Iterator[Chunk]:
        """`pieces` without what rounding integers beyond 2^53 left of them."""
        return (chunk for chunk, _ in self.pieces(rows, check=check, ids=ids))

    def pieces(self, rows: int | None = None, *, check: bool = True, ids: list[Any] | None = None) -> Iterator[Piece]:
        """Yield the table from the top, at most `rows` rows at a time (default: about 32 MB as float64).

        A chunk is float32 if that holds every value of the table exactly, else float64; row-major or column-major,
        whichever the data are; possibly a read-only view. With `check`, a chunk with NaN or infinity raises `BadValue`;
        without, the caller looks for them itself and calls `refuse_not_finite`. `ids` collects the pieces of the id column.
        """
        if rows is not None and rows < 1:
            raise ValueError(f"chunks of {rows} rows: at least 1 is needed")
        done = 0
        with reading(self.label):
            for chunk, rest in self.stream(rows or chunk_rows_for(self.n_columns), [] if ids is None else ids):
                if check and not np.isfinite(chunk.sum(dtype=np.float64)):
                    self.refuse_not_finite(chunk, done)
                done += len(chunk)
                yield chunk, rest

    @abstractmethod
    def stream(self, rows: int, ids: list[Any]) -> Iterator[Piece]:
        """Yield pieces of at most `rows` rows. Text raises `BadValue`; missing values come as NaN."""

    def portions(self) -> list[Table] | None:
        """The same rows, in the same order, as tables that another process can read by itself; None: the rows are only here."""
        return None

    def renamed(self, names: Sequence[str], note: str) -> Table:
        """The same table with names given to columns that had none."""
        raise BadColumns(f"{self.label}: the columns already have names.")

    def read(self) -> tuple[NDArray[np.float64], Any]:
        """`read_exactly` without the rest."""
        values, _, ids = self.read_exactly()
        return values, ids

    def read_exactly(self, *, check: bool = True) -> tuple[NDArray[np.float64], Rest | None, Any]:
        """All rows with their rest, and the id column as it stands in the data (None: none): one pass, checked as `pieces`."""
        found: list[Any] = []
        pieces = [(np.asarray(chunk, np.float64), rest) for chunk, rest in self.pieces(check=check, ids=found)]
        values = np.concatenate([np.empty((0, self.n_columns)), *(chunk for chunk, _ in pieces)])
        rest = None
        if any(part is not None for _, part in pieces):
            rest = np.concatenate([np.zeros(chunk.shape, np.int16) if part is None else part for chunk, part in pieces])
        return np.ascontiguousarray(values), rest, self.joined_ids(found)

    def joined_ids(self, pieces: list[Any]) -> Any:
        """One id column from the pieces that `chunks` collected."""
        return pa.chunked_array(pieces) if pieces else None

    def column_title(self, index: int) -> str:
        """How messages call a column."""
        return f"column {index + 1}" if self.names is None else f"column {self.names[index]!r}"

    def refuse_not_finite(self, chunk: Chunk, rows_before: int) -> None:
        """Raise `BadValue` for the first row of the chunk with a NaN or infinity; return if all values are finite."""
        bad = ~np.isfinite(chunk)
        if not bad.any():
            return
        row = int(bad.any(axis=1).argmax())
        column = int(bad[row].argmax())
        value = chunk[row, column]
        count = int(np.count_nonzero(bad[:, column]))
        first, last = rows_before + 1, rows_before + len(chunk)
        what = "a missing value (empty or NaN)" if np.isnan(value) else f"an infinite value ({value})"
        extent = f"{count:,} such value{'s' if count > 1 else ''} among rows {first:,} to {last:,}"
        raise BadValue(
            f"{self.label}: {self.column_title(column)} has {what} in row {rows_before + row + 1:,} ({extent}). "
            "Remove these rows or fill the values in, then run again.",
            column=str(column + 1) if self.names is None else self.names[column],
            row=rows_before + row + 1,
            options=("missing",) if np.isnan(value) else (),
        )


DAMAGED = (
    *(OSError, EOFError, ValueError, zlib.error, pa.ArrowException),
    *(
        zipfile.BadZipFile,
        NotImplementedError,
    ),  # archives; of a version or with a compression that zipfile does not know
    *(SyntaxError, TokenError),  # headers of .npy files, which NumPy parses as Python literals
)
"""What the readers raise about damaged files."""


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
            f"{label}: the file cannot be read ({cause}). Check that it is complete and that its ending says what it is."
        ) from error


def check_present(table: Table, counts: NDArray[np.int64]) -> None:
    """Refuses a column without any present value: it has no mean."""
    if not counts.all():
        column = int((counts == 0).argmax())
        raise BadValue(
            f"{table.label}: {table.column_title(column)} has no value in any row, and so no mean. Leave the column out at all "
            "owners, or this owner.",
            column=str(column + 1) if table.names is None else table.names[column],
            row=1,
            options=("drop",),
        )


def check_names(label: str, names: Sequence[str], *, unnamed: bool) -> None:
    """Refuse duplicate names, and columns without a name unless those are not wanted (`unnamed`)."""
    if not names:
        raise BadColumns(f"{label}: there are no columns. Give a table with at least one numeric column.")
    seen: dict[str, int] = {}
    for position, name in enumerate(names, start=1):
        if name in seen:
            raise BadColumns(
                f"{label}: columns {seen[name]} and {position} are both named {name!r}. "
                "Give every column its own name, then run again."
            )
        seen[name] = position
        if not name.strip() and not unnamed:
            raise BadColumns(
                f"{label}: column {position} has no name (a row index, or a separator at the end of the line?). "
                "Write the table without it (pandas: index=False), or choose columns by name.",
                options=("columns",),
            )


def check_choice(label: str, held: Sequence[str], columns: Sequence[str] | None, id: str | None) -> list[str]:
    """The names of the wanted columns. Unknown, repeated or no names, and an id among the columns, raise `BadColumns`."""
    if id is not None and id not in held:
        raise BadColumns(f"{label}: there is no id column {id!r}; its columns are {listed(held)}.", options=("id",))
    if columns is None:
        chosen = [name for name in held if name != id]
        if id is not None and not chosen:
            raise BadColumns(f"{label}: there are no columns besides the ids {id!r}.")
        check_names(label, held, unnamed=False)
        return chosen
    if not columns:
        raise BadColumns(f"{label}: no columns were chosen. Name at least one, or leave the choice out to take all.")
    if len(set(columns)) < len(columns):
        twice = next(name for index, name in enumerate(columns) if name in columns[:index])
        raise BadColumns(f"{label}: column {twice!r} was chosen twice. Name each column once.")
    if id is not None and id in columns:
        raise BadColumns(f"{label}: the id column {id!r} cannot be analysed, leave it out of the columns.")
    for name in columns:
        if name not in held:
            raise BadColumns(f"{label}: there is no column {name!r}. {near(name, held)}")
    check_names(label, held, unnamed=True)
    return list(columns)


def near(name: str, held: Sequence[str]) -> str:
    """The names closest to one that is not there, as a question; or all of them."""
    lower = {known.lower(): known for known in held}
    found = [lower[key] for key in difflib.get_close_matches(name.lower(), lower, n=3)]
    return f"Did you mean {' or '.join(map(repr, found))}?" if found else f"The columns are {listed(held)}."


def listed(names: Sequence[str], most: int = 8) -> str:
    """The first few names, in quotes, and how many more there are."""
    shown = ", ".join(map(repr, names[:most]))
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
