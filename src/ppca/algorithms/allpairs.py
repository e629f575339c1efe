"""All-pairs Jacobi: a full symmetric eigendecomposition in 10 to 40 iterations of nine rounds, whatever the dimension.

Every iteration rotates all d(d-1)/2 pairs at once. With a = A_ij, h = A_jj - A_ii:

    r1    q = h^2 + 4a^2 + delta^2, untruncated  | c a | sign(h) | V := V - V E / 2 (Newton-Schulz)
    r2-3  y = 1/sqrt(q) from a table             | sign * a, sign * c a | is the off-diagonal small enough?
    r4    U = sign a y,  T = sign c a y          (skew; T is the damped generator) | the answer is opened
    r5    T2 = T T           | U2 = U U
    r6    T3 = T T2          | U4 = U2 U2
    r7    W = I + T + T2/2 + c3 T3 + T3 (c4 T + c5 T2 + c6 T3)   | nu = |U4|^2
    r8    A W                | V := V W          | r8-9: next damping c from nu
    r9    A := W' (A W)      | E = V'V - I, every other time
    (every sixth iteration A := V' (A0 V) instead, one round more: no drift)

Three things make it converge: delta shrinks on a public schedule (coarse gaps first); c keeps the spectral norm of T below
1.4, measured by the fourth power of the generator one iteration before; and W is orthogonal up to 9e-8 |T|^12.
There is no proof of global convergence, so the caller verifies the result and has cyclic Jacobi to fall back to.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..protocol import ready, skew, symmetric, together
from .eigen import Eigen, defect, off_is_small, orthonormal
from .iteration import Progress, silent, until_converged

RHO = 2 - math.sqrt(3)
C3, C4, C5, C6 = (1 + RHO) / 8, RHO / 8, RHO**2 / 16, RHO**3 / 64
"""Coefficients of W: with them W'W = I + 9.0e-8 T^12."""

TAU = 1.4
"""Largest spectral norm of the generator when the damping is taken from the iteration before; 1.8 is marginal."""

COARSE = 20
"""Fractional bits of U and its powers: they only steer the damping, and grow."""

ANGLE = 0.75
"""Of an entry of the generator: one half, 26% more from the table."""

POWER = 16.0
"""Of an entry of T^2, T^3 and what follows them: |T| <= 2 in the spectral norm, where the damping aims at 1.4.

This promise, and those that A, V and W stay below 2, keep local truncations likely to be right; they hold while the iteration
does what it should. Where it does not, verification says so."""

REFRESH = 6
FIRST_CHECK = 6
"""The iteration from which convergence is checked: no matrix of some size is done before."""

MOST_ITERATIONS = 60
"""Where a run that opens convergence bits gives up."""

TOP_MARGIN = 0.01
"""Rows of the largest pairs must be so much cleaner than the tolerance. While the rest is still unclean they converge linearly, a
factor of ten or so an iteration, and the last iteration does not square their error as it does when all pairs are done."""


def damping_table(dimension: int) -> tuple[list[float], list[float]]:
    """Thresholds for nu = |U^4|_F^2 and the factor c on each interval: min(1, TAU / nu^(1/8)) in steps of 2^(1/4)."""
    steps = max(1, math.ceil(4 * math.log2(max(dimension / 2 / TAU, 1))) + 1)
    return [TAU**8 * 4.0**k for k in range(steps)], [2.0 ** (-k / 4) for k in range(steps + 1)]


async def eigh_allpairs(
    A0: Any,
    identity: Any,
    *,
    tol: float = 1e-6,
    max_iterations: int | None = None,
    fixed_iterations: int | None = None,
    top: int | None = None,
    warm: int = 0,
    progress: Progress = silent,
) -> Eigen:
    """Eigenvalues and eigenvectors of a shared symmetric matrix with |A0|_F <= 1 and 40 fractional bits.

    tol: stop when the off-diagonal has Frobenius norm below it; one bit is opened per check.
    max_iterations: give up after so many (None: 60).
    fixed_iterations: run so many and open nothing (24 suit d <= 115, 30 suit d <= 200 for 1e-5).
    top: stop as soon as the `top` largest eigenpairs are that accurate; the others need not be.
    warm: begin where a run would be after so many iterations, for a matrix that is nearly diagonal.
    """
    d = A0.shape[0]
    if d == 1:
        return Eigen(A0[0], identity, 0, True if fixed_iterations is None else None)
    A0 = A0.within(1)
    delta_min = max(tol / 10, 64 * math.sqrt(d) * 2.0**-40)

    async def step(state: _State, done: int) -> _State:
        delta = max(delta_min, 0.1 * 0.5 ** (warm + done))
        # V drifts little in one iteration: its defect E is measured, and mended, in every other.
        state = await _iterate(state, delta, refresh=(done + 1) % REFRESH == 0, measure=done % 2 == 1)
        progress(f"eigendecomposition, iteration {done + 1}", min(0.95, (done + 1) / 20))
        return state

    def good(state: _State) -> Awaitable[Any]:
        return off_is_small(state.A, tol) if top is None or top >= d else _top_is_clean(state.A, tol, top)

    state, iterations, converged = await until_converged(
        _State(A0, A0, identity, identity, None, None),
        step,
        good,
        due=lambda done: warm + done >= FIRST_CHECK,
        most=MOST_ITERATIONS if max_iterations is None else max_iterations,
        fixed=fixed_iterations,
    )
    V = await orthonormal(state.V)
    values = await V.inner(await A0.matmul(V, within=1.5), axis=0, within=1.5)
    return Eigen(values, V, iterations, converged)


