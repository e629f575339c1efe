"""Parallel cyclic Jacobi: accuracy, at most twelve rounds a step (ten), what it opens, and taking over from another solver."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.spectra import SPECTRA, Solved, check, matrix, on_plain, on_shares, orthogonal
from ppca.algorithms.allpairs import eigh_allpairs
from ppca.algorithms.jacobi import MAX_SQUARED_TANGENT, cosine_polynomial, eigh_jacobi, enough_steps
from ppca.algorithms.rotations import round_robin


@pytest.mark.parametrize("d", [1, 2, 3, 4, 7, 10, 11])
def test_round_robin_meets_every_pair_once(d: int) -> None:
    steps = round_robin(d)
    for pairs in steps:
        assert len(np.unique(pairs)) == pairs.size == 2 * (d // 2)
    met = sorted((int(p), int(q)) for pairs in steps for p, q in pairs)
    assert met == [(p, q) for p in range(d) for q in range(p + 1, d)]


def test_cosine_polynomial() -> None:
    u = np.linspace(0, MAX_SQUARED_TANGENT, 1001)
    error = np.polynomial.polynomial.polyval(u, cosine_polynomial()) - 1 / np.sqrt(1 + u)
    assert np.abs(error).max() < 1e-9
    assert error[0] == 0


@pytest.mark.parametrize("mode", ["float", "fixed"])
@pytest.mark.parametrize("d", [1, 2, 3, 5, 11, 20])
@pytest.mark.parametrize("name", SPECTRA)
def test_plain(name: str, d: int, mode: str) -> None:
    A = matrix(name, d)
    solved = on_plain(eigh_jacobi, A, mode)
    assert solved.converged
    assert solved.iterations <= 12 * d
    check(A, solved)


@pytest.mark.parametrize("norm", [0.51, 0.99])
def test_residual_is_relative_to_the_matrix(norm: float) -> None:
    A = matrix("wishart", 9, norm)
    check(A, on_plain(eigh_jacobi, A, "fixed"))


@pytest.mark.parametrize(
    ("name", "d"), [*((name, 3) for name in SPECTRA), ("wishart", 1), ("geometric", 2), ("repeated", 8)]
)
def test_shares(name: str, d: int) -> None:
    A = matrix(name, d)
    solved = on_shares(eigh_jacobi, A)
    assert solved.converged
    check(A, solved)
    assert set(solved.opened) <= {"convergence bit"}
    assert solved.rounds <= 12 * solved.iterations


def test_indefinite_matrices_too() -> None:
    Q = orthogonal(6)
    A = (Q * np.array([0.5, -0.5, 0.3, -0.3, 0.2, 0.0])) @ Q.T
    check(A, on_plain(eigh_jacobi, A, "fixed"))


@pytest.mark.parametrize("d", [2, 5, 8])
def test_ten_rounds_a_step(d: int) -> None:
    A = matrix("wishart", d)
    rounds = [on_shares(eigh_jacobi, A, fixed_iterations=n).rounds for n in (1, 2, 3)]
    assert rounds == [14, 24, 34]  # four at the end: V made orthonormal, eigenvalues of V'A0V


def test_fixed_steps_open_nothing() -> None:
    A = matrix("wishart", 4)
    solved = on_shares(eigh_jacobi, A, fixed_iterations=24)
    assert (solved.opened, solved.converged, solved.iterations) == ([], None, 24)
    check(A, solved)


@pytest.mark.parametrize("d", [1, 2, 5, 11, 20])
@pytest.mark.parametrize("name", SPECTRA)
def test_enough_steps_are_enough(name: str, d: int) -> None:
    """To the smallest tolerance there is, with three sweeps to spare; d = 50, 115 and 200 are in the docstring."""
    A = matrix(name, d)
    steps = enough_steps(d) - 3 * len(round_robin(d)) if d > 1 else 0
    solved = on_plain(eigh_jacobi, A, "fixed", fixed_iterations=steps)
    # What rounding leaves of an entry is a few ulp; 1e-9 of |A| is more for all of these d.
    check(A, solved, residual=1e-9, eigenvalues=1e-9)


def test_progress_and_giving_up() -> None:
    told: list[str] = []
    A = matrix("wishart", 5)
    solved = on_plain(eigh_jacobi, A, "float", max_iterations=11, progress=lambda stage, part: told.append(stage))
    assert solved.converged is False
    assert solved.iterations == 11
    assert told == ["eigendecomposition, sweep 1", "eigendecomposition, sweep 2"]


async def taking_over(A0: Any, identity: Any) -> Any:
    """All-pairs stopped early, then cyclic Jacobi from its vectors."""
    early = await eigh_allpairs(A0, identity, fixed_iterations=4)
    A = await (early.vectors.T @ await (A0 @ early.vectors))
    return await eigh_jacobi(A0, identity, start=(A, early.vectors))


def test_start_from_another_solver() -> None:
    A = matrix("wishart", 8)
    fresh, continued = on_plain(eigh_jacobi, A, "fixed"), on_plain(taking_over, A, "fixed")
    assert continued.converged
    check(A, continued)
    assert continued.iterations < fresh.iterations
    shared: Solved = on_shares(taking_over, matrix("wishart", 4))
    assert shared.converged
    check(matrix("wishart", 4), shared)


def test_start_at_the_end_stops_at_once() -> None:
    A = matrix("wishart", 6)
    values, vectors = np.linalg.eigh(A)

    async def solver(A0: Any, identity: Any) -> Any:
        return await eigh_jacobi(A0, identity, start=(A0.like(np.diag(values)), A0.like(vectors)))

    solved = on_plain(solver, A, "fixed")
    assert (solved.converged, solved.iterations) == (True, 1)
    check(A, solved)
