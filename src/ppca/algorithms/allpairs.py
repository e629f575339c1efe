"""All-pairs Jacobi: a full symmetric eigendecomposition in 10 to 40 iterations of nine rounds, whatever the dimension.

Every iteration rotates all d(d-1)/2 pairs at once. With a = A_ij, h = A_jj - A_ii:

    r1    q = h^2 + 4a^2 + delta^2, to the bits that matter | sign(h) | c arrives | V := V - V E / 2 and B with it (Newton-Schulz)
    r2-3  y = 1/sqrt(q) from a table             | c a, then sign * c a | is the off-diagonal small enough?
    r4    T = sign c a y                         (skew; the damped generator) | the answer is opened
    r5    T2 = T T
    r6    T3 = T T2          | T4 = T2 T2, coarsely
    r7    W = I + T + T2/2 + c3 T3 + T3 (c4 T + c5 T2 + c6 T3)   | |T4|^2
    r8    V := V W           | B := B W          | nu = |T4|^2 / c^8
    r9    A := V'B           | E = V'V - I, every other time | next damping c from nu: r9 and the next r1

B is A0 V. So what W lacks in orthogonality is mended in A too, as soon as it is in V.

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

from ..protocol import first_round, ready, skew, symmetric, together
from .eigen import Eigen, defect, off_is_small
from .iteration import Progress, silent, until_converged

RHO = 2 - math.sqrt(3)
C3, C4, C5, C6 = (1 + RHO) / 8, RHO / 8, RHO**2 / 16, RHO**3 / 64
"""Coefficients of W: with them W'W = I + 9.0e-8 T^12."""

TAU = 1.4
"""Largest spectral norm of the generator when the damping is taken from the iteration before; 1.8 is marginal."""

STEERING = 20
"""Fractional bits of what only steers the damping."""

ANGLE = 0.75
"""Of an entry of the generator: one half, 26% more from the table."""

POWER = 16.0
"""Of an entry of T^2, T^3 and what follows them: |T| <= 2 in the spectral norm, where the damping aims at 1.4.

This promise, and those that A, V and W stay below 2, keep local truncations likely to be right; they hold while the iteration
does what it should. Where it does not, verification says so."""

FIRST_CHECK = 6
"""The iteration from which convergence is checked: no matrix of some size is done before."""

MOST_ITERATIONS = 60
"""Where a run that opens convergence bits gives up."""

TOP_MARGIN = 0.01
"""Rows of the largest pairs must be so much cleaner than the tolerance. While the rest is still unclean they converge linearly, a
factor of ten or so an iteration, and the last iteration does not square their error as it does when all pairs are done."""


HALVINGS, SOONER = 8, 0.35
"""delta halves so many times, then shrinks by this factor: by then what is left is separating close eigenvalues.

Not by less: angles within a cluster can grow as fast as delta shrinks, and the damping is one iteration late. A factor of 0.25
diverges on clusters of 70."""


def regularisation(done: int, smallest: float) -> float:
    """delta of the public schedule: pairs with a smaller gap turn by less."""
    return max(smallest, 0.1 * 0.5 ** min(done, HALVINGS) * SOONER ** max(0, done - HALVINGS))


def damping_table(dimension: int) -> tuple[list[float], list[list[float]]]:
    """Thresholds for nu = |U^4|_F^2 and, on each interval, c = min(1, TAU / nu^(1/8)) in steps of 2^(1/4), and 1 / c^8."""
    steps = max(1, math.ceil(4 * math.log2(max(dimension / 2 / TAU, 1))) + 1)
    thresholds = [TAU**8 * 4.0**k for k in range(steps)]
    return thresholds, [[2.0 ** (power * k) for k in range(steps + 1)] for power in (-0.25, 2)]


