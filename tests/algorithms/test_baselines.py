"""The paper's solvers, corrected: right within what their formulas allow, on both backends, at the rounds they state."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from harness.lockstep import run
from harness.spectra import SPECTRA, check, finish, matrix, on_plain, on_shares
from ppca.algorithms.baselines.jacobi_classic import eigh_jacobi_classic
from ppca.algorithms.baselines.jacobi_eo import eigh_jacobi_eo, reachable
from ppca.algorithms.baselines.power import eigh_power, squarings_for
from ppca.algorithms.baselines.qr import eigh_qr, reflection, spread
from ppca.protocol import PlainArray, SecretArray

ACCURATE = [eigh_jacobi_classic, eigh_qr, eigh_power]
DIMENSIONS = [1, 2, 3, 5, 11, 20]


@pytest.mark.parametrize("mode", ["float", "fixed"])
@pytest.mark.parametrize("d", DIMENSIONS)
@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("solver", ACCURATE)
def test_plain(solver: Any, name: str, d: int, mode: str) -> None:
    A = matrix(name, d)
    solved = on_plain(solver, A, mode)
    assert solved.converged is (None if solver is eigh_power else True)
    check(A, solved)


@pytest.mark.parametrize("mode", ["float", "fixed"])
@pytest.mark.parametrize("d", DIMENSIONS)
@pytest.mark.parametrize("name", SPECTRA)
def test_eo_reduced_reaches_three_digits(name: str, d: int, mode: str) -> None:
    A = matrix(name, d)
    solved = on_plain(eigh_jacobi_eo, A, mode)
    assert solved.converged
    largest = max(np.linalg.norm(A, 2), 1e-6)
    check(A, solved, residual=1.02 * reachable(d), eigenvalues=1.02 * reachable(d) / largest)
    if name in ("repeated", "rank_deficient", "wishart") and d <= 11:  # separated: the square of it
        assert np.abs(np.sort(solved.values) - np.linalg.eigvalsh(A)).max() <= 1e-6 * largest


@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("solver", ACCURATE)
def test_shares(solver: Any, name: str) -> None:
    A = matrix(name, 3)
    solved = on_shares(solver, A)
    check(A, solved)
    assert set(solved.opened) <= {"convergence bit"}
    assert solver is not eigh_power or not solved.opened


@pytest.mark.parametrize("solver", ACCURATE)
def test_shares_larger(solver: Any) -> None:
    A = matrix("wishart", 5)
    check(A, on_shares(solver, A))


@pytest.mark.parametrize(("name", "d"), [*((name, 3) for name in SPECTRA), ("wishart", 5)])
def test_eo_reduced_shares(name: str, d: int) -> None:
    A = matrix(name, d)
    solved = on_shares(eigh_jacobi_eo, A)
    assert solved.converged
    check(A, solved, residual=1.02 * reachable(d), eigenvalues=1.02 * reachable(d) / max(np.linalg.norm(A, 2), 1e-6))


@pytest.mark.parametrize(
    ("solver", "option", "each"),
    [(eigh_jacobi_classic, "fixed_iterations", 55), (eigh_jacobi_eo, "fixed_iterations", 32)],
)
def test_rounds_a_step(solver: Any, option: str, each: int) -> None:
    A = matrix("wishart", 4)
    few, more = (on_shares(solver, A, **{option: n}) for n in (1, 3))
    assert more.rounds - few.rounds == 2 * each
    assert more.opened == []


def test_rounds_of_qr() -> None:
    d = 4
    counts = [on_shares(eigh_qr, matrix("wishart", d), fixed_iterations=n) for n in range(4)]
    assert counts[0].rounds == 36 * (d - 2) + 4
    assert [b.rounds - a.rounds for a, b in itertools.pairwise(counts)] == [35 * m + 8 for m in (3, 2, 1)]
    assert counts[-1].opened == []


def test_rounds_of_power() -> None:
    A = matrix("wishart", 4)
    assert (
        on_shares(eigh_power, A, fixed_iterations=3).rounds - on_shares(eigh_power, A, fixed_iterations=0).rounds == 12
    )
    one, two = (on_shares(eigh_power, A, fixed_iterations=0, components=k).rounds for k in (1, 2))
    assert two - one == 23


@pytest.mark.parametrize("name", ["wishart", "clustered", "equicorrelated"])
@pytest.mark.parametrize("d", [2, 3, 8])
def test_fixed_qr_iterations(name: str, d: int) -> None:
    A = matrix(name, d)
    solved = on_plain(eigh_qr, A, "fixed", fixed_iterations=4 * d)
    assert (solved.converged, solved.iterations) == (None, 4 * d)
    check(A, solved)


def test_two_equal_columns_need_more_than_the_rayleigh_quotient() -> None:
    """T[1,1] as a shift leaves [[a, b], [b, a]] as it is for ever."""
    A = np.array([[0.6, 0.3], [0.3, 0.6]])
    Q, R = np.linalg.qr(A - 0.6 * np.eye(2))
    np.testing.assert_allclose(R @ Q + 0.6 * np.eye(2), A)
    assert on_plain(eigh_qr, A, "fixed").iterations <= 3


def test_giving_up_is_told() -> None:
    A = matrix("wishart", 6)
    assert on_plain(eigh_qr, A, "float", max_iterations=2).converged is False
    assert on_plain(eigh_jacobi_classic, A, "float", max_iterations=6).converged is False


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-6, 2.0**-28, 0.0])
def test_reflections_are_orthogonal_however_short_the_vector(scale: float) -> None:
    w = np.array([0.3, -0.5, 0.2, 0.4]) * scale

    async def program(x: SecretArray) -> SecretArray:
        return await reflection(x, SecretArray.constant(x.party, np.eye(5)))

    P = run(program, w).value
    assert np.linalg.norm(P @ P.T - np.eye(5)) < 2e-9
    full = np.concatenate([[0.0], w])
    np.testing.assert_allclose((P @ full)[2:], 0, atol=1e-9 * scale + 4 * 2.0**-40 if scale != 2.0**-28 else 1e-9)
    np.testing.assert_allclose(P[0], np.eye(5)[0], atol=0)


@pytest.mark.parametrize("name", ["wishart", "rank_deficient", "repeated"])
def test_power_top_components(name: str) -> None:
    A = matrix(name, 9)
    found = finish(eigh_power(PlainArray(A, "fixed"), PlainArray(np.eye(9), "fixed"), components=3))
    exact = np.linalg.eigvalsh(A)[::-1]
    V = found.vectors.values
    assert V.shape == (9, 3)
    np.testing.assert_allclose(found.values.values, exact[:3], atol=1e-6 * exact[0])
    assert np.linalg.norm(A @ V - V * found.values.values) < 1e-6
    assert np.linalg.norm(V.T @ V - np.eye(3)) < 1e-7
    with pytest.raises(ValueError, match=r"1\.\.9"):
        finish(eigh_power(PlainArray(A), PlainArray(np.eye(9)), components=10))


def test_power_promises_whatever_the_gap() -> None:
    """Gaps of every size down to 1e-9: the residual stays below the promise."""
    gaps = np.cumsum(10.0 ** -np.arange(1.0, 10.0))
    A = np.diag(0.3 - 0.3 * gaps)
    solved = on_plain(eigh_power, A, "fixed", tol=1e-6)
    check(A, solved)


def test_small_helpers() -> None:
    assert spread(7, 3) == [3, 2, 2]
    assert spread(0, 2) == [0, 0]
    assert squarings_for(1e-6) == 20
    assert squarings_for(1e-3) == 10
