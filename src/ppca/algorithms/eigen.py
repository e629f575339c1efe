"""What the eigensolvers share: the form of their result, and how good it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..protocol import Held, symmetric


@dataclass
class Eigen:
    """Shared eigenvalues and eigenvectors (columns), unsorted, and how the iteration went (public)."""

    values: Any
    vectors: Any
    iterations: int
    converged: bool | None


def identity_like(A: Any) -> Any:
    """The shared identity matrix of the size and type of A. Local."""
    return (A.zeros(A.shape) + np.eye(len(A), dtype=np.int64)).within(1)


async def off_diagonal_is_small(A: Any, tol: float) -> Any:
    """The shared bit [Frobenius norm of the off-diagonal < tol]: three rounds."""
    a = A[np.triu_indices(len(A), 1)]
    off = await a.inner(a, frac=80)
    return await (off * 2 - tol * tol).within(8).negative()


async def is_below(sum_of_squares: Any, bound: float) -> Any:
    """The shared bit [|sum| < bound], all 128 bits of the sum being looked at: two rounds.

    A sum of squares can be a few last bits below zero: the two splits of a truncated number may differ by one ulp.
    """
    whole = sum_of_squares.within(2.0 ** (126 - sum_of_squares.dtype.frac))
    return await whole.lookup([-bound, bound], [0, 1, 0], 0)


async def orthogonality_error(V: Any, only: Held = Held.BOTH) -> Any:
    """V'V - I, how far the columns of V are from orthonormal: one round. only: for one side of products."""
    d = V.shape[1]
    upper = await V.T.matmul_upper(V, within=3, narrow=True, only=only)
    return symmetric(upper - np.eye(d, dtype=np.int64)[np.triu_indices(d)], d)


async def orthonormal(V: Any) -> Any:
    """One Newton-Schulz step, V - V E / 2 with E = V'V - I: two rounds. The distance is squared."""
    return V - (await V.matmul(await orthogonality_error(V, Held.RIGHT), within=3, narrow=True)) * 0.5
