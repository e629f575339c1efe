"""Test matrices, solvers run on both backends, and what a decomposition must satisfy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.lockstep import run
from ppca.protocol import PlainArray, SecretArray

Matrix = NDArray[np.float64]


def orthogonal(d: int) -> Matrix:
    return np.linalg.qr(np.random.default_rng(d).standard_normal((d, d)))[0]


def wishart(d: int) -> Matrix:
    X = np.random.default_rng(d).standard_normal((3 * d, d))
    return X.T @ X


def clustered(d: int) -> Matrix:
    Q = orthogonal(d)
    return (Q * (1 + 1e-3 * np.random.default_rng(d).standard_normal(d))) @ Q.T


def repeated(d: int) -> Matrix:
    Q = orthogonal(d)
    return (Q * np.where(np.arange(d) < d // 2, 1.0, 0.25)) @ Q.T


def rank_deficient(d: int) -> Matrix:
    X = np.random.default_rng(d).standard_normal((max(1, d // 3), d))
    return X.T @ X


def geometric(d: int) -> Matrix:
    Q = orthogonal(d)
    return (Q * np.geomspace(1, 1e-6, d)) @ Q.T


def equicorrelated(d: int) -> Matrix:
    return np.full((d, d), 0.5) + 0.5 * np.eye(d)


def diagonal(d: int) -> Matrix:
    return np.diag(np.random.default_rng(d).uniform(0, 1, d))


def zero(d: int) -> Matrix:
    return np.zeros((d, d))


SPECTRA: dict[str, Callable[[int], Matrix]] = {
    make.__name__: make
    for make in (wishart, clustered, repeated, rank_deficient, geometric, equicorrelated, diagonal, zero)
}


def matrix(name: str, d: int, norm: float = 0.99) -> Matrix:
    """Symmetric, on the grid of 40 fractional bits, |A|_F = norm (or 0)."""
    A = SPECTRA[name](d)
    length = np.linalg.norm(A)
    return A if length == 0 else np.round(np.ldexp((A + A.T) / 2 / length * norm, 40)) * 2.0**-40


@dataclass
class Solved:
    values: Matrix
    vectors: Matrix
    iterations: int
    converged: bool | None
    rounds: int = 0
    opened: list[str] = field(default_factory=list)


def finish(program: Any) -> Any:
    """The result of a coroutine on the plaintext backend, which never waits."""
    try:
        program.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("the plaintext backend talked")


def on_plain(solver: Any, A: Matrix, mode: str, **options: Any) -> Solved:
    found = finish(solver(PlainArray(A, mode), PlainArray(np.eye(len(A)), mode), **options))
    return Solved(found.values.values, found.vectors.values, found.iterations, found.converged)


def on_shares(solver: Any, A: Matrix, **options: Any) -> Solved:
    """Run on four servers in lock-step; `opened` is what they opened, the test's own look at the result apart."""

    async def program(shared: SecretArray) -> list[Any]:
        found = await solver(shared, SecretArray.constant(shared.party, np.eye(len(A))), **options)
        return [found.values, found.vectors, found.iterations, -1 if found.converged is None else int(found.converged)]

    outcome = run(program, A)
    values, vectors, iterations, converged = outcome.value
    opened = [opening.what for opening in outcome.audits[0] if opening.to != "test"]
    verdict = None if converged == -1 else bool(converged)
    return Solved(values, vectors, int(iterations), verdict, outcome.traffic.rounds, opened)


def check(
    A: Matrix,
    solved: Solved,
    *,
    residual: float = 1e-6,
    eigenvalues: float = 1e-6,
    orthogonality: float = 1e-7,
) -> None:
    """Eigenvalues relative to the largest, |AV - VL| relative to |A|, |V'V - I|, and the subspaces of separated
    groups."""
    d, V = len(A), solved.vectors
    exact, basis = np.linalg.eigh(A)
    largest, length = max(np.abs(exact).max(), 1e-6), max(np.linalg.norm(A), 1e-6)
    assert np.abs(np.sort(solved.values) - exact).max() <= eigenvalues * largest
    assert np.linalg.norm(A @ V - V * solved.values) <= residual * length
    assert np.linalg.norm(V.T @ V - np.eye(d)) <= orthogonality
    order = np.argsort(solved.values)
    gaps = (
        np.flatnonzero(np.diff(exact) > 0.02 * largest) + 1
    )  # groups of eigenvalues this far apart span stable subspaces
    for group in np.split(np.arange(d), gaps):
        span, wanted = V[:, order[group]], basis[:, group]
        distance = np.linalg.norm(span @ span.T - wanted @ wanted.T)
        assert distance <= 4 * residual * length / (0.02 * largest) + 1e-6
