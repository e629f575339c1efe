"""Rows that stay in their table: read once for what must be known of all of them, and again, in their order, when they
are sent.

A column owner that sends rows in the order of its table need not hold them: a first pass finds their number, the
extremes and the mean of every column, and the ids; the upload is a second one. A table that has become shorter in
between is refused, and so is a value beyond the extremes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import NoRows, OwnerError
from .table import Table

Floats = NDArray[np.float64]


class TwoPassValues:
    """The values of a table as far as an upload needs an array of them: shape, extremes, mean, and slices one after the
    other.

    rounded: whether doubles do not hold some of its integers (beyond 2^53); then this is not what an upload needs.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self.rounded = False
        found: list[Any] = []
        count, centre, away = 0, np.zeros(table.n_columns), np.zeros(table.n_columns)
        self._low, self._high = np.full(table.n_columns, np.inf), np.full(table.n_columns, -np.inf)
        for chunk, rest in table.chunks_with_rest(ids=found):
            values = np.asarray(chunk, np.float64)
            self.rounded |= rest is not None and bool(rest.any())
            centre = centre if count else values.mean(axis=0)
            away += (values - centre).sum(axis=0)
            count += len(values)
            np.minimum(self._low, values.min(axis=0), out=self._low)
            np.maximum(self._high, values.max(axis=0), out=self._high)
        if not count:
            raise NoRows.for_none(table.label)
        self.ids = table.joined_ids(found)
        self.shape = (count, table.n_columns)
        self._mean = centre + away / count
        self._begin()

    def __len__(self) -> int:
        return self.shape[0]

    def min(self, axis: int) -> Floats:
        return self._low

    def max(self, axis: int) -> Floats:
        return self._high

    def mean(self, axis: int) -> Floats:
        return self._mean

    def __getitem__(self, wanted: slice) -> Floats:
        """Rows from where the last slice ended; others begin a new pass."""
        start, stop, _ = wanted.indices(len(self))
        if start < self._at:
            self._begin()
        self._take(start - self._at)
        return self._take(stop - start)

    def _begin(self) -> None:
        self._at = 0
        self._left = np.empty((0, self.shape[1]))
        self._chunks: Iterator[Any] = iter(self.table.chunks())

    def _take(self, count: int) -> Floats:
        parts = []
        while count > 0:
            if not len(self._left):
                chunk = next(self._chunks, None)
                if chunk is None:
                    raise OwnerError(f"{self.table.label}: the table has changed while it was read. Run again.")
                self._left = np.asarray(chunk, np.float64)
            part, self._left = self._left[:count], self._left[count:]
            parts.append(part)
            count -= len(part)
            self._at += len(part)
        return np.concatenate(parts) if parts else np.empty((0, self.shape[1]))
