"""Covariance and correlation, normalised to Frobenius norm below one.

A covariance comes packed, with 112 fractional bits, below 1, in scales that are right for its columns (see `entry`, `gram`).
Everything here is a choice of scale:

    covariance    C, times a secret power of two taken from its trace
    correlation   row and column j times a secret power of two from the variance of column j, then times 1 / sqrt of what
                  is left; constant columns come out zero

and a second secret power of two makes |A|_F lie in [1/2, 1), whatever the spectrum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..protocol import make_type, symmetric

MOMENT_FRAC = 112
WORK_FRAC = 48
"""Fractional bits between the two scalings: eight more than the result, so that the second loses nothing."""

FLOOR, SMALLEST_VARIANCE = 2.0**-60, -47
"""What is added to a variance so that rounding cannot make it negative, and log2 of the smallest one that counts.

Scales are powers of two above the deviations of all owners, so a variance is far below 1 only where an owner of few rows
varies far more than all others.
"""

HEADROOM = 12
"""log2 of the largest dimension: a trace may be so large."""


@dataclass
class Normalised:
    """A shared matrix with |A|_F <= 1 and how it came from the covariance.

    covariance: C = A * 2^shift / factor, with `factor` a shared power of two (0 for a zero matrix).
    inverse_deviation: for a correlation, (r, p): 1 / deviation of column j is r_j * p_j, both shared; else None.
    """

    matrix: Any
    factor: Any
    shift: int
    inverse_deviation: tuple[Any, Any] | None = None


async def normalised_covariance(packed: Any, d: int) -> Normalised:
    """Covariance (packed, 112 fractional bits) to |A|_F <= 1: nine rounds."""
    i, j = np.triu_indices(d)
    trace = packed[i == j].sum() + d * FLOOR
    # X < 2^e means trace < 2^(e - 112): the factor 2^(124 - e) brings the trace to [1/2, 1) with 124 fractional bits.
    whole = MOMENT_FRAC + HEADROOM
    power = await trace.binade_power(lambda e: 1 << (whole - e), SMALLEST_VARIANCE, HEADROOM)
    scaled = await packed.mul(power, frac=MOMENT_FRAC)
    work = await scaled.retype(make_type(128, whole, 1)).truncate(whole - WORK_FRAC)
    matrix, second = await _unit_norm(work, d, 0)
    factor = await (power * second)
    # A = C * power * second * 2^-(HEADROOM) * 2^-(UP), see _unit_norm.
    return Normalised(matrix, factor, HEADROOM + UP)


async def normalised_correlation(packed: Any, d: int) -> Normalised:
    """Correlation of a covariance (packed, 112 fractional bits), scaled to |A|_F <= 1: twenty-two rounds."""
    i, j = np.triu_indices(d)
    variance = packed[i == j] + FLOOR
    # Variance 2^(e-113) <= v < 2^(e-112): the factor 2^((112-e)//2) brings it to [1/4, 1) or a little below.
    power = await variance.binade_power(lambda e: 1 << max(0, (MOMENT_FRAC - e) // 2), SMALLEST_VARIANCE, 1)
    products = await (power[i] * power[j])
    scaled = await packed.mul(products, frac=MOMENT_FRAC)
    work = await scaled.retype(make_type(128, MOMENT_FRAC, 1)).truncate(MOMENT_FRAC - WORK_FRAC)
    inverse = await work[i == j].astype(40).within(2).rsqrt()
    outer = await inverse[i].mul(inverse[j], frac=40)
    correlation = await work.mul(outer, frac=WORK_FRAC)
    matrix, second = await _unit_norm(correlation.within(2), d, HEADROOM)
    return Normalised(matrix, second, UP, (inverse, power))


UP = 12
"""The second factor is 2^(12 + k) as an integer, k the power of two wanted: k may be as low as -12."""


async def _unit_norm(packed: Any, d: int, span: int) -> tuple[Any, Any]:
    """The full matrix with 40 fractional bits, times the power of two that brings |A|_F to [1/2, 1); and 2^12 times it."""
    i, j = np.triu_indices(d)
    twice = np.where(i == j, 1, 2)
    norm = await packed.inner(packed * twice, frac=2 * WORK_FRAC)
    # |A|_F^2 < 2^(e - 96): multiply by 2^k with 2k <= 96 - e.
    second = await norm.binade_power(lambda e: 1 << (UP + (2 * WORK_FRAC - e) // 2), -2 * UP + 2, 2 * span or 1)
    scaled = await packed.mul(second, frac=WORK_FRAC)
    upper = scaled.retype(make_type(128, WORK_FRAC + UP, 1)).astype(40)
    return symmetric(upper.within(1), d), second
