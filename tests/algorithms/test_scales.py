"""Numbers in secret scales, on shares against exact integers: largest exponents, a common grid, floating point, given units."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from harness.lockstep import LockstepServers, run
from ppca import PCA
from ppca.algorithms.scales import (
    EXPONENT,
    FLOAT_BITS,
    GRID,
    HALF_BITS,
    MANTISSA_BITS,
    MEAN_FRAC,
    floating,
    in_units,
    maximum,
    on_grid,
)
from ppca.protocol import RingType

RANDOM = np.random.default_rng(3)


@pytest.mark.parametrize("count", [1, 2, 3, 16, 17, 40])
def test_maximum(count: int) -> None:
    values = RANDOM.integers(-3000, 3000, (count, 5))
    values[:, 0] = -3000  # all equal
    values[-1, 1] = 4000

    async def program(x: Any) -> Any:
        return await maximum(x)

    found = run(program, values, dtypes=(EXPONENT,))
    np.testing.assert_array_equal(found.value, values.max(axis=0))
    levels = {1: 0, 2: 3, 3: 5, 16: 5, 17: 8, 40: 10}
    assert found.traffic.rounds == levels[count]
    assert all(line.to == "test" for line in found.audits[0])


def parts(values: list[Fraction]) -> tuple[Any, Any]:
    """Mantissas as two inputs whose sum has all 80 bits (a double has 53), and their upper halves."""
    whole = [round(v * 2**MANTISSA_BITS) for v in values]
    high = [w >> HALF_BITS for w in whole]
    low = [w - (h << HALF_BITS) for w, h in zip(whole, high, strict=True)]
    return np.array(high, np.int64), np.array(low, np.int64)


def mantissa(high: Any, low: Any) -> tuple[Any, Any]:
    """On a server: the mantissa and its upper half."""
    whole = (high * 2**HALF_BITS + low).retype(RingType(128, MANTISSA_BITS, 1))
    return whole, high.retype(RingType(128, HALF_BITS, 1))


@pytest.mark.parametrize("apart", [0, 1, 27, 40, 41, 79, 80, 81, 2000])
def test_on_grid(apart: int) -> None:
    """Error: one unit of the grid for each of the two cuts, and what the upper half leaves out."""
    values = [Fraction(int(RANDOM.integers(2**52, 2**53)), 2**53) * (-1) ** k + Fraction(k, 2**79) for k in range(6)]
    exponents = np.array([[7] * 3, [7 - apart] * 3])

    async def program(high: Any, low: Any, exponent: Any) -> Any:
        whole, upper = mantissa(high, low)
        largest, grid = await on_grid(whole.reshape(2, 3), upper.reshape(2, 3), exponent)
        shifted = grid * 2 ** (126 - MANTISSA_BITS - 2)  # the raw integer in two doubles' worth of bits
        return [largest, grid, shifted.retype(RingType(128, 100, 26))]

    integer = RingType(128, 0, 62)
    found = run(program, *parts(values), exponents, dtypes=(integer, integer, EXPONENT)).value
    np.testing.assert_array_equal(found[0], 7)
    for k, value in enumerate(values):
        wanted = value / 2 ** (apart if k > 2 else 0)
        unit = Fraction(2 if k > 2 and apart else 0, 2**MANTISSA_BITS) + Fraction(1, 2**52) * abs(wanted)
        assert abs(Fraction(float(found[1].flat[k])) - wanted) <= unit


@pytest.mark.parametrize("exponent", [-1000, 0, 900])
def test_floating(exponent: int) -> None:
    values = [Fraction(0), Fraction(1, 2**68), -Fraction(1, 2**68), Fraction(3, 2**40), -Fraction(7, 8), Fraction(5, 4)]

    async def program(high: Any, low: Any) -> Any:
        grid = mantissa(high, low)[0].retype(GRID)
        largest = high.like(high.data * 0, EXPONENT) + exponent
        return list(await floating(grid, largest.retype(EXPONENT)))

    integer = RingType(128, 0, 62)
    found = run(program, *parts(values), dtypes=(integer, integer))
    for value, part, e in zip(values, *found.value, strict=True):
        assert (abs(part) >= 0.5) == (value != 0)
        assert Fraction(float(part)) * Fraction(2) ** int(e) == value * Fraction(2) ** exponent
        assert value != 0 or e == 0, "zero tells nothing of the largest exponent"
    assert found.traffic.rounds == 6


def test_floating_has_no_more_digits_than_a_double() -> None:
    """The last digits would tell the largest exponent."""
    values = [Fraction(int(RANDOM.integers(2**52, 2**53)), 2**53) + Fraction(k, 2**80) for k in range(1, 50)]

    async def program(high: Any, low: Any) -> Any:
        grid = mantissa(high, low)[0].retype(GRID)
        part, _ = await floating(grid, high.like(high.data * 0, EXPONENT))
        assert part.dtype.frac == FLOAT_BITS
        return part

    integer = RingType(128, 0, 62)
    found = run(program, *parts(values), dtypes=(integer, integer)).value
    for value, part in zip(values, found, strict=True):
        assert abs(Fraction(float(part)) - value) <= Fraction(1, 2**53)


def test_floating_shows_no_digits_near_the_cut_of_single_numbers() -> None:
    """Numbers below 2^-68 become 0 or 2^-68, at random."""
    units = np.array([1, -1, 1000, -500, 2**11, -(2**11)])
    values = [Fraction(int(unit), 2**80) for unit in np.repeat(units, 40)]

    async def program(high: Any, low: Any) -> Any:
        grid = mantissa(high, low)[0].retype(GRID)
        return list(await floating(grid, high.like(high.data * 0, EXPONENT)))

    integer = RingType(128, 0, 62)
    part, e = run(program, *parts(values), dtypes=(integer, integer)).value
    found = np.where(part == 0, 0, np.ldexp(part, e.astype(int) + 68)).reshape(6, 40)
    assert set(np.unique(found)) <= {-1.0, 0.0, 1.0}
    assert (found[[0, 2, 4]] >= 0).all()
    assert (found[[1, 3, 5]] <= 0).all()
    assert np.abs(found[4:]).sum() > 0  # 80 numbers of one half


def test_two_owners_whose_means_cancel_read_no_single_mean() -> None:
    """The means of the others are cut off at multiples of 16, which the two choose. The sum would tell one owner's alone."""
    random = np.random.default_rng(4)
    away = np.array([[2.0**83] * 3])
    values = [random.standard_normal((count, 3)) for count in (30, 40)]
    values = [part - part.mean(axis=0) for part in values]
    owners = [values[0] + 16001, values[1] + 15, np.repeat(away, 20, axis=0), np.repeat(-away, 20, axis=0)]
    mean = PCA(1, servers=LockstepServers(), fixed_iterations=2).fit(owners).mean_
    assert set(np.abs(mean)) <= {0.0, 2.0**16}, "multiples of 16 tell 30 * 16000 / 110"


@pytest.mark.parametrize("apart", [-70, -60, -59, -21, -20, 0, 23, 24, 37, 38, 39, 44, 1799, 1800])
def test_in_units(apart: int) -> None:
    """Error: one unit of the last of 56 bits, and below 2^-20 the cut of the lower half. Large ones stay large."""
    values = [Fraction(int(RANDOM.integers(2**52, 2**53)), 2**53) * (-1) ** k for k in range(5)]

    async def program(high: Any, low: Any) -> Any:
        grid = mantissa(high, low)[0].retype(GRID)
        zero = high.like(high.data * 0, EXPONENT)
        return await in_units(grid, (zero + apart).retype(EXPONENT), zero)

    integer = RingType(128, 0, 62)
    found = run(program, *parts(values), dtypes=(integer, integer)).value
    for value, part in zip(values, found, strict=True):
        wanted = value * Fraction(2) ** min(apart, 38) if -61 < apart < 1800 else Fraction(0)
        assert abs(Fraction(float(part)) - wanted) <= Fraction(2, 2**MEAN_FRAC) + abs(wanted) / 2**52
