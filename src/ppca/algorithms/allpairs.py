"""All-pairs Jacobi: a full symmetric eigendecomposition in 10 to 30 iterations of nine rounds, whatever the dimension.

Every iteration rotates all d(d-1)/2 pairs at once. With a = A_ij, h = A_jj - A_ii, and R_i the norm of the off-diagonal of row i:

    r1    h' = h p_i p_j, a' = a p_i p_j         | R_i^2 | V := V - V E / 2 and B with it (Newton-Schulz)
    r2-3  y = sign(h') / max(|h'|, 1), roughly   | the next p_i = 1/sqrt(R_i), from a table | c (r1-2), then c a'
    r4    T = c a' y                             (skew; the damped generator) | the next p_i p_j
    r5    T2 = T T
    r6    T3 = T T2          | T4 = T2 T2
    r7    W = I + T + T2/2 + c3 T3 + T4 (c4 + c5 T + c6 T2 + c7 T3 + c8 T4)   | |T4|^2
    r8    V := V W           | B := B W          | nu = |T4|^2 / c^8, of which the next c is made
    r9    A := B'V           | E = V'V - I, every fourth time

B is A0 V. So what W lacks in orthogonality is mended in A too, as soon as it is in V.

Three things make it converge. The angle of a pair is a / max(|h|, sqrt(R_i R_j), delta), with the sign of h: what is small
beside the disorder of its rows waits. delta, the least, shrinks on a public schedule; p_i is one iteration old. c keeps the
spectral norm of T about 1.4: it is measured by the fourth power of the generator one iteration before. And W is orthogonal up to
4e-12 |T|^16. There is no proof of global convergence, so the caller verifies the result and has cyclic Jacobi to fall back to.

Products of which one split is enough (`Held`) are asked for no more: h' and B stand left only, all that leads to W right only.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..protocol import Held, ready, skew, symmetric, together
from .eigen import Eigen, off_diagonal_is_small, orthogonality_error
from .iteration import Progress, silent, until_converged

ROTATION_DEGREE = 8
"""Of W as a polynomial of T."""


def rotation_coefficients(degree: int = ROTATION_DEGREE) -> NDArray[np.float64]:
    """1, 1, 1/2, c3, ..., with p(x) p(-x) = 1 + (c_n x^n)^2 up to sign, c_n = sin(pi / 2n)^n: p of a skew T is nearly orthogonal.

    It is the polynomial of Butterworth's filter, whose roots are the 2n-th roots of unity (of -1 if n is even) on the left, in
    units that make the second coefficient 1. Here c_8 = 2.1e-6.
    """
    angles = np.pi * (2 * np.arange(1, degree + 1) + degree - 1) / (2 * degree)
    b = np.real(np.poly(np.exp(1j * angles)))[::-1]
    return np.asarray(b / b[0] / (b[1] / b[0]) ** np.arange(degree + 1))


ROTATION_COEFFICIENTS = [float(c) for c in rotation_coefficients()]

TARGET_NORM = 1.4
"""The spectral norm of the generator that the damping aims at; taken from the iteration before, it was seen up to 2.3."""

DAMPING_FRAC = 20
"""Fractional bits of what only steers the damping."""

GAP_FRAC, SCALE_FRAC = 4, 6
"""Fractional bits of h', of which the finest step of y is a quarter, and of p_i p_j."""

MAX_SCALED_ENTRY = 16.0
"""Of a' = a p_i p_j: 1.13, or as many times more as a row's norm grows in an iteration; in the first one p_i p_j is 8."""

MAX_ANGLE = 4.0
"""Of an entry of the generator: 1.5 where the rows' norms are those of this iteration."""

MAX_POWER_ENTRY, MAX_FOURTH_POWER_ENTRY = 16.0, 64.0
"""Of an entry of T^2, T^3 and the last term of W, and of T^4: |T|_2 is below 2.5, where the damping aims at 1.4.

These promises, and those that A, V and W stay below 2, keep local truncations likely to be right; they hold while the iteration
does what it should. Where it does not, verification says so."""

FIRST_CHECK = 6
"""The iteration from which convergence is checked: no matrix of some size is done before."""

MAX_ITERATIONS = 60
"""Where a run that opens convergence bits gives up."""

SPARSE_CHECK_COLUMNS = 64
"""From so many columns on, whether the largest pairs are done is checked after every second iteration: the check compares all
pairs of the diagonal, which takes two thirds of the bytes of an iteration, and an iteration too many takes nine rounds."""

