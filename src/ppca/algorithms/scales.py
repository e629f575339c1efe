"""Numbers in secret scales: a shared mantissa and a shared exponent, converted to common scales without opening an
exponent.

A mantissa has 80 fractional bits, and the upper half of its bits is shared separately. A product with a secret power of
two must stay below 2^126, so a shift by up to 80 bits is done in two halves. All truncations are exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..protocol import RingType, together

MANTISSA_BITS = 80
"""Fractional bits of a mantissa."""

HALF_BITS = MANTISSA_BITS // 2
"""Fractional bits of the upper half of a mantissa."""

CUT_BITS = 44
"""Bits truncated after a product with a power of two that shifts to the left by as many more."""

FLOAT_BITS = 55
"""Fractional bits of a number that a receiver gets as mantissa and exponent: a double has 53."""

SHOWN_BITS = 68
"""A receiver gets means to 68 bits below the largest mean of an owner. Owners' means are truncated 80 bits below it."""

MEAN_FRAC = 56
"""Fractional bits of means in the units of a covariance."""

MAX_UNIT_BITS = 38
"""log2 of the largest mean in such units."""

NONE_SHIFT = 1800
"""A - D is below this for all doubles, and above if D comes from `NONE`."""

NONE = -3000
"""The exponent of zero: below those of all doubles, whatever is added here."""

EXPONENT_OFFSET = 4096
"""Added to exponents that a table returns, so that zero can stand for none."""

EXPONENT = RingType(128, 0, 13)
"""Type of exponents."""

MANTISSA = RingType(128, MANTISSA_BITS, 1)
"""Type of mantissas."""

UPPER_HALF = RingType(128, HALF_BITS, 1)
"""Type of upper halves of mantissas."""

GRID = RingType(128, MANTISSA_BITS, 2)
"""Type of numbers in units of 2^A."""

GROUP_SIZE = 16
"""Numbers whose maximum is found at once, by comparing all pairs."""

RAW = RingType(128, 112, 14)
"""Integers below 2^126, as a type that every backend can hold."""


