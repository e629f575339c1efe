"""Covariance and correlation, normalised to Frobenius norm below one.

A covariance comes packed, with 112 fractional bits, below 1, in scales that are right for its columns (see `joint_covariance`,
`second_moments`).
Everything here is a choice of scale:

    covariance    C, times a secret power of two taken from its trace
    correlation   row and column j times a secret power of two from the variance of column j, then times 1 / sqrt of what
                  is left; constant columns come out zero

and a second secret power of two makes |A|_F lie in [1/2, 1), whatever the spectrum.

A triangle of more than 2^20 entries (d > 1,447) goes in passes of so many, one after the other, to bound memory: the rounds named
below are then those of one pass, and every further one adds those that work on entries (3 for a covariance, 7 for a correlation).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from ..protocol import concatenate, make_type, symmetric, together
from ..protocol.triangles import diagonal_positions, triangle_entries

MOMENT_FRAC = 112
WORK_FRAC = 48
"""Fractional bits between the two scalings: eight more than the result, so that the second loses nothing."""

SPARE_FRAC = 10
"""Fractional bits beyond those, of numbers that are rounded once more."""

VARIANCE_FLOOR, MIN_VARIANCE_BITS = 2.0**-60, -47
"""What is added to a variance so that rounding cannot make it negative, and log2 of the smallest one that counts.

Scales are powers of two above the deviations of all owners, so a variance is far below 1 only where an owner of few rows
varies far more than all others.
"""

DIMENSION_BITS = 12
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
    trace = packed[diagonal_positions(d)].sum() + d * VARIANCE_FLOOR
    # X < 2^e means trace < 2^(e - 112): the factor 2^(124 - e) brings the trace to [1/2, 1) with 124 fractional bits, of which
    # the upper half of the product has 60.
    whole = MOMENT_FRAC + DIMENSION_BITS
    power = await trace.binade_power(lambda e: 1 << (whole - e), MIN_VARIANCE_BITS, DIMENSION_BITS)

    async def scaled(part: Any, first: int) -> Any:
        return await upper_half(part, power, whole - 64)

    work = await in_passes(packed, scaled)
    del packed  # triangles of thousands of columns are let go as soon as the next one is there
    upper, second = await _unit_norm(work, d, 0)
    del work
    factor = await (power * second)
    # A = C * power * second * 2^-(DIMENSION_BITS) * 2^-(UNIT_SHIFT), see _unit_norm.
    return Normalised(symmetric(upper, d), factor, DIMENSION_BITS + UNIT_SHIFT)


async def normalised_correlation(packed: Any, d: int) -> Normalised:
    """Correlation of a covariance (packed, 112 fractional bits), scaled to |A|_F <= 1: twenty-two rounds."""
    variance = packed[diagonal_positions(d)] + VARIANCE_FLOOR
    # Variance 2^(e-113) <= v < 2^(e-112): the factor 2^((112-e)//2) brings it to [1/4, 1) or a little below. The upper half
    # of the product, which is below 2^113, would have 48 fractional bits: with SPARE_FRAC more its rounding counts for nothing.
    power = await variance.binade_power(lambda e: 1 << max(0, (MOMENT_FRAC - e) // 2), MIN_VARIANCE_BITS, 1)

    async def scaled(part: Any, first: int) -> Any:
        i, j = triangle_entries(d, first, first + len(part))
        products = await (power[i] * power[j])
        return await upper_half(part.astype(MOMENT_FRAC + SPARE_FRAC), products, WORK_FRAC + SPARE_FRAC)

    work = await in_passes(packed, scaled)
    del packed
    inverse = await work[diagonal_positions(d)].astype(40).within(2).rsqrt()

    async def divided(part: Any, first: int) -> Any:
        i, j = triangle_entries(d, first, first + len(part))
        outer = await inverse[i].mul(inverse[j], frac=40)  # exactly: nobody verifies what became of a covariance
        return await upper_half(part.astype(WORK_FRAC + SPARE_FRAC + 24), outer, WORK_FRAC + SPARE_FRAC)

    correlation = (await in_passes(work, divided)).within(2)
    del work
    upper, second = await _unit_norm(correlation, d, DIMENSION_BITS)
    del correlation
    return Normalised(symmetric(upper, d), second, UNIT_SHIFT, (inverse, power))


async def upper_half(packed: Any, power: Any, frac: int) -> Any:
    """The upper half of the bits of a product below 1, of which `frac` are fractional; 48 of these are kept. Two rounds."""
    upper = await packed.mul_high(power)
    return (await upper.retype(make_type(64, frac, 1)).extend()).astype(WORK_FRAC)


PASS_ENTRIES = 1 << 20
"""Entries of a triangle that are worked on at once."""


async def in_passes(packed: Any, work: Callable[[Any, int], Awaitable[Any]]) -> Any:
    """work(part, number of its first entry) for all parts of a packed triangle, a pass after the other."""
    done = [await work(packed[first : first + PASS_ENTRIES], first) for first in range(0, len(packed), PASS_ENTRIES)]
    return done[0] if len(done) == 1 else concatenate(done)


UNIT_SHIFT = 12
"""The second factor is 2^(12 + k) as an integer, k the power of two wanted: k may be as low as -12."""


async def _unit_norm(packed: Any, d: int, span: int) -> tuple[Any, Any]:
    """The triangle with 40 fractional bits, times the power of two that brings |A|_F to [1/2, 1); and 2^12 times that."""
    diagonal = packed[diagonal_positions(d)]
    both, once = await together(packed.inner(packed, frac=2 * WORK_FRAC), diagonal.inner(diagonal, frac=2 * WORK_FRAC))
    norm = (both + both - once).retype(both.dtype)
    # |A|_F^2 < 2^(e - 96): multiply by 2^k with 2k <= 96 - e.
    second = await norm.binade_power(
        lambda e: 1 << (UNIT_SHIFT + (2 * WORK_FRAC - e) // 2), -2 * UNIT_SHIFT + 2, 2 * span or 1
    )

    async def scaled(part: Any, first: int) -> Any:
        found = await part.mul(second, frac=WORK_FRAC)
        return found.retype(make_type(128, WORK_FRAC + UNIT_SHIFT, 1)).astype(40).within(1)

    return await in_passes(packed, scaled), second
