"""Whether few rows carry most of a column: a check on shares against columns that mark single persons.

A column that is 1 for one person and 0 otherwise makes its covariance with another owner's column the value of that person. Rows
are assigned to 16 buckets by public coins. With n rows, n_b of them in bucket b, and sums s and sums of squares Q of a column:

    T_b = n^2 Q_b - 2 n s s_b + n_b s^2        n^2 times the sum of squares about the mean, over the rows of bucket b
    limit * sum(T) - T_b >= 0

If the condition holds for all buckets, no row has more than `limit` of the column's sum of squares. The converse does not hold: a
bucket can exceed the limit by several rows together.

Squares are added up modulo 2^64, and the check of ranges lets entries pass that are somewhat above 1. So a row with an entry of
+-2^32 in units of the grid would not be seen. Random sums of every column find it: with Q the column's sum of squares modulo
2^64, a sum of at least half that entry, which has probability 1/2, has a square above 36 Q if Q < 2^62 / 36. Up to 455 rows Q is
below that. Beyond, an owner can choose its other rows so that such an entry is not found.

Cost: 30 comparisons of 128 bits per column, however many rows there are. Rounds: 5 and those of `input_ranges`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from ..protocol import Party, Pending, RingType, SecretArray, together
from ..protocol.multiply import Product, masked
from .gram import GRID
from .input_ranges import TIMES, WHOLE, Coins, Ranges, projections

BUCKETS = 16
TOGETHER = 1 << 17
"""Rows whose sums of squares are added up in 64 bits: 2^14 rows of a bucket have 62."""

STEPS = 64
"""The limit is a multiple of 1/64."""

COLUMN_SUMS = 12
"""Random sums of every column."""

ROOM = 126

Words = NDArray[np.uint64]


async def row_shares(
    party: Party, pieces: Callable[[], Iterator[Words]], rows: int, limit: float, table: NDArray[np.intp], tables: int
) -> Ranges:
    """The conditions on the columns of every table. pieces: (2, rows, width), at most 8,192 rows each; read twice."""
    width = len(table)
    totals, counts = await _sums(party, pieces(), width)
    squares, sums = totals
    ranges = Ranges(tables)
    await _no_overflow(party, ranges, pieces(), squares.sum(0).retype(WHOLE), rows, table)
    # n^2 Q < 2^(48 + 3 log n), times 64: the lowest bits of sums are dropped if there is no room for them.
    drop = max(0, -(-(2 * GRID + 3 * rows.bit_length() + 7 - ROOM) // 2))
    if drop:
        squares, sums = squares.shifted(2 * drop, WHOLE), sums.shifted(drop, WHOLE)
    whole = sums.sum(0).retype(WHOLE)
    cross, square = await together(
        sums.retype(WHOLE).mul(whole.broadcast_to(sums.shape), frac=0), whole.mul(whole, frac=0)
    )
    parts = (squares.retype(WHOLE) * rows**2).retype(WHOLE) - (cross.retype(WHOLE) * (2 * rows)).retype(WHOLE)
    parts = parts.retype(WHOLE) + (square.retype(WHOLE).reshape(1, width) * counts[:, None]).retype(WHOLE)
    parts = parts.retype(WHOLE)
    allowed = (parts.sum(0).retype(WHOLE) * round(limit * STEPS)).retype(WHOLE)
    left = allowed.reshape(1, width).broadcast_to(parts.shape).retype(WHOLE) - (parts * STEPS).retype(WHOLE)
    ranges.not_negative(left, np.tile(table, BUCKETS))
    return ranges


async def _no_overflow(
    party: Party, ranges: Ranges, pieces: Iterator[Words], squares: SecretArray, rows: int, table: NDArray[np.intp]
) -> None:
    """Conditions on sums of squares Q of the columns, which come modulo 2^64: Q is at most that of `rows` entries of 1, and
    random sums of the column, squared in 128 bits, are at most 36 Q. Two rounds."""
    ranges.between(squares, 0, rows << (2 * GRID), table)
    sums = await projections(party, (piece[..., None] for piece in pieces), len(table), COLUMN_SUMS).extend()
    square = (await sums.retype(WHOLE).mul(sums.retype(WHOLE), frac=0)).retype(WHOLE)
    most = (squares * TIMES**2).retype(WHOLE).reshape(-1, 1).broadcast_to(square.shape).retype(WHOLE)
    ranges.not_negative(most - square, np.repeat(table, COLUMN_SUMS))


async def _sums(
    party: Party, pieces: Iterator[Words], width: int
) -> tuple[tuple[SecretArray, SecretArray], NDArray[np.int64]]:
    """Sums of squares and sums of every bucket and column (16, width), in 128 bits, and the number of rows of every bucket."""
    coins, counts = Coins(party, "buckets"), np.zeros(BUCKETS, np.int64)
    total: tuple[SecretArray, SecretArray] | None = None
    squares, sums, held = _empty(width)
    for piece in pieces:
        length = piece.shape[1]
        if held + length > TOGETHER:
            total = _added(total, await _extended(party, squares, sums))
            squares, sums, held = _empty(width)
        bucket = coins.order(length) % BUCKETS
        np.add.at(squares, bucket, piece[0] * piece[1])  # modulo 2^64
        for split in (0, 1):
            np.add.at(sums[split], bucket, piece[split])
        counts += np.bincount(bucket, minlength=BUCKETS)
        held += length
    return _added(total, await _extended(party, squares, sums)), counts


def _empty(width: int) -> tuple[Words, Words, int]:
    return np.zeros((BUCKETS, width), np.uint64), np.zeros((2, BUCKETS, width), np.uint64), 0


async def _extended(party: Party, squares: Words, sums: Words) -> tuple[SecretArray, SecretArray]:
    kind = RingType(64, 2 * GRID, 14)
    template = SecretArray(party, np.empty((2, 0, 1), np.uint64), kind)
    narrow = await Pending(masked(template, squares.reshape(-1, 1), Product(kind, 0, None)))
    both = await together(narrow.extend(), SecretArray(party, sums[..., None], RingType(64, GRID, 38)).extend())
    return both[0].reshape(squares.shape).retype(WHOLE), both[1].retype(WHOLE)


def _added(
    total: tuple[SecretArray, SecretArray] | None, more: tuple[SecretArray, SecretArray]
) -> tuple[SecretArray, SecretArray]:
    if total is None:
        return more
    return (total[0] + more[0]).retype(WHOLE), (total[1] + more[1]).retype(WHOLE)
