"""Indices of shared arrays: public, with the rules of NumPy, applied to both splits at once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .unreadable import Unreadable

Data = NDArray[np.uint64]


def indexed(data: Data, asked: tuple[Any, ...]) -> Data:
    """Return shares[asked] of shares (2, *shape, limbs) in both splits, with the errors of NumPy for an array of this
    shape.
    """
    shape, index = data.shape[1:-1], asked
    taken, advanced, spread = 0, False, False
    for part in index:
        if part is Ellipsis or part is None:
            spread = True
        elif isinstance(part, slice):
            taken, spread = taken + 1, True
        elif isinstance(part, int | np.integer):
            taken += 1
        elif isinstance(part, Unreadable):
            raise TypeError("indices must be public. For a secret index use `lookup`.")
        else:
            part = np.asarray(part)
            taken, advanced = taken + (part.ndim if part.dtype == bool else 1), True
    if taken > len(shape):
        np.broadcast_to(0, shape)[index]  # raises NumPy's IndexError
    if any(part is Ellipsis for part in index):
        index = (*index, slice(None))  # the limb axis is not indexed by the caller
    try:
        if not advanced:
            return data[(slice(None), *index)]
        whole = data.flags.c_contiguous and data.shape[-1] <= 2
        if whole and _one_axis(index):
            found: Data = _elements(data).take(index[-1], axis=len(index)).view(np.uint64)
            return found
        if spread:
            return np.stack([data[0][index], data[1][index]])
        if whole:
            return _elements(data)[..., 0][(slice(None), *index)][..., None].view(np.uint64)
        return data[(slice(None), *index)]
    except IndexError:
        np.broadcast_to(0, shape)[asked]
        raise


def _elements(data: Data) -> NDArray[Any]:
    """Return a view with one item per element: both limbs move together, in half the time."""
    return data.view(np.complex128) if data.shape[-1] == 2 else data


def _one_axis(index: tuple[Any, ...]) -> bool:
    """Return whether an array of positions along one axis follows whole axes: `take` needs a fifth of the time."""
    *before, last = index
    whole = all(isinstance(part, slice) and part == slice(None) for part in before)
    return whole and isinstance(last, np.ndarray) and last.dtype == np.intp
