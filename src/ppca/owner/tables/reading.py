"""Tables as the options for reading say: which values are missing, and what becomes of rows that miss one."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..errors import NoRows
from .options import ReadOptions
from .table import ChunkWithRest, Table


def as_read(table: Table, options: ReadOptions) -> Table:
    """The table with what the options say about missing values and Dask."""
    if options.missing == "mean" or options.dask or options.na_numbers:
        table = copy.copy(table)
        table.mean_for_missing |= options.missing == "mean"
        table.on_dask |= options.dask
        table.na_numbers = options.na_numbers or table.na_numbers
    return CompleteRows(table) if options.missing == "drop" and not isinstance(table, CompleteRows) else table


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
        self.unnamed = table.unnamed
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

    def check_types(self) -> None:
        self.table.check_types()

    def as_given(self, names: Sequence[str]) -> dict[str, Any]:
        """The columns of the rows that miss no value; which these are is known after a pass over the table."""
        if not self._whole:
            for _ in self.chunks_with_rest():
                pass
        whole = pa.array(np.concatenate(self._whole))
        return {name: column.filter(whole) for name, column in self.table.as_given(names).items()}

    def renamed(self, names: Sequence[str], note: str) -> Table:
        return CompleteRows(self.table.renamed(names, note))

    def stream(self, rows: int, ids: list[Any]) -> Iterator[ChunkWithRest]:
        self._whole, done = [], 0
        for chunk, rest in self.table.chunks_with_rest(rows, check=False, ids=ids):
            whole = np.asarray(~np.isnan(chunk).any(axis=1))
            if np.isinf(chunk).any():
                self.table.refuse_values(missing=False)
            self._whole.append(whole)
            done += len(chunk)
            if whole.all():
                yield chunk, rest
            elif whole.any():
                yield chunk[whole], None if rest is None else rest[whole]
        if self.dropped == done:
            raise NoRows.for_missing(self.label)

    def independent_parts(self) -> list[Table] | None:
        found = self.table.independent_parts()
        return None if found is None else [CompleteRows(part) for part in found]

    def joined_ids(self, id_chunks: list[Any]) -> Any:
        found = self.table.joined_ids(id_chunks)
        if found is None:
            return None
        whole = np.concatenate(self._whole)
        return found.filter(pa.array(whole)) if isinstance(found, pa.ChunkedArray) else found[whole]
