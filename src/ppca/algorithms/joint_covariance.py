"""Joint covariance and means of all row owners, computed on shares from each owner's count, means and second moments.

Identity (Chan, Golub and LeVeque, 1979): with n_i rows, mean m_i and centred second moments S_i of owner i,

    n = sum n_i,    m = sum n_i m_i / n,    n C = sum S_i  +  sum n_i (m_i - m)(m_i - m)'
                                                 (within)    (between owners)

Example, one column: owner 1 has 1, 3 (n=2, m=2, S=2); owner 2 has 10, 12, 14 (n=3, m=12, S=8). Then n = 5, m = 8 and
n C = 2 + 8 + 2 * 36 + 3 * 16 = 130, so C = 26, as for the five values together. The servers compute n C as X'X with
X = (sqrt 2, sqrt 8, -6 sqrt 2, 4 sqrt 3)': factors of S_1 and S_2, then sqrt(n_i) (m_i - m). In the steps below A = 4,
D = 7 and h = 2, so the shares hold X / 2^(D + h) = X / 512, and their X'X is 130 / 2^18 = n 4^-h C / 4^D.

Magnitudes are secret: numbers are sent as mantissa and exponent, and no exponent is opened. Owner i sends as shares:
- n_i and sqrt(n_i);
- for each column j the exponent a_ij and the 80-bit mantissa of its mean, and the exponent e_ij of its deviation;
- in units of 2^e_ij, the triangular factor R_i with R_i'R_i = S_i, and sqrt(n_i) times the part of the mean that the
  mantissa cuts off.

1. A_j = max_i a_ij. Express all means as multiples of 2^(A_j - 80), truncated exactly.
2. Subtract the first owner's mean. These distances are exact on that grid. L_j = sum_i |distance|.
3. D_j = 2 + max(max_i e_ij, exponent of 2 L_j). The 2 is headroom: no entry of the covariance reaches 1. For a
   covariance (not a correlation) all columns use the largest D_j.
4. Express distances in units of 2^D_j (60 fractional bits) and subtract their joint mean. Multiply factors by
   2^(e_ij - D_j - h), with h = ceil(b / 2) for n < 2^b, so 4^h > n. b and n stay secret.
5. X is the rows of all factors, then sqrt(n_i) times the distances plus the cut-off parts (56 fractional bits).
   In units of 2^D, X'X = n 4^-h C; computed one block of rows at a time (see `factors`).

Error: entries of X are accurate to 2^-(48 + h) (encoding of R_i) + 2^-55 (rounding), in units of 2^D. The mantissas
shift the joint mean by at most 2^-79 of it; C changes by the square of that. A column of X has a norm of about 1/64 to
1/2. It is smaller by up to 1 / sqrt(n) if an owner with few rows lies or varies far from all others. It is smaller by
1 / k if the means of k owners lie far from the first one's.
Range: n < 2^36. A column with a joint deviation below 2^-23 units counts as constant (see `covariance`). Unlike with
sums of raw squares, a mean of 10^11 deviations costs no digit, and columns 10^15 apart in scale keep all of theirs.
Rounds: 20 for one owner, 26 for two, 28 for 3 to 16. With several owners each pass (2^19 entries of factors) after the
fourth adds 2, and one scale for all columns adds 3 to 13 for 2 to 300 columns, and 15 for 1,000 to 4,096.
Security: nothing is opened.
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
"""log2 of the bound on the joint number of rows."""

DISTANCE_FRAC = 60
"""Fractional bits of distances between means, in units of 2^D."""

COUNT = RingType(128, 0, COUNT_BITS)
"""Type of numbers of rows."""

ROOT = RingType(128, ROOT_FRAC, COUNT_BITS // 2 + 1)
"""Type of sqrt(n_i) and of the entries of factors."""

SHIFT_BITS = 64
"""Bits truncated from a distance after its multiplication by a secret power of two."""

PRE_TRUNCATION_BITS = 36
"""Bits truncated from a distance before scaling if v = D - A > 44, so that the power of two is still an integer."""


@dataclass
class OwnerMoments:
    """Shares that all m owners sent, for d columns.

    count, root: n_i and sqrt(n_i), shape (m). mean_exponent, deviation_exponent: (m, d). mantissa: of the means, (m,
    d); upper: the upper halves of their bits. factor: packed factors, then the parts that the mantissas cut off, (m, d
    (d + 1) / 2 + d).
    """

    count: Any
    root: Any
    mean_exponent: Any
    mantissa: Any
    upper: Any
    deviation_exponent: Any
    factor: Any


@dataclass
class JointCovariance:
    """Joint moments of all owners' rows, shared.

    triangle: n 4^-h times the covariance that divides by n, packed, in units of 2^column_exponent; 112 fractional bits,
    below 1. column_exponent: for each column, or one for all. mean_mantissa: the joint means in units of
    2^mean_exponent, 80 fractional bits. n_rows: n. n_rows_scaled: n 4^-h, in [1/4, 1). Column owners make these two
    public. column_error: bound on the error of a column of a matrix X with X'X = C, as a norm in units of
    2^column_exponent.
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
    """The joint number of rows n < 2^b, shared: n, the parts n_i 2^-b, 2^b / n, h = ceil(b / 2), and n 4^-h in [1/4,
    1).
    """

    n_rows: Any
    parts: Any
    inverse: Any
    half: Any
    n_rows_scaled: Any


