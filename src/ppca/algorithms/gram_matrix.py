"""Wide tables: the eigenpairs of the Gram matrix K = X X' (n x n) become the components of X'X (d x d), which is never
formed.

X has n rows and d columns, d > n. X X' and X'X have the same nonzero eigenvalues (method of snapshots: Sirovich, 1987).
Rows or columns of X are in secret units: row a (or column j) is multiplied by 2^-u.

1. Add K of all owners in one unit, and multiply by a secret power of two: A with |A|_F in [1/2, 1) (`covariance`). Then
   A = 2^b Y Y' for Y = 2^-t X with a secret integer t and a secret bit b, so |Y|_2 <= 1 for all data.
2. A U = U L is solved and verified by the chosen solver (`decomposition`).
3. P = Y'U; its columns have the norms sqrt(l_k / 2^b). A secret power of two brings each to [1/2, 1), and 1 / sqrt to
   1. A component whose eigenvalue is below half the resolution is noise and becomes zero.
4. An error of u_k along u_1 is multiplied by sqrt(l_1 / l_k) in V. It shows in V'V, so every component is made
   orthogonal to the previous ones, to first order, twice: an error e becomes of order e^4.
5. Certificate for the components themselves: |2^b Y'Y V - V L|_F is below the bound for U, or below LOOSE_TOLERANCE if
   that is larger; |V'V - I|_F < 1e-7; no entry is far outside its range. One number is opened: 2, 1, or 0 if it fails.

Rounds: 9 for the power of two of step 1, 2 for t and b; 4 to 6 for every product with X (one and exact truncations, 2
for secret units); 15 for norms; 2 for each iteration of step 4; 4 for the number of step 5.
Error: X has 48 fractional bits, vectors 56, components 40.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..protocol import RingType, concatenate, make_type, together
from .covariance import MOMENT_FRAC, Normalised, normalised_covariance
from .decomposition import MAX_ORTHOGONALITY_ERROR
from .eigen import is_below
from .joint_covariance import unpack_upper
from .scales import EXPONENT, RAW, power_table
from .wide_table import ENTRY_FRAC, PRODUCTS, VECTOR_FRAC, VECTORS

SUM_FRAC = 56
"""Fractional bits of sums of products in owners' units."""

SUMS = RingType(128, SUM_FRAC, 28)
"""Type of sums of products."""


GRAM_SHIFT = 22
"""K is taken as 2^-22 K in `covariance`: its trace may then be from 2^-25 to 2^26."""

MAX_NEAR_SHIFT, PRE_TRUNCATION_BITS = 50, 40
"""Shifts of products.

Products are multiplied by 2^-w. For 50 < w <= 90 they are truncated by 40 bits first. Larger shifts give zero: K has a
trace between 2^-25 and 2^26 units, of which that is below 2^-40.
"""

MIN_SHIFT, MAX_SHIFT = -12, 40
"""Range of the shifts v of Y: units 2^-v. Rows and columns in smaller units count as zero."""

LOOSE_TOLERANCE = 1e-7
"""The larger tolerance with which components are verified."""

MIN_VARIANCE_FRACTION = 4e-7
"""Fraction of the total variance below which a component is zero: its error would be amplified too much."""

VERIFICATION_ULPS = 8
"""Units of 2^-40 by which verification may see an entry of 2^b Y'Y V - V L off: more than twice those of three
truncations.
"""

MIN_NORM_BITS = -40
"""log2 of the smallest squared norm of a projected vector that is scaled."""

RANGE_CHECK_FRAC = 10
"""Fractional bits that are enough to detect elements far outside their range."""


async def sum_in_one_unit(products: Any, shift: Any) -> Any:
    """Add sums (m, entries; 56 fractional bits), each in units of 2^-shift, in units of 1 with 90 fractional bits.

    Four rounds.
    """
    near, far, power, coarse_power = await _operands(products, shift)
    m = len(products)
    wide = await together(
        near.inner(power.reshape(m, 1), axis=0, frac=RAW.frac),
        far.inner(coarse_power.reshape(m, 1), axis=0, frac=RAW.frac),
    )
    return await _truncate_sum(*wide)


def sum_products(products: Any) -> Any:
    """Add sums that have one unit already. Local."""
    return products.sum(0).retype(SUMS).astype(MOMENT_FRAC - GRAM_SHIFT)


async def scale_to_one_unit(products: Any, shift: Any, place: Any) -> Any:
    """Convert sums whose entries have units of their own: the shift of an entry is shift[place]. Four rounds."""
    near, far, power, coarse_power = await _operands(products, shift)
    wide = await together(near.mul(power[place], frac=RAW.frac), far.mul(coarse_power[place], frac=RAW.frac))
    return await _truncate_sum(*wide)


