"""Parallel cyclic Jacobi with the cheapest rotation: ten rounds a step, d/2 pairs a step. The solver to fall back to.

With a = A_pq, h = A_qq - A_pp for all pairs of a step:

    r1    q = h^2 + 4 a^2, untruncated                                    | r1-2: sign(h)
    r2-3  y = 1/sqrt(q) within 11%, from a table                          | r3: sign * a
    r4    t = sign a y: the tangent of the angle, up to a harmless factor
    r5    u = t^2
    r6    u^2, t u
    r7    u^3, u^4, t u^2, t u^3
    r8    cos = p(u), sin = t p(u), with a polynomial p = (1 + u)^(-1/2) of degree 7
    r9-10 columns, rows (see `rotations`)

The exact tangent is 2 a sign / (|h| + sqrt(q)): a sign / sqrt(q) is the same for small angles and smaller for large
ones, down to one half. Rotating by a little less or more than the exact angle still shrinks a, and cos and sin belong
to the same angle within 1e-9, so nothing but the speed depends on the table: sweeps grow from 5-10 to 6-11, where two
rounds more a step for an accurate angle would cost 20%. The sign matters: without it 40-150% more sweeps.

q gets a floor of 2^-70: pairs whose a and h are both below 2^-35 are turned by less, which nothing above a tolerance of
d 2^-35 (4e-9 at d = 115) can notice. Accuracy in 40 fractional bits: off-diagonal below tol; the final V'A0V is right
to a few ulp an entry (1e-11), orthogonality to d 2^-40.
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
"""q has a floor of so many bits above its last one: the table needs a smallest value."""

MAX_SQUARED_TANGENT = 0.31
"""Of t: one half, 11% more from the table, squared."""


@lru_cache
def cosine_polynomial() -> NDArray[np.float64]:
    """Coefficients 0..7 of p(u) = (1 + u)^(-1/2) on [0, MAX_SQUARED_TANGENT], p(0) = 1 exactly; the error is below 1e-9."""
    # (p - 1) / u = -1 / (root (1 + root)), without cancellation
    fit = Chebyshev.interpolate(
        lambda u: -1 / (np.sqrt(1 + u) * (1 + np.sqrt(1 + u))), 6, domain=[0, MAX_SQUARED_TANGENT]
    )
    return np.concatenate([[1.0], fit.convert(kind=Polynomial, domain=[-1, 1], window=[-1, 1]).coef])


async def signed(a: Any, h: Any) -> Any:
    """a where h >= 0, else -a: three rounds."""
    negative = await h.within(2).negative()
    return a - (await (negative * a)) * 2


async def inverse_length(a: Any, h: Any) -> Any:
    """1 / sqrt(h^2 + 4 a^2) within 11%, by table: three rounds."""
    frac = 2 * a.dtype.frac
    floor = 2.0 ** (FLOOR_BITS - frac)
    q = await h.sum_of_squares(a * 2, frac=frac)
    return await (q + floor).within(3).coarse_power(-0.5, floor, 30)


async def cheap_rotation(a: Any, h: Any) -> tuple[Any, Any]:
    """Cosine and sine: eight rounds."""
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
    """Cyclic Jacobi with the cheapest rotation. Options: see `sweeps` (`enough_steps` is a safe number of them)."""
    return await sweeps(A0, identity, cheap_rotation, **options)


def enough_steps(d: int) -> int:
    """Steps after which cyclic Jacobi has converged for every matrix we know, for any tolerance down to 1e-9.

    12 + log2(d) sweeps. The slowest of all spectra of tests/harness/spectra.py, to 1e-9, takes 10.0 sweeps at d = 2, 10.9 at 20,
    13.7 at 200: at least three sweeps are to spare, and as the last ones square the error, one would do.
    """
    return (12 + math.ceil(math.log2(d))) * len(round_robin(d)) if d > 1 else 0