async def eigh_allpairs(
    A0: Any,
    identity: Any,
    *,
    tol: float = 1e-7,
    max_iterations: int | None = None,
    fixed_iterations: int | None = None,
    top: int | None = None,
    warm: int = 0,
    progress: Progress = silent,
) -> Eigen:
    """Eigenvalues and eigenvectors of a shared symmetric matrix with |A0|_F <= 1 and 40 fractional bits.

    tol: stop when the off-diagonal has Frobenius norm below it; one bit is opened per check, and the iteration beside it is the
        last one. It takes the off-diagonal down by another factor of two to thirty.
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
        delta = regularisation(warm + done, delta_min)
        # V drifts little in one iteration: its defect E is measured, and mended, in every other.
        state = await _iterate(state, delta, measure=done % 2 == 1)
        progress(f"eigendecomposition, iteration {done + 1}", min(0.95, (done + 1) / 20))
        return state

    def good(state: _State) -> Awaitable[Any]:
        return off_is_small(state.A, tol) if top is None or top >= d else _top_is_clean(state.A, tol, top)

    state, iterations, converged = await until_converged(
        _State(A0, identity, A0, identity, None, None),
        step,
        good,
        due=lambda done: warm + done >= FIRST_CHECK,
        most=MOST_ITERATIONS if max_iterations is None else max_iterations,
        fixed=fixed_iterations,
    )
    V, B = await _mended(state.V, state.B, await defect(state.V))
    values = await V.inner(B, axis=0, within=1.5)
    return Eigen(values, V, iterations, converged)


@dataclass
class _State:
    """Shared matrices between two iterations: A = V'B, V, B = A0 V, E = V'V - I; and the damping of the next one, on its way."""

    A: Any
    V: Any
    B: Any
    identity: Any
    E: Any
    damping: Awaitable[Any] | None


async def _iterate(state: _State, delta: float, measure: bool) -> _State:
    """One iteration: nine rounds (six more in the first)."""
    A, identity = state.A, state.identity
    d = len(A)
    i, j = np.triu_indices(d, 1)
    diagonal = A.diagonal()
    a, h = A[i, j], diagonal[j] - diagonal[i]
    y, (signed, released), (V, B) = await together(  # r1-r3
        _inverse_length(a, h, delta), _signed(a, h, state.damping, delta), _mended(state.V, state.B, state.E)
    )
    t = await signed.mul(y, frac=40, within=ANGLE, narrow=True)  # r4
    if released is None:  # first iteration: the damping must be measured in line
        t, released = await _damped(t, d)
    T = skew(t, d)
    T2 = symmetric(await T.matmul_upper(T, within=POWER, narrow=True), d)  # r5
    steering = T2.astype(STEERING)
    t3, t4 = await together(  # r6
        T.matmul_upper(T2, strict=True, within=POWER, narrow=True),
        steering.matmul_upper(steering, within=POWER, narrow=True),
    )
    T3, T4 = skew(t3, d), symmetric(t4, d)
    tail, size = await together(  # r7
        T3.matmul(T * C4 + T2 * C5 + T3 * C6, within=POWER, narrow=True), T4.inner(T4, frac=STEERING)
    )
    W = identity + T + T2 * 0.5 + T3 * C3 + tail
    (A, V, B, E), damping = await together(  # r8-r9
        _rotate(V, B, W, measure), _next_damping(size, released, d)
    )
    return _State(A, V, B, identity, E, damping)


async def _damped(u: Any, d: int) -> tuple[Any, Any]:
    """c u and 1 / c^8 for the undamped generator u, measured in line: six rounds."""
    U = skew(u.astype(STEERING), d)
    U2 = symmetric(await U.matmul_upper(U), d)
    U4 = symmetric(await U2.matmul_upper(U2), d)
    c, released = await _damping(await U4.inner(U4, frac=STEERING), d)
    return await c.mul(u, frac=40, within=ANGLE, narrow=True), released


async def _next_damping(size: Any, released: Any, d: int) -> Awaitable[Any]:
    """The damping for the next iteration from |T^4|^2 of this one: two rounds, and one more that is left."""
    nu = await size.mul(released, frac=2 * STEERING)  # not truncated: no round for that, whatever the size
    return await first_round(_damping(nu, d))


async def _damping(nu: Any, d: int) -> tuple[Any, Any]:
    """c and 1 / c^8 from nu = |U^4|^2: two rounds."""
    thresholds, tables = damping_table(d)
    found = await nu.within(_largest_nu(d)).classify(thresholds, tables, STEERING)
    return found[..., 0], found[..., 1]


def _largest_nu(d: int) -> float:
    """|U^4|_F^2 <= |U|_F^2 |U|_2^6, and entries are at most 0.63."""
    return max(2.0, (d / 2) ** 8)


async def _top_is_clean(A: Any, tol: float, top: int) -> Any:
    """Whether the `top` largest diagonal entries are eigenvalues, and the largest ones: eight rounds.

    Their rows must be clean: the squares of their off-diagonal entries add up to less than (TOP_MARGIN tol)^2, or to what
    rounding leaves. And no eigenvalue of the rest may exceed them by more than tol: by Weyl it is enough that the whole
    off-diagonal is less than their distance to the next diagonal entry, or than tol (so equal eigenvalues at the border
    do not keep the iteration going). Or all pairs are done, as without `top`.
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
    small = tol * tol
    margins = [unclean.within(8) - clean * clean, total - gap2.within(8) - small, total - small]
    rows, border, everything = await type(A).stack(margins).within(16).negative()
    # (rows and border) or everything, in one product: the third implies the second.
    return await (rows * (border - everything)) + everything


