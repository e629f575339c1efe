"""Parallel cyclic Jacobi with an inexact rotation: ten rounds a step, d/2 pairs a step. It is the fallback solver.

Cyclic Jacobi with parallel ordering: Golub and Van Loan, Matrix Computations, section 8.5. What differs is the
rotation. With a = A_pq, h = A_qq - A_pp for all pairs of a step:

    r1    q = h^2 + 4 a^2, untruncated                                    | r1-2: sign(h)
    r2-3  y = 1/sqrt(q) within 11%, from a table                          | r3: sign * a
    r4    t = sign a y: the tangent of the angle, approximately
    r5    u = t^2
    r6    u^2, t u
    r7    u^3, u^4, t u^2, t u^3
    r8    cos = p(u), sin = t p(u), with a polynomial p = (1 + u)^(-1/2) of degree 7
    r9-10 columns, rows (see `rotations`)

The exact tangent is 2 a sign / (|h| + sqrt(q)). a sign / sqrt(q) is the same for small angles and smaller for large
ones, down to one half. Rotating by slightly less or more than the exact angle still reduces a, and cos and sin belong
to the same angle within 1e-9. So the table affects only the speed: up to d = 20, sweeps grow from 5-10 to 6-11 (13.7 at
d = 200, see `enough_steps`), whereas an accurate angle would take two more rounds a step (20%). The sign is needed:
without it the number of sweeps grows by 40-150%.

q has a minimum of 2^-70: pairs with a and h both below 2^-35 are rotated by less. This is negligible above a tolerance
of d 2^-35 (4e-9 at d = 115). Accuracy with 40 fractional bits: off-diagonal below tol; the final V'A0V is accurate to a
few ulp per entry (1e-11), orthogonality to d 2^-40.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial
from numpy.typing import NDArray

from ..protocol import stack, together
from .eigen import Eigen
from .rotations import round_robin, sweeps

FLOOR_BITS = 10
"""log2 of the minimum of q in units of its last bit: the table needs a smallest value."""

MAX_SQUARED_TANGENT = 0.31
"""Maximum of t^2: t is at most one half, 11% more from the table."""


@lru_cache
def cosine_polynomial() -> NDArray[np.float64]:
    """Return coefficients 0..7 of p(u) = (1 + u)^(-1/2) on [0, MAX_SQUARED_TANGENT], p(0) = 1 exactly; the error is
    below 1e-9.
    """
    # (p - 1) / u = -1 / (root (1 + root)), without cancellation
    fit = Chebyshev.interpolate(
        lambda u: -1 / (np.sqrt(1 + u) * (1 + np.sqrt(1 + u))), 6, domain=[0, MAX_SQUARED_TANGENT]
    )
    return np.concatenate([[1.0], fit.convert(kind=Polynomial, domain=[-1, 1], window=[-1, 1]).coef])


async def signed(a: Any, h: Any) -> Any:
    """Return a if h >= 0, else -a: three rounds."""
    negative = await h.within(2).negative()
    return a - (await (negative * a)) * 2


async def inverse_length(a: Any, h: Any) -> Any:
    """Return 1 / sqrt(h^2 + 4 a^2) within 11%, by table: three rounds."""
    frac = 2 * a.dtype.frac
    floor = 2.0 ** (FLOOR_BITS - frac)
    q = await h.sum_of_squares(a * 2, frac=frac)
    return await (q + floor).within(3).coarse_power(-0.5, floor, 30)


async def cheap_rotation(a: Any, h: Any) -> tuple[Any, Any]:
    """Return cosine and sine: eight rounds."""
    c = cosine_polynomial()
    side, y = await together(signed(a, h), inverse_length(a, h))  # r1-r3
    t = await side.mul(y, frac=40, within=0.75)  # r4
    u = await (t * t)  # r5
    uu, tu = await stack([u, t]).mul(u, within=0.75)  # r6
    uuu, uuuu, tuu, tuuu = await stack([u, uu, t, tu]).mul(uu, within=0.75)  # r7
    cos, sin = stack([u, uu, uuu]), stack([t, tu, tuu, tuuu])
    high = stack([c[5:] @ cos + c[4], c[4:] @ sin])
    high_cos, high_sin = await high.mul(uuuu, within=0.75)  # r8
    return c[1:4] @ cos + 1.0 + high_cos, c[:4] @ sin + high_sin


async def eigh_jacobi(A0: Any, identity: Any, **options: Any) -> Eigen:
    """Compute eigenpairs by cyclic Jacobi with the inexact rotation.

    Options: see `sweeps` (`enough_steps` is a safe number of them).
    """
    return await sweeps(A0, identity, cheap_rotation, **options)


def enough_steps(d: int) -> int:
    """Return a number of steps after which cyclic Jacobi has converged for all tested matrices, for any tolerance down
    to 1e-9.

    It is 12 + log2(d) sweeps. The slowest of all spectra of tests/harness/spectra.py, to 1e-9, takes 10.0 sweeps at d =
    2, 10.9 at 20 and 13.7 at 200. So at least three sweeps are spare; one would do, because the last ones square the
    error.
    """
    return (12 + math.ceil(math.log2(d))) * len(round_robin(d)) if d > 1 else 0
