"""Common scales of row owners' wide tables: rows as they are, and one additional row for each owner's mean.

Owner i sends as shares: its number of rows n_i and sqrt(n_i), the means of its columns as in `joint_covariance`, and
its rows minus these means in its own units, below 1. Units are 2^E_i for all columns; if columns are standardised,
2^E_ij for column j, and then also the root of the sum of squares of every column. Rows of zeros, which change nothing,
hide its number of rows.

1. Means on a grid and their distances to the first owner's, exact, as in `joint_covariance`.
2. D above every E and every distance, for all columns or for each.
3. b_i = sqrt(n_i) (mean_i - mean) in units of 2^D, 48 fractional bits. The rows of all owners and the b_i, one below
   the other, are X with X'X = n C. So the servers need not know which rows are real, and means far from zero cost no
   digit.
4. Standardised: q_j is the sum of squares of column j of X; every entry is multiplied by 2^(E_ij - D_j) / sqrt(q_j),
   one product each.

Rounds: 26 for up to sixteen owners, 3 to 10 more for one D (up to 4,096 columns); standardised 21 more, and one for
every chunk of entries.
Error: b_i as distances in `joint_covariance`; standardised entries 2^-30, for columns of norm 1. Security: nothing is
opened.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..protocol import RingType, concatenate, stack, together
from .joint_covariance import (
    DISTANCE_FRAC,
    ROOT_FRAC,
    CommonScales,
    RowCount,
    row_count,
    scaled_distances,
    spread_exponent,
    weighted_mean,
)
from .scales import EXPONENT, GRID, RAW, maximum, on_grid, power_table
from .wide_table import ENTRIES, ENTRY_FRAC

HEADROOM_BITS, STANDARDISED_HEADROOM_BITS = 2, 9
"""D exceeds all exponents by this. Sums of squares of a column of up to 2^13 rows then stay below 1."""

FACTOR_FRAC = 30
"""Fractional bits of entries and of the factors that standardise them.

Their product is truncated locally, which fails with less than 2^-40 for all entries of the largest table.
"""

MAX_ENTRY_SHIFT = 40
"""Factors are multiplied by 2^(40 - u). Entries in units of less than 2^-40 of their column's count as zero."""

MAX_ROOT_SHIFT = 64
"""Roots of sums of squares are multiplied by 2^(64 - u)."""

MIN_SQUARE_BITS = -40
"""log2 of the smallest sum of squares that counts."""


@dataclass
class WideOwnerMoments:
    """Shares that all owners sent besides the rows.

    count, root: (m). mean_exponent, mantissa, upper: exponents, mantissas and upper halves of means, (m, d). exponent:
    of units, (m); if columns are standardised (m, d), and then square_root: roots of sums of squares, (m, d).
    """

    count: Any
    root: Any
    mean_exponent: Any
    mantissa: Any
    upper: Any
    exponent: Any
    square_root: Any = None


@dataclass
class JointScales:
    """Scales and means, the joint number of rows, and the rows for owners' means (m, d), None for one owner."""

    scales: CommonScales
    joint: RowCount
    between: Any


async def joint_scales(sums: WideOwnerMoments, d: int) -> JointScales:
    """Do steps 1 to 3."""
    (largest, grid), joint = await together(
        on_grid(sums.mantissa, sums.upper, sums.mean_exponent), row_count(sums.count)
    )
    distance, spread = None, []
    if len(sums.count) > 1:
        distance = (grid[1:] - grid[:1]).retype(GRID)
        spread = [await spread_exponent(distance, largest)]
    if sums.square_root is None:
        top = await maximum(concatenate([sums.exponent, *spread]))
        exponent = (top + HEADROOM_BITS).retype(EXPONENT).reshape(1).broadcast_to((d,))
    else:
        top = await maximum(concatenate([sums.exponent, *(one.reshape(1, d) for one in spread)]))
        exponent = (top + STANDARDISED_HEADROOM_BITS).retype(EXPONENT)
    scales = CommonScales(largest, exponent, grid, distance)
    return JointScales(scales, joint, None if distance is None else await _between_rows(scales, joint, sums.root))


async def _between_rows(scales: CommonScales, joint: RowCount, root: Any) -> Any:
    """Return sqrt(n_i) times the distance of every owner's mean from the joint mean."""
    near = await scaled_distances(scales.distance, scales.exponent, scales.mean_exponent)
    mean = await weighted_mean(near, joint.parts, joint.inverse)
    away = concatenate([(-mean).reshape(1, -1), near - mean]).retype(RingType(128, DISTANCE_FRAC, 2))
    whole = DISTANCE_FRAC + ROOT_FRAC
    wide = await away.mul(root.reshape(-1, 1), frac=whole)
    return (await wide.retype(RingType(128, whole, 12)).truncate(whole - ENTRY_FRAC)).retype(ENTRIES)


