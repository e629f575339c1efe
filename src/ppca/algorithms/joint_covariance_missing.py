"""Joint covariance with missing values: each counts as the mean of its column over all owners' present values, on
shares.

P is the presence of owner i's values (1 or 0). Z is the values minus the owner's own mean of the present ones, 0 if
missing. Then its rows, completed and centred, are Z + P diag(delta), with delta the distances of its means from the
joint means. Let F = [F1 F2] be the triangular factor of the products of these 2 d columns, F'F = [Z P]'[Z P]. The rows
have the same products as F1 + F2 diag(delta).

Owner i sends the numbers listed in `joint_covariance`, except: the numbers of present values n_ij instead of sqrt(n_i),
and the factor F_i instead of R_i, with F1 in units of 2^(e_ij) and F2 as it is.

1. to 3. as in `joint_covariance`: means on a grid, distances to the first owner's, scales D_j.
4. The joint means weigh distances by n_ij. delta and F1 are in units of 2^D_j times 2^-h, with 4^h above the joint n.
5. X is F1 + F2 diag(delta) of all owners, one below the other (56 fractional bits): X'X = n 4^-h C, computed in passes
   of 2^19 entries of the factors (see `factors`).

C is positive semi-definite by construction, for any pattern of missing values. With one owner delta is 0 and X is F1.
Range: F2 < 2^18 with 45 fractional bits times delta 2^-h with 78, together below 1: 2^123. Sums of distances below 1
with 60 bits times 2^-h 2^b / n_j < 2 with 62, 2^b above the joint n_j: 2^123. All other products are those of
`joint_covariance`.
Error: delta is accurate to 2^-46 units of 2^D_j: distances below 1/8 and their joint mean are accurate to 2^-44 of
them, as is 1 / n_j. F is accurate to 2^-46 before the factor 2^-h, X to 2^-55 in addition. So a column of X is accurate
to 2^-44, and an entry of C to 2^-44 (s_i + s_j), with s the joint deviations in units of 2^D; the errors of the owners'
doubles come on top.
Rounds: those of `joint_covariance` if one pass is enough; each further pass adds two.
Memory of a server: the factors, two packed triangles of local products, and the arrays of one pass.
Security: nothing is opened, and shapes do not depend on which values are missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..protocol import RingType, concatenate, together
from ..protocol.triangles import row_starts, triangle_entries
from .factors import BLOCK_ROWS, ROOT_FRAC, X_FRAC, GramSum, passes, shift_powers, shifted
from .joint_covariance import (
    COUNT_BITS,
    DISTANCE_FRAC,
    INVERSE_FRAC,
    CommonScales,
    JointCovariance,
    RowCount,
    assemble,
    common_scales,
    joint_mean,
    row_count,
    scaled_distances,
    weighted_mean,
)
from .scales import power_table

COLUMN_ERROR = 2.0**-42
"""Error of a column of X, see above; X'X = n 4^-h C with n 4^-h at least 1/4."""

LIFT_BITS = COUNT_BITS // 2
"""Distances times 2^-h keep their digits as integers times 2^(18 - h), with 18 more fractional bits."""


@dataclass
class OwnerMomentsMissing:
    """Shares that all owners sent.

    As in `OwnerMoments`, with the numbers of present values `counts` (m, d) instead of the roots, and factors of 2 d
    columns (m, d (2 d + 1)).
    """

    count: Any
    counts: Any
    mean_exponent: Any
    mantissa: Any
    upper: Any
    deviation_exponent: Any
    factor: Any


async def joint_covariance_missing(sums: OwnerMomentsMissing, d: int, one_scale: bool) -> JointCovariance:
    """Compute the joint covariance and means, as `joint_covariance.joint_covariance`."""
    every = concatenate([sums.count.reshape(-1, 1), sums.counts], 1)
    scales, found = await together(common_scales(sums, d, one_scale), row_count(every))
    rows = RowCount(found.n_rows[0], found.parts[:, 0], found.inverse[0], found.half[0], found.n_rows_scaled[0])
    present = RowCount(found.n_rows[1:], found.parts[:, 1:], found.inverse[1:], found.half[1:], found.n_rows_scaled[1:])
    packed, grid = await together(_gram_triangle(sums, scales, rows, present, d), joint_mean(scales, present))
    return assemble(packed, grid, scales, rows, one_scale, COLUMN_ERROR)