async def _operands(products: Any, shift: Any) -> tuple[Any, Any, Any, Any]:
    """Return products, the same without their 40 lowest bits, and the factor of each for its shift: one of the two
    factors is zero.
    """
    thresholds, values = power_table(
        0,
        MAX_NEAR_SHIFT + PRE_TRUNCATION_BITS,
        lambda w: 1 << (MAX_NEAR_SHIFT - w) if w <= MAX_NEAR_SHIFT else 0,
        lambda w: 1 << (MAX_NEAR_SHIFT + PRE_TRUNCATION_BITS - w) if w > MAX_NEAR_SHIFT else 0,
    )
    powers, coarse = await together(
        shift.retype(EXPONENT).classify(thresholds, values, 0), products.retype(SUMS).truncate(PRE_TRUNCATION_BITS)
    )
    return products.retype(RAW), coarse.retype(RAW), powers[..., 0], powers[..., 1]


async def _truncate_sum(near: Any, far: Any) -> Any:
    """Add both parts and truncate to 90 fractional bits."""
    kept = MOMENT_FRAC - GRAM_SHIFT
    wide = (near + far).retype(RingType(128, SUM_FRAC + MAX_NEAR_SHIFT, 20))
    return await wide.truncate(SUM_FRAC + MAX_NEAR_SHIFT - kept)


async def truncate_products(products: Any) -> Any:
    """Truncate products of rows, as a table computes them, to 56 fractional bits: one round, exact."""
    return (await products.retype(PRODUCTS).truncate(2 * ENTRY_FRAC - SUM_FRAC)).retype(SUMS)


async def normalised_gram(packed: Any, n: int) -> Normalised:
    """Return A of step 1 from K (packed, 90 fractional bits)."""
    scaled = await normalised_covariance(packed.retype(RingType(128, MOMENT_FRAC, 13)), n)
    return replace(scaled, shift=scaled.shift + GRAM_SHIFT)


@dataclass
class TableUnit:
    """Unit of Y = 2^-t X with A = 2^b Y Y': the integer t (exponent) and the bit b (odd), shared."""

    exponent: Any
    odd: Any


