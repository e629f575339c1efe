"""Tables in memory: PyArrow tables, polars and pandas frames.

pandas and polars are not imported: a frame is known by the module of its class and used through its own methods.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from .arrow import ArrowTable
from .bad_cells import BadCells, not_numbers
from .columns import flat, is_numeric


class FrameTable(ArrowTable):
    """A PyArrow table or a polars frame in memory."""

    def __init__(self, label: str, frame: Any) -> None:
        self.frame = frame
        head = frame if isinstance(frame, pa.Table) else frame.slice(0, 0).to_arrow()
        self.rows = len(frame)
        super().__init__(label, head.schema)

    def batches(self, rows: int) -> Iterator[list[Any]]:
        for start in range(0, len(self.frame), rows):
            part = self.frame.slice(start, rows)
            table = part if isinstance(part, pa.Table) else part.select(self.wanted).to_arrow()
            yield [flat(table.column(name)) for name in self.wanted]


class LazyTable(ArrowTable):
    """A polars LazyFrame, collected batch by batch; its query runs once for every pass."""

    rows = None

    def __init__(self, label: str, frame: Any) -> None:
        self.frame = frame
        super().__init__(label, frame.limit(0).collect().to_arrow().schema)

    def batches(self, rows: int) -> Iterator[list[Any]]:
        for part in self.frame.select(self.wanted).collect_batches(chunk_size=rows):
            table = part.to_arrow()
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

    def joined_ids(self, id_chunks: list[Any]) -> Any:
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
