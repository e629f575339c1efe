"""Range checks on shares: whether the numbers of each owner lie in the range that the protocols require.

An owner can share any element of the ring. Comparisons and tables read only the low bits of a number. So a number
outside its range can win a comparison as a large number and be looked up as a small one. `Ranges` collects conditions x
>= 0 on 128-bit integers of all owners and computes one bit for each owner: whether all of its conditions hold.

Single numbers are compared in full width. Long vectors are checked by random sums: `projections` adds the entries of a
vector with public random signs that are unknown before the inputs are fixed.
- Honest vectors: a sum with signs -1, 0, 1 (probability 1/4, 1/2, 1/4) exceeds t times the norm with probability 2
  exp(-t^2).
- Vectors with an entry of magnitude b or more (modulo 2^128): for all other signs given, at most one of the values that
  the sign of this entry leads to is below b / 2, with probability at most 1/2. So each sum is b / 2 or more with
  probability 1/2. With a second set of signs for columns, -1 or 1, that probability is 1/4.

Rounds: 6 for up to 65,536 conditions (2 for the comparisons, 1 for exemptions of NONE, 2 for one bit per owner, 1 to
open them).
Sent: about 4 kB per condition, by all servers together.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..native import ring
from ..protocol import Party, RingType, SecretArray, concatenate, stack, together
from ..protocol.inputs import expand
from .factors import ROOT_FRAC
from .joint_covariance import COUNT_BITS, OwnerMoments
from .joint_covariance_missing import OwnerMomentsMissing
from .scales import EXPONENT, HALF_BITS, NONE

WHOLE = RingType(128, 0, 127)
"""Type of any element of the ring, as an integer."""

MAX_EXPONENT = 1024
"""Maximum exponent of a double."""

RANDOM_SUMS = 24
"""Number of random sums of a vector: an entry out of range is detected with probability 1 - 2^-24."""

TABLE_RANDOM_SUMS = 60
"""Number of random sums of a table, with signs of rows and of columns: as above, 1 - (3/4)^60."""

NORM_FACTOR, TABLE_NORM_FACTOR = 6, 64
"""Bounds on random sums of honest owners, in norms of a vector and of a table; each fails with probability 2^-50."""

BLOCK_ENTRIES = 1 << 14
"""Entries of a vector that are projected at once."""


Words = NDArray[np.uint64]


class Ranges:
    """Conditions x >= 0 on integers of `tables` tables. Arrays have one row for each table."""

    def __init__(self, tables: int) -> None:
        self.tables = tables
        self._values: list[SecretArray] = []
        self._table: list[NDArray[np.intp]] = []
        self._scaled: list[tuple[Any, Any]] = []
        self._scaled_table: list[NDArray[np.intp]] = []
        self._max_value = 1
        """Largest value of a condition that does not hold."""

    def _numbers(self, size: int) -> NDArray[np.intp]:
        """Return the table of each of `size` numbers."""
        return np.repeat(np.arange(self.tables), size // self.tables)

    def not_negative(self, values: SecretArray, table: NDArray[np.intp] | None = None) -> None:
        """Require values >= 0. values: (tables, ...), or flat with the table of every number."""
        self._values.append(values.retype(WHOLE).reshape(-1))
        self._table.append(self._numbers(values.size) if table is None else table)

    def between(self, values: SecretArray, low: int, high: int, table: NDArray[np.intp] | None = None) -> None:
        """Require low <= values <= high, as integers of the ring."""
        whole = values.retype(WHOLE)
        self.not_negative(_plus(whole, -low), table)
        self.not_negative(_plus(-whole, high), table)

    def numbers(
        self, exponent: SecretArray, mantissa: SecretArray, upper: SecretArray, table: NDArray[np.intp] | None = None
    ) -> None:
        """Require valid numbers in secret scales (`scales`): exponents, mantissas, and the upper halves of their bits.

        mantissa = 2^40 upper + lower with |lower| <= 2^40 and 2^39 <= |upper| <= 2^40. So a number with the exponent a
        has at least the magnitude 2^(a - 1) (1 - 2^-38): an owner cannot use a small or zero number to set the grid of
        the others' numbers. The exponent NONE is exempt; it is below all others.
        """
        self.exponents(exponent, table)
        self.between(upper, -(1 << HALF_BITS), 1 << HALF_BITS, table)
        lower = mantissa.retype(WHOLE) - (upper.retype(WHOLE) * (1 << HALF_BITS)).retype(WHOLE)
        self.between(lower, -(1 << HALF_BITS), 1 << HALF_BITS, table)
        # By the condition on `upper` above, these bits are the whole number.
        half = 1 << (HALF_BITS - 1)
        small = upper.retype(RingType(128, 0, HALF_BITS + 1)).reshape(-1).lookup([1 - half, half], [0, 1, 0], 0)
        self._unless_none(small, exponent, table)

    def at_least(
        self, values: SecretArray, low: int, exponent: SecretArray, table: NDArray[np.intp] | None = None
    ) -> None:
        """Require values >= low, as integers of the ring, unless the exponent of their unit is NONE."""
        below = _plus(values.retype(WHOLE), -low).reshape(-1).negative()
        self._unless_none(below, exponent, table)

    def _unless_none(self, wrong: Any, exponent: SecretArray, table: NDArray[np.intp] | None) -> None:
        """Require (pending) bits to be 0 if an exponent, which is checked elsewhere, is above NONE."""
        some = exponent.retype(EXPONENT).reshape(-1).lookup([NONE + 1], [0, 1], 0)
        self._scaled.append((wrong, some))
        self._scaled_table.append(self._numbers(exponent.size) if table is None else table)

    def exponents(self, exponent: SecretArray, table: NDArray[np.intp] | None = None) -> None:
        """Require exponents of doubles, or NONE and slightly more for columns of zeros."""
        self.between(exponent, NONE, MAX_EXPONENT, table)

    def vector(self, party: Party, values: SecretArray, bound: int, unit: SecretArray | None = None) -> None:
        """Require vectors (tables, n) of norm at most `bound`, as integers of the ring.

        unit: (tables), the bound of each table is a multiple of it.
        """
        shares = values.data
        starts = range(0, shares.shape[2], BLOCK_ENTRIES)
        chunks = (np.ascontiguousarray(shares[:, :, k : k + BLOCK_ENTRIES].swapaxes(1, 2)) for k in starts)
        found = projections(party, chunks, self.tables, RANDOM_SUMS).retype(WHOLE)
        if unit is None:
            self.between(found, -NORM_FACTOR * bound, NORM_FACTOR * bound)
            return
        largest = (unit.retype(WHOLE) * (NORM_FACTOR * bound)).retype(WHOLE).reshape(-1, 1)
        self.not_negative((largest - found).retype(WHOLE))
        self.not_negative((largest + found).retype(WHOLE))

    def not_all_negative(self, values: SecretArray, table: NDArray[np.intp]) -> None:
        """Require values (2, choices, columns) without a negative choice in one of the two parts.

        table: that of every column.
        """
        first, second = (part.negative().then(lambda wrong: wrong.sum(0)) for part in values)
        self._scaled.append((first, second))
        self._scaled_table.append(table)
        self._max_value *= values.shape[1] ** 2

    async def in_range(self) -> SecretArray:
        """Return one bit for each table: whether all of its conditions hold."""
        wrong, *bits = await together(
            concatenate(self._values).retype(WHOLE).negative(), *(bit for pair in self._scaled for bit in pair)
        )
        if bits:
            one, other = concatenate(bits[::2]), concatenate(bits[1::2])
            wrong = concatenate([wrong, (await (one * other)).retype(wrong.dtype)])
        table = np.concatenate([*self._table, *self._scaled_table])
        counts = stack([wrong[table == number].sum() for number in range(self.tables)])
        found: SecretArray = await (counts.within(self._max_value * max(1, len(table))) == 0)
        return found


def _plus(whole: SecretArray, constant: int) -> SecretArray:
    """Add an integer in full width."""
    return whole.plus_public(np.array(constant, dtype=object)).retype(WHOLE)


async def count_and_root(ranges: Ranges, count: SecretArray, root: SecretArray) -> None:
    """Require numbers of rows (tables,), at most 2^36 in all, and their square roots: one round."""
    ranges.between(count, 1, ((1 << COUNT_BITS) - 1) // ranges.tables)
    ranges.between(root, 0, 1 << (ROOT_FRAC + COUNT_BITS // 2))
    square = (await root.mul(root, frac=2 * ROOT_FRAC)).retype(WHOLE)
    # A double represents the root to 2^-53 of it: the error of its square is at most 2^-16.
    away = square - (count.retype(WHOLE) * (1 << (2 * ROOT_FRAC))).retype(WHOLE)
    ranges.between(away, -(1 << (2 * ROOT_FRAC - 10)), 1 << (2 * ROOT_FRAC - 10))


async def moment_ranges(party: Party, sums: OwnerMoments | OwnerMomentsMissing) -> Ranges:
    """Return the conditions on what row owners send."""
    m, d = sums.mean_exponent.shape
    ranges = Ranges(m)
    if isinstance(sums, OwnerMomentsMissing):
        count = sums.count.retype(WHOLE)
        ranges.between(count, 1, ((1 << COUNT_BITS) - 1) // m)
        counts = sums.counts.retype(WHOLE)
        ranges.not_negative(_plus(counts, -1))
        ranges.not_negative(count.reshape(m, 1) - counts)
    else:
        await count_and_root(ranges, sums.count, sums.root)
    ranges.numbers(sums.mean_exponent, sums.mantissa, sums.upper)
    ranges.exponents(sums.deviation_exponent)
    # With the cut-off parts of the means, or the presence of values, there are 2 d columns of norm at most sqrt(n_i).
    bound = math.isqrt(2 * d) + 1
    if isinstance(sums, OwnerMomentsMissing):
        ranges.vector(party, sums.factor, bound << (ROOT_FRAC + COUNT_BITS // 2))
    else:
        ranges.vector(party, sums.factor, bound, sums.root)
    return ranges


def projections(party: Party, chunks: Iterator[Words], width: int, sums: int) -> SecretArray:
    """Return sums of the rows of a table with public random signs: (width, sums), integers.

    chunks: arrays (2, rows, width, limbs).
    """
    total, coins = None, Coins(party, f"rows of {width}")
    for chunk in chunks:
        signs = ring.integers(coins.ternary(sums, chunk.shape[1]), chunk.shape[-1])
        part = np.stack([ring.matmul(signs, np.ascontiguousarray(split)) for split in chunk])
        total = part if total is None else ring.add(total, part)
    assert total is not None
    limbs = total.shape[-1]
    return SecretArray(party, np.ascontiguousarray(total.swapaxes(1, 2)), RingType(64 * limbs, 0, 64 * limbs - 2))


def table_projections(party: Party, chunks: Iterator[Words], table: NDArray[np.intp], tables: int) -> SecretArray:
    """Return sums of all entries of every table, with signs of rows and of columns: (tables, TABLE_RANDOM_SUMS).

    chunks: arrays (2, rows, width, limbs). table: the number of the table of each of the `width` columns.
    """
    found = projections(party, chunks, len(table), TABLE_RANDOM_SUMS)
    signs = 2 * Coins(party, f"columns of {len(table)}").bits(len(table), TABLE_RANDOM_SUMS).astype(np.int64) - 1
    signed = ring.mul(found.data, np.broadcast_to(ring.integers(signs, found.dtype.limbs), found.data.shape))
    parts = [ring.total(np.ascontiguousarray(signed[:, table == number]), 1) for number in range(tables)]
    return SecretArray(party, np.stack(parts, axis=1), found.dtype)


def table_bound(entries: int, frac: int) -> int:
    """Return a bound on the random sums of a table with this number of entries, each below 1."""
    return (TABLE_NORM_FACTOR * (math.isqrt(entries) + 1)) << frac


class Coins:
    """Public random bits, the same at all four servers.

    They follow from the nonce of the run, so owners did not know them when they shared their numbers.
    """

    def __init__(self, party: Party, purpose: str) -> None:
        self._seed = hashlib.blake2b(party.run.encode(), person=b"ppca coins").digest() + purpose.encode()
        self._drawn = 0

    def bits(self, *shape: int) -> NDArray[np.uint8]:
        count = math.prod(shape)
        return np.unpackbits(self._words(1 + count // 64).view(np.uint8), count=count).reshape(shape)

    def _words(self, count: int) -> Words:
        self._drawn += 1
        key = hashlib.blake2b(self._seed + b" %d" % self._drawn, digest_size=16).digest()
        return expand(key, np.empty((count, 1), np.uint64)).reshape(-1)

    def order(self, count: int) -> NDArray[np.intp]:
        """Return a random order of `count` items."""
        return np.argsort(self._words(count), kind="stable")

    def ternary(self, *shape: int) -> NDArray[np.int64]:
        """Return 0 with probability 1/2, -1 and 1 with 1/4 each."""
        drawn = self.bits(2, *shape).astype(np.int64)
        found: NDArray[np.int64] = drawn[0] - drawn[1]
        return found