RANK_BITS = 3
"""Bits beyond those of the tolerance in which the diagonal is ordered."""

TOP_MARGIN = 0.01
"""Rows of the largest pairs must be so much cleaner than the tolerance: while the rest is still error they converge linearly, a
factor of ten or so an iteration. The last iteration does not square their error as it does when all pairs are done, and vectors
of eigenvalues far below the largest one would show that."""


INITIAL_DELTA_BITS = 3
"""delta begins at 2^-3."""


def regularisation(done: int, minimum: float) -> float:
    """delta of the public schedule, a power of two, and a quarter of it next time. Pairs with a smaller gap turn by less."""
    return float(2.0 ** max(-INITIAL_DELTA_BITS - 2 * done, math.ceil(math.log2(minimum))))


def max_norm(d: int) -> float:
    """A bound of the spectral norm of an undamped generator: 2 sqrt(d) where rows' norms are those of this iteration.

    (By Schur's test with the weights sqrt(R_i), a row of the off-diagonal having a sum of at maximum sqrt(d) R_i.) In the first
    iteration it is 8 |A| max y.
    """
    return max(16.0, 4 * math.sqrt(d))


def damping_table(d: int) -> tuple[list[float], list[list[float]]]:
    """Thresholds for nu = |U^4|_F^2, and for each interval c = min(1, TARGET_NORM / nu^(1/8)) in steps of 2^(1/4), and 1 /
    c^8."""
    steps = math.ceil(4 * math.log2(max_norm(d) / TARGET_NORM)) + 1
    thresholds = [TARGET_NORM**8 * 4.0**k for k in range(steps)]
    return thresholds, [[2.0 ** (power * k) for k in range(steps + 1)] for power in (-0.25, 2)]


def is_checked(done: int, compared: int) -> bool:
    """Whether convergence is checked after so many iterations. compared: diagonal entries that the check compares, 0 for none."""
    return done >= FIRST_CHECK and (compared < SPARSE_CHECK_COLUMNS or done % 2 == 0)


async def eigh_allpairs(
    A0: Any,
    identity: Any,
    *,
    tol: float = 1e-7,
    max_iterations: int | None = None,
    fixed_iterations: int | None = None,
    top: int | None = None,
    margin: float = TOP_MARGIN,
    warm: int = 0,
    progress: Progress = silent,
) -> Eigen:
    """Eigenvalues and eigenvectors of a shared symmetric matrix with |A0|_F <= 1 and 40 fractional bits.

    tol: stop when the off-diagonal has Frobenius norm below it; one bit is opened per check, and the iteration beside it is the
        last one. It takes the off-diagonal down by another factor of two to thirty.
    max_iterations: give up after so many (None: 60).
    fixed_iterations: run so many and open nothing; docs/eigensolvers.md tells how many are usual, and too few are found out.
    top: stop as soon as the `top` largest eigenpairs are that accurate; the others need not be. margin: rows of these must be
        cleaner than tol by this factor.
    warm: begin where a run would be after so many iterations, for a matrix that is nearly diagonal.
    """
    d = A0.shape[0]
    if d == 1:
        return Eigen(A0[0], identity, 0, True if fixed_iterations is None else None)
    A0 = A0.within(1)
    delta_min = max(tol, 64 * math.sqrt(d) * 2.0**-40)

    async def step(state: _State, done: int) -> _State:
        deltas = [regularisation(warm + done + k, delta_min) for k in (0, 1)]
        # V drifts little in one iteration: its defect E is measured, and mended, in every fourth.
        state = await _iterate(state, deltas[0], deltas[1], measure=done % 4 == 1)
        progress(f"eigendecomposition, iteration {done + 1}", min(0.95, (done + 1) / 20))
        return state

    compared = d if top is not None and top < d else 0

    def good(state: _State) -> Awaitable[Any]:
        if top is not None and compared:
            return _top_has_converged(state.A, tol, top, margin)
        return off_diagonal_is_small(state.A, tol)

    state, iterations, converged = await until_converged(
        _State(A0, identity, A0, identity, await _pair_scales(A0, regularisation(warm, delta_min)) if warm else None),
        step,
        good,
        due=lambda done: is_checked(warm + done, compared),
        max_steps=MAX_ITERATIONS if max_iterations is None else max_iterations,
        fixed_steps=fixed_iterations,
    )
    V, B = await _corrected(state.V, state.B, await orthogonality_error(state.V, Held.RIGHT))
    values = await B.inner(V, axis=0, within=1.5)
    return Eigen(values, V, iterations, converged)


