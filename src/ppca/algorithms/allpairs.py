"""All-pairs Jacobi: eigendecomposition of a shared symmetric matrix in 10 to 30 iterations of nine rounds.

Classical Jacobi (1846; Golub and Van Loan, Matrix Computations, section 8.5) rotates one pair of columns at a time.
This variant rotates all d(d-1)/2 pairs in one step, because rounds, not local products, dominate the cost on shares.

Variables
    A0      the input, |A0|_F <= 1, 40 fractional bits
    V       current eigenvectors (columns), nearly orthogonal;  B = A0 V;  A = V'A0V = B'V, nearly diagonal at the end
    a, h    for each pair i < j: the entry a = A_ij and the gap h = A_jj - A_ii
    R_i     Euclidean norm of the off-diagonal part of row i
    delta   lower limit of R_i, public: 1/8, 1/32, ..., to the power of two at or above max(tol, 64 sqrt(d) 2^-40)
    p_i     1 / sqrt(max(R_i, delta)), to 6%; R_i is that of the previous iteration
    U, T    skew-symmetric generator of the rotation before damping, and T = c U with the damping factor c <= 1
    W       p(T), a polynomial of degree 8 that agrees with exp(T) to second order
    E       V'V - I, the loss of orthogonality

Method
    To first order, W'AW has the entry a - h T_ij, so T_ij = a / h removes it. Ogita and Aishima (2018) refine
    eigenvectors with the same correction. Far from the solution h can be tiny, so the angle is limited (T_ji = -T_ij):
        T_ij = c a sign(h) / max(|h|, s_ij),    s_ij = 1 / (p_i p_j) = sqrt(max(R_i, delta) max(R_j, delta))

    Rounds of one iteration; the items of a line run in parallel. If warm = 0, the first iteration uses
    p_i p_j = 1 / delta.
        1     h' = h p_i p_j;  a' = a p_i p_j;  R_i^2;  if E was measured: V := V - V E / 2, B := B - B E / 2
        2-3   y = sign(h') / max(|h'|, 1) from a table;  c from nu (rounds 1-2), then c a';  p_i of the next iteration
        4     T = c a' y;  p_i p_j of the next iteration
        5     T^2
        6     T^3;  T^4
        7     W = I + T + T^2/2 + c3 T^3 + T^4 (c4 I + c5 T + c6 T^2 + c7 T^3 + c8 T^4);  |T^4|_F^2
        8     V := V W;  B := B W;  nu = |T^4|_F^2 / c^8 = |U^4|_F^2
        9     A := B'V;  every fourth iteration E = V'V - I
    Round 7 is the scheme of Paterson and Stockmeyer (1973): a polynomial of degree 8 with four matrix products.

Convergence
    There is no proof of global convergence. Three safeguards make it converge in practice:
    1. Limited angles. A pair whose gap is below s_ij turns by less, so close eigenvalues do not disturb the others.
    2. Damping. c limits c |U^4|_F^(1/4), an upper bound of |T|_2, to 1.4. It uses U of the previous iteration, so it
       costs no round; norms up to 2.3 were observed. The first iteration measures its own U (six more rounds).
    3. Orthogonality. W'W = I up to 4.4e-12 |T|_2^16. One Newton-Schulz step (Bjorck and Bowie, 1971; Higham, 2008)
       squares the remaining E. A is computed from V and A0, not from the previous A, so correcting V also corrects A.
    Near the end y is accurate to 31% or better (7% on average), so convergence is linear. Measured (Wishart, d = 20,
    plaintext backend): |off(A)|_F = 5e-4, 5e-5, 5e-6, 6e-7, 4e-8, 5e-9. The caller verifies the result and can fall
    back to cyclic Jacobi.

Cost per iteration: 9 rounds (6 more in the first, 3 at the end); seven products of d x d matrices, and three more every
fourth iteration; 495 bytes sent by the busiest server per pair of columns (d = 115, docs/concepts/eigensolvers.md).
One-sided products (`Held`) send half as much: h' and B (left); a', c a', p_i p_j, T^3, the last term of W, and E
(right).
"""

