"""One-sided Jacobi SVD of a secret matrix (the paper's appendix), with the cheapest rotation: ten rounds a step.

Columns p, q of G are rotated until all are orthogonal; G'G is never formed as a matrix to rotate, only the entries a
step needs:

    r1     a = g_p'g_q and h = |g_q|^2 - |g_p|^2 with 56 fractional bits
    r2-9   cosine and sine (see `jacobi`)                  | is the off-diagonal of G'G small enough?
    r10    G := G J  | V := V J

At the end of every sweep V := V - V (V'V - I) / 2 and G := G0 V. Then s_i = |g_i| and u_i = g_i / s_i.

Corrections to the printed text: A = G'G is taken from the current G, V is not reset, the sine is zero where a and h
are, and the stop test is the sum of squares.

Accuracy in 40 fractional bits, |G|_F <= 1. G = (G V) V' holds to the last bits whatever the rotations did. Columns are
orthogonal to tol: a singular value s is right to tol / s (or sqrt(tol), if that is less), u_i'u_j to tol / (s_i
s_j). Singular values below 2^-30 have u = 0: they are noise. Entries of G'G have 56 fractional bits, so that columns as
short as 2^-25 still find their angle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ppca.algorithms.eigen import orthonormal
from ppca.algorithms.iteration import Progress, silent
from ppca.algorithms.jacobi import cheap_rotation
from ppca.algorithms.rotations import blocks_of, in_sweeps, rotate_columns, round_robin
from ppca.protocol import concatenate, stack

GRAM_BITS = 56
"""Fractional bits of entries of G'G: their squares, 112 bits, still fit the ring."""

WIDE = 70
"""Fractional bits of squared singular values."""


@dataclass
class SVD:
    """Shared G = U diag(values) V', unsorted, and how the iteration went (public)."""

    U: Any
    values: Any
    V: Any
    iterations: int
    converged: bool | None


async def _angle(G: Any, step: int) -> tuple[Any, Any]:
    columns = G[:, round_robin(G.shape[1])[step]]
    p, q = columns[:, :, 0], columns[:, :, 1]
    pp, qq, pq = await stack([p, q, p]).inner(stack([p, q, q]), axis=1, frac=GRAM_BITS, within=1.5)
    return await cheap_rotation(pq, qq - pp)


async def _is_small(G: Any, tol: float) -> Any:
    """The shared bit [sum of the squares of the off-diagonal of G'G < tol^2]: four rounds."""
    a = await G.T.matmul_upper(G, strict=True, frac=GRAM_BITS, within=1.5)
    off = await a.inner(a, frac=2 * GRAM_BITS)
    return await (off * 2 - tol * tol).within(2).negative()


async def _factors(G0: Any, V: Any) -> tuple[Any, Any]:
    """U and the singular values of G0 V, whose columns are orthogonal: 22 rounds."""
    G = await G0.matmul(V, within=1.5)
    squares = await G.inner(G, axis=0, frac=WIDE, within=1.5)
    values = (await squares.sqrt()).astype(40).within(1.5)
    U = await G.mul(await values.reciprocal(), within=1.5)
    lengths = await U.inner(U, axis=0, within=1.5)
    return await U.mul(1.5 - lengths * 0.5, within=1.5), values


async def svd_jacobi(
    G0: Any,
    identity: Any,
    *,
    tol: float = 1e-9,
    max_iterations: int | None = None,
    fixed_iterations: int | None = None,
    progress: Progress = silent,
) -> SVD:
    """Singular value decomposition of a shared m x n matrix with |G0|_F <= 1 and 40 fractional bits; identity is n x n.

    tol: stop when the off-diagonal of (G0 V)'(G0 V) has Frobenius norm below it (n 2^-40 is the noise); one bit is
    opened per check (four a sweep). max_iterations: maximum number of steps (None: 30 sweeps). fixed_iterations: make
    exactly this number and open nothing. `iterations` of the result counts steps.
    """
    m, n = G0.shape

    async def turn(state: tuple[Any, Any], step: int) -> tuple[Any, Any]:
        G, V = state
        J = blocks_of(*await _angle(G, step))
        both = await rotate_columns(concatenate([G, V]), J, step, n)
        return both[:m], both[m:]

    async def renew(state: tuple[Any, Any]) -> tuple[Any, Any]:
        V = await orthonormal(state[1])
        return await G0.matmul(V, within=1.5), V

    (_, V), steps, converged = await in_sweeps(
        (G0, identity),
        n,
        turn,
        renew,
        lambda state: _is_small(state[0], tol),
        max_iterations=max_iterations,
        fixed_iterations=fixed_iterations,
        progress=progress,
        what="singular values",
    )
    V = await orthonormal(V)
    U, values = await _factors(G0, V)
    return SVD(U, values, V, steps, converged)
