"""Entry of rows with missing values: each counts as the mean of its column over all owners' present values, on shares.

With P the presence of owner i's values (1 or 0) and Z the values less its own mean of those present, 0 where missing, its
rows, filled and centred, are Z + P diag(delta), delta the distances of its means from the joint ones. With the triangular
factor F = [F1 F2] of the products of these 2 d columns, F'F = [Z P]'[Z P], they have the products of F1 + F2 diag(delta).

Owner i sends what `entry` names, but for sqrt(n_i) its numbers of present values n_ij, and in place of R_i the factor F_i: F1
in units of 2^(e_ij), F2 as it is.

1. to 3. as in `entry`: means on a grid, distances to the first owner's, scales D_j.
4. The joint means weigh distances by n_ij; delta and F1 in units of 2^D_j times 2^-h, 4^h above the joint n.
5. F1 + F2 diag(delta) of all owners, one below the other, are X (56 fractional bits): X'X = n 4^-h C.

C is positive by construction, whatever is missing. Nothing is opened, and shapes do not depend on what is missing. With one
owner delta is 0, and X is F1.
Products: F2 < 2^18 with 45 fractional bits times delta 2^-h with 78, together below 1: 2^123. Sums of distances below 1 with 60
times 2^-h 2^b / n_j < 2 with 62, 2^b above the joint n_j: 2^123. All others are those of `entry`.
Error: delta errs by 2^-46 units of 2^D_j: distances, below 1/8, come off their joint mean by 2^-44 of it, as 1 / n_j does. F errs
by 2^-46 before the factor 2^-h, X by 2^-55 besides. A column of X so errs by 2^-44, an entry of C by 2^-44 (s_i + s_j), s the
joint deviations in units of 2^D; all besides what the owners' doubles carry.
Rounds: those of `entry`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..protocol import RingType, concatenate, together
from .entry import (
    COUNT_BITS,
    DISTANCE_FRAC,
    INVERSE_FRAC,
    Joint,
    Rows,
    Scales,
    joined,
    joint_mean,
    joint_rows,
    scaled_distances,
    scales_of,
    upper,
    weighted,
)
from .factors import ROOT_FRAC, X_FRAC, shrinking, shrunk
from .scales import power_table

LIFT = COUNT_BITS // 2
"""Distances times 2^-h keep their digits as integers times 2^(18 - h), with so many more fractional bits."""


@dataclass
class GapParts:
    """What all owners sent: as `entry.Sums`, but the numbers of present values (m, d) for the roots, and factors of 2 d columns
    (m, d (2 d + 1))."""

    count: Any
    counts: Any
    mean_exponent: Any
    mantissa: Any
    upper: Any
    deviation_exponent: Any
    factor: Any


async def enter_imputed(sums: GapParts, d: int, common: bool) -> Joint:
    """The joint covariance and means, as `entry.enter`."""
    every = concatenate([sums.count.reshape(-1, 1), sums.counts], 1)
    scales, found = await together(scales_of(sums, d, common), joint_rows(every))
    rows = Rows(found.rows[0], found.parts[:, 0], found.inverse[0], found.half[0], found.ratio[0])
    present = Rows(found.rows[1:], found.parts[:, 1:], found.inverse[1:], found.half[1:], found.ratio[1:])
    packed, grid = await together(_products(sums, scales, rows, present, d), joint_mean(scales, present))
    return joined(packed, grid, scales, rows, common)


async def _products(sums: GapParts, scales: Scales, rows: Rows, present: Rows, d: int) -> Any:
    """Steps 4 and 5: the packed upper triangle of X'X."""
    m, (_, j) = len(sums.count), np.triu_indices(2 * d)

    async def shrunk_own() -> Any:
        power = await shrinking((scales.exponent - sums.deviation_exponent + rows.half).reshape(-1))
        return await shrunk(sums.factor[:, j < d], power.reshape(m, d)[:, j[j < d]])

    if scales.distance is None:
        X = upper(await shrunk_own(), d)
    else:
        factors, away = await together(shrunk_own(), _away(scales, rows, present, d))
        wide = await sums.factor[:, j >= d].mul(away[:, j[j >= d] - d], frac=ROOT_FRAC + DISTANCE_FRAC + LIFT)
        kind = RingType(128, ROOT_FRAC + DISTANCE_FRAC + LIFT, 1)
        moved = await wide.retype(kind).truncate(kind.frac - X_FRAC)
        X = _stacked(factors, moved.retype(factors.dtype), d)
    return await X.T.matmul_upper(X, frac=2 * X_FRAC)


async def _away(scales: Scales, rows: Rows, present: Rows, d: int) -> Any:
    """delta of every owner (m, d) in units of 2^D, times 2^-h: 78 fractional bits."""
    near, (lift, inverse) = await together(
        scaled_distances(scales.distance, scales.exponent, scales.largest), _lifted(rows.half, present.inverse)
    )
    kind = RingType(128, DISTANCE_FRAC + LIFT, 1)
    lifted, mean = await together(
        near.retype(RingType(128, DISTANCE_FRAC, 26)).mul(lift, frac=DISTANCE_FRAC),
        weighted(near, present.parts, inverse),
    )
    mean = mean.retype(kind)
    return concatenate([(-mean).reshape(1, d), lifted.retype(kind) - mean]).retype(kind)


async def _lifted(half: Any, inverse: Any) -> tuple[Any, Any]:
    """2^(18 - h), and the inverses times it: as numbers with 62 fractional bits those of 2^-h / n."""
    thresholds, values = power_table(0, LIFT, lambda h: 1 << (LIFT - h))
    lift = (await half.reshape(1).classify(thresholds, values, 0))[..., 0]
    scaled = await inverse.retype(RingType(128, INVERSE_FRAC, 26)).mul(lift, frac=INVERSE_FRAC)
    return lift, scaled.retype(RingType(128, INVERSE_FRAC + LIFT, 2))


def _stacked(factors: Any, moved: Any, d: int) -> Any:
    """F1 + F2 diag(delta) of all owners, one below the other, from the packed F1 (m, ..) and F2 diag(delta) (m, ..)."""
    i, j = np.triu_indices(2 * d)
    own, other = np.full((2 * d, d), -1), np.full((2 * d, d), -1)
    own[i[j < d], j[j < d]] = np.arange(factors.shape[1])
    other[i[j >= d], j[j >= d] - d] = np.arange(moved.shape[1])
    zero = factors[:, :1] * 0
    parts = [concatenate([packed, zero], 1)[:, place] for packed, place in ((factors, own), (moved, other))]
    return (parts[0] + parts[1]).retype(factors.dtype).reshape(-1, d)