from __future__ import annotations

import math
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..protocol import Held, ready, skew, symmetric, together
from ..protocol.triangles import upper, upper_pairs
from .eigen import Eigen, off_diagonal_is_small, orthogonality_error
from .iteration import Progress, silent, until_converged

ROTATION_DEGREE = 8
"""Degree of W as a polynomial in T."""


def rotation_coefficients(degree: int = ROTATION_DEGREE) -> NDArray[np.float64]:
    """Return the coefficients of the Butterworth polynomial p, scaled to p(x) = 1 + x + x^2/2 + c3 x^3 + ...

    For even n = degree, p(x) p(-x) = 1 + (c_n x^n)^2 with c_n = sin(pi / 2n)^n (1 - ... for odd n). For skew-symmetric
    T this is W'W, so W = p(T) is nearly orthogonal; c_8 = 2.1e-6. The roots are the 2n-th roots of -1 (of 1 for odd n)
    in the left half plane, scaled. See Butterworth (1930).
    """
    angles = np.pi * (2 * np.arange(1, degree + 1) + degree - 1) / (2 * degree)
    b = np.real(np.poly(np.exp(1j * angles)))[::-1]
    return np.asarray(b / b[0] / (b[1] / b[0]) ** np.arange(degree + 1))


ROTATION_COEFFICIENTS = [float(c) for c in rotation_coefficients()]
"""Coefficients of W in ascending powers of T, see `rotation_coefficients`."""


TARGET_NORM = 1.4
"""Spectral norm of T that damping aims at. It uses the previous iteration; norms up to 2.3 were observed."""

DAMPING_FRAC = 20
"""Fractional bits of T^4 and nu when they are used only to choose the damping factor."""

GAP_FRAC, SCALE_FRAC = 4, 6
"""Fractional bits of h' and of p_i p_j. The table of y resolves steps of 1/4 or 1/8, so 4 bits of h' are enough."""

MAX_SCALED_ENTRY = 16.0
"""Promised bound on abs(a').

It is 1.13 if row norms do not grow within an iteration. In the first iteration p_i p_j = 8.
"""

MAX_ANGLE = 4.0
"""Promised bound on abs(T_ij). It is 1.5 if row norms do not grow within an iteration."""

MAX_POWER_ENTRY, MAX_FOURTH_POWER_ENTRY = 16.0, 64.0
"""Promised bounds on entries of T^2, T^3 and the last term of W; and of T^4.

They hold for a spectral norm of T up to 2.5. Promises are not checked: local truncation is reliable only if they hold
(as must abs(entry) < 2 for A, V, W). If not, verification rejects the result.
"""

FIRST_CHECK = 6
"""Iterations before the first convergence check. Only very small matrices converge sooner."""

MAX_ITERATIONS = 60
"""Default maximum number of iterations when convergence bits are opened."""

SPARSE_CHECK_COLUMNS = 64
"""With `top`, from this number of columns on the check runs every second iteration.

It compares all pairs of diagonal entries, which is two thirds of the traffic of an iteration. A late stop costs nine
rounds.
"""

RANK_BITS = 3
"""Diagonal entries are ranked in units of tol / 2^3 or finer."""

TOP_MARGIN = 0.01
"""With `top`, the selected rows must have an off-diagonal norm below TOP_MARGIN * tol.

They converge only linearly, about a factor of ten per iteration, while other rows have not converged; a larger margin
shows in eigenvectors of small eigenvalues.
"""


INITIAL_DELTA_BITS = 3
"""The first delta is 2^-INITIAL_DELTA_BITS; each iteration divides it by four."""


def regularisation(done: int, minimum: float) -> float:
    """Return delta after `done` iterations of the public schedule: a power of two, a quarter of it next time, at least
    `minimum`.
    """
    return float(2.0 ** max(-INITIAL_DELTA_BITS - 2 * done, math.ceil(math.log2(minimum))))


