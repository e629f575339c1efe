"""All-pairs Jacobi: a full symmetric eigendecomposition in 10 to 40 iterations of nine rounds, whatever the dimension.

Every iteration rotates all d(d-1)/2 pairs at once. With a = A_ij, h = A_jj - A_ii:

    r1    q = h^2 + 4a^2 + delta^2, untruncated  | c a | sign(h) | V := V - V E / 2 (Newton-Schulz)
    r2-3  y = 1/sqrt(q) from a table             | sign * a, sign * c a | is the off-diagonal small enough?
    r4    U = sign a y,  T = sign c a y          (skew; T is the damped generator) | the answer is opened
    r5    T2 = T T           | U2 = U U
    r6    T3 = T T2          | U4 = U2 U2
    r7    W = I + T + T2/2 + c3 T3 + T3 (c4 T + c5 T2 + c6 T3)   | nu = |U4|^2
    r8    A W                | V := V W          | r8-9: next damping c from nu
    r9    A := W' (A W)      | E = V'V - I       (every sixth iteration A := V' (A0 V) instead, one round more: no drift)

Three things make it converge: delta shrinks on a public schedule (coarse gaps first); c keeps the spectral norm of T below
1.4, measured by the fourth power of the generator one iteration before; and W is orthogonal up to 9e-8 |T|^12.
There is no proof of global convergence, so the caller verifies the result and has cyclic Jacobi to fall back to.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..protocol import skew, symmetric, together

RHO = 2 - math.sqrt(3)
C3, C4, C5, C6 = (1 + RHO) / 8, RHO / 8, RHO**2 / 16, RHO**3 / 64
"""Coefficients of W: with them W'W = I + 9.0e-8 T^12."""

TAU = 1.4
"""Largest spectral norm of the generator when the damping is taken from the iteration before; 1.8 is marginal."""

COARSE = 20
"""Fractional bits of U and its powers: they only steer the damping, and grow."""

REFRESH = 6
FIRST_CHECK, CHECK_EVERY = 6, 1

Progress = Callable[[str, float | None], None]


@dataclass
class Eigen:
    """Shared eigenvalues and eigenvectors (columns), unsorted, and how the iteration went (public)."""

    values: Any
    vectors: Any
    iterations: int
    converged: bool | None


def damping_table(dimension: int) -> tuple[list[float], list[float]]:
    """Thresholds for nu = |U^4|_F^2 and the factor c on each interval: min(1, TAU / nu^(1/8)) in steps of 2^(1/4)."""
    steps = max(1, math.ceil(4 * math.log2(max(dimension / 2 / TAU, 1))) + 1)
    return [TAU**8 * 4.0**k for k in range(steps)], [2.0 ** (-k / 4) for k in range(steps + 1)]