async def table_unit(scaled: Normalised) -> TableUnit:
    """Compute t and b from A = K factor / 2^shift: two rounds."""

    def powers(e: int) -> list[int]:
        halvings = scaled.shift - (e - 1)
        half = -(-halvings // 2)
        return [half, 2 * half - halvings]

    found = await scaled.factor.retype(RingType(128, 0, 100)).binade_powers(powers, 0, 100)
    return TableUnit(found[..., 0].retype(EXPONENT), found[..., 1].retype(RingType(128, 0, 1)))


@dataclass
class ScaledTable:
    """Y: a table whose rows or columns are multiplied by secret powers of two 2^-v.

    row_power, column_power: the integers 2^(40 - v), shape (n or d or 1, 1).
    """

    table: Any
    row_power: Any = None
    column_power: Any = None

    @classmethod
    async def by_rows(cls, table: Any, shift: Any) -> ScaledTable:
        """Return the table with rows in units of 2^-shift (n, or 1 for all): two rounds."""
        return cls(table, row_power=await _powers(shift))

    @classmethod
    async def by_columns(cls, table: Any, shift: Any) -> ScaledTable:
        """Return the table with columns in units of 2^-shift (d): two rounds."""
        return cls(table, column_power=await _powers(shift))

    async def onto_columns(self, vectors: Any) -> Any:
        """Return Y' U with 56 fractional bits, below 2 if U has unit vectors."""
        found = await self.table.onto_columns(await _times(vectors, self.row_power))
        return await _times(await found.truncate(ENTRY_FRAC), self.column_power)

    async def onto_rows(self, vectors: Any) -> Any:
        """Return Y V with 56 fractional bits."""
        found = await self.table.onto_rows(await _times(vectors, self.column_power))
        return await _times(await found.truncate(ENTRY_FRAC), self.row_power)


async def _powers(shift: Any) -> Any:
    """Return the integers 2^(40 - v) of secret shifts v: two rounds."""
    thresholds, values = power_table(MIN_SHIFT, MAX_SHIFT, lambda v: 1 << (MAX_SHIFT - v))
    found = await shift.retype(EXPONENT).classify(thresholds, values, 0)
    return found[..., 0].reshape(-1, 1)


async def _times(vectors: Any, power: Any) -> Any:
    """Multiply vectors by powers of two, 56 fractional bits: two rounds, none without a power."""
    fine = vectors.astype(VECTOR_FRAC)
    if power is None:
        return fine.retype(VECTORS)
    wide = await fine.retype(RAW).mul(power, frac=RAW.frac)
    return (await wide.retype(RingType(128, VECTOR_FRAC + MAX_SHIFT, 26)).truncate(MAX_SHIFT)).retype(VECTORS)


@dataclass
class Components:
    """Unit vectors (d, k) with 40 fractional bits. `here` (k shared bits): 0 for a component that is zero."""

    vectors: Any
    here: Any


async def components(Y: ScaledTable, values: Any, vectors: Any, minimum: Any) -> Components:
    """Do steps 3 and 4.

    values: k of A; vectors: k rows of length n; minimum: the smallest eigenvalue with a component, shared.
    """
    projected, here = await together(Y.onto_columns(vectors.T), values.within(2) > minimum + 2.0**-38)
    short = await projected.truncate(VECTOR_FRAC - 40)
    size = (await short.inner(short, axis=0, frac=80)).retype(RingType(128, 80, 3))
    power = await size.binade_power(lambda e: 1 << max(0, (80 - e) // 2), MIN_NORM_BITS, 3)
    power = await (power.retype(RingType(128, 0, 62)) * here)
    near = (await projected.retype(RAW).mul(power, frac=RAW.frac)).retype(RingType(128, VECTOR_FRAC, 2))
    near = (await near.truncate(VECTOR_FRAC - 44)).retype(RingType(128, 44, 1))
    norm = await (await near.inner(near, axis=0, frac=88)).retype(RingType(128, 88, 2)).truncate(48)
    inverse = (await norm.retype(RingType(128, 40, 1)).rsqrt()).within(2.5)
    V = (await near.mul(inverse, frac=40, exact=True)).within(1.25)
    for _ in range(2):
        V = await _orthogonalise(V)
    return Components(V, here)


async def _orthogonalise(V: Any) -> Any:
    """Remove from each column its part along earlier ones and set its norm to 1, both to first order: two rounds."""
    k = V.shape[1]
    i, j = np.triu_indices(k)
    packed = await V.T.matmul_upper(V, within=1.5)
    excess = (packed - (i == j).astype(np.int64)) * np.where(i == j, 0.5, 1.0)
    step = await V.matmul(unpack_upper(excess.reshape(1, -1), k), within=1.5)
    return (V - step).within(1.25)


async def is_accurate(
    Y: ScaledTable, values: Any, found: Components, unit: TableUnit, tolerances: tuple[float, float]
) -> float | None:
    """Do step 5: return the smaller of two tolerances with |2^b Y'Y V - V L|_F < 2 tolerance; None if neither holds or
    V'V is not I.

    Components of small variance have the residual of U times sqrt(l_1 / l_k); hence a second, larger tolerance.
    """
    V, k = found.vectors, found.vectors.shape[1]
    i, j = np.triu_indices(k)
    there = concatenate([found.here, found.here[:1] * 0])[np.where(i == j, i, k)]
    inside, halves, packed, coarse = await together(
        Y.onto_rows(V),
        (values * unit.odd),
        V.T.matmul_upper(V, within=1.5),
        V.truncate(40 - RANGE_CHECK_FRAC),
    )
    back, expected, size = await together(
        Y.onto_columns(inside),
        V.mul((values - halves * 0.5).within(2), within=1.5),
        coarse.inner(coarse, frac=2 * RANGE_CHECK_FRAC),
    )
    residual = (await back.truncate(VECTOR_FRAC - 40)).retype(make_type(128, 40, 2)) - expected
    off = (packed - there) * np.where(i == j, 1, 2)
    square, orthogonal = await together(residual.inner(residual, frac=80), (packed - there).inner(off, frac=80))
    square = square + (await (square * unit.odd)) * 3  # times 4 if b = 1, since A = 2^b Y Y'
    small, large = ((2 * tolerance) ** 2 for tolerance in tolerances)
    level, *bits = await together(
        _level(square, small, large), is_below(orthogonal, MAX_ORTHOGONALITY_ERROR**2), is_below(size, 4.0 * k + 4)
    )
    both = await (bits[0] * bits[1])
    every = await (level * both)
    opened = await every.open(what="verification of components", why="are the components as accurate as promised")
    return {2: tolerances[0], 1: tolerances[1]}.get(int(opened))


async def _level(square: Any, small: float, large: float) -> Any:
    """Return 2 if |square| < small, 1 if < large, else 0, comparing all bits: two rounds."""
    whole = square.within(2.0 ** (126 - square.dtype.frac))
    if small == large:
        return await whole.lookup([-small, small], [0, 2, 0], 0)
    return await whole.lookup([-large, -small, small, large], [0, 1, 2, 1, 0], 0)
