"""Public numbers that are multiplied with shares: how many fractional bits they get."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .dtypes import DEFAULT_FRAC


def whole_numbers(array: NDArray[Any]) -> NDArray[Any] | None:
    """Return the public numbers as integers if all of them are integers, else None."""
    if array.dtype.kind != "f":
        return array
    if not np.all(np.isfinite(array)) or np.any(array != np.round(array)):
        return None
    return array.astype(np.int64 if np.all(np.abs(array) < 2**62) else object)


def fraction_bits(array: NDArray[Any]) -> int:
    """Return the number of fractional bits that represent these public numbers exactly, or give the largest 40
    significant bits.

    So each public number is accurate to 2^-40 of the largest magnitude of its array, or to 2^-40 if that exceeds one;
    never finer than 2^-80. Few bits keep the failure probability of the local truncation low: |xc| 2^(frac + bits + 1 -
    k). A factor below one gets more bits; the product is smaller in proportion, so the probability is that of a factor
    one.
    """
    for bits in (1, 2, 4, 8, 16, 32):
        scaled = array * float(1 << bits)
        if np.all(scaled == np.round(scaled)):
            return bits
    return DEFAULT_FRAC + min(40, max(0, -math.frexp(float(np.abs(array).max()))[1]))