async def _inverse_length(a: Any, h: Any, delta: float) -> Any:
    """1 / sqrt(h^2 + 4 a^2 + delta^2) within 11%, below a length of sqrt(2) delta a constant: three rounds.

    q is kept to the bits that the table looks at: an eighth of delta^2, or finer.
    """
    smallest = 2 * delta * delta
    # |A|_F <= 1 bounds h^2 + 4a^2 by 2.
    q = await h.sum_of_squares(a * 2, min(80, 2 - math.floor(math.log2(smallest))), within=3, narrow=True)
    return await (q + delta * delta).within(3).coarse_power(-0.5, smallest, frac=None)


async def _signed(a: Any, h: Any, damping: Awaitable[Any] | None, delta: float) -> tuple[Any, Any]:
    """sign(h) c a and 1 / c^8, or sign(h) a and None: three rounds.

    The sign matters only where |h| exceeds delta, so few bits suffice.
    """
    bits = max(2, math.ceil(math.log2(1 / delta)) + 1)  # a resolution of delta / 2 or finer
    coarse = h.astype(bits).within(1.5)  # |h| <= sqrt(2)

    async def damped() -> tuple[Any, Any]:
        if damping is None:
            return a, None
        c, released = await damping
        return await c.mul(a, frac=40, within=1, narrow=True), released

    negative, (ca, released) = await together(coarse.negative(narrow=True), damped())
    flipped = await negative.mul(ca, frac=40, within=1, narrow=True)
    return ca - flipped * 2, released


async def _rotate(V: Any, B: Any, W: Any, measure: bool) -> tuple[Any, Any, Any, Any]:
    """V := V W, B := B W, A := V'B, and E = V'V - I if it is to be measured: two rounds."""
    V, B = await together(V.matmul(W, within=1.5, narrow=True), B.matmul(W, within=1.5, narrow=True))
    upper, E = await together(V.T.matmul_upper(B, within=1.5, narrow=True), defect(V) if measure else ready(None))
    return symmetric(upper, len(V)), V, B, E


async def _mended(V: Any, B: Any, E: Any) -> tuple[Any, Any]:
    """V and B = A0 V after a Newton-Schulz step, V - V E / 2: one round, or none without E. The distance of V is squared."""
    if E is None:
        return V, B
    moved, with_it = await together(V.matmul(E, within=3, narrow=True), B.matmul(E, within=3, narrow=True))
    return V - moved * 0.5, B - with_it * 0.5
