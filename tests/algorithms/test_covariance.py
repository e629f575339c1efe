"""Covariance and correlation, normalised: on shares against exact fractions, on plain numbers within their 53 bits.

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
from ppca.algorithms import covariance
from ppca.algorithms.covariance import (
    DIMENSION_BITS,
    MOMENT_FRAC,
    UNIT_SHIFT,
    normalised_correlation,
    normalised_covariance,
)
from ppca.protocol import PlainArray, RingType

MOMENTS = RingType(128, MOMENT_FRAC, 1)
FACTOR = RingType(128, 100, 26)
ULP = 2.0**-40
ROOT = 1.01e-9
"""Relative error of an inverse square root, 1e-9 by its contract, and of its argument: (2^-40 + 2^-48) / (1/4), halved."""

Exact = list[Fraction]
Table = list[Exact]


def on_grid(value: float | Fraction, frac: int) -> Fraction:
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


def covariance_of(rows: Table) -> Table:
    """The covariance that divides by the number of rows, on the grid of 2^-112."""
    n, d = len(rows), len(rows[0])
    mean = [sum(row[j] for row in rows) / n for j in range(d)]
    centred = [[x - m for x, m in zip(row, mean, strict=True)] for row in rows]
    return [[on_grid(sum(row[i] * row[j] for row in centred) / n, MOMENT_FRAC) for j in range(d)] for i in range(d)]


def normalised(normalise: Any, C: Table, deviations: bool) -> tuple[list[Any], list[Any], int]:
    """(matrix, factor, inverse deviations) on shares and on plain numbers, and the rounds."""
    d = len(C)

    async def program(packed: Any) -> list[Any]:
        found = await normalise(exactly(packed, MOMENTS), d)
        assert found.shift == (UNIT_SHIFT if deviations else DIMENSION_BITS + UNIT_SHIFT)
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
    found = finish(normalise(plain(triangle(C), MOMENTS), d))
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
    C = covariance_of(data(kind, d))
    on_shares, on_plain, rounds = normalised(normalised_covariance, C, False)
    for A, factor in (on_shares, on_plain):
        assert power_of_two(float(factor))
        wanted = full([float(c * Fraction(float(factor)) / 2 ** (DIMENSION_BITS + UNIT_SHIFT)) for c in triangle(C)], d)
        assert np.abs(A - wanted).max() <= ULP + 2 * math.sqrt(d) * 2.0**-48
        assert 0.5 - d * ULP < np.linalg.norm(A) <= 1 + d * ULP
        np.testing.assert_array_equal(A, A.T)
    assert on_shares[1] == on_plain[1]
    assert rounds == 9


@pytest.mark.parametrize("d", [1, 2, 5, 12])
@pytest.mark.parametrize("kind", KINDS)
def test_normalised_correlation(kind: str, d: int) -> None:
    """Error of an entry: two inverse roots, their product to 40 bits, and 1 ulp of 40 at the end; the factor is 1 at most."""
    C = covariance_of(data(kind, d))
    deviation = np.array([math.sqrt(float(C[j][j])) for j in range(d)])
    correlation = np.array([[float(c) for c in row] for row in C]) / np.outer(deviation, deviation)
    on_shares, on_plain, rounds = normalised(normalised_correlation, C, True)
    for A, factor, inverse in (on_shares, on_plain):
        scale = float(factor) / 2.0**UNIT_SHIFT
        assert power_of_two(scale)
        assert scale <= 1
        assert np.abs(A - correlation * scale).max() <= 2 * ROOT * scale + 2.25 * ULP
        assert 0.5 - d * ULP < np.linalg.norm(A) <= 1 + d * ULP
        np.testing.assert_allclose(inverse, 1 / deviation, rtol=ROOT)
    assert rounds == 22


@pytest.mark.parametrize(("normalise", "more"), [(normalised_covariance, 3), (normalised_correlation, 8)])
def test_triangles_in_passes(normalise: Any, more: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same matrix up to what truncations and inverse roots may change, for the rounds of the further passes."""
    d, deviations = 12, normalise is normalised_correlation
    C = covariance_of(data("random", d))
    whole, _, rounds = normalised(normalise, C, deviations)
    monkeypatch.setattr(covariance, "PASS_ENTRIES", 20)
    found, _, longer = normalised(normalise, C, deviations)
    allowed = (
        2 * ROOT * float(whole[1]) / 2.0**UNIT_SHIFT + 2.25 * ULP if deviations else ULP + 2 * math.sqrt(d) * 2.0**-48
    )
    np.testing.assert_allclose(found[0], whole[0], rtol=0, atol=2 * allowed)
    assert found[1] == whole[1]
    assert longer == rounds + more * (-(-d * (d + 1) // 2 // 20) - 1)


@pytest.mark.parametrize("sign", [-1, 0, 1])
def test_constant_columns_come_out_zero(sign: int) -> None:
    """Beside an ordinary column, whose variance is 1/4, and alone; their variance is what rounding leaves, of either sign."""
    noise = sign * Fraction(1, 2**100)
    beside: Table = [[Fraction(1, 4), Fraction(0)], [Fraction(0), noise]]
    for A, factor, inverse in normalised(normalised_correlation, beside, True)[:2]:
        np.testing.assert_allclose(
            A * 2.0**UNIT_SHIFT / float(factor), [[1, 0], [0, 0]], rtol=0, atol=2 * ROOT + 2.25 * 4 * ULP
        )
        np.testing.assert_allclose(inverse, [2, 0], rtol=ROOT)
    for A, _, inverse in normalised(normalised_correlation, [[noise]], True)[:2]:
        np.testing.assert_array_equal([A.item(), inverse.item()], 0)
    for A, factor in normalised(normalised_covariance, [[noise]], False)[:2]:
        np.testing.assert_array_equal([A.item(), factor.item()], 0)
