"""QR algorithm: Householder tridiagonalisation, then QR iterations with Wilkinson's shift (the paper's appendix,
corrected).

Textbook method: Golub and Van Loan, Matrix Computations, section 8.3. It is a baseline. A Householder reflection of w
(expensive operations: 1 comparison, 2 square roots, 1 reciprocal, one after the other, 34 rounds):

    u = w;  u_0 += sign(w_0) |w|;  u /= |u|;  P = I - 2 u u'

1. d - 2 reflections make A tridiagonal: A := P A P, V := V P, two rounds each.
2. For the last row m = d-1 .. 1: QR iterations on the leading m + 1 rows until T[m, m-1] is small, which is one opened
   bit per iteration; then m is done. An iteration with shift s: T - s = Q R by m reflections, T := R Q + s. Columns of
   T have two entries at and below the diagonal, so each reflection is of a pair; diagonal and subdiagonal of R Q follow
   from R and the reflections in two rounds for all rows. V := V P runs in parallel with the next reflection.

Corrections of the printed text: the eigenvectors are Q of all columns (not only of a block of Q), and the shift is that
of Wilkinson, s = T[m,m] - sign(e) b^2 / (|e| + sqrt(e^2 + b^2)), with e half the difference of the last two diagonal
entries and b below it, to 20%. The Rayleigh quotient T[m,m], which the paper uses, never converges on [[a, b], [b, a]],
the correlation matrix of two columns: the iteration maps it to itself. Wilkinson's shift takes six rounds per
iteration, by table; for small b both shifts are the same.

As printed (`printed=True`): the shift is the Rayleigh quotient, and a reflection works on a whole column and on whole
matrices, R := P R and Q := Q P, so that an iteration on m + 1 rows sends about 2 m (m + 1)^2 numbers instead of about
12 m. The printed text ends with the factors Q and R; the rest (T := R Q + s, the test of the last row, the next row) is
as above.

Fixed point: |w|^2 keeps 70 fractional bits; a vector shorter than 2^-30 is not reflected (1 / |u| is 0, P = I). Small
vectors have few digits, so u'u = 1 + x is measured and 2 replaced by 2 (1 - x + x^2): P is orthogonal up to x^3 (1e-9
for the smallest vector). Accuracy: a reflection leaves 1e-9 |w| of what it should remove (the accuracy of the square
root), which is dropped: with N reflections the residual is about sqrt(N) 1e-9, N = d + 0.85 d^2. Eigenvectors are
orthonormal to the last bits: the final step is that of the Jacobi solvers, V := V - V (V'V - I) / 2 and the eigenvalues
from V' A0 V. Rounds: 36 a column, then 35 m + 8 a QR iteration on m + 1 rows; as printed 35 m + 2.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable
from typing import Any

import numpy as np

from ...protocol import concatenate, ready, stack, symmetric, together
from ..eigen import Eigen
from ..iteration import Progress, opened, silent
from ..jacobi import inverse_length, signed
from ..rotations import refresh

SQUARE_FRAC = 70
"""Fractional bits of squared lengths."""

MAX_ITERATIONS = 30
"""Maximum number of QR iterations per column of a run that opens convergence bits."""


async def reflector(w: Any) -> tuple[Any, Any]:
    """Return the unit vector u and the factor f of the reflection that maps w to (-+|w|, 0, ...): 32 rounds.

    The reflection is I - f u u'.
    """
    square, negative = await together(w.inner(w, frac=80), w[0].within(2).negative())
    length = (await square.within(2).astype(SQUARE_FRAC).sqrt()).astype(40).within(2)
    flipped = await (negative * length)
    u = concatenate([(w[0] + length - flipped * 2).reshape(1), w[1:]])
    square = (await u.inner(u, frac=80)).within(5).astype(SQUARE_FRAC)
    length = (await square.sqrt()).astype(40).within(3)
    u = await u.mul(await length.reciprocal(), within=1.5)
    excess = (await u.inner(u, within=1.5)) - 1.0
    return u, (1.0 - excess + await (excess * excess)) * 2


async def reflection(w: Any, eye: Any) -> Any:
    """Return I - f u u' on the last len(w) of len(eye) coordinates: 34 rounds."""
    u, factor = await reflector(w)
    if len(eye) > len(w):
        u = concatenate([u.zeros((len(eye) - len(w),)), u])
    outer = await u.reshape(-1, 1).mul(u.reshape(1, -1), within=1.5)
    return eye - await factor.mul(outer, within=3)


async def tridiagonal(A: Any, V: Any, identity: Any, progress: Progress) -> tuple[Any, Any]:
    """Return P'AP, which is tridiagonal, and VP: 36 rounds a column."""
    d = len(A)
    for k in range(d - 2):
        P = await reflection(A[k + 1 :, k], identity)
        AP, V = await together(A.matmul(P, within=1.5), V.matmul(P, within=1.5))
        A = symmetric(await P.matmul_upper(AP, within=1.5), d)
        progress(f"tridiagonalisation, column {k + 1}", 0.3 * (k + 1) / d)
    return A, V


async def wilkinson_shift(a: Any, b: Any) -> Any:
    """Return Wilkinson's shift from the last two diagonal entries and the entry below them, to 20%: six rounds."""
    h = a[-2] - a[-1]
    sides, y = await together(signed(stack([b, h]), h), inverse_length(b, h))
    z, x = await sides.mul(y, frac=40, within=1.5)  # sign b / 2r and |e| / r, r = sqrt(e^2 + b^2)
    zb = await z.mul(b, within=1.5)
    return a[-1] - await zb.mul(2.0 - x, within=3)  # 1 / (1 + x) is 1 - x/2, exactly at both ends of 0..1


