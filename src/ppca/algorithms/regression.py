"""Least squares and ridge regression on shares, from the joint covariance of all columns: one column is the target.

Variables
    n, p      number of rows of all owners together; number of columns besides the target
    h, r      row owners: 4^h > n and r = n 4^-h, both secret; column owners: r is public, see `JointCovariance`
    M         r C as a packed triangle of shares; C is the joint covariance of all columns, in the units below
    D_j, a_j  column j has the unit 2^D_j; `linear_system` multiplies it by 2^(a_j); D_y, a_y are those of the target
    G, c, v   scaled moments of the p columns with each other, of these with the target, and of the target
    b         the solution of G b = c
    w         means of the p columns in units 2^(D_j - a_j)

Results
    coefficients         b_j 2^(u_j),  u_j = a_j - D_j - a_y + D_y        scales are powers of two, so this is exact
    residuals            rss = v - b'c - b'(c - G b), in units 4^(D_y - a_y) n / r
    standard errors      (error of coefficient j)^2 (n - p - 1) = rss (1/G)_jj 4^(u_j); r cancels. 1/G: inverse of G
    intercept            mean(y) - sum of coefficients times means, one number
    its error            (error)^2 (n - p - 1) = rss 4^(D_y - a_y) (1/r + w' (1/G) w)
    R squared            1 - rss / v

Ridge minimises |y - X B|^2 + alpha |B|^2; X has the p centred columns, B are the coefficients: (alpha r / n) 4^(-D_j)
is added to M_jj. If the penalty is for columns divided by their standard deviation, c and the elements of G off the
diagonal are multiplied by n / (n + alpha) instead. rss does not include the penalty.

A number in units of a secret power of two is revealed as one floating-point number, mantissa and exponent
(`floating`). A receiver computes roots and the t distribution.
Error: rss has an error of 2^-50 v, besides the error of the covariance; R squared, the penalty for standardised columns
and 1/r have errors of 1e-9. See `linear_system` for b and the diagonal of 1 / G.
Rounds: those of `linear_system`, and 6 to 30 for all parts together.
Security: nothing is opened here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..protocol import RingType, SecretArray, concatenate, stack, symmetric, together
from ..protocol.triangles import diagonal_positions
from .joint_covariance import COUNT_BITS, JointCovariance
from .linear_system import (
    DIAGONAL_FRAC,
    FRAC,
    RESIDUAL_FRAC,
    SOLUTION_FRAC,
    Scaled,
    Solution,
    joined,
    ordered,
    scaled,
    solve,
)
from .scales import EXPONENT, GRID, HALF_BITS, MANTISSA, MANTISSA_BITS, RAW, UPPER_HALF, floating, on_grid

COEFFICIENT_BITS = 12
"""log2 of a bound on |b_j|: b_j^2 <= v (1/G)_jj < 2^22, so |b_j| < 2^11."""

MEAN_BITS = 12
"""G x = w is solved for w / 2^12, so that x stays below 2^15."""

RSS_FRAC = 60
"""Fractional bits of rss."""

ERROR_BITS = 24
"""log2 of a bound on rss (1/G)_jj."""

Pair = tuple[Any, Any]
"""Mantissas and exponents."""


@dataclass
class Regression:
    """The solved system.

    target: position of the target. unit: u_j. target_unit: D_y - a_y. half: h (None: column owners, whose r is
    public). means: see `_mean_units`.
    """

    joint: JointCovariance
    target: int
    system: Scaled
    solution: Solution
    unit: Any
    target_unit: Any
    half: Any
    rss: Any
    variance: Any
    means: tuple[Any, Any, Any]

    @property
    def order(self) -> Any:
        """The columns, with the target at the end."""
        d = len(self.joint.mean_mantissa)
        return np.append(np.delete(np.arange(d), self.target), self.target)


async def half_of(joint: JointCovariance) -> Any:
    """Return h with r = n 4^-h, for row owners: two rounds."""
    found = await joint.n_rows.reshape(1).binade_powers(lambda e: [-(-e // 2)], 0, COUNT_BITS)
    return found[..., 0].retype(EXPONENT)


async def regress(joint: JointCovariance, target: int, alpha: float = 0.0, standardized: bool = False) -> Regression:
    """Solve for the coefficients. alpha: ridge penalty. standardized: alpha applies to standardized columns."""
    d = len(joint.mean_mantissa)
    order = np.append(np.delete(np.arange(d), target), target)
    packed = ordered(joint.triangle, d, target)
    joint.triangle = None  # free the largest array in memory
    exponent = joint.column_exponent.broadcast_to((d,))[order]
    half = None if isinstance(joint.n_rows, int) else await half_of(joint)
    added = None
    if alpha and not standardized:
        added, in_range = await _penalty(exponent, half, alpha * (1.0 if half is not None else _public_ratio(joint)))
    system = await scaled(packed, d, added)
    del packed
    if added is not None:
        system.varies = (await (system.varies * in_range)).retype(EXPONENT)
    matrix = symmetric(system.matrix, d)
    G, c, v = matrix[:-1, :-1], matrix[:-1, -1], matrix[-1, -1]
    own = (system.exponent - exponent).retype(EXPONENT)
    extra = None if system.added is None else system.added[:-1]
    upper, right = G[np.triu_indices(d - 1)], c
    if alpha and standardized:
        upper, right = await _shrunk(joint, half, alpha, upper, right, d - 1)
    means = await _mean_units(joint, order, own)
    C = stack([right, means[2]], 1)
    solution = await solve(upper, d - 1, C)
    b = solution.values[:, 0]
    rss = await _residual_sum(G, b, c, v, extra)
    unit = (own[:-1] - own[-1]).retype(EXPONENT)
    return Regression(joint, target, system, solution, unit, -own[-1], half, rss, v, means)


def _public_ratio(joint: JointCovariance) -> float:
    """Return the public r / n of column owners."""
    return float(joint.n_rows_scaled) / int(joint.n_rows)


async def _penalty(exponent: Any, half: Any, alpha: float) -> Pair:
    """Return alpha 4^-(h + D_j) with 112 fractional bits (the target: zero), and whether it is below 2^11.

    Two rounds.
    """
    place = exponent if half is None else (exponent + half).retype(EXPONENT)
    top = math.frexp(alpha)[1]
    low = math.ceil((top - 11) / 2)  # alpha 4^-low < 2^11
    high = math.ceil((top + RAW.frac) / 2)
    whole = int(math.ldexp(math.frexp(alpha)[0], 53))

    def value(x: int) -> int:
        shift = RAW.frac - 2 * x + top - 53
        return whole << shift if shift >= 0 else whole >> -shift

    inside = range(low, high + 1)
    thresholds = np.arange(low, high + 2)
    tables = np.array([[0, *map(value, inside), 0], [0, *(1 for _ in inside), 1]], dtype=object)
    found = await place.classify(thresholds, tables, 0)
    last = np.append(np.ones(len(place) - 1, np.int64), 0)
    added = (found[..., 0] * last).retype(RAW)
    return added, (found[..., 1] * last + (1 - last)).retype(EXPONENT)


async def _shrunk(joint: JointCovariance, half: Any, alpha: float, upper: Any, right: Any, d: int) -> Pair:
    """Return G with the elements off its diagonal multiplied by n / (n + alpha), and c multiplied by it."""
    if half is None:
        shrinkage: Any = joint.n_rows / (joint.n_rows + alpha)
        factor = SecretArray.constant(upper.party, [shrinkage], RingType(128, FRAC, 1))
    else:
        inside = range(COUNT_BITS // 2 + 1)
        table = [0.0, *(alpha * 4.0**-h for h in inside), 0.0]
        part = (await half.lookup(np.arange(len(inside) + 1), table, 40)).retype(RingType(128, 40, 30))
        ratio = joint.n_rows_scaled.reshape(1)
        factor = (await (ratio / (part + ratio).retype(RingType(128, 40, 30)))).retype(RingType(128, 40, 1))
        factor = factor.astype(FRAC)
    both = concatenate([upper, right])
    wide = await both.mul(factor.broadcast_to((len(both),)), frac=2 * FRAC)
    short = (await wide.retype(RingType(128, 2 * FRAC, 1)).truncate(FRAC)).retype(RingType(128, FRAC, 1))
    place = diagonal_positions(d)
    keep = np.zeros(len(upper), np.int64)
    keep[place] = 1
    shrunk = short[: len(upper)]
    return (shrunk + (upper - shrunk) * keep).retype(upper.dtype), short[len(upper) :]


async def _mean_units(joint: JointCovariance, order: Any, own: Any) -> tuple[Any, Any, Any]:
    """Return w 2^-W (80 fractional bits, below 1), W, and w 2^-(W + 12) with `FRAC` bits. W: common exponent of the
    means w.

    own: a_j - D_j.
    """
    mantissa = joint.mean_mantissa[order][:-1].retype(MANTISSA)
    upper = await mantissa.truncate(MANTISSA_BITS - HALF_BITS)
    exponent = (joint.mean_exponent.broadcast_to((len(order),))[order] + own)[:-1].retype(EXPONENT)
    columns = (array.reshape(-1, 1) for array in (mantissa, upper.retype(UPPER_HALF), exponent))
    largest, grid = await on_grid(*columns)
    short = (
        await grid.reshape(-1)
        .retype(RingType(128, MANTISSA_BITS + MEAN_BITS, 1))
        .truncate(MANTISSA_BITS + MEAN_BITS - FRAC)
    )
    return grid.reshape(-1), largest, short.retype(RingType(128, FRAC, 1))


async def _residual_sum(G: Any, b: Any, c: Any, v: Any, extra: Any) -> Any:
    """Return rss = v - b'c - b'(c - G b), without what was added to the diagonal of G: five rounds."""
    whole = FRAC + SOLUTION_FRAC
    product = await G.matmul(b, frac=whole)
    if extra is not None:
        product = product - await b.mul(extra, frac=whole)
    rest = (c * 2).astype(whole).retype(RingType(128, whole, 20)) - product
    short = await rest.retype(RingType(128, whole, 20)).truncate(whole - RESIDUAL_FRAC)
    total = await b.inner(short.retype(RingType(128, RESIDUAL_FRAC, 2)), frac=SOLUTION_FRAC + RESIDUAL_FRAC)
    kind = RingType(128, SOLUTION_FRAC + RESIDUAL_FRAC, 2)
    left = v.astype(kind.frac).retype(kind) - total.retype(kind)
    return (await left.retype(kind).truncate(kind.frac - RSS_FRAC)).retype(RingType(128, RSS_FRAC, 2))


async def coefficients(found: Regression) -> Pair:
    """The coefficients in the units of the data: six rounds."""
    b = found.solution.values[:, 0]
    grid = b.retype(RingType(128, SOLUTION_FRAC + COEFFICIENT_BITS, 3)).astype(MANTISSA_BITS).retype(GRID)
    return await floating(grid, (found.unit + COEFFICIENT_BITS).retype(EXPONENT))


async def intercept(found: Regression) -> Pair:
    """The intercept in the units of the data, one number: 20 rounds."""
    joint, order = found.joint, found.order
    short = await joint.mean_mantissa[order][:-1].retype(GRID).truncate(MANTISSA_BITS - FRAC)
    b, whole = found.solution.values[:, 0], FRAC + SOLUTION_FRAC
    product = await short.retype(RingType(128, FRAC, 2)).mul(b, frac=whole)
    bits = COEFFICIENT_BITS + 1
    terms = await product.retype(RingType(128, whole + bits, 1)).truncate(whole + bits - MANTISSA_BITS)
    of_means = joint.mean_exponent.broadcast_to((len(order),))[order]
    exponents = joined(of_means[-1].retype(EXPONENT), (of_means[:-1] + found.unit + bits).retype(EXPONENT))
    every = joined(joint.mean_mantissa[found.target].retype(MANTISSA), -terms.retype(MANTISSA))
    return await _sum(every, exponents)


async def _sum(mantissa: Any, exponent: Any) -> Pair:
    """Return the sum of numbers below 1 with 80 fractional bits, each with its exponent, as one number: 17 rounds."""
    count = len(mantissa)
    upper = (await mantissa.truncate(MANTISSA_BITS - HALF_BITS)).retype(UPPER_HALF)
    largest, grid = await on_grid(*(array.reshape(-1, 1) for array in (mantissa, upper, exponent)))
    bits = (count - 1).bit_length()
    total = grid.sum(0).retype(RingType(128, MANTISSA_BITS, bits + 2))
    if bits:
        total = await total.retype(RingType(128, MANTISSA_BITS + bits, 2)).truncate(bits)
    return await floating(total.retype(GRID), (largest + bits).retype(EXPONENT))


async def residuals(found: Regression) -> Pair:
    """Return the residual sum of squares in the units of the data, for column owners multiplied by the public r / n.
    Six rounds.
    """
    exponent = found.target_unit * 2 if found.half is None else found.target_unit * 2 + found.half.reshape(()) * 2
    return await floating(found.rss.astype(MANTISSA_BITS).retype(GRID).reshape(1), exponent.retype(EXPONENT).reshape(1))


async def unexplained(found: Regression) -> Any:
    """Return 1 - R squared: rss / v, 13 rounds."""
    rss = await found.rss.truncate(RSS_FRAC - 40)
    v = await found.variance.truncate(FRAC - 40)
    return await (rss.retype(RingType(128, 40, 2)).reshape(1) / v.retype(RingType(128, 40, 2)).reshape(1))


async def standard_errors(found: Regression) -> Pair:
    """Squares of the standard errors of the coefficients and of the intercept (last), times n - p - 1: 30 rounds."""
    (of_mean, exponent), rss = await together(_mean_error(found), found.rss.truncate(RSS_FRAC - FRAC))
    rss, diagonal = rss.retype(RingType(128, FRAC, 2)), found.solution.diagonal
    whole = FRAC + DIAGONAL_FRAC
    products, last = await together(
        diagonal.mul(rss, frac=whole), of_mean.mul(rss.reshape(1), frac=FRAC + of_mean.dtype.frac)
    )
    short, single = await together(
        products.retype(RingType(128, whole + ERROR_BITS, 1)).truncate(whole + ERROR_BITS - MANTISSA_BITS),
        last.retype(RingType(128, FRAC + of_mean.dtype.frac, 3)).truncate(
            FRAC + of_mean.dtype.frac - MANTISSA_BITS + 2
        ),
    )
    single = single.retype(RingType(128, MANTISSA_BITS, 1))
    exponents = joined(
        (found.unit * 2 + ERROR_BITS).retype(EXPONENT),
        (exponent + found.target_unit * 2 + 2).retype(EXPONENT),
    )
    return await floating(joined(short.retype(GRID), single.retype(GRID)), exponents)


MEAN_ERROR_FRAC = 68
"""Fractional bits of 1/r + w' (1/G) w."""


