"""Ring arrays: NumPy uint64 arrays whose last axis holds the limbs of an element of Z_2^64 (1) or Z_2^128 (2).

These functions allocate outputs and handle shapes and broadcasting; the C++ kernels do the arithmetic. Signed values
are in two's complement.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ppca.native._kernels as kernels

Ring = NDArray[np.uint64]

FLOOR, CEIL = 0, 1
"""Rounding of `shift_right`: down for share 0, up for share 1 (negated floor)."""


def empty(shape: tuple[int, ...], limbs: int) -> Ring:
    """Return an uninitialised ring array."""
    return np.empty((*shape, limbs), np.uint64)


def zeros(shape: tuple[int, ...], limbs: int) -> Ring:
    """Return a ring array of zeros."""
    return np.zeros((*shape, limbs), np.uint64)


def aligned(a: Ring, b: Ring) -> tuple[Ring, Ring]:
    """Broadcast both arrays to one shape (limb axis included) and make them contiguous, as the kernels require."""
    if a.shape != b.shape:
        a, b = np.broadcast_arrays(a, b)
    return np.ascontiguousarray(a), np.ascontiguousarray(b)


def add(a: Ring, b: Ring) -> Ring:
    """Return a + b."""
    a, b = aligned(a, b)
    out = np.empty(a.shape, np.uint64)
    kernels.add(out, a, b)
    return out


def sub(a: Ring, b: Ring) -> Ring:
    """Return a - b."""
    a, b = aligned(a, b)
    out = np.empty(a.shape, np.uint64)
    kernels.sub(out, a, b)
    return out


def neg(a: Ring) -> Ring:
    """Return -a."""
    out = np.empty(a.shape, np.uint64)
    kernels.neg(out, np.ascontiguousarray(a))
    return out


def mul(a: Ring, b: Ring) -> Ring:
    """Return a * b, element-wise."""
    a, b = aligned(a, b)
    out = np.empty(a.shape, np.uint64)
    kernels.mul(out, a, b)
    return out


def scale(a: Ring, factor: int) -> Ring:
    """Return a times one public integer."""
    out = np.empty(a.shape, np.uint64)
    factor %= 1 << 128
    kernels.scale(out, np.ascontiguousarray(a), factor & (2**64 - 1), factor >> 64)
    return out


def shift_right(a: Ring, bits: int, mode: int) -> Ring:
    """Shift right with the rounding `mode` (FLOOR or CEIL)."""
    out = np.empty(a.shape, np.uint64)
    kernels.shift_right(out, np.ascontiguousarray(a), bits, mode)
    return out


def shift_left(a: Ring, bits: int) -> Ring:
    """Return a * 2^bits."""
    out = np.empty(a.shape, np.uint64)
    kernels.shift_left(out, np.ascontiguousarray(a), bits)
    return out


def mask_low(a: Ring, bits: int) -> Ring:
    """Return a mod 2^bits."""
    out = np.empty(a.shape, np.uint64)
    kernels.mask_low(out, np.ascontiguousarray(a), bits)
    return out


def total(a: Ring, axis: int) -> Ring:
    """Return the sum over one axis (counted without the limb axis, non-negative)."""
    shape = a.shape
    out = np.empty(shape[:axis] + shape[axis + 1 :], np.uint64)
    outer = math.prod(shape[:axis])
    inner = math.prod(shape[axis + 1 : -1])
    kernels.sum(out, np.ascontiguousarray(a), outer, shape[axis], inner)
    return out


def matmul(a: Ring, b: Ring) -> Ring:
    """Return (..., n, k) @ (..., k, m) with NumPy's broadcasting of the leading axes."""
    n, k, m = a.shape[-3], a.shape[-2], b.shape[-2]
    lead_a, lead_b = a.shape[:-3], b.shape[:-3]
    lead = lead_a if lead_a == lead_b else np.broadcast_shapes(lead_a, lead_b)
    batch = math.prod(lead)
    a_shared, b_shared = not lead_a and bool(lead), not lead_b and bool(lead)
    if lead_a and lead_a != lead:
        a = np.broadcast_to(a, lead + a.shape[-3:])
    if lead_b and lead_b != lead:
        b = np.broadcast_to(b, lead + b.shape[-3:])
    out = np.empty((*lead, n, m, a.shape[-1]), np.uint64)
    kernels.matmul(out, np.ascontiguousarray(a), np.ascontiguousarray(b), batch, n, k, m, a_shared, b_shared)
    return out


def constants(values: Sequence[Any] | NDArray[Any], limbs: int) -> Ring:
    """Return public integers of any size and sign as ring elements (any nesting of sequences)."""
    array = np.asarray(values, dtype=object)
    out = np.empty((*array.shape, limbs), np.uint64)
    flat = out.reshape(-1, limbs)
    for i, value in enumerate(array.reshape(-1)):  # public tables are short; data never take this path
        for limb in range(limbs):
            flat[i, limb] = (int(value) >> (64 * limb)) & (2**64 - 1)
    return out


def encode(values: NDArray[np.float64], frac: int, limbs: int) -> tuple[Ring, int]:
    """Return round(values * 2^frac), and the flat index of the first value that does not fit or is not finite (-1:
    none).
    """
    values = np.asarray(values, np.float64, order="C")  # ascontiguousarray would add an axis to a scalar
    out = np.empty((*values.shape, limbs), np.uint64)
    bad: int = kernels.encode(out, values, frac)
    return out, bad


def decode(a: Ring, frac: int) -> NDArray[np.float64]:
    """Return the nearest doubles of signed fixed-point values."""
    out = np.empty(a.shape[:-1], np.float64)
    kernels.decode(out, np.ascontiguousarray(a), frac)
    return out


def integers(values: NDArray[Any], limbs: int) -> Ring:
    """Return signed or unsigned machine integers as ring elements."""
    values = np.asarray(values)
    out = np.empty((*values.shape, limbs), np.uint64)
    out[..., 0] = values.astype(np.int64).view(np.uint64) if values.dtype.kind != "u" else values
    if limbs == 2:
        out[..., 1] = np.where(values < 0, np.uint64(2**64 - 1), np.uint64(0)) if values.dtype.kind != "u" else 0
    return out


def to_int64(a: Ring) -> NDArray[np.int64]:
    """Return the low limbs as signed integers. Raises OverflowError if a value does not fit."""
    low = np.array(a[..., 0]).view(np.int64)
    if a.shape[-1] == 2 and not np.array_equal(np.array(a[..., 1]).view(np.int64), low >> 63):
        raise OverflowError("a value does not fit in 64 signed bits. Decode it with its fractional bits.")
    return low


def as_ring(payload: Any, shape: tuple[int, ...]) -> Ring:
    """Return received bytes as a ring array of this full shape (limb axis included)."""
    array = np.frombuffer(payload, np.uint64).reshape(shape)
    return array if array.flags.aligned else array.copy()