async def _is_small(b: Any, tol: float) -> Any:
    """Return the shared bit [|b| < tol]: three rounds."""
    square = await b.mul(b, frac=80)
    return await (square - tol * tol).within(4).negative()


async def _turn(V: Any, P: Any, k: int) -> Any:
    """Return V P with P on columns k and k + 1: one round."""
    turned = await V[:, k : k + 2].matmul(P, within=1.5)
    return concatenate([V[:, :k], turned, V[:, k + 2 :]], 1)


async def iterate(a: Any, b: Any, V: Any, shift: Any, eye: Any) -> tuple[Any, Any, Any]:
    """Run one QR iteration on the tridiagonal matrix (a, b): 35 rounds a row, and 2."""
    m = len(b)
    zero = a.zeros(())
    low = a - shift
    turning: Awaitable[Any] = ready(V)
    x, y = low[0], b[0]
    corner, beside, mirrors = [], [], []
    for k in range(m):
        P, V = await together(reflection(stack([x, b[k]]), eye), turning)
        following = b[k + 1] if k + 1 < m else zero
        rows = await P.matmul(stack([stack([x, y, zero]), stack([b[k], low[k + 1], following])]), within=3)
        corner.append(rows[0, 0])
        beside.append(rows[0, 1])
        x, y = rows[1, 1], rows[1, 2]
        mirrors.append(P)
        turning = _turn(V, P, k)
    R, S, P = stack([*corner, x]), stack(beside), stack(mirrors)
    products = R[1:].mul(P[:, 1, 1], within=3), R[1:].mul(P[:, 0, 1], within=3)
    scaled, below, V = await together(*products, turning)
    scaled = concatenate([R[:1], scaled])
    diagonal = await stack([scaled[:-1], S]).inner(stack([P[:, 0, 0], P[:, 0, 1]]), axis=0, within=3)
    return concatenate([diagonal, scaled[-1:]]) + shift, below, V


async def iterate_printed(T: Any, V: Any, shift: Any, eye: Any) -> tuple[Any, Any]:
    """Run one QR iteration by reflections of whole columns, as the paper prints it: 35 rounds a row, and one."""
    m = len(T)
    moved = await shift.mul(eye, within=1.5)
    R, Q = T - moved, eye
    for k in range(m - 1):
        P = await reflection(R[k:, k], eye)
        R, Q = await together(P.matmul(R, within=3), Q.matmul(P, within=1.5))
    T, turned = await together(R.matmul(Q, within=3), V[:, :m].matmul(Q, within=1.5))
    return T + moved, concatenate([turned, V[:, m:]], 1)


def max_checks(d: int, max_iterations: int | None = None) -> int:
    """Return the maximum number of convergence bits: one per QR iteration, and one that ends each eigenvalue but the
    last.
    """
    return (MAX_ITERATIONS * d if max_iterations is None else max_iterations) + d - 1


def split_evenly(total: int, parts: int) -> list[int]:
    """Divide `total` into parts that differ by at most one, the larger ones first."""
    return [total // parts + (i < total % parts) for i in range(parts)]


async def eigh_qr(
    A0: Any,
    identity: Any,
    *,
    tol: float = 1e-6,
    max_iterations: int | None = None,
    fixed_iterations: int | None = None,
    progress: Progress = silent,
    printed: bool = False,
) -> Eigen:
    """Compute eigenvalues and eigenvectors of a shared symmetric matrix with |A0|_F <= 1 and 40 fractional bits.

    tol: an eigenvalue is done if the entry next to it is below tol / (4 sqrt(d)): one bit is opened per QR iteration.
    max_iterations: maximum number of QR iterations in all (None: 30 d; fewer than 2 d are usual). fixed_iterations:
    exactly this many in all, spread over the eigenvalues, and nothing is opened (4 d suit tol = 1e-6). printed: the
    paper's Rayleigh shift and reflections of whole columns. `iterations` of the result counts QR iterations.
    """
    d = A0.shape[0]
    if d == 1:
        return Eigen(A0[0], identity, 0, True if fixed_iterations is None else None)
    A0 = A0.within(1)
    T, V = await tridiagonal(A0, identity, identity, progress)
    below = np.arange(d - 1)
    a, b = T.diagonal(), T[below + 1, below]
    eye = identity[:2, :2]
    left = MAX_ITERATIONS * d if max_iterations is None else max_iterations
    planned = None if fixed_iterations is None else split_evenly(fixed_iterations, d - 1)
    done, everywhere = 0, True
    for m in range(d - 1, 0, -1):
        small, trials = False, 0
        while not small and (done < left if planned is None else trials < planned[d - 1 - m]):
            check = opened(_is_small(b[m - 1], tol / (4 * math.sqrt(d)))) if planned is None else ready(False)
            if printed:
                shift, small = T[m, m], await check
            else:
                shift, small = await together(wilkinson_shift(a[: m + 1], b[m - 1]), check)
            if not small:
                if printed:
                    T, V = await iterate_printed(T[: m + 1, : m + 1], V, shift, identity[: m + 1, : m + 1])
                    b = T[below[:m] + 1, below[:m]]
                else:
                    diagonal, subdiagonal, V = await iterate(a[: m + 1], b[:m], V, shift, eye)
                    a, b = concatenate([diagonal, a[m + 1 :]]), concatenate([subdiagonal, b[m:]])
                done, trials = done + 1, trials + 1
        everywhere &= small
        progress(f"eigendecomposition, {d - m} of {d} eigenvalues", 0.3 + 0.65 * (d - m) / d)
    A, V = await refresh(A0, V)
    return Eigen(A.diagonal(), V, done, everywhere if planned is None else None)
