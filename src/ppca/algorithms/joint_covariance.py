"""Entry of rows: every owner's count, means and centred second moments, in secret scales of its own, become one covariance.

Owner i sends, as secrets: its number of rows n_i and sqrt(n_i); the exponent a_ij and the mantissa of its mean of column j;
the exponent e_ij of its deviation; the triangular factor R_i of its centred sums in units of 2^(e_ij), R_i'R_i = sums; and,
in the same units, sqrt(n_i) times what its mantissa leaves of its mean.

1. A_j = max_i a_ij. Means on the grid 2^(A_j - 80): the mantissa times a secret power of two, cut off exactly.
2. Distances to the first owner's mean, exact on that grid; S_j = sum_i |distance|.
3. D_j = the larger of max_i e_ij and the exponent of 2 S_j: a power of two above every deviation and every distance. For a
   covariance one D for all columns: the largest.
4. Distances in units of 2^D_j (60 fractional bits), less their joint mean; R_i in units of 2^D_j times 2^-h, 4^h above the
   joint n, which stays secret.
5. Rows of all factors and sqrt(n_i) times the distances, to which what the mantissas left is added here, one below the
   other, are X (56 fractional bits): X'X = n 4^-h C, a block of rows at a time (see `factors`).

Nothing is opened. Sums of raw squares would lose what the offset eats: here a mean of 10^11 deviations costs no digit of
the covariance, and columns 10^15 apart keep all of theirs. Limits: n < 2^36; a column whose deviation is below 2^-80 of its
mean is constant, and so is one whose joint deviation is below 2^-23 units (see `covariance`).
Error: in units of 2^D every entry of X errs by 2^-(48 + h) and 2^-55; what mantissas leave of the means moves the joint mean by
2^-79 of it, of which C has the square. A column of X has the norm of
its joint deviation, about 1/64 to 1/2; less only where an owner of few rows lies or varies far from all others (1 / sqrt(n)
of that at worst), and by 1 / m where m owners' means lie far from the first one's.
Rounds: 28 for up to sixteen owners; a covariance takes 3 to 10 more, for the largest scale of all columns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..protocol import RingType, concatenate, stack, together
from .factors import ROOT_FRAC, X_FRAC, GramSum, passes, shift_powers, shifted
from .scales import CUT_BITS, EXPONENT, EXPONENT_OFFSET, GRID, MANTISSA_BITS, RAW, maximum, on_grid, power_table

COUNT_BITS = 36
"""log2 of the largest joint number of rows."""

DISTANCE_FRAC = 60
COUNT = RingType(128, 0, COUNT_BITS)
ROOT = RingType(128, ROOT_FRAC, COUNT_BITS // 2 + 1)
SHIFT_BITS = 64
"""Distances are multiplied by a secret power of two, then cut by so many bits."""

PRE_TRUNCATION_BITS = 36
"""Bits that distances lose first where they are far below 2^D, so that the power of two is an integer there, too."""


@dataclass
class OwnerMoments:
    """What all owners sent: counts and roots (m), exponents of means and of deviations (m, d), mantissas of means and the upper
    halves of their bits (m, d), factors and what is left of the means (m, d (d + 1) / 2 + d)."""

    count: Any
    root: Any
    mean_exponent: Any
    mantissa: Any
    upper: Any
    deviation_exponent: Any
    factor: Any


@dataclass
class JointCovariance:
    """What the analysis needs of all owners' rows, shared.

    packed: n 4^-h times the covariance that divides by n, in units of 2^exponent of its columns; 112 fractional bits, below 1.
    exponent: of every column, or one for all. grid, largest: the joint means in units of 2^largest, 80 fractional bits.
    rows: n. ratio: n 4^-h, in [1/4, 1).
    error: how far a column of a matrix X with X'X = C may be from the data, as a norm in units of 2^exponent of that column.
    """

    triangle: Any
    column_exponent: Any
    mean_mantissa: Any
    mean_exponent: Any
    n_rows: Any
    n_rows_scaled: Any
    column_error: float


@dataclass
class RowCount:
    """The joint number of rows n < 2^b, shared: n, the parts n_i 2^-b, 2^b / n, h = ceil(b / 2), and 4^-h n in [1/4, 1)."""

    n_rows: Any
    parts: Any
    inverse: Any
    half: Any
    n_rows_scaled: Any


async def row_count(count: Any) -> RowCount:
    """From the owners' numbers of rows (m), or several such numbers each (m, k), apart from each other: fifteen rounds."""
    n = count.sum(0).retype(COUNT)

    def powers(e: int) -> list[int]:
        half = -(-e // 2)
        return [1 << max(0, COUNT_BITS - e), half, 1 << max(0, COUNT_BITS - 2 * half)]

    tables = await n.binade_powers(powers, 0, COUNT_BITS)
    power, half, even = (tables[..., k] for k in range(3))
    scaled, ratio = await together(concatenate([count, n.reshape(1, *n.shape)]) * power, n * even)
    kind = RingType(128, COUNT_BITS, 1)
    parts = scaled.retype(kind)
    inverse = await _reciprocal(parts[-1])
    return RowCount(n, parts[:-1], inverse, half.retype(EXPONENT), ratio.retype(kind).astype(40))


INVERSE_FRAC = 44


async def _reciprocal(x: Any) -> Any:
    """1 / x for x in [1/2, 1) with 36 fractional bits, to 2^-44: one Newton step after the engine's. Twelve rounds."""
    start = (await x.astype(40).within(1).reciprocal()).within(2)
    frac = COUNT_BITS + 40
    rest = 1 - (await x.mul(start, frac=frac)).retype(RingType(128, frac, 2))
    step = await start.mul(rest.retype(RingType(128, frac, 1)), frac=frac + 40)
    short = await step.retype(RingType(128, frac + 40, 1)).truncate(frac + 40 - INVERSE_FRAC)
    return (start.astype(INVERSE_FRAC) + short).retype(RingType(128, INVERSE_FRAC, 2))


async def spread_exponent(distance: Any, largest: Any) -> Any:
    """An exponent above twice the sum of |distances| of every column (given in units of 2^A, 80 bits); about NONE for none."""
    negative = await distance.negative()
    # In this order the row split of the product is that of the distance, whose sign was found: a sum is never negative.
    flipped = await (distance * negative)
    total = (distance - flipped - flipped).sum(0)
    span = 2 + (len(distance) + 1).bit_length()
    found = await total.retype(RingType(128, MANTISSA_BITS, span)).binade_powers(
        lambda e: [e + EXPONENT_OFFSET], -MANTISSA_BITS, span
    )
    return (largest + found[..., 0] - (MANTISSA_BITS + EXPONENT_OFFSET - 1)).retype(EXPONENT)


async def scaled_distances(distance: Any, exponent: Any, largest: Any) -> Any:
    """Distances in units of 2^D, 60 fractional bits, from those in units of 2^A: |distance| 2^A <= 2^(D - 3)."""
    # X 2^(A - D - 20) = (X 2^(44 - v)) 2^-64 with v = D - A, and beyond 44 the same of X 2^-36. X < 2^81 and |X| <= 2^(77 + v),
    # so the product stays below 2^122; beyond 80 nothing is left, and below -76 there is nothing.
    thresholds, values = power_table(
        -MANTISSA_BITS,
        CUT_BITS + PRE_TRUNCATION_BITS,
        lambda v: 1 << (CUT_BITS - v) if v <= CUT_BITS else 0,
        lambda v: 1 << (CUT_BITS + PRE_TRUNCATION_BITS - v) if v > CUT_BITS else 0,
    )
    powers, coarse = await together(
        (exponent - largest).retype(EXPONENT).classify(thresholds, values, 0), distance.truncate(PRE_TRUNCATION_BITS)
    )
    near, far = await together(
        distance.retype(RAW).mul(powers[..., 0], frac=RAW.frac), coarse.retype(RAW).mul(powers[..., 1], frac=RAW.frac)
    )
    short = await (near + far).retype(RAW).truncate(SHIFT_BITS)
    return short.retype(RingType(128, DISTANCE_FRAC, 2))


def unpack_upper(packed: Any, d: int) -> Any:
    """Upper triangular matrices, one below the other, from their packed triangles (m, d (d + 1) / 2)."""
    place = np.full((d, d), d * (d + 1) // 2)
    place[np.triu_indices(d)] = np.arange(d * (d + 1) // 2)
    padded = concatenate([packed, packed[:, :1] * 0], 1)
    return padded[:, place].reshape(-1, d)


async def joint_covariance(sums: OwnerMoments, d: int, one_scale: bool) -> JointCovariance:
    """The joint covariance and means. `common`: in one scale for all columns (else in one for each)."""
    scales, joint = await together(common_scales(sums, d, one_scale), row_count(sums.count))
    m = len(sums.count)
    packed, grid = await together(_gram_triangle(sums, scales, joint, d), joint_mean(scales, joint))
    # The m (d + 1) entries of a column err by 2^-(46 + h) and 2^-55, h >= 1, where X'X = ratio C and the ratio is at least 1/4.
    return assemble(packed, grid, scales, joint, one_scale, math.sqrt(m * (d + 1)) * 2.0**-46)


def assemble(
    packed: Any, grid: Any, scales: CommonScales, joint: RowCount, one_scale: bool, error: float
) -> JointCovariance:
    """What was found, as the analysis takes it."""
    exponent = scales.exponent[:1] if one_scale else scales.exponent
    kind = RingType(128, 2 * X_FRAC, 1)
    return JointCovariance(
        packed.retype(kind), exponent, grid, scales.mean_exponent, joint.n_rows, joint.n_rows_scaled, error
    )


@dataclass
class CommonScales:
    """Exponents of the largest mean of every column (A) and of its joint scale (D); means in units of 2^A, and their distances
    to the first owner's (None if there is one owner)."""

    mean_exponent: Any
    exponent: Any
    mean_mantissa: Any
    distance: Any


async def common_scales(sums: Any, d: int, one_scale: bool) -> CommonScales:
    """Steps 1 to 3, from means and exponents of deviations (of `OwnerMoments`, or of `OwnerMomentsMissing`)."""
    (largest, grid), exponent = await together(
        on_grid(sums.mantissa, sums.upper, sums.mean_exponent), maximum(sums.deviation_exponent)
    )
    distance = None
    if len(sums.count) > 1:
        distance = (grid[1:] - grid[:1]).retype(GRID)
        exponent = await maximum(stack([exponent, await spread_exponent(distance, largest)]))
    if one_scale:
        exponent = (await maximum(exponent.reshape(d, 1))).broadcast_to((d,))
    # Two bits of room: then no entry of the covariance reaches 1.
    return CommonScales(largest, (exponent + 2).retype(EXPONENT), grid, distance)


async def _gram_triangle(sums: OwnerMoments, scales: CommonScales, joint: RowCount, d: int) -> Any:
    """Steps 4 and 5: the packed upper triangle of X'X. The second to the fourth pass over the factors need no round of their
    own: the joint mean is found in the meantime."""
    m = len(sums.count)
    products, rest = GramSum(sums.root, d), passes(m, d)
    first = next(rest)

    async def begun() -> tuple[Any, Any]:
        shift = (scales.exponent - sums.deviation_exponent + joint.half).reshape(-1)
        power = await shift_powers(concatenate([shift, joint.half.reshape(1)]))
        owners = power[:-1].reshape(m, d)
        both = concatenate([sums.factor[:, -d:].reshape(-1), sums.root])
        places = np.append(np.arange(m * d), np.full(m, m * d))
        short, _ = await together(shifted(both, power[places]), products.add_factors(sums.factor, owners, first))
        return owners, short

    async def others(power: Any) -> None:
        for rows in rest:
            await products.add_factors(sums.factor, power, rows)

    if scales.distance is None:
        power, _ = await begun()
        await others(power)
    else:
        (power, short), near = await together(
            begun(), scaled_distances(scales.distance, scales.exponent, scales.mean_exponent)
        )
        left, roots = short[:-m].reshape(m, d), short[-m:]
        between, _ = await together(_between_rows(left, roots, near, joint, d), others(power))
        products.add_rows(between)
    sums.factor = None  # most of what a server has in memory
    return await products.exchanged()


async def joint_mean(scales: CommonScales, joint: RowCount) -> Any:
    """The first owner's mean, moved by the weighted distances, in units of 2^A."""
    if scales.distance is None:
        return scales.mean_mantissa[0]
    return (scales.mean_mantissa[0] + await weighted_mean(scales.distance, joint.parts, joint.inverse)).retype(GRID)


async def weighted_mean(distance: Any, parts: Any, inverse: Any) -> Any:
    """The mean of distances to the first owner, over all rows: in their units, cut off exactly.

    parts: of all rows (m), or of those that count in every column (m, d). An inverse with more than 44 fractional bits gives
    the mean so many more.
    """
    frac, whole = distance.dtype.frac, distance.dtype.frac + inverse.dtype.frac
    each = parts[1:].reshape(len(distance), -1)
    total = await each.inner(distance, axis=0, frac=frac + COUNT_BITS)
    short = await total.retype(RingType(128, frac + COUNT_BITS, 3)).truncate(COUNT_BITS)
    mean = await short.mul(inverse, frac=whole)
    short = await mean.retype(RingType(128, whole, 2)).truncate(INVERSE_FRAC)
    return short.retype(RingType(128, whole - INVERSE_FRAC, 2))


async def _between_rows(left: Any, roots: Any, near: Any, joint: RowCount, d: int) -> Any:
    """The last rows of X: sqrt(n_i) times the distances from the joint mean, with what was left of the means."""
    mean = await weighted_mean(near, joint.parts, joint.inverse)
    away = concatenate([(-mean).reshape(1, d), near - mean]).retype(RingType(128, DISTANCE_FRAC, 2))
    wide = await away.mul(roots.reshape(-1, 1), frac=DISTANCE_FRAC + X_FRAC)
    between = await wide.retype(RingType(128, DISTANCE_FRAC + X_FRAC, 2)).truncate(DISTANCE_FRAC)
    return (between.retype(left.dtype) + left).retype(left.dtype)