@dataclass
class _State:
    """Shared matrices between two iterations: A = V'B, V, B = A0 V; p_i p_j of the pairs (None: 1 / delta); E = V'V - I where it
    was measured; and nu of the last generator (None: there was none)."""

    A: Any
    V: Any
    B: Any
    identity: Any
    scales: Any
    E: Any = None
    nu: Any = None


async def _iterate(state: _State, delta: float, after: float, measure: bool) -> _State:
    """One iteration with this delta, the next one being `after`: nine rounds (six more in the first)."""
    A, identity = state.A, state.identity
    d = len(A)
    (y, a, restored), p, (V, B) = await together(  # r1-r3
        _angle(A, delta, state.scales, state.nu), _row_scales(A, after), _corrected(state.V, state.B, state.E)
    )
    t, scales = await together(y.mul(a, frac=40, within=MAX_ANGLE, narrow=True), _pair_products(p, after))  # r4
    if restored is None:  # first iteration: the damping must be measured in line
        t, restored = await _damped(t, d)
    T = skew(t, d)
    T2 = symmetric(await T.matmul_upper(T, within=MAX_POWER_ENTRY, narrow=True), d)  # r5
    t3, t4 = await together(  # r6
        T.matmul_upper(T2, strict=True, within=MAX_POWER_ENTRY, narrow=True, only=Held.RIGHT),
        T2.matmul_upper(T2, within=MAX_FOURTH_POWER_ENTRY, narrow=True),
    )
    T3, T4 = skew(t3, d), symmetric(t4, d)
    c = ROTATION_COEFFICIENTS
    rest = identity * c[4] + T * c[5] + T2 * c[6] + T3 * c[7] + T4 * c[8]
    coarse = T4.astype(DAMPING_FRAC)
    tail, size = await together(  # r7
        T4.matmul(rest, within=MAX_POWER_ENTRY, narrow=True, only=Held.RIGHT), coarse.inner(coarse, frac=DAMPING_FRAC)
    )
    W = identity + T + T2 * c[2] + T3 * c[3] + tail
    # nu is not truncated: no round for that, whatever its size
    (A, V, B, E), nu = await together(_rotate(V, B, W, measure), size.mul(restored, frac=2 * DAMPING_FRAC))  # r8-r9
    return _State(A, V, B, identity, scales, E, nu)


async def _angle(A: Any, delta: float, scales: Any, nu: Any) -> tuple[Any, Any, Any]:
    """y, c a' and 1 / c^8 (without nu: a' and None): three rounds."""
    i, j = np.triu_indices(len(A), 1)
    diagonal = A.diagonal()
    a, h = A[i, j], diagonal[j] - diagonal[i]
    bound = 1.6 / delta  # |h| <= sqrt(2), p_i p_j <= 1.13 / delta

    async def slope() -> Any:
        if scales is None:
            return (
                await (h.astype(GAP_FRAC + INITIAL_DELTA_BITS) * round(1 / delta))
                .astype(GAP_FRAC)
                .within(bound)
                .slope()
            )
        return await (await h.mul(scales, frac=GAP_FRAC, within=bound, narrow=True, only=Held.LEFT)).slope()

    async def scaled() -> Any:
        if scales is None:
            return (a * round(1 / delta)).within(MAX_SCALED_ENTRY)
        return await a.mul(scales, frac=40, within=MAX_SCALED_ENTRY, narrow=True, only=Held.RIGHT)

    async def damped() -> tuple[Any, Any]:
        if nu is None:
            return await scaled(), None
        ready_a, (c, restored) = await together(scaled(), _damping(nu, len(A)))
        return await c.mul(ready_a, frac=40, within=MAX_SCALED_ENTRY, narrow=True, only=Held.RIGHT), restored

    y, (ca, restored) = await together(slope(), damped())
    return y, ca, restored


async def _row_scales(A: Any, delta: float) -> Any:
    """p_i = (R_i^2)^(-1/4) within 6%, at maximum 1.06 / sqrt(delta): three rounds."""
    d = len(A)
    rest = A - type(A).stack([A.diagonal()] * d, axis=1) * np.eye(d, dtype=np.int64)
    squares = await rest.inner(rest, axis=1, frac=80)
    return await squares.within(1).coarse_power(-0.25, delta * delta, frac=None)


