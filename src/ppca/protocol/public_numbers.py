"""Public numbers as operands of shares: their ring elements, and how many fractional bits a factor gets."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..native import ring
from .dtypes import DEFAULT_FRAC, RingType, span_of


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


def encoded(array: NDArray[Any], frac: int, dtype: RingType) -> tuple[ring.Ring, int]:
    """Return public numbers as elements of the ring of a type, with `frac` fractional bits; and their span."""
    if array.dtype.kind in "iub" or (array.dtype == object and frac == 0):
        largest = max(abs(int(array.max())), abs(int(array.min()))) if array.size else 0
        if largest.bit_length() + frac >= dtype.bits:
            raise ValueError(f"public operand: values up to {largest} do not fit {dtype}")
        if array.dtype == object or largest >= 2**62:
            whole = ring.constants(array.astype(object), dtype.limbs)
        else:
            whole = ring.integers(array, dtype.limbs)
        return (ring.shift_left(whole, frac) if frac else whole), max(1, largest.bit_length())
    values64 = array.astype(np.float64)
    elements, bad = ring.encode(values64, frac, dtype.limbs)
    if bad >= 0:
        at = [int(i) for i in np.unravel_index(bad, array.shape)]
        raise ValueError(f"public operand: value {values64.flat[bad]} at {at} does not fit {dtype}")
    largest_value = float(np.abs(values64).max(initial=0.0))
    return elements, span_of(largest_value) if largest_value else 1


def public_factor(array: NDArray[Any], dtype: RingType) -> tuple[int, ring.Ring, int]:
    """Return the fractional bits of factors of shares of a type, their ring elements, and their span."""
    whole = whole_numbers(array)
    shift = fraction_bits(array) if whole is None else 0
    if shift >= DEFAULT_FRAC and dtype.bits == 64 and not dtype.is_integer:
        # The local truncation by 40 bits would fail too often.
        raise TypeError(f"a product of {dtype} with fractions needs the 128-bit ring. Use `extend`.")
    return shift, *encoded(array if whole is None else whole, shift, dtype)


@lru_cache(maxsize=1024, typed=True)
def scalar_factor(value: float | int, dtype: RingType) -> tuple[int, int, int]:
    """Return `public_factor` of one number, with its ring element as an integer."""
    shift, element, span = public_factor(np.asarray(value), dtype)
    return shift, int(element[0]) | (int(element[-1]) << 64 if dtype.limbs == 2 else 0), span
