"""One-sided Jacobi SVD of a secret matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from examples.jacobi_svd import svd_jacobi
from harness.lockstep import run
from harness.spectra import Matrix, finish
from ppca.protocol import PlainArray, SecretArray

SHAPES = [(1, 1), (4, 1), (5, 2), (3, 5), (8, 5), (20, 11), (30, 20)]


def sample(kind: str, m: int, n: int) -> Matrix:
    rng = np.random.default_rng(m * n)
    rank = max(1, min(m, n) // 2)
    G = {
        "gaussian": rng.standard_normal((m, n)),
        "rank deficient": rng.standard_normal((m, rank)) @ rng.standard_normal((rank, n)),
        "graded": rng.standard_normal((m, n)) * np.geomspace(1, 1e-5, n),
        "orthogonal": np.eye(m, n),
        "zero": np.zeros((m, n)),
    }[kind]
    length = np.linalg.norm(G)
    return G if length == 0 else np.round(np.ldexp(G / length * 0.99, 40)) * 2.0**-40


def check(G: Matrix, U: Matrix, values: Matrix, V: Matrix) -> None:
    m, n = G.shape
    exact = np.zeros(n)
    exact[: min(m, n)] = np.linalg.svd(G, compute_uv=False)
    np.testing.assert_allclose(np.sort(values)[::-1], exact, atol=1e-8)
    np.testing.assert_allclose((U * values) @ V.T, G, atol=2e-9)
    assert np.linalg.norm(V.T @ V - np.eye(n)) < 1e-10
    for i in range(n):
        for j in range(i):
            if min(values[i], values[j]) > 1e-9:  # orthogonal to tol / (s_i s_j)
                assert abs(U[:, i] @ U[:, j]) <= 1e-9 / (values[i] * values[j]) + 1e-9
    present = values > 1e-6
    np.testing.assert_allclose(np.linalg.norm(U[:, present], axis=0), 1, atol=1e-9)


@pytest.mark.parametrize("mode", ["float", "fixed"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["gaussian", "rank deficient", "graded", "orthogonal", "zero"])
def test_plain(kind: str, shape: tuple[int, int], mode: str) -> None:
    G = sample(kind, *shape)
    found = finish(svd_jacobi(PlainArray(G, mode), PlainArray(np.eye(shape[1]), mode)))
    assert found.converged
    check(G, found.U.values, found.values.values, found.V.values)


def on_shares(G: Matrix, **options: Any) -> Any:
    async def program(shared: SecretArray) -> list[Any]:
        found = await svd_jacobi(shared, SecretArray.constant(shared.party, np.eye(G.shape[1])), **options)
        return [found.U, found.values, found.V]

    return run(program, G)


@pytest.mark.parametrize(
    ("kind", "shape"),
    [("gaussian", (6, 4)), ("gaussian", (3, 4)), ("rank deficient", (5, 3)), ("graded", (5, 3)), ("zero", (3, 2))],
)
def test_shares(kind: str, shape: tuple[int, int]) -> None:
    G = sample(kind, *shape)
    outcome = on_shares(G)
    check(G, *outcome.value)
    assert {opening.what for opening in outcome.audits[0] if opening.to != "test"} == {"convergence bit"}


def test_ten_rounds_a_step() -> None:
    G = sample("gaussian", 6, 4)
    few, more = (on_shares(G, fixed_iterations=n) for n in (1, 3))
    assert more.traffic.rounds - few.traffic.rounds == 20
    assert all(opening.to == "test" for opening in more.audits[0])