def max_norm(d: int) -> float:
    """Return a bound on the spectral norm of an undamped generator: 2 sqrt(d) if row norms are those of this iteration.

    It follows from Schur's test with the weights sqrt(R_i): the off-diagonal part of a row has a sum of at most sqrt(d)
    R_i. In the first iteration the bound is 8 |A| max y.
    """
    return max(16.0, 4 * math.sqrt(d))


def damping_table(d: int) -> tuple[list[float], list[list[float]]]:
    """Return thresholds for nu = |U^4|_F^2, and c = min(1, TARGET_NORM / nu^(1/8)) and 1 / c^8 for each interval.

    c has steps of 2^(1/4).
    """
    steps = math.ceil(4 * math.log2(max_norm(d) / TARGET_NORM)) + 1
    thresholds = [TARGET_NORM**8 * 4.0**k for k in range(steps)]
    return thresholds, [[2.0 ** (power * k) for k in range(steps + 1)] for power in (-0.25, 2)]


def is_checked(done: int, compared: int) -> bool:
    """Return whether convergence is checked after `done` iterations.

    compared: diagonal entries that the check compares (0: none).
    """
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
    """Compute all eigenvalues and eigenvectors of a shared symmetric matrix with |A0|_F <= 1 and 40 fractional bits.

    tol: stop when the off-diagonal part of A has a Frobenius norm below tol. Each check opens one bit. It runs in
        parallel with one more iteration, which reduces the norm by a further factor of 2 to 30.
    max_iterations: maximum number of iterations (None: 60). fixed_iterations: run exactly this many and open nothing.
    docs/concepts/eigensolvers.md lists usual numbers; verification detects
        too few.
    top: stop as soon as the `top` largest eigenpairs are accurate; the others need not be.
    margin: with `top`, the rows of these pairs must have an off-diagonal norm below margin * tol.
    warm: for a nearly diagonal matrix, use delta and checks of a run that has already made this many iterations.
    Returns unsorted eigenvalues, eigenvectors as columns, the number of iterations, and `converged` (None if fixed).
    """
    d = A0.shape[0]
    if d == 1:
        return Eigen(A0[0], identity, 0, True if fixed_iterations is None else None)
    A0 = A0.within(1)
    delta_min = max(tol, 64 * math.sqrt(d) * 2.0**-40)

    async def step(state: _State, done: int) -> _State:
        deltas = [regularisation(warm + done + k, delta_min) for k in (0, 1)]
        # V loses little orthogonality in one iteration, so E is measured and corrected in every fourth.
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
    """Shared matrices between two iterations: A = V'B, V and B = A0 V.

    scales: p_i p_j of all pairs (None: 1 / delta). E: V'V - I if it was measured. nu: of the last generator (None:
        first iteration).
    """

    A: Any
    V: Any
    B: Any
    identity: Any
    scales: Any
    E: Any = None
    nu: Any = None


async def _iterate(state: _State, delta: float, after: float, measure: bool) -> _State:
    """Run one iteration with this delta; `after` is the next delta. Nine rounds (six more in the first)."""
    A, identity = state.A, state.identity
    d = len(A)
    (y, a, restored), p, (V, B) = await together(  # r1-r3
        _angle(A, delta, state.scales, state.nu), _row_scales(A, after), _corrected(state.V, state.B, state.E)
    )
    t, scales = await together(y.mul(a, frac=40, within=MAX_ANGLE, narrow=True), _pair_products(p, after))  # r4
    if restored is None:  # first iteration: measure this generator, which takes extra rounds
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
    # nu is not truncated, which would take a round
    (A, V, B, E), nu = await together(_rotate(V, B, W, measure), size.mul(restored, frac=2 * DAMPING_FRAC))  # r8-r9
    return _State(A, V, B, identity, scales, E, nu)


