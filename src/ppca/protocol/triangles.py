"""Symmetric and skew matrices of which one triangle travels: packed row by row, unpacked locally."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray


@lru_cache(maxsize=64)
def triangle_index(d: int, strict: bool) -> NDArray[np.intp]:
    """Where entry (i, j) of a d x d matrix stands in its packed upper triangle (the diagonal of a strict one: 0)."""
    i, j = np.triu_indices(d, 1 if strict else 0)
    index = np.zeros((d, d), np.intp)
    index[i, j] = index[j, i] = np.arange(len(i))
    return index


def symmetric(packed: Any, d: int) -> Any:
    """The symmetric matrix of a packed upper triangle (diagonal included). Local."""
    return packed[triangle_index(d, False)]


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
