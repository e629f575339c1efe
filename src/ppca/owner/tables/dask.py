"""A Dask frame or array as an owner's table, streamed partition by partition. Needs the extra `ppca[dask]`."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

from ..errors import BadColumns
from .arrays import MemoryTable
from .arrow import PandasTable
from .table import Piece, Table


class DaskTable(Table):
    """A Dask frame, or a two-dimensional Dask array; partitions may be empty (filters leave such ones)."""

    rows = None

    def __init__(self, label: str, data: Any) -> None:
        self.label = label
        if hasattr(data, "rechunk"):
            if data.ndim != 2:
                raise BadColumns(f"{label}: the array has {data.ndim} dimension(s), a table has two.")
            data = data.rechunk({1: -1})
        self.data = data
        self._like: Table = self._opened(data._meta)
        self.held = self._like.held

    def _opened(self, part: Any) -> Table:
        return PandasTable(self.label, part) if hasattr(part, "iloc") else MemoryTable(self.label, part)

    def choose(self, columns: Sequence[str] | None = None, id: str | None = None) -> Table:
        other = copy.copy(self)
        other._like = self._like.choose(columns, id)
        other.names, other.id, other.chosen = other._like.names, id, True
        other.n_columns = self.data.shape[1] if other.names is None else len(other.names)
        return other

    def renamed(self, names: Sequence[str], note: str) -> Table:
        other = copy.copy(self)
        other.names, other.notes = list(names), (*self.notes, note)
        return other

    def blocks(self) -> list[Any]:
        """The partitions, or blocks of rows, not yet computed."""
        delayed = self.data.to_delayed()
        return list(delayed.ravel() if hasattr(delayed, "ravel") else delayed)

    def part(self, block: Any) -> Table | None:
        """A computed partition with the chosen columns; None if it has no rows."""
        if len(block) == 0:
            return None
        part = self._opened(block).choose(self._like.names, self.id)
        part.mean_for_missing = self.mean_for_missing
        return part

    def stream(self, rows: int, ids: list[Any]) -> Iterator[Piece]:
        for block in self.blocks():
            part = self.part(block.compute())
            if part is None:
                continue
            pieces: list[Any] = []
            yield from part.stream(rows, pieces)
            if self.id is not None:
                ids.append(part.joined_ids(pieces))

    def joined_ids(self, pieces: list[Any]) -> Any:
        if self.id is None:
            return None
        import pandas

        return pandas.concat(pieces)
