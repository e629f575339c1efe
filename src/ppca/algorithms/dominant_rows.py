"""Check on shares whether one row carries most of a column, against columns that mark single persons.

A column that is 1 for one person and 0 otherwise makes its covariance with another owner's column the value of that
person. Sums of squares of uploaded rows cannot detect this: they are known modulo 2^64 only, and an owner can send
numbers whose squares vanish. Random sums do not have this weakness. Public coins, unknown to owners when they share
their rows, assign rows to 16 buckets and give every row r 16 signs s_rk. With n rows x_r, their sum s, and S_bk the sum
of the signs of bucket b:

    D_bk = n sum(s_rk x_r over bucket b) - s S_bk      n times a random sum of the rows of bucket b, minus the mean
    T_b  = sum(D_bk^2 over k)                          16 n^2 times about the sum of squares of bucket b about the mean
    bound sum(T) - T_b >= 0,                           bound = limit + (1 - limit) / 4

A bucket with one large row has its square exactly. A column is refused only if a bucket exceeds the bound in each of
two draws of buckets and signs. Clients compare exact numbers with `limit`; the rest of the bound is for other rows of
the bucket.

Honest columns. Two rows of 45% each exceed the bound if they are in the same bucket, in both draws with probability
1/256. If one row has the limit of 75%, the others make a draw exceed the bound in 0.6% of cases, both draws in less
than 0.1% (counted on 4,000 columns of 200 rows). Columns without heavy rows have about 1/16 in every bucket, below the
smallest bound.

Lying owners. Let one row have the fraction f of the sum of squares. The squared random sums of all other rows exceed c
(1 - f) with probability (c exp(1 - c))^8 at most (sums of random signs are sub-Gaussian). A draw misses the row only if
that is above the minimum over g of (sqrt(f) - sqrt(g))^2 (1 - B) / B + g, B being the bound. For limit = 0.75 this has
a probability of at most 2^-14 for f = 0.95 and 2^-100 for f = 0.99. Of 4,000 columns with f = 0.9 none was missed, of
those with f = 0.85 0.1%.

Range. A random sum of at least 2^31.4 sqrt(n d) (d columns of the owner) is detected as in `input_ranges`, except with
2^-24. Sums of honest columns pass except with probability 2^-50. So no number here reaches 2^126. If n sqrt(d) < 2^28,
the same check detects sums s that overflow 64 bits: their rows are so large that random sums exceed the bound.

Cost: 34 comparisons of 128 bits per column, for any number of rows. Rounds: 3 and those of `input_ranges`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ..native import ring
from ..protocol import Party, RingType, SecretArray, together
from .input_ranges import NORM_FACTOR, RANDOM_SUMS, WHOLE, Coins, Ranges, projections
from .second_moments import GRID

DRAWS, BUCKETS, SIGNS = 2, 16, 16
"""Draws of buckets and signs, buckets of a draw, and signs of a row."""

BOUND_STEPS = 64
"""The bound is a multiple of 1 / BOUND_STEPS."""

MAX_MEAN_RATIO = 6
"""Bound on the ratio of all squared random sums of honest columns to their mean; it fails with probability 2^-74."""

MAX_SIZE = 2.0**28
"""Maximum of the number of rows times the square root of the number of columns for which the check holds."""

Words = NDArray[np.uint64]
WORDS = RingType(64, 0, 62)
"""Type of sums modulo 2^64."""


async def dominant_row_conditions(
    party: Party, chunks: Iterator[Words], rows: int, limit: float, table: NDArray[np.intp], tables: int
) -> Ranges:
    """Return the conditions on the columns of every table.

    chunks: arrays (2, rows, width). table: that of every column.
    """
    width = len(table)
    ranges = Ranges(tables)
    narrow, whole, signs = _random_sums(party, chunks, width)
    sums, total = await together(narrow.extend(), whole.extend())
    sums, total = sums.retype(WHOLE), total.retype(WHOLE)
    ranges.between(total, -rows << GRID, rows << GRID, table)
    for number in range(tables):
        _bound(party, ranges, sums[..., table == number], rows, number)
    # |D| < 2^(32 + log(n d) / 2), times n. Of the factor n as many bits are kept as fit into the products.
    kept = max(0, (48 - (rows * width).bit_length()) // 2)
    drop = max(0, rows.bit_length() - kept)
    away = (sums * rows).retype(WHOLE) - (total * signs[..., None]).retype(WHOLE)
    if drop:
        away = await away.retype(RingType(128, drop, 126 - drop)).truncate(drop)
    away = away.retype(WHOLE)
    parts = (await away.inner(away, axis=2, frac=0)).retype(WHOLE)
    bound = round((limit + (1 - limit) / 4) * BOUND_STEPS)
    allowed = (parts.sum(1, keepdims=True).retype(WHOLE) * bound).retype(WHOLE)
    left = allowed.broadcast_to(parts.shape).retype(WHOLE) - (parts * BOUND_STEPS).retype(WHOLE)
    ranges.not_all_negative(left.retype(WHOLE), table)
    return ranges


def _random_sums(
    party: Party, chunks: Iterator[Words], width: int
) -> tuple[SecretArray, SecretArray, NDArray[np.int64]]:
    """Return random sums, sums of the columns, and sums of the signs, modulo 2^64.

    The random sums have shape (draws, buckets, signs, width).
    """
    coins = Coins(party, "buckets")
    shape = (DRAWS, BUCKETS, SIGNS)
    sums, total, signs = np.zeros((2, *shape, width, 1), np.uint64), np.zeros((2, width, 1), np.uint64), np.zeros(shape)
    for chunk in chunks:
        words, length = np.ascontiguousarray(chunk)[..., None], chunk.shape[1]
        total += ring.total(words, 1)
        for draw in range(DRAWS):
            order = coins.order(length)
            drawn = 2 * coins.bits(SIGNS, length).astype(np.int64) - 1
            for bucket in range(BUCKETS):
                own = order[bucket::BUCKETS]
                chosen = ring.integers(np.ascontiguousarray(drawn[:, own]), 1)
                signs[draw, bucket] += drawn[:, own].sum(1)
                for split in (0, 1):
                    sums[split, draw, bucket] += ring.matmul(chosen, words[split, own])
    return SecretArray(party, sums, WORDS), SecretArray(party, total, WORDS), signs.astype(np.int64)


def _bound(party: Party, ranges: Ranges, sums: SecretArray, rows: int, table: int) -> None:
    """Add conditions that detect a random sum far above those of honest columns."""
    entries = np.ascontiguousarray(sums.data.reshape(2, -1, 1, 2))
    norm = math.isqrt(MAX_MEAN_RATIO * DRAWS * SIGNS * rows * sums.shape[-1]) + 1
    most = NORM_FACTOR * norm << GRID
    found = projections(party, iter([entries]), 1, RANDOM_SUMS)
    ranges.between(found, -most, most, np.full(RANDOM_SUMS, table))
