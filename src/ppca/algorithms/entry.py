"""Entry of rows: every owner's count, means and centred second moments, in secret scales of its own, become one covariance.

Owner i sends, as secrets: its number of rows n_i and sqrt(n_i); the exponent a_ij and the mantissa of its mean of column j;
the exponent e_ij of its deviation; the triangular factor R_i of its centred sums in units of 2^(e_ij), R_i'R_i = sums; and,
in the same units, sqrt(n_i) times what its mantissa leaves of its mean.

1. A_j = max_i a_ij. Means on the grid 2^(A_j - 80): the mantissa times a secret power of two, cut off exactly.
2. Distances to the first owner's mean, exact on that grid; S_j = sum_i |distance|.
3. D_j = the larger of max_i e_ij and the exponent of 2 S_j: a power of two above every deviation and every distance. For a
   covariance one D for all columns: the largest.
4. Distances in units of 2^D_j (50 fractional bits), less their joint mean; R_i in units of 2^D_j times 2^-h, 4^h above the
   joint n, which stays secret.
5. Rows of all factors and sqrt(n_i) times the distances, to which what the mantissas left is added here, one below the
   other, are X (56 fractional bits): X'X = n 4^-h C.

Nothing is opened. Sums of raw squares would lose what the offset eats: here a mean of 10^11 deviations costs no digit of
the covariance, and columns 10^15 apart keep all of theirs. Limits: n < 2^36; a column whose deviation is below 2^-80 of its
mean is constant. Error: X errs by 2^-55 in every entry, C by 2^-50 of the product of two joint deviations. What mantissas
leave moves the joint mean by less than 2^-80 of it, of which C has the square.
Rounds: 28 for up to sixteen owners; a covariance takes 3 to 10 more, for the largest scale of all columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..protocol import RingType, concatenate, stack, together
from .scales import CUT, EXPONENT, FAR, GRID, MANTISSA_BITS, maximum, on_grid, power_table

COUNT_BITS = 36
"""log2 of the largest joint number of rows."""

ROOT_FRAC = 42
"""Fractional bits of sqrt(n_i) and of the factors, which reach sqrt(n_i)."""

DISTANCE_FRAC = 50
X_FRAC = 56
COUNT = RingType(128, 0, COUNT_BITS)
ROOT = RingType(128, ROOT_FRAC, COUNT_BITS // 2 + 1)
SHIFT = 74
"""Distances are multiplied by a power of two of up to 2^124 and cut by so many bits: their product stays below 2^124."""


@dataclass
class Sums:
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
class Joint:
    """What the analysis needs of all owners' rows, shared.

    packed: n 4^-h times the covariance that divides by n, in units of 2^exponent of its columns; 112 fractional bits, below 1.
    exponent: of every column, or one for all. grid, largest: the joint means in units of 2^largest, 80 fractional bits.
    rows: n. ratio: n 4^-h, in [1/4, 1).
    """

    packed: Any
    exponent: Any
    grid: Any
    largest: Any
    rows: Any
    ratio: Any


@dataclass
class Rows:
    """The joint number of rows n < 2^b, shared: n, the parts n_i 2^-b, 2^b / n, h = ceil(b / 2), and 4^-h n in [1/4, 1)."""

    rows: Any
    parts: Any
    inverse: Any
    half: Any
    ratio: Any


async def joint_rows(count: Any) -> Rows:
    """From the owners' numbers of rows: fifteen rounds."""
    n = count.sum().retype(COUNT)

    def powers(e: int) -> list[int]:
        half = -(-e // 2)
        return [1 << max(0, COUNT_BITS - e), half, 1 << max(0, COUNT_BITS - 2 * half)]

    tables = await n.binade_powers(powers, 0, COUNT_BITS)
    power, half, even = (tables[..., k] for k in range(3))
    scaled, ratio = await together(concatenate([count, n.reshape(1)]) * power, n * even)
    kind = RingType(128, COUNT_BITS, 1)
    parts = scaled.retype(kind)
    inverse = await _reciprocal(parts[-1])
    return Rows(n, parts[:-1], inverse, half.retype(EXPONENT), ratio.retype(kind).astype(40))


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
    flipped = await (negative * distance)
    total = (distance - flipped - flipped).sum(0)
    span = 2 + (len(distance) + 1).bit_length()
    found = await total.retype(RingType(128, MANTISSA_BITS, span)).binade_powers(
        lambda e: [e + FAR], -MANTISSA_BITS, span
    )
    return (largest + found[..., 0] - (MANTISSA_BITS + FAR - 1)).retype(EXPONENT)


async def scaled_distances(distance: Any, exponent: Any, largest: Any) -> Any:
    """Distances in units of 2^D, 50 fractional bits, from those in units of 2^A: |distance| 2^A <= 2^D."""
    # X 2^(A - D - 30) = (X 2^(44 - v)) 2^-74 with v = D - A; beyond 44 nothing is left, below -80 there is nothing.
    thresholds, values = power_table(-MANTISSA_BITS, CUT, lambda v: 1 << (CUT - v))
    power = await (exponent - largest).retype(EXPONENT).classify(thresholds, values, 0)
    wide = await distance.retype(RingType(128, 112, 14)).mul(power[..., 0], frac=112)
    short = await wide.truncate(SHIFT)
    return short.retype(RingType(128, DISTANCE_FRAC, 2))


async def scaled_factors(sums: Sums, exponent: Any, half: Any, d: int) -> tuple[Any, Any, Any]:
    """Factors and what is left of the means in units of 2^D, and roots, all times 2^-h, 56 fractional bits."""
    most = X_FRAC + CUT - ROOT_FRAC
    thresholds, values = power_table(0, most, lambda u: 1 << (most - u))
    m = len(sums.count)
    shift = (exponent - sums.deviation_exponent + half).retype(EXPONENT).reshape(-1)
    power = await concatenate([shift, half.reshape(1)]).classify(thresholds, values, 0)
    power = power[..., 0]
    columns = np.concatenate([np.triu_indices(d)[1], np.arange(d)])
    both = concatenate([sums.factor.reshape(-1), sums.root])
    each = concatenate([power[:-1].reshape(m, d)[:, columns].reshape(-1), power[-1:].broadcast_to((m,))])
    wide = await both.retype(RingType(128, X_FRAC + CUT, 26)).mul(each, frac=X_FRAC + CUT)
    short = (await wide.truncate(CUT)).retype(RingType(128, X_FRAC, 1))
    factors = short[:-m].reshape(m, -1)
    return factors[:, :-d], factors[:, -d:], short[-m:]


def _upper(packed: Any, d: int) -> Any:
    """Upper triangular matrices, one below the other, from their packed triangles (m, d (d + 1) / 2)."""
    place = np.full((d, d), d * (d + 1) // 2)
    place[np.triu_indices(d)] = np.arange(d * (d + 1) // 2)
    padded = concatenate([packed, packed[:, :1] * 0], 1)
    return padded[:, place].reshape(-1, d)


async def enter(sums: Sums, d: int, common: bool) -> Joint:
    """The joint covariance and means. `common`: in one scale for all columns (else in one for each)."""
    scales, joint = await together(scales_of(sums, d, common), joint_rows(sums.count))
    packed, grid = await together(_products(sums, scales, joint, d), _joint_mean(scales, joint))
    exponent = scales.exponent[:1] if common else scales.exponent
    kind = RingType(128, 2 * X_FRAC, 1)
    return Joint(packed.retype(kind), exponent, grid, scales.largest, joint.rows, joint.ratio)


@dataclass
class Scales:
    """Exponents of the largest mean of every column (A) and of its joint scale (D); means in units of 2^A, and their distances
    to the first owner's (None if there is one owner)."""

    largest: Any
    exponent: Any
    grid: Any
    distance: Any


async def scales_of(sums: Sums, d: int, common: bool) -> Scales:
    """Steps 1 to 3."""
    (largest, grid), exponent = await together(
        on_grid(sums.mantissa, sums.upper, sums.mean_exponent), maximum(sums.deviation_exponent)
    )
    distance = None
    if len(sums.count) > 1:
        distance = (grid[1:] - grid[:1]).retype(GRID)
        exponent = await maximum(stack([exponent, await spread_exponent(distance, largest)]))
    if common:
        exponent = (await maximum(exponent.reshape(d, 1))).broadcast_to((d,))
    # Two bits of room: then no entry of the covariance reaches 1.
    return Scales(largest, (exponent + 2).retype(EXPONENT), grid, distance)


async def _products(sums: Sums, scales: Scales, joint: Rows, d: int) -> Any:
    """Steps 4 and 5: the packed upper triangle of X'X."""
    if scales.distance is None:
        factors, *_ = await scaled_factors(sums, scales.exponent, joint.half, d)
        X = _upper(factors, d)
    else:
        (factors, left, roots), near = await together(
            scaled_factors(sums, scales.exponent, joint.half, d),
            scaled_distances(scales.distance, scales.exponent, scales.largest),
        )
        X = await _stacked(factors, left, roots, near, joint, d)
    return await X.T.matmul_upper(X, frac=2 * X_FRAC)


async def _joint_mean(scales: Scales, joint: Rows) -> Any:
    """The first owner's mean, moved by the weighted distances, in units of 2^A."""
    if scales.distance is None:
        return scales.grid[0]
    return (scales.grid[0] + await _weighted(scales.distance, joint)).retype(GRID)


async def _weighted(distance: Any, joint: Rows) -> Any:
    """The mean of distances to the first owner, over all rows: in their units, cut off exactly."""
    frac = distance.dtype.frac
    total = await joint.parts[1:].reshape(-1, 1).inner(distance, axis=0, frac=frac + COUNT_BITS)
    short = await total.retype(RingType(128, frac + COUNT_BITS, 3)).truncate(COUNT_BITS)
    mean = await short.mul(joint.inverse, frac=frac + INVERSE_FRAC)
    return (await mean.retype(RingType(128, frac + INVERSE_FRAC, 2)).truncate(INVERSE_FRAC)).retype(distance.dtype)


async def _stacked(factors: Any, left: Any, roots: Any, near: Any, joint: Rows, d: int) -> Any:
    """The rows of X: those of all factors, and sqrt(n_i) times the distances from the joint mean with what was left of them."""
    mean = await _weighted(near, joint)
    away = concatenate([(-mean).reshape(1, d), near - mean]).retype(RingType(128, DISTANCE_FRAC, 2))
    wide = await away.mul(roots.reshape(-1, 1), frac=DISTANCE_FRAC + X_FRAC)
    between = await wide.retype(RingType(128, DISTANCE_FRAC + X_FRAC, 2)).truncate(DISTANCE_FRAC)
    return concatenate([_upper(factors, d), (between.retype(factors.dtype) + left).retype(factors.dtype)])
