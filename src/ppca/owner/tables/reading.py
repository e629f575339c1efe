"""How an owner's data are read: decimal point and encoding of text files, and what becomes of missing values."""

from __future__ import annotations

import codecs
import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..errors import NoRows, ParameterRefused
from .table import Piece, Table


@dataclass(frozen=True)
class Reading:
    """decimal: "." or ",". encoding: of text files.

    missing: "refuse" a row with a missing value, "drop" it, or count the value as the "mean" of its column.
    dask: whether the workers of the Dask client in use read files.
    """

    decimal: str = "."
    encoding: str = "utf-8"
    missing: str = "refuse"
    dask: bool = False

    def __post_init__(self) -> None:
        if self.decimal not in (".", ","):
            raise ParameterRefused("decimal", self.decimal, "must be '.' or ','")
        if self.missing not in ("refuse", "drop", "mean"):
            raise ParameterRefused("missing", self.missing, "must be 'refuse', 'drop' or 'mean'")
        try:
            codecs.lookup(self.encoding)
        except LookupError:
            raise ParameterRefused(
                "encoding", self.encoding, "is unknown; give utf-8, latin-1, utf-16, or another name that Python knows"
            ) from None

    def of(self, table: Table) -> Table:
        """The table as it is to be read."""
        if self.missing == "mean" or self.dask:
            table = copy.copy(table)
            table.mean_for_missing |= self.missing == "mean"
            table.on_dask |= self.dask
        return CompleteRows(table) if self.missing == "drop" and not isinstance(table, CompleteRows) else table


class CompleteRows(Table):
    """The rows of a table that miss no value. `dropped`: how many were left out in the last pass; its owner may know.

    dropped_elsewhere: how many of them the workers of a cluster left out.
    """

    rows = None

    def __init__(self, table: Table) -> None:
        self.table = table
        self.label, self.held, self.id = table.label, table.held, table.id
        self.names, self.n_columns = getattr(table, "names", None), getattr(table, "n_columns", 0)
        self.chosen, self.notes, self.on_dask = table.chosen, table.notes, table.on_dask
        self.dropped_elsewhere = 0
        self._whole: list[NDArray[np.bool_]] = []

    @property
    def offered(self) -> list[str] | None:
        return self.table.offered

    @property
    def dropped(self) -> int:
        return self.dropped_elsewhere + sum(int(np.count_nonzero(~whole)) for whole in self._whole)

    def choose(self, columns: Sequence[str] | None = None, id: str | None = None) -> Table:
        return CompleteRows(self.table.choose(columns, id))

    def renamed(self, names: Sequence[str], note: str) -> Table:
        return CompleteRows(self.table.renamed(names, note))

    def stream(self, rows: int, ids: list[Any]) -> Iterator[Piece]:
        self._whole, done = [], 0
        for chunk, rest in self.table.stream(rows, ids):
            whole = np.asarray(~np.isnan(chunk).any(axis=1))
            if np.isinf(chunk).any():
                self.table.refuse_not_finite(np.where(np.isnan(chunk), 0, chunk), done)
            self._whole.append(whole)
            done += len(chunk)
            if whole.all():
                yield chunk, rest
            elif whole.any():
                yield chunk[whole], None if rest is None else rest[whole]
        if self.dropped == done:
            raise NoRows.for_gaps(self.label)

    def portions(self) -> list[Table] | None:
        found = self.table.portions()
        return None if found is None else [CompleteRows(portion) for portion in found]

    def joined_ids(self, pieces: list[Any]) -> Any:
        found = self.table.joined_ids(pieces)
        if found is None:
            return None
        whole = np.concatenate(self._whole)
        return found.filter(pa.array(whole)) if isinstance(found, pa.ChunkedArray) else found[whole]
