"""Bounds of angles cover the true ones, whatever the spectrum and however a decomposition errs within what was verified."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from ppca.receiver.angles import DETERMINED, RIGHT_ANGLE, Bounds

Floats = NDArray[np.float64]

DOUBLES = 1e-9
"""What eigenvectors of a close pair err in double precision: 1e-15 / 1e-6."""

SPECTRA = {
    "close": lambda rng, d: 0.5 - np.cumsum(rng.choice([1e-6, 1e-4, 1e-2], d)),
    "equal": lambda rng, d: rng.choice([0.6, 0.3, 0.1], d),
    "steep": lambda rng, d: 0.6 * 10.0 ** -np.sort(rng.uniform(0, 7, d)),
    "wishart": lambda rng, d: np.sort(np.linalg.eigvalsh(np.cov(rng.normal(size=(d, 3 * d)))))[::-1] / d,
}


def orthonormal(rng: np.random.Generator, d: int) -> Floats:
    return np.linalg.qr(rng.normal(size=(d, d)))[0]


def symmetric(rng: np.random.Generator, d: int, norm: float) -> Floats:
    E = rng.normal(size=(d, d))
    return (E + E.T) * norm / np.linalg.norm(E + E.T, 2)


def angle(V: Floats, W: Floats) -> float:
    """The largest angle between two spaces."""
    outside = V - W @ (W.T @ V)
    return float(np.arcsin(min(1.0, np.linalg.norm(outside, 2))))


def decomposition(
    rng: np.random.Generator, d: int, kind: str, rho: float, moved: float
) -> tuple[Floats, Floats, Floats, Floats]:
    """Exact vectors of A', and A, L, V with |A - A'| = moved and |A V - V L|_F just below rho, V as far off as that allows."""
    Q = orthonormal(rng, d)
    exact = np.sort(np.asarray(SPECTRA[kind](rng, d)))[::-1]
    A = (Q * exact) @ Q.T + symmetric(rng, d, moved)
    values, vectors = np.linalg.eigh(A)
    values, vectors = values[::-1], vectors[:, ::-1]
    # Neighbours are turned into each other: that moves vectors most for a given residual.
    V, sign = vectors, rng.choice([-1, 1])
    for i in range(int(rng.integers(2)), d - 1, 2):
        turn = min(1.0, 0.4 * rho / np.sqrt(d) / max(values[i] - values[i + 1], 1e-300))
        c, s = np.sqrt(1 - turn**2), sign * turn
        V = V.copy()
        V[:, [i, i + 1]] = V[:, [i, i + 1]] @ np.array([[c, s], [-s, c]])
    L = np.sum(V * (A @ V), axis=0)
    order = np.argsort(-L)
    return Q, A, L[order], V[:, order]


@pytest.mark.parametrize("kind", SPECTRA)
def test_angles_are_covered(kind: str) -> None:
    rng = np.random.default_rng(list(kind.encode()))
    determined = 0
    for _ in range(200):
        d = int(rng.integers(2, 9))
        rho, moved = 10.0 ** rng.uniform(-9, -5), 10.0 ** rng.uniform(-11, -6)
        Q, A, L, V = decomposition(rng, d, kind, rho, moved)
        assert np.linalg.norm(A @ V - V * L) < rho
        k = int(rng.integers(1, d + 1))
        V1 = V[:, :k]
        rest = np.eye(d) - V1 @ V1.T
        following = np.linalg.eigvalsh(rest @ A @ rest - 4 * V1 @ V1.T)[-1] if k < d else -np.inf
        bounds = Bounds(L[:k], float(following), rho, moved)
        angles = bounds.angles()
        for i in range(k):
            assert angle(V[:, [i]], Q[:, [i]]) <= angles[i] + DOUBLES
        for first, stop, bound in bounds.spaces():
            assert angle(V[:, first:stop], Q[:, first:stop]) <= bound + DOUBLES
            assert bound <= DETERMINED
        determined += int((angles <= DETERMINED).sum())
    assert determined > 50


def test_equal_values_span_a_plane() -> None:
    bounds = Bounds(np.array([0.5, 0.3, 0.3, 0.1]), -np.inf, 2e-9, 1e-11)
    assert bounds.angles()[1] == bounds.angles()[2] == RIGHT_ANGLE
    ((first, stop, bound),) = bounds.spaces()
    assert (first, stop) == (1, 3)
    assert bound == pytest.approx(2e-9 / 0.2, rel=0.01)


def test_the_space_of_all_columns_is_no_news() -> None:
    assert Bounds(np.full(4, 0.5), -np.inf, 2e-9, 0.0).spaces() == []
    assert Bounds(np.full(4, 0.5), 0.1, 2e-9, 0.0).spaces() != []


def test_a_value_left_out_that_is_as_large_leaves_the_last_component_undetermined() -> None:
    values = np.array([0.5, 0.3])
    assert Bounds(values, 0.3, 2e-9, 0.0).angles()[1] == RIGHT_ANGLE
    np.testing.assert_allclose(Bounds(values, 0.1, 2e-9, 0.0).angles(), 2e-9 / 0.2, rtol=1e-3)
