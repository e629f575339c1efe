"""A Dask frame or array as the table of an owner, read partition by partition. It needs the extra `ppca[dask]`."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

from ..errors import BadColumns
from .arrays import MemoryTable
from .frames import PandasTable
from .table import ChunkWithRest, Table


class DaskTable(Table):
    """A Dask frame, or a two-dimensional Dask array. Partitions may be empty, for instance after a filter."""

    rows = None
    on_dask = True

    def __init__(self, label: str, data: Any) -> None:
        self.label = label
        if hasattr(data, "rechunk"):
            if data.ndim != 2:
                raise BadColumns(f"{label}: the array has {data.ndim} dimension(s). A table must have two.")
            data = data.rechunk({1: -1})
        self.data = data
        like = data._meta
        self._like: Table = PandasTable(label, like) if hasattr(like, "iloc") else MemoryTable(label, like)
        self.held = self._like.held

    def choose(self, columns: Sequence[str] | None = None, id: str | None = None) -> Table:
        other = copy.copy(self)
        other._like = self._like.choose(columns, id)
        other.names, other.id, other.chosen = other._like.names, id, True
        other.n_columns = self.data.shape[1] if other.names is None else len(other.names)
        return other

    def check_types(self) -> None:
        self._like.check_types()

    def renamed(self, names: Sequence[str], note: str) -> Table:
        other = copy.copy(self)
        other.names, other.notes = list(names), (*self.notes, note)
        return other

    def blocks(self) -> list[Any]:
        """Return the delayed partitions of a frame, or the delayed blocks of rows of an array."""
        delayed = self.data.to_delayed()
        return list(delayed.ravel() if hasattr(delayed, "ravel") else delayed)

    def part(self, block: Any, number: int) -> Table | None:
        """Return a computed partition as a table with the chosen columns; None if it is empty.

        block: the computed partition. number: its position, counted from 0.
        """
        if len(block) == 0:
            return None
        label = f"{self.label}, partition {number + 1}"
        opened = PandasTable(label, block) if hasattr(block, "iloc") else MemoryTable(label, block)
        if self._like.names is None and opened.n_columns != self.n_columns:
            raise BadColumns(
                f"{label}: the partition has {opened.n_columns} columns, but the table has {self.n_columns}."
            )
        part = opened.choose(self._like.names, self.id).read_as(self)
        part.on_dask = False
        part.check_types()
        return part

    def bare(self) -> DaskTable:
        """Return a copy without data. Dask workers need only this copy to read a partition."""
        other = copy.copy(self)
        other.data = None
        return other

    def stream(self, rows: int, ids: list[Any]) -> Iterator[ChunkWithRest]:
        for number, block in enumerate(self.blocks()):
            part = self.part(block.compute(), number)
            if part is None:
                continue
            id_chunks: list[Any] = []
            yield from part.chunks_with_rest(rows, check=False, ids=id_chunks)
            if self.id is not None:
                ids.append(part.joined_ids(id_chunks))

    def joined_ids(self, id_chunks: list[Any]) -> Any:
        if self.id is None:
            return None
        import pandas

        return pandas.concat(id_chunks)