@dataclass
class _State:
    """Shared matrices between two iterations: A = V'A0V, E = V'V - I, and the damping factor for the next one."""

    A0: Any
    A: Any
    V: Any
    identity: Any
    E: Any
    c: Any


async def _iterate(state: _State, delta: float, refresh: bool, measure: bool) -> _State:
    """One iteration: nine rounds (seven more in the first, one more with `refresh`)."""
    A0, A, V, identity = state.A0, state.A, state.V, state.identity
    d = len(A0)
    i, j = np.triu_indices(d, 1)
    thresholds, factors = damping_table(d)
    nu_bound = max(2.0, (d / 2) ** 8)
    diagonal = A.diagonal()
    a, h = A[i, j], diagonal[j] - diagonal[i]
    y, signed, V = await together(  # r1-r3
        _inverse_length(a, h, delta),
        _signed(a, h, state.c, delta),
        ready(V) if state.E is None else orthonormal(V, state.E),
    )
    if state.c is None:  # first iteration: the damping must be measured in line
        U = await signed[0].mul(y, frac=COARSE, within=ANGLE)
        U2 = symmetric(await skew(U, d).matmul_upper(skew(U, d)), d)
        U4 = symmetric(await U2.matmul_upper(U2), d)
        c = await _damping(U4, thresholds, factors, nu_bound)
        ca = await (signed[0] * c)
        t = await ca.mul(y, frac=40, within=ANGLE)
    else:
        angles = signed[0].mul(y, frac=COARSE, within=ANGLE), signed[1].mul(y, frac=40, within=ANGLE)
        U, t = await together(*angles)  # r4
    T, U = skew(t, d), skew(U, d)
    t2, u2 = await together(T.matmul_upper(T, within=POWER), U.matmul_upper(U))  # r5
    T2, U2 = symmetric(t2, d), symmetric(u2, d)
    t3, u4 = await together(T.matmul_upper(T2, strict=True, within=POWER), U2.matmul_upper(U2))  # r6
    T3, U4 = skew(t3, d), symmetric(u4, d)
    tail, nu = await together(  # r7
        T3.matmul(T * C4 + T2 * C5 + T3 * C6, within=POWER), U4.inner(U4, frac=2 * COARSE)
    )
    W = identity + T + T2 * 0.5 + T3 * C3 + tail
    (A, E, V), c = await together(  # r8-r9
        _rotate(A0, A, V, W, refresh, measure), nu.within(nu_bound).lookup(thresholds, factors, 40)
    )
    return _State(A0, A, V, identity, E, c)


async def _top_is_clean(A: Any, tol: float, top: int) -> Any:
    """Whether the `top` largest diagonal entries are eigenvalues, and the largest ones: eight rounds.

    Their rows must be clean: the squares of their off-diagonal entries add up to less than (TOP_MARGIN tol)^2, or to what
    rounding leaves. And no eigenvalue of the rest may exceed them by more than tol: by Weyl it is enough that the whole
    off-diagonal is less than their distance to the next diagonal entry, or than tol (so equal eigenvalues at the border do not
    keep the iteration going). Or all pairs are done, as without `top`.
    """
    d = len(A)
    clean = min(tol, max(TOP_MARGIN * tol, 64 * math.sqrt(d * top) * 2.0**-40))
    diagonal = A.diagonal()
    rest = A - type(A).stack([diagonal] * d, axis=1) * np.eye(d, dtype=np.int64)
    squares, ranks = await together(rest.inner(rest, axis=1, frac=80), diagonal.within(1.5).ranks())
    ranks = ranks.within(d)
    chosen, last, next_one = await together(ranks >= d - top, ranks == d - top, ranks == d - top - 1)
    unclean, gap = await together(chosen.inner(squares), (last - next_one).inner(diagonal))
    gap2 = await gap.mul(gap, frac=80)
    total = squares.sum().within(8)
    margins = [unclean.within(8) - clean * clean, total - gap2.within(8) - tol * tol, total - tol * tol]
    rows, border, everything = await type(A).stack(margins).within(16).negative()
    # (rows and border) or everything, in one product: the third implies the second.
    return await (rows * (border - everything)) + everything


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


async def _rotate(A0: Any, A: Any, V: Any, W: Any, refresh: bool, measure: bool) -> tuple[Any, Any, Any]:
    """A := W'AW (or V'A0V), V := VW, and E = V'V - I if it is to be measured."""
    d = len(A0)
    if refresh:
        V = await V.matmul(W, within=1.5)
        AV, E = await together(A0.matmul(V, within=1.5), defect(V) if measure else ready(None))
        upper = await V.T.matmul_upper(AV, within=1.5)
    else:
        AW, V = await together(A.matmul(W, within=1.5), V.matmul(W, within=1.5))
        upper, E = await together(W.T.matmul_upper(AW, within=1.5), defect(V) if measure else ready(None))
    return symmetric(upper, d), E, V


async def _damping(U4: Any, thresholds: list[float], factors: list[float], bound: float) -> Any:
    nu = await U4.inner(U4, frac=2 * COARSE)
    return await nu.within(bound).lookup(thresholds, factors, 40)
