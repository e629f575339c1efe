"""Shares of a column owner: its rows on a grid, in the order of their tags, its offsets and scales, and its own
sums."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..algorithms import scales
from ..algorithms.second_moments import GRID, MAX_CHUNK_ROWS, ROWS, Blocks, local_product
from ..jobs.chunks import Chunk
from ..jobs.input_types import OWN, row_type
from ..native import kernels, ring
from ..protocol import InputPacket, share, share_ring
from . import rows
from .alignment.arrangement import Arranged
from .alignment.tags import Words
from .errors import OwnerError
from .moments import two_sum
from .tables.integers import Rest

MAX_MAGNITUDE = 2.0**500
"""Bound of magnitudes: squares, and their sums over any number of rows, do not overflow a double."""

CHUNK_NUMBERS = 1 << 19
"""Maximum number of entries in one chunk of an upload: 4 MB per split in the 64-bit ring."""

Floats = NDArray[np.float64]


@dataclass
class Centred:
    """An owner's rows and the offsets that it subtracts before it shares them: the means of its own rows.

    That keeps all digits of columns whose mean is far from zero; the offset itself is shared too, and added to the
    joint means.
    """

    arranged: Arranged
    offset: Floats
    fine: Floats
    """Rounding error of `offset`, for columns with integers beyond 2^53; also subtracted."""
    spread: Floats
    """Largest magnitude after the offset was subtracted."""
    own: Words
    """Sums of products of the owner's own columns: packed, 128 bits, in units of the grid squared. Added up while rows
    are shared."""
    squares: Floats
    """Sums of squares of the columns, in units of their scales. Added up while rows are shared."""

    @classmethod
    def of(cls, arranged: Arranged) -> Centred:
        offset, fine, spread = middle(arranged.values, arranged.rest, arranged.table.label)
        width = len(offset)
        return cls(arranged, offset, fine, spread, ring.zeros((width * (width + 1) // 2,), 2), np.zeros(width))

    @property
    def label(self) -> str:
        return self.arranged.table.label

    @property
    def width(self) -> int:
        return len(self.offset)

    def chunks(self, table: int, own: bool) -> Iterator[Chunk]:
        """Yield shares of the rows on a grid of 2^-24 of each column's scale. own: also add up products of own
        columns."""
        units = np.where(self.spread > 0, self.exponents, 0)
        step = max(1, CHUNK_NUMBERS // self.width)
        for start in range(0, len(self.arranged.values), step):
            rest = None if self.arranged.rest is None else self.arranged.rest[start : start + step]
            # Not a product with 2^-exponent, which is infinite for columns of denormal numbers.
            part = np.ldexp(centred(self.arranged.values[start : start + step], rest, self.offset, self.fine), -units)
            encoded, bad = ring.encode(part, GRID, 1)
            if bad >= 0:
                raise OwnerError(
                    f"{self.label}: a value exceeds the scale of its column. The table changed "
                    "while it was read; run again."
                )
            if own:
                self._add_own(encoded[..., 0])
            self.squares += np.sum(part**2, axis=0)
            tags = None if self.arranged.tags is None else self.arranged.tags[start : start + step]
            yield Chunk(table, [share_ring(encoded, ROWS)], rows=True, tags=tags)

    def check_row_shares(self, limit: float) -> None:
        """Refuse columns of which one row has more than `limit` of the sum of squares. Call after all rows were
        shared."""
        largest = np.ldexp(self.spread, -np.where(self.spread > 0, self.exponents, 0)) ** 2
        found = np.flatnonzero(largest > limit * self.squares)
        if len(found):
            first, names = int(found[0]), self.arranged.table.names
            part = largest[first] / self.squares[first]
            raise OwnerError(
                f"{self.label}: one row has {part:.0%} of the sum of squares of column "
                f"{names[first] if names else first + 1}; this job allows {limit:.0%} (row_share_at_most). With such "
                "a column the result would reveal the values of that row at the other owners. Omit the column, "
                "merge rare categories, or propose the job with a larger limit. Nothing was sent."
            )

    @property
    def exponents(self) -> NDArray[np.int64]:
        """Return, per column, the smallest e with |x - offset| < 2^e: the scale of its grid."""
        _, found = np.frexp(self.spread)
        return np.where(self.spread > 0, found, scales.NONE).astype(np.int64)

    def share_scales(self) -> list[list[InputPacket]]:
        """Return shares of the exponents and the offsets of the columns."""
        own = share(self.exponents, scales.EXPONENT, f"exponents of {self.label}")
        return [own, *rows.share_numbers(self.offset, self.fine)]

    def share_own(self) -> list[InputPacket]:
        """Return shares of the sums of products of the owner's own columns, of the rows as sent."""
        return share_ring(self.own, OWN)

    def _add_own(self, grid: Words) -> None:
        """Add the products of some rows exactly: 64 bits hold those of a chunk, 128 bits their sum."""
        for start in range(0, len(grid), MAX_CHUNK_ROWS):
            chunk = grid[start : start + MAX_CHUNK_ROWS]
            narrow = local_product(chunk, chunk, Blocks((0, self.width), own=True))
            wide = ring.empty((len(narrow),), 2)
            kernels.extend(wide, narrow, True)
            self.own = ring.add(self.own, wide)


