"""Verification says no to everything that is not a decomposition, also to what a failed truncation leaves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.lockstep import run
from harness.spectra import Matrix, matrix
from ppca.algorithms.decomposition import decompose, is_accurate, is_bounded
from ppca.native import ring
from ppca.protocol import SecretArray

D = 6
FAR_OFF = 128 - 40
"""A local truncation of 80 to 40 fractional bits that fails puts a ring element off by 2^(128 - 40).

With V = I (a diagonal matrix) nothing but `is_bounded` can see it: products with whole numbers are off by multiples of 2^128."""


def verdict(A: Matrix, where: str | None, at: int, sign: int = 1, top: int | None = None) -> bool:
    """The verification bit of the true decomposition, with one element of the vectors or values off by 2^88 in the ring."""
    values, vectors = np.linalg.eigh(A)

    async def program(A: SecretArray, values: SecretArray, rows: SecretArray) -> Any:
        wrong = {"values": values, "vectors": rows}.get(where or "")
        if wrong is not None:
            flat = wrong.data.reshape(2, -1, 2)
            error = ring.constants([sign << FAR_OFF], 2)
            for split, first in ((0, wrong.party.row == 0), (1, wrong.party.column == 0)):
                if first:
                    flat[split, at : at + 1] = ring.add(flat[split, at : at + 1], error)
        bounded = await is_bounded(values, rows)
        return int((await is_accurate(A.within(1), values, rows, bounded, 2e-6, top))[0])

    return bool(run(program, A, values[::-1].copy(), vectors.T[::-1].copy()).value)


@pytest.mark.parametrize("name", ["wishart", "clustered", "diagonal", "zero"])
def test_the_true_decomposition_passes(name: str) -> None:
    assert verdict(matrix(name, D), None, 0)


@pytest.mark.parametrize("sign", [1, -1, 5])
@pytest.mark.parametrize("name", ["wishart", "geometric", "diagonal", "zero"])
def test_a_failed_truncation_does_not_pass(name: str, sign: int) -> None:
    A = matrix(name, D)
    assert not any(verdict(A, "values", at, sign) for at in range(D))
    assert not any(verdict(A, "vectors", at, sign) for at in (0, 1, 8, 35))
    assert not any(verdict(A, "vectors", at, sign, top=1) for at in (0, 1, 8, 35))


def test_a_small_error_does_not_pass_either() -> None:
    A = matrix("wishart", D)
    values, vectors = np.linalg.eigh(A)
    vectors[2, 3] += 1e-5

    async def program(A: SecretArray, values: SecretArray, rows: SecretArray) -> Any:
        bounded = await is_bounded(values, rows)
        return int((await is_accurate(A.within(1), values, rows, bounded, 2e-6))[0])

    assert not run(program, A, values, vectors.T.copy()).value


def uncorrelated_column(d: int = 13) -> Matrix:
    """A covariance with one column that is uncorrelated with the others: an eigenpair from the start, and not the largest."""
    A = np.full((d, d), 0.87) + 0.13 * np.eye(d)
    A[-1, :-1] = A[:-1, -1] = 0.0
    A[-1, -1] = 6.0
    return np.round(np.ldexp(A / np.linalg.norm(A) * 0.9, 40)) * 2.0**-40


@pytest.mark.parametrize("limit", [{"max_iterations": 1}, {"fixed_iterations": 1}], ids=["maximum", "fixed"])
@pytest.mark.parametrize("solver", ["allpairs", "jacobi", "jacobi-classic", "jacobi-eo", "qr", "power"])
def test_pairs_that_are_not_the_largest_do_not_pass(solver: str, limit: dict[str, int]) -> None:
    """One iteration leaves an eigenvector among the first columns that belongs to a smaller eigenvalue."""
    A = uncorrelated_column()
    exact = np.linalg.eigvalsh(A)[::-1]

    async def program(shared: SecretArray) -> list[Any]:
        found = await decompose(shared.within(1), run=shared.party.run, solver=solver, top=1, **limit)
        return [found.values, int(found.verified)]

    values, verified = run(program, A).value
    assert not verified or abs(values[0] - exact[0]) < 1e-2
