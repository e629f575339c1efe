"""Covariance, correlation, pooling and scales: on shares against exact fractions, on plain numbers within their 53 bits.

Inputs are multiples of their last bit, given to the servers as sums of doubles, so nothing is rounded before the test starts.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from harness.lockstep import run
from harness.spectra import finish
from ppca.algorithms.covariance import (
    HEADROOM,
    MEAN_FRAC,
    MOMENT_FRAC,
    UP,
    central_moments,
    noise_floor,
    normalised_correlation,
    normalised_covariance,
    pooled,
    sums_over_owners,
)
from ppca.protocol import PlainArray, RingType

MOMENTS, MEANS = RingType(128, MOMENT_FRAC, 1), RingType(128, MEAN_FRAC, 1)
FACTOR = RingType(128, 100, 26)
ULP = 2.0**-40
ROOT = 1.01e-9
"""Relative error of an inverse square root, 1e-9 by its contract, and of its argument: (2^-40 + 2^-48) / (1/4), halved."""

Exact = list[Fraction]
Table = list[Exact]


def on_grid(value: float, frac: int) -> Fraction:
    return Fraction(round(Fraction(value) * 2**frac), 2**frac)


def doubles(values: Exact) -> NDArray[np.float64]:
    """Three doubles whose sum is each value, exactly: (3, n)."""
    parts = []
    rest = list(values)
    for _ in range(3):
        parts.append([float(one) for one in rest])
        rest = [one - Fraction(part) for one, part in zip(rest, parts[-1], strict=True)]
    assert not any(rest)
    return np.array(parts)


def exactly(parts: Any, kind: RingType) -> Any:
    """On a server: the values behind `doubles`."""
    return (parts[0] + parts[1] + parts[2]).retype(kind)


def plain(values: Exact, kind: RingType) -> PlainArray:
    return PlainArray([float(one) for one in values], dtype=kind)


def triangle(matrix: Table) -> Exact:
    return [matrix[i][j] for i in range(len(matrix)) for j in range(i, len(matrix))]


def full(packed: Any, d: int) -> NDArray[np.float64]:
    matrix = np.zeros((d, d))
    matrix[np.triu_indices(d)] = packed
    return matrix + np.triu(matrix, 1).T


def data(kind: str, d: int, rows: int = 9) -> Table:
    """Rows within |x| <= 1, exact."""
    rng = np.random.default_rng(d)
    columns = {
        "random": rng.uniform(-1, 1, (rows, d)),
        "large means": 1 - 2.0**-20 * rng.random((rows, d)),  # a mean 10^6 times the deviation
        "corners": rng.choice([-1.0, 1.0], (rows, d)),
        "small": 2.0**-22 * rng.uniform(-1, 1, (rows, d)),
        "scales apart": rng.uniform(-1, 1, (rows, d)) * 2.0 ** -np.linspace(0, 22, d),
        "equal columns": rng.uniform(-1, 1, (rows, 1)) * np.where(np.arange(d) % 2, -1, 1),
    }[kind]
    return [[on_grid(float(x), 30) for x in row] for row in columns]


KINDS = ["random", "large means", "corners", "small", "scales apart", "equal columns"]


def moments_of(rows: Table) -> tuple[Exact, Exact, Table]:
    """Second moments (packed) and means as owners send them, and the covariance of the two, all exact."""
    n, d = len(rows), len(rows[0])
    mean = [on_grid(sum(row[j] for row in rows) / n, MEAN_FRAC) for j in range(d)]
    moments = [on_grid(sum(row[i] * row[j] for row in rows) / n, MOMENT_FRAC) for i in range(d) for j in range(i, d)]
    products = (mean[i] * mean[j] for i in range(d) for j in range(i, d))
    packed = iter([moment - product for moment, product in zip(moments, products, strict=True)])
    upper = {(i, j): next(packed) for i in range(d) for j in range(i, d)}
    return moments, mean, [[upper[min(i, j), max(i, j)] for j in range(d)] for i in range(d)]


@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_central_moments_are_exact(kind: str, d: int) -> None:
    moments, mean, C = moments_of(data(kind, d))

    async def program(moments: Any, mean: Any, expected: Any) -> Any:
        packed = await central_moments(exactly(moments, MOMENTS), exactly(mean, MEANS))
        return packed - exactly(expected, MOMENTS)

    outcome = run(program, doubles(moments), doubles(mean), doubles(triangle(C)), dtypes=(MOMENTS, MEANS, MOMENTS))
    np.testing.assert_array_equal(outcome.value, 0)
    assert outcome.traffic.rounds == 1
    found = finish(central_moments(plain(moments, MOMENTS), plain(mean, MEANS)))
    # Two products and a difference of numbers up to 1 in doubles.
    np.testing.assert_allclose(found.values, [float(c) for c in triangle(C)], rtol=0, atol=4 * 2.0**-53)


@pytest.mark.parametrize("counts", [(1, 1), (9, 1), (3, 10**9), (2**40, 2**40 - 1)])
@pytest.mark.parametrize("kind", ["random", "large means", "corners", "small"])
def test_pooled(kind: str, counts: tuple[int, int]) -> None:
    """Error: 40-bit weights, off by 2^-41 (and by the last bit of a double), and truncations to 84, 112 and 56 bits."""
    d = 3
    groups = [moments_of(data(kind, d, rows))[1:] for rows in (4, 7)]
    (m1, C1), (m2, C2) = groups
    total = sum(counts)
    w1, w2 = Fraction(counts[0], total), Fraction(counts[1], total)
    gap = [a - b for a, b in zip(m1, m2, strict=True)]
    outer = [[a * b for b in gap] for a in gap]
    C = [[w1 * C1[i][j] + w2 * C2[i][j] + w1 * w2 * outer[i][j] for j in range(d)] for i in range(d)]
    mean = [w1 * a + w2 * b for a, b in zip(m1, m2, strict=True)]
    weight = 2.0**-41 * (1 + 2.0**-10)
    sizes = [sum(abs(float(part)) for part in parts) for parts in zip(*map(triangle, (C1, C2, outer)), strict=True)]
    slack = np.array(sizes) * weight + 4 * 2.0**-84
    slack_of_mean = np.array([float(abs(a) + abs(b)) for a, b in zip(m1, m2, strict=True)]) * weight + 2 * 2.0**-56

    async def program(C1: Any, m1: Any, C2: Any, m2: Any, C: Any, mean: Any) -> list[Any]:
        old, new = (exactly(C1, MOMENTS), exactly(m1, MEANS)), (exactly(C2, MOMENTS), exactly(m2, MEANS))
        found, means = await pooled(old, new, *counts)
        assert (found.dtype.frac, means.dtype.frac) == (MOMENT_FRAC, MEAN_FRAC)
        return [found - exactly(C, MOMENTS), means - exactly(mean, MEANS)]

    sent = [triangle(C1), m1, triangle(C2), m2]
    expected = [[on_grid(c, MOMENT_FRAC) for c in triangle(C)], [on_grid(m, MEAN_FRAC) for m in mean]]
    outcome = run(program, *map(doubles, [*sent, *expected]), dtypes=(MOMENTS, MEANS) * 3)
    assert np.all(np.abs(outcome.value[0]) <= slack)
    assert np.all(np.abs(outcome.value[1]) <= slack_of_mean)
    assert outcome.traffic.rounds == 3
    pairs = [(plain(sent[k], MOMENTS), plain(sent[k + 1], MEANS)) for k in (0, 2)]
    packed, means = finish(pooled(*pairs, *counts))
    assert np.all(np.abs(packed.values - [float(c) for c in triangle(C)]) <= slack + 8 * 2.0**-53)
    assert np.all(np.abs(means.values - [float(m) for m in mean]) <= slack_of_mean + 8 * 2.0**-53)


def normalised(normalise: Any, C: Table, owners: int, deviations: bool) -> tuple[list[Any], list[Any], int]:
    """(matrix, factor, inverse deviations) on shares and on plain numbers, and the rounds."""
    d = len(C)

    async def program(packed: Any) -> list[Any]:
        found = await normalise(exactly(packed, MOMENTS), d, owners)
        assert found.shift == (UP if deviations else HEADROOM + UP)
        result = [found.matrix, found.factor.retype(FACTOR)]
        if deviations:
            inverse, power = found.inverse_deviation
            result += [inverse, power.retype(RingType(128, 60, 62))]
        return result

    outcome = run(program, doubles(triangle(C)), dtypes=(MOMENTS,))
    shares = outcome.value
    shares[1] = shares[1] * 2.0**100
    if deviations:
        shares[2:] = [shares[2] * shares[3] * 2.0**60]
    found = finish(normalise(plain(triangle(C), MOMENTS), d, owners))
    values = [found.matrix.values, found.factor.values]
    if deviations:
        values.append(found.inverse_deviation[0].values * found.inverse_deviation[1].values)
    return shares, values, outcome.traffic.rounds


def power_of_two(value: float) -> bool:
    return math.frexp(value)[0] == 0.5


@pytest.mark.parametrize("d", [1, 2, 5, 12])
@pytest.mark.parametrize("kind", KINDS)
def test_normalised_covariance(kind: str, d: int) -> None:
    """Error: 1 ulp of 48 bits before the second factor, which is 2 sqrt(d) at most (the trace is 1/2 then), 1 ulp of 40 after."""
    C = moments_of(data(kind, d))[2]
    on_shares, on_plain, rounds = normalised(normalised_covariance, C, 1, False)
    for A, factor in (on_shares, on_plain):
        assert power_of_two(float(factor))
        wanted = full([float(c * Fraction(float(factor)) / 2 ** (HEADROOM + UP)) for c in triangle(C)], d)
        assert np.abs(A - wanted).max() <= ULP + 2 * math.sqrt(d) * 2.0**-48
        assert 0.5 - d * ULP < np.linalg.norm(A) <= 1 + d * ULP
        np.testing.assert_array_equal(A, A.T)
    assert on_shares[1] == on_plain[1]
    assert rounds == 9


@pytest.mark.parametrize("d", [1, 2, 5, 12])
@pytest.mark.parametrize("kind", KINDS)
def test_normalised_correlation(kind: str, d: int) -> None:
    """Error of an entry: two inverse roots, their product to 40 bits, and 1 ulp of 40 at the end; the factor is 1 at most."""
    C = moments_of(data(kind, d))[2]
    deviation = np.array([math.sqrt(float(C[j][j])) for j in range(d)])
    correlation = np.array([[float(c) for c in row] for row in C]) / np.outer(deviation, deviation)
    on_shares, on_plain, rounds = normalised(normalised_correlation, C, 1, True)
    for A, factor, inverse in (on_shares, on_plain):
        scale = float(factor) / 2.0**UP
        assert power_of_two(scale)
        assert scale <= 1
        assert np.abs(A - correlation * scale).max() <= 2 * ROOT * scale + 2.25 * ULP
        assert 0.5 - d * ULP < np.linalg.norm(A) <= 1 + d * ULP
        np.testing.assert_allclose(inverse, 1 / deviation, rtol=ROOT)
    assert rounds == 19


@pytest.mark.parametrize("owners", [1, 32, 33, 1000])
def test_the_noise_floor_is_above_the_noise_of_all_owners(owners: int) -> None:
    """Each owner rounds its part of a mean to 56 bits: a constant column of |x| <= 1 comes out as owners 2^-56 at most."""
    floor, smallest = noise_floor(owners)
    assert floor > owners * 2.0**-56
    assert 2.0**smallest > floor + owners * 2.0**-56  # constant, with the floor, still counts as zero


@pytest.mark.parametrize("owners", [1, 33, 1000])
@pytest.mark.parametrize("sign", [-1, 0, 1])
def test_constant_columns_come_out_zero(sign: int, owners: int) -> None:
    """Beside an ordinary column, whose variance is 1/4, and alone; their variance is what rounding leaves, of either sign."""
    noise = sign * owners * Fraction(1, 2**56)
    beside: Table = [[Fraction(1, 4), Fraction(0)], [Fraction(0), noise]]
    for A, factor, inverse in normalised(normalised_correlation, beside, owners, True)[:2]:
        np.testing.assert_allclose(
            A * 2.0**UP / float(factor), [[1, 0], [0, 0]], rtol=0, atol=2 * ROOT + 2.25 * 4 * ULP
        )
        np.testing.assert_allclose(inverse, [2, 0], rtol=ROOT)
    for A, _, inverse in normalised(normalised_correlation, [[noise]], owners, True)[:2]:
        np.testing.assert_array_equal([A.item(), inverse.item()], 0)
    for A, factor in normalised(normalised_covariance, [[noise]], owners, False)[:2]:
        np.testing.assert_array_equal([A.item(), factor.item()], 0)


@pytest.mark.parametrize("owners", [1, 2, 3, 4, 7])
def test_sums_over_owners(owners: int) -> None:
    rng = np.random.default_rng(owners)
    counts = rng.integers(1, 2**39, owners)
    exponents = rng.integers(-1100, 1025, (owners, 6))
    exponents[:, 0] = -1100  # a column of zeros everywhere
    exponents[:, 1] = 1024
    kinds = (RingType(128, 0, 40), RingType(128, 0, 12))

    async def program(counts: Any, exponents: Any) -> list[Any]:
        return list(await sums_over_owners(counts, exponents))

    outcome = run(program, counts, exponents, dtypes=kinds)
    on_plain = finish(sums_over_owners(PlainArray(counts), PlainArray(exponents)))
    for total, largest in (outcome.value, [one.values for one in on_plain]):
        assert total == counts.sum()
        np.testing.assert_array_equal(largest, exponents.max(axis=0))
    assert outcome.traffic.rounds == 3 * math.ceil(math.log2(owners))
