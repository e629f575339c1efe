"""Packed triangles of symmetric and skew-symmetric matrices: row by row, unpacked locally."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCK_ENTRIES = 1 << 20
"""Entries of an unpacked matrix whose indices are computed at once. Index arrays of smaller matrices are cached."""


def row_starts(d: int) -> NDArray[np.intp]:
    """Return the position of the first entry of each row in the packed upper triangle of a d x d matrix, and its
    length.
    """
    row = np.arange(d + 1)
    return row * (2 * d + 1 - row) // 2


def diagonal_positions(d: int) -> NDArray[np.intp]:
    """Return the positions of the diagonal in the packed upper triangle of a d x d matrix."""
    return row_starts(d)[:-1]


def triangle_entries(d: int, first: int, last: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the rows and columns of the entries first, ..., last - 1 of a packed upper triangle."""
    starts, place = row_starts(d), np.arange(first, last)
    row = np.searchsorted(starts, place, side="right") - 1
    return row, place - starts[row] + row


def upper_pairs(d: int, strict: bool) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the rows and columns of the entries of a packed upper triangle (strict: without the diagonal)."""
    return _cached_pairs(d, strict) if d * d <= BLOCK_ENTRIES else _pairs(d, strict)


def upper(matrix: Any, strict: bool) -> Any:
    """Return the packed upper triangle of a square matrix (strict: without the diagonal). Local."""
    d = len(matrix)
    return matrix.reshape(-1)[_places(d, strict) if d * d <= BLOCK_ENTRIES else _places.__wrapped__(d, strict)]


def _pairs(d: int, strict: bool) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    i, j = np.triu_indices(d, 1 if strict else 0)
    i.flags.writeable = j.flags.writeable = False
    return i, j


_cached_pairs = lru_cache(maxsize=64)(_pairs)


@lru_cache(maxsize=64)
def _places(d: int, strict: bool) -> NDArray[np.intp]:
    """Return the positions of the entries of the upper triangle in a flat d x d matrix."""
    i, j = upper_pairs(d, strict)
    return i * d + j


@lru_cache(maxsize=64)
def triangle_index(d: int, strict: bool) -> NDArray[np.intp]:
    """Return the position of each entry (i, j) in the packed upper triangle of a d x d matrix (strict diagonal: 0)."""
    i, j = np.triu_indices(d, 1 if strict else 0)
    index = np.zeros((d, d), np.intp)
    index[i, j] = index[j, i] = np.arange(len(i))
    return index


def symmetric(packed: Any, d: int) -> Any:
    """Unpack the symmetric matrix of a packed upper triangle (diagonal included). Local."""
    if d * d <= BLOCK_ENTRIES:
        return packed[triangle_index(d, False)]
    step = max(1, BLOCK_ENTRIES // d)
    blocks = (_rows_of_index(d, first, min(d, first + step)) for first in range(0, d, step))
    return packed.gathered(blocks, (d, d))


def _rows_of_index(d: int, first: int, last: int) -> NDArray[np.intp]:
    """Return the rows first, ..., last - 1 of `triangle_index`."""
    i, j = np.arange(first, last)[:, None], np.arange(d)
    low = np.minimum(i, j)
    return row_starts(d)[low] + np.maximum(i, j) - low


@lru_cache(maxsize=64)
def _skew_index(d: int) -> NDArray[np.intp]:
    """Return the positions of the entries of a skew-symmetric matrix in [packed, -packed, 0]."""
    count = d * (d - 1) // 2
    index = np.full((d, d), 2 * count, np.intp)
    i, j = np.triu_indices(d, 1)
    index[i, j], index[j, i] = np.arange(count), count + np.arange(count)
    return index


def skew(packed: Any, d: int) -> Any:
    """Unpack the skew-symmetric matrix of a packed strict upper triangle: negated below, zero on the diagonal.

    Local.
    """
    both = type(packed).concatenate([packed, -packed, packed.zeros((1,))])
    return both[_skew_index(d)]
