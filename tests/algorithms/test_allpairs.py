"""The default solver: accuracy on both backends, nine rounds an iteration, and nothing opened but convergence bits."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from harness.spectra import SPECTRA, check, matrix, on_plain, on_shares
from ppca.algorithms.allpairs import eigh_allpairs, rotation_coefficients
from ppca.protocol import PlainArray


@pytest.mark.parametrize("mode", ["float", "fixed"])
@pytest.mark.parametrize("d", [1, 2, 3, 5, 11, 20, 50])
@pytest.mark.parametrize("name", SPECTRA)
def test_plain(name: str, d: int, mode: str) -> None:
    A = matrix(name, d)
    solved = on_plain(eigh_allpairs, A, mode)
    assert solved.converged
    assert solved.iterations <= 30
    check(A, solved)


@pytest.mark.parametrize(
    ("name", "d"), [*((name, 4) for name in SPECTRA), ("wishart", 1), ("wishart", 2), ("wishart", 11)]
)
def test_shares(name: str, d: int) -> None:
    A = matrix(name, d)
    solved = on_shares(eigh_allpairs, A)
    assert solved.converged
    check(A, solved)
    assert set(solved.opened) <= {"convergence bit"}
    assert len(solved.opened) == (0 if d == 1 else solved.iterations - 6)


@pytest.mark.parametrize("spread", [1e-3, 1e-5, 1e-6, 1e-8])
@pytest.mark.parametrize("others", [0, 8])
def test_tight_clusters(spread: float, others: int) -> None:
    """Thirty eigenvalues that agree to `spread`: what the rotation lacks in orthogonality must not disturb them."""
    rng = np.random.default_rng(others)
    values = np.concatenate([1 + spread * rng.uniform(size=30), np.linspace(0.1, 0.9, others)])
    Q = np.linalg.qr(rng.normal(size=(len(values), len(values))))[0]
    A = (Q * values) @ Q.T
    A /= 2.0 ** np.ceil(np.log2(np.linalg.norm(A)))
    solved = on_plain(eigh_allpairs, A, "fixed")
    assert solved.converged
    assert solved.iterations <= 25
    check(A, solved)


def test_the_rotation_of_a_skew_matrix_is_nearly_orthogonal() -> None:
    c = rotation_coefficients()
    assert np.allclose(c[:3], [1, 1, 0.5], rtol=0, atol=1e-15)
    product = np.convolve(c, c * (-1.0) ** np.arange(len(c)))
    assert np.abs(product[1:-1]).max() < 1e-15
    assert product[-1] == pytest.approx(np.sin(np.pi / 16) ** 16)
    rng = np.random.default_rng(0)
    T = rng.normal(size=(20, 20))
    T -= T.T
    T *= 1.4 / np.linalg.norm(T, 2)
    W = sum(c[k] * np.linalg.matrix_power(T, k) for k in range(len(c)))
    assert np.linalg.norm(W.T @ W - np.eye(20), 2) < 4.5e-12 * 1.4**16


def test_nine_rounds_an_iteration() -> None:
    A = matrix("wishart", 5)
    rounds = [on_shares(eigh_allpairs, A, fixed_iterations=n).rounds for n in range(1, 8)]
    assert rounds[0] == 9 + 6 + 3  # the damping measured in line, and the end: V made orthonormal, eigenvalues
    assert [later - sooner for sooner, later in itertools.pairwise(rounds)] == [9] * 6


def test_fixed_iterations_open_nothing() -> None:
    A = matrix("wishart", 6)
    solved = on_shares(eigh_allpairs, A, fixed_iterations=12)
    assert solved.opened == []
    assert solved.converged is None
    assert solved.iterations == 12
    check(A, solved)


def solve(A: np.ndarray, top: int | None, tol: float) -> Any:
    with pytest.raises(StopIteration) as stop:
        eigh_allpairs(PlainArray(A), PlainArray(np.eye(len(A))), tol=tol, top=top).send(None)
    return stop.value.value


@pytest.mark.parametrize("tie", [False, True])
def test_top_pairs_stop_earlier_and_are_the_largest(tie: bool) -> None:
    rng = np.random.default_rng(5)
    Q = np.linalg.qr(rng.normal(size=(20, 20)))[0]
    spectrum = np.geomspace(1, 1e-3, 20)
    if tie:
        spectrum[4] = spectrum[3]  # the border of the four largest cuts a pair of equal eigenvalues
    A = (Q * spectrum) @ Q.T
    A /= 2.0 ** np.ceil(np.log2(np.linalg.norm(A)))

    everything, largest = solve(A, None, 1e-6), solve(A, 4, 1e-6)
    order = np.argsort(-largest.values.values)[:4]
    V, values = largest.vectors.values[:, order], largest.values.values[order]
    assert largest.converged
    assert largest.iterations <= everything.iterations
    assert np.abs(values - np.sort(np.linalg.eigvalsh(A))[::-1][:4]).max() < 2e-6
    assert np.linalg.norm(A @ V - V * values) < 2e-6


def test_top_vectors_of_small_eigenvalues() -> None:
    """Pairs far below the largest one are right as they are when all are asked for: raw data often have such a spectrum."""
    spectrum = np.concatenate([[1, 2e-3], np.geomspace(1e-4, 1e-7, 11)])
    for seed in range(20):
        Q = np.linalg.qr(np.random.default_rng(seed).normal(size=(13, 13)))[0]
        solved = solve((Q * spectrum) @ Q.T / 2, 2, 1e-7)
        second = solved.vectors.values[:, np.argsort(-solved.values.values)[1]]
        assert np.linalg.norm(second - Q[:, 1] * np.sign(second @ Q[:, 1])) < 1e-6
