"""The paper's EO-reduced Jacobi, corrected: a rotation with one comparison instead of two reciprocals. A baseline.

With a = A_pq, h = A_qq - A_pp for all pairs of a step (expensive operations on the right):

    zero       = [a = 0]                                    eq
    cos 2theta = |h| / sqrt(4 a^2 + h^2)                    comparison, sqrt, reciprocal
    cos, sin   = sqrt(1/2 + cos 2theta / 2), sqrt(1/2 - cos 2theta / 2)     sqrt (both in one batch)
    sin        = sin or -sin by [a h > 0]                   comparison; if zero: cos = 1, sin = 0

Corrections of the printed text: sin is set to 0 if a = 0, too (with a = h = 0 the printed text gives cos = 1, sin =
-0.7); the eigenvectors are not reset; the stop rule is the norm of the off-diagonal. The paper's stop rule and its
order of the elements are options, see `paper_options`.

Limit of the formula. 1/2 - cos 2theta / 2 cancels: an error eps of cos 2theta becomes sqrt(eps / 2) in the sine of a
small angle. Exact functions with 40 fractional bits would allow 1e-6; square root and reciprocal have eps = 2e-9. The
argument of a square root must not be negative, so cos 2theta is multiplied by 1 - 2^-28 (and 2^-48 is added under the
root for small a and h). So every pair is rotated by at least 2^-14.5, which leaves an entry of 2^-14.5 |h|. Since the
sum of h^2 over all pairs is at most d, the off-diagonal stays near 2^-14 sqrt(d): 2e-4 at d = 11, 7e-4 at d = 115. The
stop test uses max(tol, 2^-13 sqrt(d)). The eigenvectors have the three digits that the paper reports; errors of
eigenvalues are the square of that over their distance.
Rounds: 32 a step.
"""

from __future__ import annotations

import math
from typing import Any

from ...protocol import stack, together
from ..eigen import Eigen
from ..rotations import sweeps
from .paper_options import ORDERS, STOP_RULES

SHRINK = 1 - 2.0**-28
"""Keeps cos 2theta below 1 for all errors of the functions (2e-9 in all)."""

FLOOR = 2.0**-48
"""Added to 4 a^2 + h^2: below 2^-20 the square root is accurate to 2^-40 only."""

SQUARE_FRAC = 70
"""Fractional bits of 4 a^2 + h^2 in the square root."""


def reachable(d: int) -> float:
    """Return the norm of the off-diagonal that this rotation can reach, with a factor of two as a margin."""
    return 2.0**-13 * math.sqrt(d)


async def _double_cosine(a: Any, h: Any) -> Any:
    """Return |h| / sqrt(4 a^2 + h^2): 19 rounds."""
    q, negative = await together(h.sum_of_squares(a * 2, frac=80), h.within(2).negative())
    flipped, root = await together(negative * h, (q + FLOOR).within(3).astype(SQUARE_FRAC).sqrt())
    inverse = await root.astype(40).within(2).reciprocal()
    return await (h - flipped * 2).mul(inverse, within=1.5)


async def _positive(a: Any, h: Any) -> Any:
    """Return [a h > 0], from the untruncated product: three rounds."""
    product = await a.mul(h, frac=80)
    return await (-product).within(2).negative()


async def reduced_rotation(a: Any, h: Any) -> tuple[Any, Any]:
    """Return cosine and sine: 2 comparisons, 1 equality, 2 square roots, 1 reciprocal."""
    double, positive, zero = await together(_double_cosine(a, h), _positive(a, h), a.within(2) == 0)
    half = double * (SHRINK / 2)
    cos, sin = await stack([half + 0.5, 0.5 - half]).within(2).sqrt()
    sides = await (stack([1 - zero, (1 - zero)]) * stack([cos, sin]))
    return sides[0] + zero, (await (positive * sides[1])) * 2 - sides[1]


async def eigh_jacobi_eo(
    A0: Any,
    identity: Any,
    *,
    tol: float = 1e-6,
    order: str = "round-robin",
    stop: str = "norm",
    **options: Any,
) -> Eigen:
    """Compute eigenpairs by cyclic Jacobi with the paper's reduced rotation.

    tol: raised to the limit of the rotation, as a norm or as a mean of the off-diagonal.
    order: a name in `paper_options.ORDERS`. stop: a name in `paper_options.STOP_RULES`. Other options: see `sweeps`.
    """
    least = 2 * reachable(len(A0)) / (1 if stop == "norm" else len(A0))
    return await sweeps(
        A0, identity, reduced_rotation, tol=max(tol, least), order=ORDERS[order], stop=STOP_RULES[stop], **options
    )