async def _mean_error(found: Regression) -> Pair:
    """Return 1/r + w' (1/G) w as mantissa (68 fractional bits, below 4) and exponent."""
    grid, largest, _ = found.means
    bits, whole = 2 * MEAN_BITS, SOLUTION_FRAC + RESIDUAL_FRAC
    w = await grid.retype(RingType(128, MANTISSA_BITS + MEAN_BITS, 1)).truncate(
        MANTISSA_BITS + MEAN_BITS - RESIDUAL_FRAC
    )
    product, inverse = await together(
        found.solution.values[:, 1].inner(w.retype(RingType(128, RESIDUAL_FRAC, 1)), frac=whole), _inverse_ratio(found)
    )
    # w' (1/G) w 2^-24 is below 2^-24 d 2^22 < 2^10.
    bits += 10
    short = await product.retype(RingType(128, whole + 10, 1)).truncate(whole + 10 - MANTISSA_BITS)
    mantissa = joined(inverse.retype(MANTISSA), short.retype(MANTISSA))
    constant = (largest.reshape(1) * 0 + 2).retype(EXPONENT)
    exponent = joined(constant, (largest.reshape(1) * 2 + bits).retype(EXPONENT))
    upper = (await mantissa.truncate(MANTISSA_BITS - HALF_BITS)).retype(UPPER_HALF)
    top, terms = await on_grid(*(array.reshape(-1, 1) for array in (mantissa, upper, exponent)))
    total = await terms.sum(0).retype(RingType(128, MANTISSA_BITS, 3)).truncate(MANTISSA_BITS - MEAN_ERROR_FRAC)
    return total.retype(RingType(128, MEAN_ERROR_FRAC, 2)), top


