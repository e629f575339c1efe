"""Covariance and correlation from shared moments, and their normalisation to Frobenius norm below one.

Owners scale their columns by public powers of two to |x| <= 1 and send, as secrets, the mean (56 fractional bits) and the
second moments divided by the number of rows (112). C = M - m m' is then exact in the ring: columns whose mean is 10^4
times their deviation lose nothing. Everything below is a choice of scale:

    covariance    C, times a secret power of two taken from its trace
    correlation   row and column j times a secret power of two from the variance of column j, then times 1 / sqrt of what
                  is left; columns whose scales differ by 10^15 come out alike, constant columns come out zero

and a second secret power of two makes |A|_F lie in [1/2, 1), whatever the spectrum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..protocol import concatenate, make_type, symmetric, together

MEAN_FRAC, MOMENT_FRAC = 56, 112
WORK_FRAC = 48
"""Fractional bits between the two scalings: eight more than the result, so that the second loses nothing."""

SMALLEST_VARIANCE = -47
"""log2 of the smallest variance (of data scaled to |x| <= 1) that is told from a constant column.

Means are rounded to 56 bits by every owner, so the variance of a constant column comes out as a few 2^-56, of either sign.
"""


def noise_floor(owners: int) -> tuple[float, int]:
    """What to add to a variance so that rounding cannot make it negative, and log2 of the smallest variance that counts."""
    extra = max(0, math.ceil(math.log2(max(owners, 1) / 32)))
    return 2.0 ** (-50 + extra), SMALLEST_VARIANCE + extra


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


async def central_moments(moments: Any, mean: Any) -> Any:
    """The packed upper triangle of the covariance (dividing by n), 112 fractional bits: one round, exact."""
    i, j = np.triu_indices(len(mean))
    return moments - await mean[i].mul(mean[j], frac=MOMENT_FRAC)


WEIGHT_BITS = 40


async def pooled(old: tuple[Any, Any], new: tuple[Any, Any], old_rows: int, new_rows: int) -> tuple[Any, Any]:
    """Covariance (packed) and mean of two groups of rows together, from those of each: three rounds.

    C = w1 C1 + w2 C2 + w1 w2 (m1 - m2)(m1 - m2)', with public weights by row counts (Chan, Golub, LeVeque 1979). Central
    moments are not small differences of large numbers, so weights of 40 bits are enough.
    """
    (C1, m1), (C2, m2) = old, new
    total = old_rows + new_rows
    w1, w2 = round(old_rows / total * 2**WEIGHT_BITS), round(new_rows / total * 2**WEIGHT_BITS)
    between = round(old_rows / total * (new_rows / total) * 2**WEIGHT_BITS)
    i, j = np.triu_indices(len(m1))
    gap = m1 - m2
    outer = await gap[i].mul(gap[j], frac=MOMENT_FRAC)
    # The truncations are exact: these numbers fill the ring, a local truncation would not be safe.
    short = MOMENT_FRAC + 12 - WEIGHT_BITS
    parts = type(C1).stack([C1, C2, outer]).retype(make_type(128, MOMENT_FRAC, 4))
    wide, wide_mean = make_type(128, MOMENT_FRAC + 12, 1), make_type(128, MEAN_FRAC + WEIGHT_BITS, 1)
    cut = (await parts.truncate(MOMENT_FRAC - short)).retype(wide)  # divides by 2^40, as the weights want it
    covariance = (cut[0] * w1 + cut[1] * w2 + cut[2] * between).retype(wide)
    means = (m1.retype(wide_mean) * w1 + m2.retype(wide_mean) * w2).retype(wide_mean)
    packed, mean = await together(covariance.truncate(12), means.truncate(WEIGHT_BITS))
    return packed, mean


async def normalised_covariance(packed: Any, d: int, owners: int) -> Normalised:
    """Covariance (packed, 112 fractional bits) to |A|_F <= 1: nine rounds."""
    i, j = np.triu_indices(d)
    floor, smallest = noise_floor(owners)
    trace = packed[i == j].sum() + d * floor
    # X < 2^e means trace < 2^(e - 112): the factor 2^(124 - e) brings the trace to [1/2, 1) with 124 fractional bits.
    whole = MOMENT_FRAC + HEADROOM
    power = await trace.binade_power(lambda e: 1 << (whole - e), smallest, HEADROOM)
    scaled = await packed.mul(power, frac=MOMENT_FRAC)
    work = await scaled.retype(make_type(128, whole, 1)).truncate(whole - WORK_FRAC)
    matrix, second = await _unit_norm(work, d, 0)
    factor = await (power * second)
    # A = C * power * second * 2^-(HEADROOM) * 2^-(UP), see _unit_norm.
    return Normalised(matrix, factor, HEADROOM + UP)


async def normalised_correlation(packed: Any, d: int, owners: int) -> Normalised:
    """Correlation of a covariance (packed, 112 fractional bits), scaled to |A|_F <= 1: nineteen rounds."""
    i, j = np.triu_indices(d)
    floor, smallest = noise_floor(owners)
    variance = packed[i == j] + floor
    # Variance 2^(e-113) <= v < 2^(e-112): the factor 2^((112-e)//2) brings it to [1/4, 1) or a little below.
    power = await variance.binade_power(lambda e: 1 << max(0, (MOMENT_FRAC - e) // 2), smallest, 1)
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


async def sums_over_owners(counts: Any, exponents: Any) -> tuple[Any, Any]:
    """Total number of rows, and the largest exponent of every column over all owners (a tournament, 3 rounds a level)."""
    left = exponents
    while len(left) > 1:
        half = len(left) // 2
        a, b = left[:half], left[half : 2 * half]
        smaller = await (a < b)
        winner = await smaller.where(b, a)
        left = winner if len(left) % 2 == 0 else concatenate([winner, left[2 * half :]])
    return counts.sum(), left[0]