def middle(values: Floats, rest: Rest | None, label: str) -> tuple[Floats, Floats, Floats]:
    """Return the mean of every column, its rounding error, and the largest distance from it."""
    low, high = values.min(axis=0), values.max(axis=0)
    with np.errstate(over="ignore", invalid="ignore"):
        offset = np.where(low == high, low, values.mean(axis=0))
        spread = np.maximum(high - offset, offset - low)
    offset, fine, spread = _finer(values, rest, offset, spread)
    largest = np.maximum(np.abs(low), np.abs(high))
    if not np.all(largest < MAX_MAGNITUDE):
        raise OwnerError(f"{label}: values are too large to be squared; scale the columns first.")
    return offset, fine, spread


def _finer(values: Floats, rest: Rest | None, offset: Floats, spread: Floats) -> tuple[Floats, Floats, Floats]:
    """Correct offset, fine part and largest distance for columns with integers that doubles round."""
    fine = np.zeros_like(offset)
    if rest is None or not (moved := rest.any(axis=0)).any():
        return offset, fine, spread
    values, rest = values[:, moved], rest[:, moved]
    away = centred(values, rest, offset[moved], fine[moved])
    middle = np.where((away == away[0]).all(axis=0), away[0], away.mean(axis=0))
    offset, spread = offset.copy(), spread.copy()
    offset[moved], fine[moved] = two_sum(offset[moved], middle)
    spread[moved] = np.abs(centred(values, rest, offset[moved], fine[moved])).max(axis=0)
    return offset, fine, spread


def centred(values: Floats, rest: Rest | None, offset: Floats, fine: Floats) -> Floats:
    """Return values + rest - offset - fine; differences of close integers are exact."""
    away = values - offset
    return away if rest is None else (away + rest) - fine


def new_rows(table: int, arranged: Arranged, scale: NDArray[np.int64], standardized: bool) -> Iterator[Chunk]:
    """Yield shares of an owner's columns of new rows for a kept model. scale: exponents of these columns in the
    model."""
    records, kind = arranged.table, row_type(standardized)
    # Raises for values that do not fit, with the row in the owner's table.
    rows.in_units(records.values, scale, kind, records.names, f"{records.label}: ")
    step = max(1, CHUNK_NUMBERS // len(scale))
    for first in range(0, len(arranged.values), step):
        part = arranged.values[first : first + step]
        tags = None if arranged.tags is None else arranged.tags[first : first + step]
        packets = share(rows.in_units(part, scale, kind, records.names, ""), kind, records.label)
        yield Chunk(table, [packets], rows=True, tags=tags)
