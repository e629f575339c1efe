"""Shares of an owner's table with more columns than rows: its columns, one below the other, and their products.

A column owner that knows the common rows centres its columns over them, standardises them if requested, and sends the
Gram matrix of its rows: a double holds each entry to 2^-52, and they are shared with 56 fractional bits.

A row owner subtracts the means of its own rows and sends them separately (see `algorithms.wide_scales`). It adds rows
of zeros up to a multiple of 32 rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..algorithms import gram_matrix, joint_covariance, scales
from ..algorithms.wide_table import ENTRIES, ENTRY_FRAC
from ..jobs.chunks import Chunk
from ..jobs.input_types import INVERSE
from ..jobs.openings import ROWS_TOGETHER
from ..native import ring
from ..protocol import InputPacket, share, share_ring
from . import rows
from .alignment.arrangement import Arranged
from .alignment.tags import Words
from .columns import CHUNK_NUMBERS, Floats, centred, middle
from .errors import OwnerError
from .moments import two_sum
from .tables.records import Records


@dataclass
class WideColumns:
    """An owner's columns, centred over the common rows.

    values: in units of 2^exponents[0], below 1; if standardised, in units of the deviations, whose exponents are
    `exponents`.
    inverse: 2^exponent / deviation of every column, 0 for constant ones; None if columns are not standardised here.
    own: whether the owner sends the Gram matrix of its rows.
    """

    label: str
    values: Floats
    offset: Floats
    fine: Floats
    exponents: NDArray[np.int64]
    inverse: Floats | None
    tags: Words | None
    own: bool

    @classmethod
    def of(cls, arranged: Arranged, standardize: bool, own: bool = True) -> WideColumns:
        """Prepare an owner's columns. own: whether the owner centres and standardises its columns itself.

        Otherwise, or if servers find the common rows by tags, columns are centred over the owner's rows and not
        standardised. If servers standardise them, each has its own unit with headheadroom for sums of squares.
        """
        offset, fine, spread = middle(arranged.values, arranged.rest, arranged.table.label)
        away = centred(arranged.values, arranged.rest, offset, fine)
        label, varies, tags = arranged.table.label, spread > 0, arranged.tags
        own = own and tags is None
        if not standardize or not own:
            headroom = SQUARES_HEADROOM_BITS if standardize else 0
            exponents = exponents_of(spread if standardize else spread.max(keepdims=True)) + headroom
            units = np.where(exponents > scales.NONE + headroom, exponents, 0)
            return cls(label, np.ldexp(away, -units), offset, fine, exponents, None, tags, own)
        # In units of the largest distance, so that squares neither overflow nor underflow.
        units = np.where(varies, exponents_of(spread), 0)
        near = np.ldexp(away, -units)
        near -= near.mean(axis=0)
        deviation = np.sqrt(np.mean(near**2, axis=0))
        found, part = np.frexp(np.where(varies, deviation, 1.0))[::-1]
        values = near * np.divide(1.0, deviation, out=np.zeros_like(deviation), where=varies)
        exponents = np.where(varies, found + units, scales.NONE).astype(np.int64)
        return cls(label, values, offset, fine, exponents, np.where(varies, 1 / part, 0.0), None, own)

    @property
    def width(self) -> int:
        return len(self.offset)

    def chunks(self, table: int) -> Iterator[Chunk]:
        return turned_chunks(table, self.label, self.values, self.tags)

    def share_sums(self) -> list[list[InputPacket]]:
        """Return shares of means, units, Gram matrix and deviations, as far as the owner computes them."""
        found = [
            *rows.share_numbers(self.offset, self.fine),
            share(self.exponents, scales.EXPONENT, f"exponents of {self.label}"),
        ]
        if self.own:
            products = (self.values @ self.values.T)[np.triu_indices(len(self.values))]
            found.append(share(products, gram_matrix.SUMS, f"products of rows of {self.label}"))
        if self.inverse is not None:
            found.append(share(self.inverse, INVERSE, f"deviations of {self.label}"))
        return found


@dataclass
class WideRows:
    """An owner's rows minus their means, in units of 2^exponents, followed by rows of zeros.

    mean, rest: the means as doubles and their rounding errors. roots: square roots of the columns' sums of squares, if
    standardised.
    """

    label: str
    count: int
    values: Floats
    mean: Floats
    rest: Floats
    exponents: NDArray[np.int64]
    roots: Floats | None

    @classmethod
    def of(cls, records: Records, standardize: bool) -> WideRows:
        count = len(records.values)
        offset, fine, _ = middle(records.values, records.rest, records.label)
        away = centred(records.values, records.rest, offset, fine)
        left = away.mean(axis=0)
        away -= left
        mean, rest = two_sum(offset, fine + left)
        spread = np.abs(away).max(axis=0)
        exponents = exponents_of(spread if standardize else spread.max(keepdims=True))
        values = np.zeros((padded(count), len(mean)))
        values[:count] = np.ldexp(away, -np.where(exponents > scales.NONE, exponents, 0))
        roots = np.sqrt(np.sum(values**2, axis=0)) if standardize else None
        return cls(records.label, count, values, mean, rest, exponents, roots)

    def chunks(self, table: int) -> Iterator[Chunk]:
        return turned_chunks(table, self.label, self.values)

    def share_sums(self) -> list[list[InputPacket]]:
        """Return shares of all inputs except the rows, in the order of `wide_scales.WideOwnerMoments`."""
        rest, _ = rows.cut(self.mean, self.rest)
        found = [
            share(np.array([self.count]), joint_covariance.COUNT, "count"),
            share(np.array([np.sqrt(self.count)]), joint_covariance.ROOT, "root"),
            *rows.share_numbers(self.mean, rest),
            share(self.exponents, scales.EXPONENT, f"exponents of {self.label}"),
        ]
        if self.roots is not None:
            found.append(share(self.roots, joint_covariance.ROOT, f"sums of squares of {self.label}"))
        return found


def padded(count: int) -> int:
    """Return the number of rows that an owner with this number of rows uploads."""
    return -(-count // ROWS_TOGETHER) * ROWS_TOGETHER


def exponents_of(spread: Floats) -> NDArray[np.int64]:
    """Return the smallest e with |x| < 2^e for numbers up to `spread`; NONE for zeros."""
    _, found = np.frexp(spread)
    return np.where(spread > 0, found, scales.NONE).astype(np.int64)


SQUARES_HEADROOM_BITS = 7
"""log2 of the factor of the unit of columns that servers standardise: the sum of squares of 2^13 rows stays below 1."""


def turned_chunks(table: int, label: str, values: Floats, tags: Words | None = None) -> Iterator[Chunk]:
    """Yield shares of columns, one below the other. The first chunk has the tags of the rows."""
    step = max(1, CHUNK_NUMBERS // max(1, len(values)))
    for start in range(0, values.shape[1], step):
        part = np.ascontiguousarray(values[:, start : start + step].T)
        encoded, bad = ring.encode(part, ENTRY_FRAC, 2)
        if bad >= 0:
            raise OwnerError(
                f"{label}: a value exceeds the scale of its column. The table changed while it was read; run again."
            )
        yield Chunk(table, [share_ring(encoded, ENTRIES)], rows=True, tags=tags if start == 0 else None)
