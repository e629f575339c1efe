"""Symmetric systems on shares: solutions against NumPy on the matrix that the servers have, on both backends, and both bits.

Tolerances: verification allows residuals of 2^-44, so a solution may err by 2^-44 / w, w the smallest eigenvalue;
NumPy errs by 2^-52 / w. Factors are rounded to 2^-40 and err by |1 - G X|^2, below 2^-40 relative.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from harness.lockstep import run
from harness.spectra import finish, orthogonal
from ppca.algorithms.linear_system import (
    FRAC,
    INVERSE_BITS,
    LAST_STEPS,
    MAX_INFLATION,
    TRACE_BITS,
    is_acceptable,
    is_solved,
    ordered,
    scaled,
    solve,
    steep_steps,
)
from ppca.protocol import PlainArray, RingType

Floats = NDArray[np.float64]
ENTRIES, RIGHT = RingType(128, 112, 14), RingType(128, FRAC, 14)


def matrix(d: int, condition: float) -> Floats:
    """Positive definite, with entries below 1, and columns in scales from 1 to 2^-12. Symmetric to the last bit, which
    a product of matrices is not on every processor."""
    A = (orthogonal(d) * np.geomspace(1, 1 / condition, d)) @ orthogonal(d).T
    A = (A + A.T) / 2
    unit = 2.0 ** -np.linspace(0, 12, d).round() / np.sqrt(np.diagonal(A)) * 0.9
    return np.asarray(A * np.outer(unit, unit))


def full(packed: Floats, d: int) -> Floats:
    found = np.zeros((d, d))
    found[np.triu_indices(d)] = packed
    return found + np.triu(found, 1).T


async def solved(packed: Any, right: Any, d: int) -> list[Any]:
    system = await scaled(packed, d)
    found = await solve(system.matrix, d, right.reshape(d, 1))
    bits = [await is_acceptable(system.varies, found.inflation), await is_solved(found)]
    return [system.matrix.retype(RIGHT), system.exponent, found.values, found.inflation, *bits]


def on_shares(A: Floats, right: Floats) -> tuple[list[Any], int]:
    d = len(A)

    async def program(packed: Any, shared: Any) -> list[Any]:
        return await solved(packed, shared, d)

    ended = run(program, A[np.triu_indices(d)], right, dtypes=(ENTRIES, RIGHT))
    return ended.value, ended.traffic.rounds


def on_plain(A: Floats, right: Floats) -> list[Any]:
    packed = PlainArray(A[np.triu_indices(len(A))], dtype=ENTRIES)
    found = finish(solved(packed, PlainArray(right, dtype=RIGHT), len(A)))
    return [array.values for array in found]


def check(A: Floats, right: Floats, found: list[Any], *, exact: bool = True) -> None:
    """exact: residuals are; those of doubles are not."""
    packed, exponent, values, inflation, acceptable, is_right = found
    G = full(packed, len(A))
    np.testing.assert_allclose(G, A * np.exp2(np.add.outer(exponent, exponent)), atol=2.0 ** (1 - FRAC), rtol=1e-15)
    assert np.all((np.diagonal(G) >= 0.249) & (np.diagonal(G) <= 1))
    smallest = float(np.linalg.eigvalsh(G)[0])
    wanted = np.linalg.solve(G, right)
    assert np.linalg.norm(values[:, 0] - wanted) <= (2.0**-44 + 2.0**-52 * np.linalg.norm(wanted)) / smallest
    np.testing.assert_allclose(inflation, np.diagonal(np.linalg.inv(G)) * np.diagonal(G), rtol=1e-10, atol=2.0**-36)
    assert acceptable == 1
    assert is_right == 1 or not exact


@pytest.mark.parametrize(("d", "condition"), [(1, 1), (2, 3), (3, 30), (10, 1e3), (10, 1e6), (24, 1e5)])
def test_solutions(d: int, condition: float) -> None:
    A, right = matrix(d, condition), np.random.default_rng(d).uniform(-0.1, 0.1, d)
    units = np.exp2(np.linspace(0, 12, d).round())
    right /= np.sqrt(right @ np.linalg.solve(A * np.outer(units, units), right))  # of a target with a variance of 1
    found, rounds = on_shares(A, right)
    check(A, right, found)
    # 6 for the scales, 2 for Z, 2 a step, 10 and 1 more for the refined solution, 10 for the bits one after the other.
    assert rounds <= 6 + 2 + 2 * (steep_steps(d) + LAST_STEPS) + 24
    check(A, right, on_plain(A, right), exact=False)


def pair(inflation: float) -> Floats:
    """Two columns whose inflation factors are this."""
    correlation = np.sqrt(1 - 1 / inflation)
    return np.array([[0.5, 0.5 * correlation], [0.5 * correlation, 0.5]])


@pytest.mark.parametrize(("factor", "bit"), [(0.999, 1), (1.001, 0)])
def test_the_limit_of_the_condition(factor: float, bit: int) -> None:
    """The sum of two factors on either side of 2^20."""
    found, _ = on_shares(pair(factor * MAX_INFLATION / 2), np.array([0.1, 0.1]))
    assert found[4] == bit
    assert found[5] == 1 or not bit


@pytest.mark.parametrize("what", ["duplicate", "opposite", "constant", "zero", "sum", "indefinite", "nearly"])
def test_singular_matrices_are_refused(what: str) -> None:
    d = 6
    X = np.random.default_rng(1).standard_normal((50, d))
    X[:, 3] = {"duplicate": X[:, 1], "opposite": -X[:, 1], "constant": 0 * X[:, 1], "sum": X[:, 0] + X[:, 1]}.get(
        what, X[:, 3]
    )
    if what == "nearly":
        X[:, 3] = X[:, 1] + 1e-5 * X[:, 3]
    A = X.T @ X / 50 / 16 * (what != "zero")
    if what == "indefinite":  # rounding can leave an eigenvalue slightly below zero
        A[3], A[:, 3] = A[1], A[:, 1]
        A[3, 3] -= 2.0**-44
    found, _ = on_shares(A, np.full(d, 0.1))
    assert found[4] == 0


def test_the_range_of_the_inverse_and_the_number_of_steps() -> None:
    """Bound of the iteration for every number of columns; the smallest eigenvalue within the limit comes to 1/4."""
    for d in (1, 2, 3, 10, 50, 115, 500, 1000, 5000, 65535):
        size = 2.0 ** (d - 1).bit_length()
        assert 3.5 ** steep_steps(d) * 2.0**LAST_STEPS / size < 2.0**INVERSE_BITS
        smallest = 2.0**-TRACE_BITS / size
        for _ in range(steep_steps(d)):
            assert smallest <= 0.4375 + 1e-12
            smallest = 1.75 * smallest * (2 - 1.75 * smallest)
        assert smallest >= 0.25
        assert (1 - 0.25) ** (2**LAST_STEPS) < 2.0**-26


def test_an_error_of_the_solution_is_noticed() -> None:
    """A solution that is off by 2^-30, as after a failed product, has a residual above the bound."""
    A, right = matrix(3, 10), np.array([0.1, -0.05, 0.02])

    async def program(packed: Any, shared: Any) -> list[Any]:
        found = await solve((await scaled(packed, 3)).matrix, 3, shared.reshape(3, 1))
        good = await is_solved(found)
        found.residual = (found.residual + np.full((3, 1), 2.0**-40)).retype(found.residual.dtype)
        wrong = await is_solved(found)
        found.residual = found.residual * 0
        found.error = (found.error + np.full((3, 3), 2.0**-20)).retype(found.error.dtype)
        return [good, wrong, await is_solved(found)]

    assert run(program, A[np.triu_indices(3)], right, dtypes=(ENTRIES, RIGHT)).value == [1, 0, 0]


def test_the_last_column_is_moved() -> None:
    A = matrix(5, 4)
    order = [0, 2, 3, 4, 1]
    packed = PlainArray(A[np.triu_indices(5)], dtype=ENTRIES)
    np.testing.assert_allclose(full(ordered(packed, 5, 1).values, 5), A[np.ix_(order, order)], rtol=1e-12)
    assert ordered(packed, 5, 4) is packed