@dataclass
class Standardisation:
    """Factors that standardise columns.

    inverse, power: 1 / deviation of column j is inverse_j power_j, as in `covariance.Normalised`. factor: factor of the
    entries of owner i in column j, (m, d), 30 fractional bits. between: the last rows, standardised.
    """

    inverse: Any
    power: Any
    factor: Any
    between: Any


async def standardisation(sums: WideOwnerMoments, entered: JointScales) -> Standardisation:
    """Compute sums of squares of the columns, their inverse roots, and the factors of all owners' entries."""
    below = (entered.scales.exponent - sums.exponent).retype(EXPONENT)
    thresholds, values = power_table(
        0,
        MAX_ROOT_SHIFT,
        lambda u: 1 << (MAX_ROOT_SHIFT - u),
        lambda u: 1 << (MAX_ENTRY_SHIFT - u) if u <= MAX_ENTRY_SHIFT else 0,
    )
    powers = await below.classify(thresholds, values, 0)
    wide = await sums.square_root.retype(RAW).mul(powers[..., 0], frac=RAW.frac)
    whole = ROOT_FRAC + MAX_ROOT_SHIFT
    roots = (await wide.retype(RingType(128, whole, 2)).truncate(whole - ENTRY_FRAC)).retype(ENTRIES)
    every = roots if entered.between is None else concatenate([roots, entered.between])
    squares = (await every.inner(every, axis=0, frac=2 * ENTRY_FRAC)).retype(RingType(128, 2 * ENTRY_FRAC, 1))
    inverse, power = await inverse_roots(squares)
    both, grown = await together(inverse.mul(power, frac=40), _grown(power, entered.joint.half))
    both = both.retype(RingType(128, 40, 24))
    product = await both.retype(RAW).mul(powers[..., 1], frac=RAW.frac)
    factor = await product.retype(RingType(128, 40 + MAX_ENTRY_SHIFT, 4)).truncate(40 + MAX_ENTRY_SHIFT - FACTOR_FRAC)
    between = None
    if entered.between is not None:
        last = await entered.between.mul(both, frac=ENTRY_FRAC + 40)
        between = (await last.retype(RingType(128, ENTRY_FRAC + 40, 2)).truncate(40)).retype(ENTRIES)
    return Standardisation(inverse, grown, factor.retype(RingType(128, FACTOR_FRAC, 2)), between)


async def inverse_roots(squares: Any) -> tuple[Any, Any]:
    """Return 1 / sqrt(x) as r p for numbers below 1 with 96 fractional bits: r in [1, 2] (40 bits), p a power of two;
    zeros for zero.

    Numbers below 2^-40 count as zero. Fifteen rounds.
    """
    whole = 2 * ENTRY_FRAC
    power = await squares.binade_power(lambda e: 1 << max(0, (whole - e) // 2), MIN_SQUARE_BITS, 1)
    power = power.retype(RingType(128, 0, 62))
    scaled = await squares.retype(RAW).mul(await (power * power), frac=RAW.frac)
    near = await scaled.retype(RingType(128, whole, 1)).truncate(whole - 40)
    inverse = await near.retype(RingType(128, 40, 1)).rsqrt()
    return inverse.within(2.5), power


async def _grown(power: Any, half: Any) -> Any:
    """Return power times 2^h: reciprocals of the deviations of n 4^-h C from those of n C."""
    thresholds, values = power_table(0, 20, lambda h: 1 << h)
    found = await half.classify(thresholds, values, 0)
    return (await power.mul(found[..., 0], frac=0)).retype(RingType(128, 0, 62))


async def standardise(entries: Any, factor: Any, owner: NDArray[np.intp]) -> Any:
    """Multiply entries (columns, rows) of rows of these owners by their factors (m, columns): one round."""
    narrow = entries.astype(FACTOR_FRAC).within(1)
    return (await narrow.mul(factor.T[:, owner], frac=ENTRY_FRAC, within=1)).retype(ENTRIES)


async def scale_columns(entries: Any, factor: Any) -> Any:
    """Multiply entries (columns, rows) by the factors of their columns (40 fractional bits), below 1. Two rounds."""
    near = entries.astype(40).within(1)
    return (await near.mul(factor.reshape(-1, 1), frac=ENTRY_FRAC, within=1, exact=True)).retype(ENTRIES)


def row_shifts(exponent: Any, common: Any, between: bool) -> Any:
    """Return D - E_i of every owner, and zero for the rows of means: the units of rows (`gram_matrix`)."""
    below = (common - exponent).retype(EXPONENT)
    return concatenate([below, below[:1] * 0]) if between else below


def pair_shifts(shift: Any) -> Any:
    """Return the units of products of rows of two owners, (m + 1)^2 of them."""
    return stack([shift + one for one in shift]).retype(EXPONENT).reshape(-1)
