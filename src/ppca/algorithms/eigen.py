"""Shared parts of the eigensolvers: the form of their result, and measures of its accuracy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..protocol import Held, symmetric
from ..protocol.triangles import upper, upper_pairs


@dataclass
class Eigen:
    """Shared eigenvalues and eigenvectors (columns), unsorted, and public facts about the iteration."""

    values: Any
    vectors: Any
    iterations: int
    converged: bool | None


def identity_like(A: Any) -> Any:
    """Return the shared identity matrix of the size and type of A. Local."""
    return (A.zeros(A.shape) + np.eye(len(A), dtype=np.int64)).within(1)


async def off_diagonal_is_small(A: Any, tol: float) -> Any:
    """Return the shared bit [Frobenius norm of the off-diagonal < tol]: three rounds."""
    a = upper(A, strict=True)
    off = await a.inner(a, frac=80)
    return await (off * 2 - tol * tol).within(8).negative()


async def is_below(sum_of_squares: Any, bound: float) -> Any:
    """Return the shared bit [|sum| < bound], comparing all 128 bits of the sum: two rounds.

    A sum of squares can be a few last bits below zero: the two splits of a truncated number may differ by one ulp.
    """
    whole = sum_of_squares.within(2.0 ** (126 - sum_of_squares.dtype.frac))
    return await whole.lookup([-bound, bound], [0, 1, 0], 0)


async def orthogonality_error(V: Any, only: Held = Held.BOTH) -> Any:
    """Return V'V - I: one round. only: compute it for one side of products."""
    d = V.shape[1]
    i, j = upper_pairs(d, strict=False)
    packed = await V.T.matmul_upper(V, within=3, narrow=True, only=only)
    return symmetric(packed - (i == j).astype(np.int64), d)


async def orthonormal(V: Any) -> Any:
    """Apply one Newton-Schulz step, V - V E / 2 with E = V'V - I: two rounds. It squares the error."""
    return V - (await V.matmul(await orthogonality_error(V, Held.RIGHT), within=3, narrow=True)) * 0.5