async def maximum(values: Any) -> Any:
    """Return the maximum of shared integers along the first axis: five rounds for 3 to 16 of them, three for two."""
    while len(values) > 2:
        size = min(GROUP_SIZE, len(values))
        groups = -(-len(values) // size)
        padded = values[np.minimum(np.arange(groups * size), len(values) - 1)]
        x = padded.reshape(groups, size, *values.shape[1:])
        i, j = np.triu_indices(size, 1)
        later = await (x[:, i] < x[:, j])
        gains = (np.arange(size)[:, None] == j).astype(np.int64) - (np.arange(size)[:, None] == i)
        flat = later.reshape(groups, len(i), -1)
        wins = (gains @ flat).reshape(x.shape) + np.bincount(i, minlength=size).reshape(size, *[1] * (values.ndim - 1))
        first = await (wins.within(size) == size - 1)
        values = await first.inner(x, axis=1)
        values = values.retype(EXPONENT)
    if len(values) == 1:
        return values[0]
    second = await (values[0] < values[1])
    return (await second.where(values[1], values[0])).retype(EXPONENT)


def power_table(low: int, high: int, *values: Any) -> tuple[Any, Any]:
    """Return thresholds and tables of public functions over the integers low .. high; zero outside."""
    inside = range(low, high + 1)
    return np.arange(low, high + 2), np.array([[0, *map(value, inside), 0] for value in values], dtype=object)


async def on_grid(mantissa: Any, upper: Any, exponent: Any) -> tuple[Any, Any]:
    """Return the largest exponent A along the first axis, and all numbers in units of 2^A with 80 fractional bits.

    Digits more than 80 bits below the largest number are truncated. Nine rounds for up to sixteen numbers.
    """
    largest = await maximum(exponent)
    thresholds, values = power_table(
        0,
        MANTISSA_BITS,
        lambda s: 1 << (HALF_BITS - s) if s <= HALF_BITS else 0,
        lambda s: 1 << (MANTISSA_BITS - s) if s > HALF_BITS else 0,
    )
    powers = await (largest - exponent).retype(EXPONENT).classify(thresholds, values, 0)
    near, far = powers[..., 0].retype(UPPER_HALF), powers[..., 1].retype(MANTISSA)
    whole = MANTISSA_BITS + HALF_BITS
    a, b = await together(mantissa.mul(near, frac=whole), upper.mul(far, frac=whole))
    return largest, (await (a + b).retype(RingType(128, whole, 2)).truncate(HALF_BITS)).retype(GRID)


async def floating(grid: Any, largest: Any) -> tuple[Any, Any]:
    """Convert numbers in units of 2^A (80 fractional bits) to v 2^e: |v| in [1/2, 1] with 55 fractional bits, or zeros.
    Six rounds.

    A receiver gets a floating-point number, rounded to a multiple of 2^(A - 68). It reveals A only if its digits end
    early. The mean of several owners' numbers, each truncated at 2^(A - 80), is off by up to two units of 2^(A - 80),
    which depend on single owners. The rounding is random: these units change the result with probability 2^-11.
    """

    def powers(e: int) -> list[int]:
        return [1 << max(0, SHOWN_BITS + 2 - e), e, 1]

    grid = (await grid.retype(GRID).truncate(MANTISSA_BITS - SHOWN_BITS)).retype(RingType(128, SHOWN_BITS, 2))
    negative, above, below = await together(
        grid.negative(),
        grid.binade_powers(powers, -SHOWN_BITS, 2),
        (-grid).binade_powers(powers, -SHOWN_BITS, 2),
    )
    change = await (negative.reshape(*negative.shape, 1) * (below - above))
    chosen = (above + change).retype(above.dtype)
    raw, unit = await together(
        grid.retype(RAW).mul(chosen[..., 0], frac=RAW.frac),
        chosen[..., 2].retype(EXPONENT) * (largest - SHOWN_BITS).retype(EXPONENT),
    )
    short = await raw.retype(RingType(128, SHOWN_BITS + 2, 1)).truncate(SHOWN_BITS + 2 - FLOAT_BITS)
    return short.retype(RingType(128, FLOAT_BITS, 1)), (unit + chosen[..., 1].retype(EXPONENT)).retype(EXPONENT)


async def in_units(grid: Any, largest: Any, exponent: Any) -> Any:
    """Convert numbers in units of 2^A (80 fractional bits) to units of 2^D, 56 fractional bits.

    Numbers with A > D + 38 are returned as if A were D + 38: about 2^38 units, so that differences from them stay in
    range. Zero if D stands for no deviation.
    """
    # X 2^(x - 24) with x = A - D. x > 23: a shift to the left. -21 < x < 24: a shift to the left and a truncation by
    # 44 bits. x < -20: the same with the upper half of the bits. One table has the powers of all three.
    thresholds, values = power_table(
        -60,
        MAX_UNIT_BITS,
        lambda x: 1 << (x - 24) if x > 23 else 0,
        lambda x: 1 << (x + 20) if -21 < x < 24 else 0,
        lambda x: 1 << (x + 60) if x < -20 else 0,
    )
    thresholds = np.append(thresholds, NONE_SHIFT)
    values = np.insert(values, -1, values[:, -2], axis=1)
    shift = (largest - exponent).retype(EXPONENT)
    powers, upper = await together(shift.classify(thresholds, values, 0), grid.truncate(HALF_BITS))
    above, about, below = (powers[..., k] for k in range(3))
    whole = RingType(128, MEAN_FRAC, 45)
    left, near, far = await together(
        grid.retype(whole).mul(above, frac=MEAN_FRAC),
        grid.retype(RAW).mul(about, frac=112),
        upper.retype(RAW).mul(below, frac=112),
    )
    short = await (near + far).retype(RAW).truncate(CUT_BITS)
    return (left.retype(whole) + short.retype(whole)).retype(whole)