async def eigh_allpairs(
    A0: Any,
    identity: Any,
    *,
    tol: float = 1e-6,
    max_iterations: int = 60,
    fixed_iterations: int | None = None,
    progress: Progress | None = None,
) -> Eigen:
    """Eigenvalues and eigenvectors of a shared symmetric matrix with |A0|_F <= 1 and 40 fractional bits.

    tol: stop when the off-diagonal has Frobenius norm below it; one bit is opened per check.
    fixed_iterations: run so many and open nothing (24 suit d <= 115, 30 suit d <= 200 for 1e-5).
    """
    d = A0.shape[0]
    if d == 1:
        return Eigen(A0[0], identity, 0, True)
    i, j = np.triu_indices(d, 1)
    delta_min = max(tol / 10, 64 * math.sqrt(d) * 2.0**-40)
    thresholds, factors = damping_table(d)
    nu_bound = max(2.0, (d / 2) ** 8)
    A, V, E, c = A0, identity, None, None
    iteration, converged = 0, False
    limit = max_iterations if fixed_iterations is None else fixed_iterations
    while iteration < limit and not converged:
        delta = max(delta_min, 0.1 * 0.5**iteration)
        check = fixed_iterations is None and iteration >= FIRST_CHECK and (iteration - FIRST_CHECK) % CHECK_EVERY == 0
        diagonal = A.diagonal()
        a, h = A[i, j], diagonal[j] - diagonal[i]

        small, y, signed, V = await together(  # r1-r3
            _is_small(a, tol) if check else _nothing(),
            _inverse_length(a, h, delta),
            _signed(a, h, c, delta),
            _orthonormal(V, E),
        )
        if c is None:  # first iteration: the damping must be measured in line
            (U,) = await together(signed[0].mul(y, frac=COARSE))
            U2 = symmetric(await skew(U, d).matmul_upper(skew(U, d)), d)
            U4 = symmetric(await U2.matmul_upper(U2), d)
            c = await _damping(U4, thresholds, factors, nu_bound)
            ca = await (signed[0] * c)
            (t,) = await together(ca.mul(y, frac=40))
        else:
            U, t, opened = await together(  # r4
                signed[0].mul(y, frac=COARSE),
                signed[1].mul(y, frac=40),
                small.open(what="convergence bit", why="stop the iteration") if check else _nothing(),
            )
            converged = check and bool(opened)
        T, U = skew(t.within(2), d), skew(U, d)
        t2, u2 = await together(T.matmul_upper(T), U.matmul_upper(U))  # r5
        T2, U2 = symmetric(t2, d), symmetric(u2, d)
        t3, u4 = await together(T.matmul_upper(T2, strict=True), U2.matmul_upper(U2))  # r6
        T3, U4 = skew(t3, d), symmetric(u4, d)
        tail, nu = await together(T3 @ (T * C4 + T2 * C5 + T3 * C6), U4.inner(U4, frac=2 * COARSE))  # r7
        W = identity + T + T2 * 0.5 + T3 * C3 + tail
        (A, E, V), c = await together(  # r8-r9
            _rotate(A0, A, V, W, (iteration + 1) % REFRESH == 0),
            nu.within(nu_bound).lookup(thresholds, factors, 40),
        )
        iteration += 1
        if progress is not None:
            progress(f"eigendecomposition, iteration {iteration}", min(0.95, iteration / 20))
    V = await _orthonormal(V, E)
    AV = await (A0 @ V)
    values = await V.inner(AV, axis=0)
    return Eigen(values, V, iteration, converged if fixed_iterations is None else None)


async def _nothing() -> None:
    return None


async def _is_small(a: Any, tol: float) -> Any:
    """[off(A)^2 < tol^2]: three rounds."""
    off = await a.inner(a, frac=80)
    return await ((off * 2 - tol * tol).within(8)).negative()


async def _inverse_length(a: Any, h: Any, delta: float) -> Any:
    """1 / sqrt(h^2 + 4 a^2 + delta^2) within 11%: three rounds."""
    q = await h.sum_of_squares(a * 2, frac=80)
    # |A|_F <= 1 bounds h^2 + 4a^2 by 2.
    return await (q + delta * delta).within(3).coarse_power(-0.5, delta * delta, 30)


async def _signed(a: Any, h: Any, c: Any, delta: float) -> list[Any]:
    """sign(h) a and sign(h) c a: three rounds. The sign matters only where |h| exceeds delta, so few bits suffice."""
    bits = max(2, math.ceil(math.log2(1 / delta)) + 1)  # a resolution of delta / 2 or finer
    coarse = h.astype(bits).within(1.5)  # |h| <= sqrt(2)
    if c is None:
        negative = await coarse.negative()
        return [a - await (negative * a) * 2]
    negative, ca = await together(coarse.negative(), c * a)
    both = type(a).stack([a, ca])
    flipped = await (negative * both)
    return list(both - flipped * 2)


async def _orthonormal(V: Any, E: Any) -> Any:
    """One Newton-Schulz step: V - V E / 2."""
    return V if E is None else V - (await (V @ E)) * 0.5


async def _rotate(A0: Any, A: Any, V: Any, W: Any, refresh: bool) -> tuple[Any, Any, Any]:
    """A := W'AW (or V'A0V), V := VW, E = V'V - I."""
    d = len(A0)
    eye = np.eye(d)[np.triu_indices(d)].astype(np.int64)
    if refresh:
        V = await (V @ W)
        AV, e = await together(A0 @ V, V.T.matmul_upper(V))
        upper = await V.T.matmul_upper(AV)
    else:
        AW, V = await together(A @ W, V @ W)
        upper, e = await together(W.T.matmul_upper(AW), V.T.matmul_upper(V))
    return symmetric(upper, d), symmetric(e - eye, d), V


async def _damping(U4: Any, thresholds: list[float], factors: list[float], bound: float) -> Any:
    nu = await U4.inner(U4, frac=2 * COARSE)
    return await nu.within(bound).lookup(thresholds, factors, 40)