async def row_count(count: Any) -> RowCount:
    """Compute the joint number from the owners' numbers (m), or from several numbers each (m, k), separately: 15
    rounds.
    """
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
"""Fractional bits of 2^b / n."""


async def _reciprocal(x: Any) -> Any:
    """Return 1 / x for x in [1/2, 1) with 36 fractional bits, to 2^-44: `reciprocal` and one Newton step.

    Twelve rounds.
    """
    start = (await x.astype(40).within(1).reciprocal()).within(2)
    frac = COUNT_BITS + 40
    rest = 1 - (await x.mul(start, frac=frac)).retype(RingType(128, frac, 2))
    step = await start.mul(rest.retype(RingType(128, frac, 1)), frac=frac + 40)
    short = await step.retype(RingType(128, frac + 40, 1)).truncate(frac + 40 - INVERSE_FRAC)
    return (start.astype(INVERSE_FRAC) + short).retype(RingType(128, INVERSE_FRAC, 2))


async def spread_exponent(distance: Any, largest: Any) -> Any:
    """Return an exponent above twice the sum of |distances| of every column; about NONE if all distances are zero.

    distance: in units of 2^largest, 80 fractional bits.
    """
    negative = await distance.negative()
    # In this order the row split of the product is that of the distance whose sign was computed: a sum is never
    # negative.
    flipped = await (distance * negative)
    total = (distance - flipped - flipped).sum(0)
    span = 2 + (len(distance) + 1).bit_length()
    found = await total.retype(RingType(128, MANTISSA_BITS, span)).binade_powers(
        lambda e: [e + EXPONENT_OFFSET], -MANTISSA_BITS, span
    )
    return (largest + found[..., 0] - (MANTISSA_BITS + EXPONENT_OFFSET - 1)).retype(EXPONENT)