async def _gram_triangle(
    sums: OwnerMomentsMissing, scales: CommonScales, rows: RowCount, present: RowCount, d: int
) -> Any:
    """Do steps 4 and 5: return the packed upper triangle of X'X.

    With one owner only F1 is used, the first d rows of the factor.
    """
    m, products = len(sums.count), GramSum(sums.count, d)
    powers = shift_powers((scales.exponent - sums.deviation_exponent + rows.half).reshape(-1))
    if scales.distance is None:
        power, away = await powers, None
    else:
        power, away = await together(powers, _distances(scales, rows, present, d))
    power = power.reshape(m, d)
    for first, last in passes(m, 2 * d, last=d if away is None else None):
        X = await _rows_of_x(sums.factor, power, away, (first, last))
        for start in range(first, last, BLOCK_ROWS):
            block = X[
                :, start - first : start - first + BLOCK_ROWS, _leading_zeros(start, d) - _leading_zeros(first, d) :
            ]
            products.add_rows(block.reshape(-1, block.shape[2]))
    sums.factor = None  # the largest array in memory
    return await products.exchanged()


def _leading_zeros(row: int, d: int) -> int:
    """Return the zeros at the beginning of a row of F1 + F2 diag(delta): none in the rows of F1."""
    return max(0, row - d)


async def _rows_of_x(factor: Any, power: Any, away: Any, rows: tuple[int, int]) -> Any:
    """Return these rows of F1 + F2 diag(delta) of every owner (m, rows, ..), without common leading zeros.

    Two rounds.
    """
    (m, d), (first, last) = power.shape, rows
    begin, end = (int(row_starts(2 * d)[row]) for row in rows)
    part = factor[:, begin:end]
    row, column = triangle_entries(2 * d, begin, end)
    places, waited = [], []
    if first < d:
        own = column < d
        places.append((row[own], column[own]))
        waited.append(shifted(part[:, own], power[:, column[own]]))
    if away is not None:
        other = column >= d
        places.append((row[other], column[other] - d))
        waited.append(_times_distance(part[:, other], away[:, column[other] - d]))
    X = None
    for (i, j), found in zip(places, await together(*waited), strict=True):
        term = found.zeros((m, last - first, d - _leading_zeros(first, d)))
        term.data[:, :, i - first, j - _leading_zeros(first, d)] = found.data
        X = term if X is None else (X + term).retype(term.dtype)
    return X


async def _times_distance(factor: Any, away: Any) -> Any:
    """Return entries of F2 times delta, in the type of X: two rounds."""
    kind = RingType(128, ROOT_FRAC + DISTANCE_FRAC + LIFT_BITS, 1)
    wide = await factor.mul(away, frac=kind.frac)
    short = await wide.retype(kind).truncate(kind.frac - X_FRAC)
    return short.retype(RingType(128, X_FRAC, 1))


async def _distances(scales: CommonScales, rows: RowCount, present: RowCount, d: int) -> Any:
    """Return delta of every owner (m, d) in units of 2^D, times 2^-h: 78 fractional bits."""
    near, (lift, inverse) = await together(
        scaled_distances(scales.distance, scales.exponent, scales.mean_exponent),
        _scaled_down(rows.half, present.inverse),
    )
    kind = RingType(128, DISTANCE_FRAC + LIFT_BITS, 1)
    lifted, mean = await together(
        near.retype(RingType(128, DISTANCE_FRAC, 26)).mul(lift, frac=DISTANCE_FRAC),
        weighted_mean(near, present.parts, inverse),
    )
    mean = mean.retype(kind)
    return concatenate([(-mean).reshape(1, d), lifted.retype(kind) - mean]).retype(kind)


async def _scaled_down(half: Any, inverse: Any) -> tuple[Any, Any]:
    """Return 2^(18 - h), and the inverses times it: as numbers with 62 fractional bits they are 2^-h / n."""
    thresholds, values = power_table(0, LIFT_BITS, lambda h: 1 << (LIFT_BITS - h))
    lift = (await half.reshape(1).classify(thresholds, values, 0))[..., 0]
    scaled = await inverse.retype(RingType(128, INVERSE_FRAC, 26)).mul(lift, frac=INVERSE_FRAC)
    return lift, scaled.retype(RingType(128, INVERSE_FRAC + LIFT_BITS, 2))