async def _inverse_ratio(found: Regression) -> Any:
    """Return 1 / (4 r) with 80 fractional bits: a number of at most 1."""
    ratio = found.joint.n_rows_scaled
    if isinstance(ratio, float):
        zero = found.means[0][:1] * 0
        return zero.retype(MANTISSA) + np.array([0.25 / ratio])
    inverse = await ratio.reshape(1).within(2).reciprocal()
    return inverse.retype(RingType(128, 42, 2)).astype(MANTISSA_BITS)


async def correlation(found: Regression) -> Any:
    """Return the correlation matrix of all columns, packed, the target last, with 40 fractional bits: 15 rounds."""
    d = len(found.order)
    matrix, place = found.system.matrix, diagonal_positions(d)
    if found.system.added is not None:
        raise ValueError(
            "a correlation needs a fit without a penalty on the diagonal: alpha = 0, or a penalty for standardized "
            "columns"
        )
    root = await (await matrix[place].truncate(FRAC - 40)).retype(RingType(128, 40, 2)).rsqrt()
    i, j = np.triu_indices(d)
    outer = await root[i].mul(root[j], frac=80)
    short = (await outer.retype(RingType(128, 80, 3)).truncate(40)).retype(RingType(128, 40, 3))
    wide = await matrix.mul(short, frac=FRAC + 40)
    return (await wide.retype(RingType(128, FRAC + 40, 2)).truncate(FRAC)).retype(RingType(128, 40, 2))