async def _pair_products(p: Any, delta: float) -> Any:
    """p_i p_j of every pair: one round."""
    i, j = np.triu_indices(len(p), 1)
    return await p[i].mul(p[j], frac=SCALE_FRAC, within=1.2 / delta, narrow=True, only=Held.RIGHT)


async def _pair_scales(A: Any, delta: float) -> Any:
    """p_i p_j from A itself, before the first iteration: four rounds."""
    return await _pair_products(await _row_scales(A, delta), delta)


async def _damped(u: Any, d: int) -> tuple[Any, Any]:
    """c u and 1 / c^8 for the undamped generator u, measured in line: six rounds."""
    U = skew(u.astype(DAMPING_FRAC), d)
    U2 = symmetric(await U.matmul_upper(U), d)
    U4 = symmetric(await U2.matmul_upper(U2), d)
    c, restored = await _damping(await U4.inner(U4, frac=DAMPING_FRAC), d)
    return await c.mul(u, frac=40, within=MAX_ANGLE, narrow=True), restored


async def _damping(nu: Any, d: int) -> tuple[Any, Any]:
    """c and 1 / c^8 from nu = |U^4|^2: two rounds."""
    thresholds, tables = damping_table(d)
    found = await nu.within(d * max_norm(d) ** 8).classify(thresholds, tables, DAMPING_FRAC)
    return found[..., 0], found[..., 1]


async def _top_has_converged(A: Any, tol: float, top: int, margin: float) -> Any:
    """Whether the `top` largest diagonal entries are eigenvalues, and the largest ones: eight rounds.

    Their rows must be row_tol: the squares of their off-diagonal entries add up to less than (margin tol)^2, or to what
    rounding leaves. And no eigenvalue of the rest may exceed them by more than 2 tol: by Weyl it is enough that the whole
    off-diagonal is less than their distance to the next diagonal entry, or than tol (so equal eigenvalues at the border
    do not keep the iteration going). Or all pairs are done, as without `top`.
    The diagonal is ordered in units of an eighth of tol, every entry right to one of them: four units are what ordering may add
    to the tol of the border, and two more where it has exchanged the entries at it.
    """
    d = len(A)
    row_tol = min(tol, max(margin * tol, 64 * math.sqrt(d * top) * 2.0**-40))
    diagonal = A.diagonal()
    coarse = diagonal.within(1.5).astype(min(40, math.ceil(-math.log2(tol)) + RANK_BITS))
    rest = A - type(A).stack([diagonal] * d, axis=1) * np.eye(d, dtype=np.int64)
    squares, ranks = await together(rest.inner(rest, axis=1, frac=80), coarse.ranks())
    ranks = ranks.within(d)
    chosen, last, next_one = await together(ranks >= d - top, ranks == d - top, ranks == d - top - 1)
    error, gap = await together(chosen.inner(squares), (last - next_one).inner(diagonal))
    gap2 = await gap.mul(gap, frac=80)
    total = squares.sum().within(8)
    small = tol * tol
    margins = [error.within(8) - row_tol * row_tol, total - gap2.within(8) - small, total - small]
    rows, border, everything = await type(A).stack(margins).within(16).negative()
    # (rows and border) or everything, in one product: the third implies the second.
    return await (rows * (border - everything)) + everything


async def _rotate(V: Any, B: Any, W: Any, measure: bool) -> tuple[Any, Any, Any, Any]:
    """V := V W, B := B W, A := B'V, and E = V'V - I if it is to be measured: two rounds."""
    V, B = await together(V.matmul(W, within=1.5, narrow=True), B.matmul(W, within=1.5, narrow=True, only=Held.LEFT))
    upper, E = await together(
        B.T.matmul_upper(V, within=1.5, narrow=True), orthogonality_error(V, Held.RIGHT) if measure else ready(None)
    )
    return symmetric(upper, len(V)), V, B, E


async def _corrected(V: Any, B: Any, E: Any) -> tuple[Any, Any]:
    """V and B = A0 V after a Newton-Schulz step, V - V E / 2: one round, or none without E. The distance of V is squared."""
    if E is None:
        return V, B
    moved, with_it = await together(
        V.matmul(E, within=3, narrow=True), B.matmul(E, within=3, narrow=True, only=Held.LEFT)
    )
    return V - moved * 0.5, B - with_it * 0.5
