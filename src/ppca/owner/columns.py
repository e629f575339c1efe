"""What an owner of columns sends: its rows as shares, on a grid, its offsets and scales, its own sums. Rows go by their tags."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..algorithms.gram import GRID, LONGEST_PIECE, ROWS, SMALL, Blocks, local_product
from ..jobs import columns, inference
from ..native import kernels, ring
from ..protocol import InputPacket, share, share_ring
from . import rows
from .alignment.arrangement import Arranged
from .alignment.tags import Words
from .errors import OwnerError

LARGEST = 2.0**500
"""Magnitudes whose squares, and their sums over any number of rows, are doubles."""

PIECE_NUMBERS = 1 << 19
"""Numbers that travel in one run of an upload: 4 MB a split in the 64-bit ring."""

REACH = 20
"""New rows may be 2^20 times larger than the scale of a column: that is the scale of its spread, not of its mean."""

Floats = NDArray[np.float64]


@dataclass
class Piece:
    """Some rows of an owner on their way: shares, and their tags (psi)."""

    owner: int
    label: str
    rows: int
    packets: list[InputPacket]
    tags: Words | None


@dataclass
class Centred:
    """An owner's rows and what it subtracts from its columns before it shares them: the mean of its own rows.

    That keeps all digits of columns whose mean is far from zero; the offset itself is shared too, and added to the joint means.
    """

    arranged: Arranged
    offset: Floats
    largest: Floats
    """Largest magnitude of each column as it is."""
    spread: Floats
    """Largest magnitude after the offset was subtracted."""
    own: Words
    """Sums of products of the owner's own columns: packed, 128 bits, in units of the grid squared; filled as rows are shared."""

    @classmethod
    def of(cls, arranged: Arranged) -> Centred:
        values = arranged.values
        low, high = values.min(axis=0), values.max(axis=0)
        with np.errstate(over="ignore", invalid="ignore"):
            offset = np.where(low == high, low, values.mean(axis=0))
            spread = np.maximum(high - offset, offset - low)
        largest = np.maximum(np.abs(low), np.abs(high))
        if not np.all(largest < LARGEST):
            raise OwnerError(f"{arranged.table.label}: values are too large to be squared; scale the columns first.")
        width = values.shape[1]
        return cls(arranged, offset, largest, spread, ring.zeros((width * (width + 1) // 2,), 2))

    @property
    def label(self) -> str:
        return self.arranged.table.label

    @property
    def width(self) -> int:
        return len(self.offset)

    def pieces(self, owner: int, scale: NDArray[np.int64], own: bool) -> Iterator[Piece]:
        """Shares of the rows on the grid of 2^-24, in pieces."""
        shrink = np.ldexp(1.0, -scale)
        step = max(1, PIECE_NUMBERS // self.width)
        for start in range(0, len(self.arranged.values), step):
            part = (self.arranged.values[start : start + step] - self.offset) * shrink
            encoded, bad = ring.encode(part, GRID, 1)
            if bad >= 0:
                raise OwnerError(f"{self.label}: a value is beyond the scale of its column.")
            if own:
                self._add_own(encoded[..., 0])
            tags = None if self.arranged.tags is None else self.arranged.tags[start : start + step]
            yield Piece(owner, self.label, len(part), share_ring(encoded, ROWS), tags)

    def share_offset(self, scale: NDArray[np.int64]) -> list[InputPacket]:
        """What was subtracted, in the scale of the columns."""
        return share(self.offset * np.ldexp(1.0, -scale), columns.OFFSETS, f"offset of {self.label}")

    def grid_scale(self, scale: NDArray[np.int64]) -> NDArray[np.int64]:
        """Exponents of the columns as they are shared: their own, as far as a common scale leaves room for them."""
        return np.clip(rows.exponents(self.spread, True), scale - SMALL, scale)

    def share_powers(self, scale: NDArray[np.int64]) -> list[InputPacket]:
        """By how much the scale of each column is below the common one: secret."""
        return share(1 << (self.grid_scale(scale) - scale + SMALL), columns.POWERS, f"powers of {self.label}")

    def share_own(self) -> list[InputPacket]:
        """The sums of products of the owner's own columns, of the rows as they were sent."""
        return share_ring(self.own, columns.OWN)

    def _add_own(self, grid: Words) -> None:
        """Adds the products of some rows, exactly: 64 bits hold those of a piece, 128 their sum."""
        for start in range(0, len(grid), LONGEST_PIECE):
            piece = grid[start : start + LONGEST_PIECE]
            narrow = local_product(piece, piece, Blocks((0, self.width), own=True))
            wide = ring.empty((len(narrow),), 2)
            kernels.extend(wide, narrow, True)
            self.own = ring.add(self.own, wide)


def check_bounds(owners: Sequence[Centred], bounds: Any) -> None:
    """Refuses values beyond their declared bounds, before anything is sent."""
    limits = np.ldexp(1.0, rows.declared_scale(bounds, sum(owner.width for owner in owners), True))
    for owner, part in zip(owners, np.split(limits, np.cumsum([owner.width for owner in owners])[:-1]), strict=True):
        rows.check_within(owner.label, owner.arranged.table.names, owner.largest, part)


def new_rows(owner: int, arranged: Arranged, scale: NDArray[np.int64], standardized: bool) -> Iterator[Piece]:
    """Shares of an owner's columns of new rows for a shared model, in pieces; `scale`: the model's, of these columns."""
    table = arranged.table
    limits = np.ldexp(1.0, scale + REACH)
    rows.refuse_beyond(table.values, limits, table.names, f"{table.label}: ", "Remove the row.")
    wide = inference.row_type(standardized).with_span(
        REACH
    )  # what an owner may send; less the mean it is what the type promises
    step = max(1, PIECE_NUMBERS // len(scale))
    for first in range(0, len(arranged.values), step):
        part = arranged.values[first : first + step]
        tags = None if arranged.tags is None else arranged.tags[first : first + step]
        yield Piece(owner, table.label, len(part), share(part * np.ldexp(1.0, -scale), wide, table.label), tags)