async def _angle(A: Any, delta: float, scales: Any, nu: Any) -> tuple[Any, Any, Any]:
    """Return y, c a' and 1 / c^8 (without nu: y, a' and None): three rounds."""
    i, j = upper_pairs(len(A), strict=True)
    diagonal = A.diagonal()
    a, h = upper(A, strict=True), diagonal[j] - diagonal[i]
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
    """Return p_i = (R_i^2)^(-1/4) within 6%, at most 1.06 / sqrt(delta): three rounds."""
    d = len(A)
    rest = A - type(A).stack([A.diagonal()] * d, axis=1) * np.eye(d, dtype=np.int64)
    squares = await rest.inner(rest, axis=1, frac=80)
    return await squares.within(1).coarse_power(-0.25, delta * delta, frac=None)


async def _pair_products(p: Any, delta: float) -> Any:
    """Return p_i p_j of every pair: one round."""
    i, j = upper_pairs(len(p), strict=True)
    return await p[i].mul(p[j], frac=SCALE_FRAC, within=1.2 / delta, narrow=True, only=Held.RIGHT)


async def _pair_scales(A: Any, delta: float) -> Any:
    """Return p_i p_j computed from A itself, before the first iteration: four rounds."""
    return await _pair_products(await _row_scales(A, delta), delta)


async def _damped(u: Any, d: int) -> tuple[Any, Any]:
    """Return c u and 1 / c^8 for the undamped generator u, which is measured first: six rounds."""
    U = skew(u.astype(DAMPING_FRAC), d)
    U2 = symmetric(await U.matmul_upper(U), d)
    U4 = symmetric(await U2.matmul_upper(U2), d)
    c, restored = await _damping(await U4.inner(U4, frac=DAMPING_FRAC), d)
    return await c.mul(u, frac=40, within=MAX_ANGLE, narrow=True), restored


async def _damping(nu: Any, d: int) -> tuple[Any, Any]:
    """Return c and 1 / c^8 from nu = |U^4|^2: two rounds."""
    thresholds, tables = damping_table(d)
    found = await nu.within(d * max_norm(d) ** 8).classify(thresholds, tables, DAMPING_FRAC)
    return found[..., 0], found[..., 1]


async def _top_has_converged(A: Any, tol: float, top: int, margin: float) -> Any:
    """Return a shared bit: the `top` largest diagonal entries are eigenvalues, and the largest ones. Eight rounds.

    It is set if all pairs have converged, as without `top`, or if both of these hold:
    1. The squares of the off-diagonal entries of their rows add up to less than (margin tol)^2, or to the rounding
       error.
    2. The other eigenvalues exceed them by at most 2 tol. By Weyl's inequality this holds if the norm of the whole
       off-diagonal is below their distance to the next diagonal entry, or below tol. So equal eigenvalues at the border
       do not prolong the iteration.
    The diagonal is ranked in units of an eighth of tol, each entry accurate to one unit. Ranking adds at most four
    units to the tol of the border, and two more if it has exchanged the entries at the border.
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
    # (rows and border) or everything, in one product, since everything implies border.
    return await (rows * (border - everything)) + everything


async def _rotate(V: Any, B: Any, W: Any, measure: bool) -> tuple[Any, Any, Any, Any]:
    """Compute V := V W, B := B W, A := B'V, and E = V'V - I if it is to be measured: two rounds."""
    V, B = await together(V.matmul(W, within=1.5, narrow=True), B.matmul(W, within=1.5, narrow=True, only=Held.LEFT))
    upper, E = await together(
        B.T.matmul_upper(V, within=1.5, narrow=True), orthogonality_error(V, Held.RIGHT) if measure else ready(None)
    )
    return symmetric(upper, len(V)), V, B, E


async def _corrected(V: Any, B: Any, E: Any) -> tuple[Any, Any]:
    """Apply a Newton-Schulz step, V - V E / 2, to V and B = A0 V: one round; none without E.

    It squares the error of V.
    """
    if E is None:
        return V, B
    moved, with_it = await together(
        V.matmul(E, within=3, narrow=True), B.matmul(E, within=3, narrow=True, only=Held.LEFT)
    )
    return V - moved * 0.5, B - with_it * 0.5
