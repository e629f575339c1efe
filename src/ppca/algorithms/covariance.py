"""Covariance and correlation matrices on shares, scaled to a Frobenius norm in [1/2, 1).

The input is a packed covariance with 112 fractional bits and entries below 1, in units that suit its columns (see
`joint_covariance` and `second_moments`).

    covariance    C times a secret power of two computed from its trace
    correlation   row and column j times a secret power of two from the variance of column j, then times 1 / sqrt of the
                  scaled variance; constant columns become zero

Both are then multiplied by a second secret power of two that brings |A|_F to [1/2, 1) for every spectrum.

A triangle of more than 2^19 entries (d > 1,023) is processed in passes of 2^19 entries, one after the other, to limit
memory. The rounds below are those of one pass; each further pass adds the steps that work on entries (3 rounds for a
covariance, 7 for a correlation).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from ..protocol import concatenate, make_type, symmetric, together
from ..protocol.triangles import diagonal_positions, triangle_entries

MOMENT_FRAC = 112
"""Fractional bits of a covariance before it is scaled."""

WORK_FRAC = 48
"""Fractional bits between the two scalings: eight more than the result, so that the second one loses no digit."""

SPARE_FRAC = 10
"""Additional fractional bits of numbers that are rounded once more."""

VARIANCE_FLOOR, MIN_VARIANCE_BITS = 2.0**-60, -47
"""Added to each variance so that rounding cannot make it negative; and log2 of the smallest variance that counts.

Units are powers of two above the deviations of all owners. So a variance is far below 1 only if an owner with few rows
varies far more than all others.
"""

DIMENSION_BITS = 12
"""log2 of the maximum dimension, which bounds the trace."""


@dataclass
class Normalised:
    """A shared matrix with |A|_F <= 1, and its relation to the covariance.

    covariance: C = A * 2^shift / factor, with `factor` a shared power of two (0 for a zero matrix).
    inverse_deviation: for a correlation, (r, p): 1 / deviation of column j is r_j * p_j, both shared; else None.
    """

    matrix: Any
    factor: Any
    shift: int
    inverse_deviation: tuple[Any, Any] | None = None


async def normalised_covariance(packed: Any, d: int) -> Normalised:
    """Scale a packed covariance with 112 fractional bits to |A|_F <= 1: nine rounds."""
    trace = packed[diagonal_positions(d)].sum() + d * VARIANCE_FLOOR
    # X < 2^e means trace < 2^(e - 112): the factor 2^(124 - e) brings the trace to [1/2, 1) with 124 fractional bits,
    # of which the upper half of the product has 60.
    whole = MOMENT_FRAC + DIMENSION_BITS
    power = await trace.binade_power(lambda e: 1 << (whole - e), MIN_VARIANCE_BITS, DIMENSION_BITS)

    async def scaled(part: Any, first: int) -> Any:
        return await upper_half(part, power, whole - 64)

    work = await in_passes(packed, scaled)
    del packed  # triangles of thousands of columns are large: free each one as soon as the next exists
    upper, second = await _unit_norm(work, d, 0)
    del work
    factor = await (power * second)
    # A = C * power * second * 2^-(DIMENSION_BITS) * 2^-(UNIT_SHIFT), see _unit_norm.
    return Normalised(symmetric(upper, d), factor, DIMENSION_BITS + UNIT_SHIFT)


async def normalised_correlation(packed: Any, d: int) -> Normalised:
    """Convert a packed covariance with 112 fractional bits to a correlation scaled to |A|_F <= 1: 22 rounds."""
    variance = packed[diagonal_positions(d)] + VARIANCE_FLOOR
    # Variance 2^(e-113) <= v < 2^(e-112): the factor 2^((112-e)//2) brings it to [1/4, 1) or a little below. The upper
    # half of the product, which is below 2^113, would have 48 fractional bits: with SPARE_FRAC more its rounding is
    # negligible.
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
        outer = await inverse[i].mul(inverse[j], frac=40)  # exact: the scaling is not verified later
        return await upper_half(part.astype(WORK_FRAC + SPARE_FRAC + 24), outer, WORK_FRAC + SPARE_FRAC)

    correlation = (await in_passes(work, divided)).within(2)
    del work
    upper, second = await _unit_norm(correlation, d, DIMENSION_BITS)
    del correlation
    return Normalised(symmetric(upper, d), second, UNIT_SHIFT, (inverse, power))


async def upper_half(packed: Any, power: Any, frac: int) -> Any:
    """Return the upper half of the bits of a product below 1.

    `frac` of them are fractional and 48 of these are kept. Two rounds.
    """
    upper = await packed.mul_high(power)
    return (await upper.retype(make_type(64, frac, 1)).extend()).astype(WORK_FRAC)


PASS_ENTRIES = 1 << 19
"""Maximum number of entries of a triangle that are processed at once: 1,023 columns.

Both splits take 16 MB in 128 bits. Arrays of 32 MB are mapped and zeroed each time (native/process/memory.cpp).
"""


async def in_passes(packed: Any, work: Callable[[Any, int], Awaitable[Any]]) -> Any:
    """Return work(part, index of its first entry) for all parts of a packed triangle, one pass after the other."""
    done = [await work(packed[first : first + PASS_ENTRIES], first) for first in range(0, len(packed), PASS_ENTRIES)]
    return done[0] if len(done) == 1 else concatenate(done)


UNIT_SHIFT = 12
"""The second factor is the integer 2^(UNIT_SHIFT + k) for the wanted power of two 2^k with k >= -UNIT_SHIFT."""


async def _unit_norm(packed: Any, d: int, span: int) -> tuple[Any, Any]:
    """Scale the triangle to |A|_F in [1/2, 1) by a power of two, with 40 fractional bits.

    Also return 2^12 times that power.
    """
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