async def scaled_distances(distance: Any, exponent: Any, largest: Any) -> Any:
    """Convert distances from units of 2^A to units of 2^D with 60 fractional bits, for |distance| 2^A <= 2^(D - 3)."""
    # X 2^(A - D - 20) = (X 2^(44 - v)) 2^-64 with v = D - A, and beyond 44 the same of X 2^-36. X < 2^81 and |X| <=
    # 2^(77 + v), so the product stays below 2^122. For v > 80 the result is 0; v < -76 does not occur.
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
    """Return upper triangular matrices, one below the other, from their packed triangles (m, d (d + 1) / 2)."""
    place = np.full((d, d), d * (d + 1) // 2)
    place[np.triu_indices(d)] = np.arange(d * (d + 1) // 2)
    padded = concatenate([packed, packed[:, :1] * 0], 1)
    return padded[:, place].reshape(-1, d)


async def joint_covariance(sums: OwnerMoments, d: int, one_scale: bool) -> JointCovariance:
    """Compute the joint covariance and means. one_scale: use one scale for all columns (else one for each)."""
    scales, joint = await together(common_scales(sums, d, one_scale), row_count(sums.count))
    m = len(sums.count)
    packed, grid = await together(_gram_triangle(sums, scales, joint, d), joint_mean(scales, joint))
    # The m (d + 1) entries of a column are accurate to 2^-(46 + h) + 2^-55 with h >= 1; X'X = n 4^-h C and n 4^-h >=
    # 1/4.
    return assemble(packed, grid, scales, joint, one_scale, math.sqrt(m * (d + 1)) * 2.0**-46)


def assemble(
    packed: Any, grid: Any, scales: CommonScales, joint: RowCount, one_scale: bool, error: float
) -> JointCovariance:
    """Return the result in the form that the analysis takes."""
    exponent = scales.exponent[:1] if one_scale else scales.exponent
    kind = RingType(128, 2 * X_FRAC, 1)
    return JointCovariance(
        packed.retype(kind), exponent, grid, scales.mean_exponent, joint.n_rows, joint.n_rows_scaled, error
    )


@dataclass
class CommonScales:
    """Scales that all owners' numbers share, per column.

    mean_exponent: A, of the largest mean. exponent: D, the joint scale. mean_mantissa: means in units of 2^A. distance:
    their distances to the first owner's mean (None for one owner).
    """

    mean_exponent: Any
    exponent: Any
    mean_mantissa: Any
    distance: Any


async def common_scales(sums: Any, d: int, one_scale: bool) -> CommonScales:
    """Do steps 1 to 3, from means and exponents of deviations (of `OwnerMoments` or `OwnerMomentsMissing`)."""
    (largest, grid), exponent = await together(
        on_grid(sums.mantissa, sums.upper, sums.mean_exponent), maximum(sums.deviation_exponent)
    )
    distance = None
    if len(sums.count) > 1:
        distance = (grid[1:] - grid[:1]).retype(GRID)
        exponent = await maximum(stack([exponent, await spread_exponent(distance, largest)]))
    if one_scale:
        exponent = (await maximum(exponent.reshape(d, 1))).broadcast_to((d,))
    # Two bits of headroom: no entry of the covariance reaches 1.
    return CommonScales(largest, (exponent + 2).retype(EXPONENT), grid, distance)


async def _gram_triangle(sums: OwnerMoments, scales: CommonScales, joint: RowCount, d: int) -> Any:
    """Do steps 4 and 5: return the packed upper triangle of X'X.

    The second to the fourth pass over the factors take no rounds of their own: they run while the joint mean is
    computed.
    """
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
    sums.factor = None  # the largest array in memory
    return await products.exchanged()


async def joint_mean(scales: CommonScales, joint: RowCount) -> Any:
    """Return the first owner's mean plus the weighted mean of the distances, in units of 2^A."""
    if scales.distance is None:
        return scales.mean_mantissa[0]
    return (scales.mean_mantissa[0] + await weighted_mean(scales.distance, joint.parts, joint.inverse)).retype(GRID)


async def weighted_mean(distance: Any, parts: Any, inverse: Any) -> Any:
    """Return the mean over all rows of the distances to the first owner: in their units, truncated exactly.

    parts: of all rows (m), or of the rows with a value in each column (m, d). An inverse with more than 44 fractional
    bits gives the mean the same number of additional bits.
    """
    frac, whole = distance.dtype.frac, distance.dtype.frac + inverse.dtype.frac
    each = parts[1:].reshape(len(distance), -1)
    total = await each.inner(distance, axis=0, frac=frac + COUNT_BITS)
    short = await total.retype(RingType(128, frac + COUNT_BITS, 3)).truncate(COUNT_BITS)
    mean = await short.mul(inverse, frac=whole)
    short = await mean.retype(RingType(128, whole, 2)).truncate(INVERSE_FRAC)
    return short.retype(RingType(128, whole - INVERSE_FRAC, 2))


async def _between_rows(left: Any, roots: Any, near: Any, joint: RowCount, d: int) -> Any:
    """Return the last rows of X: sqrt(n_i) times the distances from the joint mean, plus the parts that the mantissas
    cut off.
    """
    mean = await weighted_mean(near, joint.parts, joint.inverse)
    away = concatenate([(-mean).reshape(1, d), near - mean]).retype(RingType(128, DISTANCE_FRAC, 2))
    wide = await away.mul(roots.reshape(-1, 1), frac=DISTANCE_FRAC + X_FRAC)
    between = await wide.retype(RingType(128, DISTANCE_FRAC + X_FRAC, 2)).truncate(DISTANCE_FRAC)
    return (between.retype(left.dtype) + left).retype(left.dtype)
