"""Symmetric and skew matrices of which one triangle travels: packed row by row, unpacked locally."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCK_ENTRIES = 1 << 20
"""Entries whose places are worked out at once; those of a matrix of so many are remembered for the next of its size."""


def row_starts(d: int) -> NDArray[np.intp]:
    """Where every row of a d x d matrix begins in its packed upper triangle, and where the last one ends."""
    row = np.arange(d + 1)
    return row * (2 * d + 1 - row) // 2


def diagonal_positions(d: int) -> NDArray[np.intp]:
    """Where the diagonal of a d x d matrix stands in its packed upper triangle."""
    return row_starts(d)[:-1]


def triangle_entries(d: int, first: int, last: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Row and column of the entries first .. last - 1 of a packed upper triangle."""
    starts, place = row_starts(d), np.arange(first, last)
    row = np.searchsorted(starts, place, side="right") - 1
    return row, place - starts[row] + row


@lru_cache(maxsize=64)
def triangle_index(d: int, strict: bool) -> NDArray[np.intp]:
    """Where entry (i, j) of a d x d matrix stands in its packed upper triangle (the diagonal of a strict one: 0)."""
    i, j = np.triu_indices(d, 1 if strict else 0)
    index = np.zeros((d, d), np.intp)
    index[i, j] = index[j, i] = np.arange(len(i))
    return index


def symmetric(packed: Any, d: int) -> Any:
    """The symmetric matrix of a packed upper triangle (diagonal included). Local."""
    if d * d <= BLOCK_ENTRIES:
        return packed[triangle_index(d, False)]
    step = max(1, BLOCK_ENTRIES // d)
    blocks = (_rows_of_index(d, first, min(d, first + step)) for first in range(0, d, step))
    return packed.gathered(blocks, (d, d))


def _rows_of_index(d: int, first: int, last: int) -> NDArray[np.intp]:
    """These rows of `triangle_index`."""
    i, j = np.arange(first, last)[:, None], np.arange(d)
    low = np.minimum(i, j)
    return row_starts(d)[low] + np.maximum(i, j) - low


@lru_cache(maxsize=64)
def _skew_index(d: int) -> NDArray[np.intp]:
    """Entries of a skew matrix in [packed, -packed, 0]: above, below and on the diagonal."""
    count = d * (d - 1) // 2
    index = np.full((d, d), 2 * count, np.intp)
    i, j = np.triu_indices(d, 1)
    index[i, j], index[j, i] = np.arange(count), count + np.arange(count)
    return index


def skew(packed: Any, d: int) -> Any:
    """The skew matrix of a packed strict upper triangle: minus below, zero on the diagonal. Local."""
    both = type(packed).concatenate([packed, -packed, packed.zeros((1,))])
    return both[_skew_index(d)]
