"""The paper's Algorithm 1, corrected: parallel cyclic Jacobi with the textbook rotation. A baseline, not a
recommendation.

Rotation: Golub and Van Loan, Matrix Computations, section 8.5. With a = A_pq, h = A_qq - A_pp for all pairs of a step
(expensive operations on the right):

    zero = [a = 0]                                  eq
    tau  = h / (2 a)                                reciprocal
    t    = sign(tau) / (|tau| + sqrt(1 + tau^2))    comparison, sqrt, reciprocal; 0 if zero
    cos  = 1 / sqrt(1 + t^2),  sin = t cos          sqrt, reciprocal

Corrections of the printed text: tau divides by 2 a (not 2 a^2); t has the sign of tau; the cosine is computed from t
(the Givens box has tau); the eigenvectors are not reset in every pass; the stop rule is the norm of the off-diagonal (a
signed mean can cancel). The paper's stop rule and its order of the elements are options, see `paper_options`.

Changes for fixed point:
- a is first reduced to 30 fractional bits, b, which is used in both the test and the division. Then either b = 0, and
  the pair is not rotated, or |2 b| >= 2^-29, inside the range of `reciprocal`. Entries below 2^-30 may remain.
- tau reaches 2^30 and its square would not fit. All steps use sigma = tau 2^-16: with |sigma| < 2^15,
  sqrt(1 + tau^2) = 2^16 sqrt(sigma^2 + 2^-32).

Accuracy: entries below 2^-30 remain, so the off-diagonal reaches d 2^-30 (1e-7 at d = 115): tolerances down to 1e-6 are
safe for d <= 500. The ratio of cosine and sine is accurate to 1e-12, their length to 1e-9; the renormalisation at the
end of a sweep corrects the length. Rounds: 55 a step.
"""

from __future__ import annotations

from typing import Any

from ...protocol import together
from ..eigen import Eigen
from ..rotations import sweeps
from .paper_options import ORDERS, STOP_RULES

KEPT_BITS = 30
"""Fractional bits of an off-diagonal entry whose reciprocal is computed."""

SCALE = 2.0**-16
"""Scale of sigma = tau SCALE."""

SIGMA_BITS, SQUARE_BITS = 30, 44
"""Fractional bits of sigma when it is squared, and of its square."""


async def classic_rotation(a: Any, h: Any) -> tuple[Any, Any]:
    """Return cosine and sine: 53 rounds, 1 comparison, 1 equality, 2 square roots, 3 reciprocals."""
    b = a.astype(KEPT_BITS).within(2)
    zero, inverse = await together(b == 0, (b.astype(40) * 2).within(4).reciprocal(signed=True))
    sigma = (await (h * (inverse * SCALE))).within(2.0**15)
    coarse = sigma.astype(SIGMA_BITS)
    negative, square = await together(sigma.negative(), coarse.mul(coarse, frac=SQUARE_BITS))
    flipped, root = await together(negative * sigma, (square + SCALE**2).within(2.0**30).sqrt())
    length = (sigma - flipped * 2 + root.astype(40)).within(2.0**17)
    magnitude = (await length.reciprocal()) * SCALE
    signed = magnitude - (await (negative * magnitude)) * 2
    t = (await ((1 - zero) * signed)).within(1.5)
    square = await t.mul(t, within=1.5)
    cos = await (await (square + 1.0).within(3).sqrt()).within(2).reciprocal()
    return cos, await t.mul(cos, within=1.5)


async def eigh_jacobi_classic(
    A0: Any, identity: Any, *, order: str = "round-robin", stop: str = "norm", **options: Any
) -> Eigen:
    """Compute eigenpairs by cyclic Jacobi with the textbook rotation.

    order: a name in `paper_options.ORDERS`. stop: a name in `paper_options.STOP_RULES`. Other options: see `sweeps`.
    """
    return await sweeps(A0, identity, classic_rotation, order=ORDERS[order], stop=STOP_RULES[stop], **options)
