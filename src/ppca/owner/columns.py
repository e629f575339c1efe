"""What an owner of columns sends: its rows as shares, on a grid, its offsets and scales, its own sums. Rows go by their tags."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..algorithms import scales
from ..algorithms.second_moments import GRID, MAX_PIECE_ROWS, ROWS, Blocks, local_product
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

LARGEST = 2.0**500
"""Magnitudes whose squares, and their sums over any number of rows, are doubles."""

PIECE_NUMBERS = 1 << 19
"""Numbers that travel in one run of an upload: 4 MB a split in the 64-bit ring."""

Floats = NDArray[np.float64]


@dataclass
class Centred:
    """An owner's rows and what it subtracts from its columns before it shares them: the mean of its own rows.

    That keeps all digits of columns whose mean is far from zero; the offset itself is shared too, and added to the joint means.
    """

    arranged: Arranged
    offset: Floats
    fine: Floats
    """What the doubles of the offset lack, where integers beyond 2^53 need it; subtracted, too."""
    spread: Floats
    """Largest magnitude after the offset was subtracted."""
    own: Words
    """Sums of products of the owner's own columns: packed, 128 bits, in units of the grid squared; filled as rows are shared."""
    squares: Floats
    """Sums of squares of the columns, in units of their scales; filled as rows are shared."""

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
        """Shares of the rows on a grid of 2^-24 of the scale of each column. own: add up products of own columns."""
        units = np.where(self.spread > 0, self.exponents, 0)
        step = max(1, PIECE_NUMBERS // self.width)
        for start in range(0, len(self.arranged.values), step):
            rest = None if self.arranged.rest is None else self.arranged.rest[start : start + step]
            # Not a product with 2^-exponent, which is infinite for columns of denormal numbers.
            part = np.ldexp(centred(self.arranged.values[start : start + step], rest, self.offset, self.fine), -units)
            encoded, bad = ring.encode(part, GRID, 1)
            if bad >= 0:
                raise OwnerError(f"{self.label}: a value is beyond the scale of its column.")
            if own:
                self._add_own(encoded[..., 0])
            self.squares += np.sum(part**2, axis=0)
            tags = None if self.arranged.tags is None else self.arranged.tags[start : start + step]
            yield Chunk(table, [share_ring(encoded, ROWS)], rows=True, tags=tags)

    def check_row_shares(self, limit: float) -> None:
        """Refuse columns of which one row has more than `limit` of the sum of squares. Call it when all rows are shared."""
        largest = np.ldexp(self.spread, -np.where(self.spread > 0, self.exponents, 0)) ** 2
        found = np.flatnonzero(largest > limit * self.squares)
        if len(found):
            first, names = int(found[0]), self.arranged.table.names
            part = largest[first] / self.squares[first]
            raise OwnerError(
                f"{self.label}: one row has {part:.0%} of the sum of squares of column {names[first] if names else first + 1}; "
                f"this job allows {limit:.0%} (row_share_at_most). With such a column the result would tell the values of that "
                "row at the other owners. Leave the column out, merge rare categories, or propose the job with a larger limit. "
                "Nothing was sent."
            )

    @property
    def exponents(self) -> NDArray[np.int64]:
        """The smallest e with |x - offset| < 2^e of every column: the scale of its grid."""
        _, found = np.frexp(self.spread)
        return np.where(self.spread > 0, found, scales.NONE).astype(np.int64)

    def share_scales(self) -> list[list[InputPacket]]:
        """The exponents of the columns, and what was subtracted from them; all secret."""
        own = share(self.exponents, scales.EXPONENT, f"exponents of {self.label}")
        return [own, *rows.share_numbers(self.offset, self.fine)]

    def share_own(self) -> list[InputPacket]:
        """The sums of products of the owner's own columns, of the rows as they were sent."""
        return share_ring(self.own, OWN)

    def _add_own(self, grid: Words) -> None:
        """Adds the products of some rows, exactly: 64 bits hold those of a piece, 128 their sum."""
        for start in range(0, len(grid), MAX_PIECE_ROWS):
            piece = grid[start : start + MAX_PIECE_ROWS]
            narrow = local_product(piece, piece, Blocks((0, self.width), own=True))
            wide = ring.empty((len(narrow),), 2)
            kernels.extend(wide, narrow, True)
            self.own = ring.add(self.own, wide)


def middle(values: Floats, rest: Rest | None, label: str) -> tuple[Floats, Floats, Floats]:
    """The mean of every column, as a double and what that lacks, and the largest distance from it."""
    low, high = values.min(axis=0), values.max(axis=0)
    with np.errstate(over="ignore", invalid="ignore"):
        offset = np.where(low == high, low, values.mean(axis=0))
        spread = np.maximum(high - offset, offset - low)
    offset, fine, spread = _finer(values, rest, offset, spread)
    largest = np.maximum(np.abs(low), np.abs(high))
    if not np.all(largest < LARGEST):
        raise OwnerError(f"{label}: values are too large to be squared; scale the columns first.")
    return offset, fine, spread


def _finer(values: Floats, rest: Rest | None, offset: Floats, spread: Floats) -> tuple[Floats, Floats, Floats]:
    """Offset, its fine part and the largest distance from both, of integers that doubles round; else as they were."""
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
    """values + rest - offset - fine: differences of integers that lie close are exact."""
    away = values - offset
    return away if rest is None else (away + rest) - fine


def new_rows(table: int, arranged: Arranged, scale: NDArray[np.int64], standardized: bool) -> Iterator[Chunk]:
    """Shares of an owner's columns of new rows for a shared model; `scale`: the model's, of these columns."""
    records, kind = arranged.table, row_type(standardized)
    # Refuses what does not fit, by the owner's rows.
    rows.in_units(records.values, scale, kind, records.names, f"{records.label}: ")
    step = max(1, PIECE_NUMBERS // len(scale))
    for first in range(0, len(arranged.values), step):
        part = arranged.values[first : first + step]
        tags = None if arranged.tags is None else arranged.tags[first : first + step]
        packets = share(rows.in_units(part, scale, kind, records.names, ""), kind, records.label)
        yield Chunk(table, [packets], rows=True, tags=tags)
