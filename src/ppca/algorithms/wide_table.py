"""A shared table with more columns than rows, read in chunks of columns: products of its rows, and with vectors from
both sides.

There are four bilinear maps of X (n rows, d columns). Each takes one round for any number of chunks: local products of
chunks are added in the ring before they are masked, and only the sum is sent.

    gram           X X', the packed upper triangle      n (n + 1) / 2 elements
    squares        the sum of squares of every column   d elements
    onto_columns   X' U for few vectors of length n     d k elements
    onto_rows      X V for few vectors of length d      n k elements

Entries have 48 fractional bits and are shared in the 128-bit ring. All sums are exact, so X has the precision of
doubles, and vectors of 56 fractional bits keep theirs. Range: n d <= 2^26, so that no sum leaves the ring.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..native import clock, kernels, ring
from ..protocol import Party, Pending, RingType, SecretArray
from ..protocol.multiply import Product, masked

ENTRY_FRAC = 48
"""Fractional bits of the entries of a table."""

COLUMN_ERROR = 2.0**-44
"""Error of a column as a root mean square, in units of its scale: entries and means have 48 fractional bits."""

VECTOR_FRAC = 56
"""Fractional bits of vectors by which a table is multiplied."""

ENTRIES = RingType(128, ENTRY_FRAC, 14)
"""Type of entries of a table; those of a column of n standardised rows reach sqrt(n)."""

VECTORS = RingType(128, VECTOR_FRAC, 14)
"""Type of vectors by which a table is multiplied."""

PRODUCTS = RingType(128, 2 * ENTRY_FRAC, 28)
"""Type of sums of products of entries."""

ONTO = RingType(128, ENTRY_FRAC + VECTOR_FRAC, 20)
"""Type of products of a table and vectors."""


MAX_TABLE_ENTRIES = 1 << 26
"""Maximum of rows times columns of a table."""

CHUNK_ENTRIES = 1 << 18
"""Entries of a chunk: 4 MB per split. The allocator maps larger arrays anew each time (`native/process/memory.cpp`)."""

Words = NDArray[np.uint64]


def columns_per_chunk(rows: int) -> int:
    """Return the number of columns of a chunk of a table with this number of rows."""
    return max(1, CHUNK_ENTRIES // rows)


@dataclass
class WideTable:
    """One server's shares of a table.

    chunks(): yields arrays (2, columns, rows, 2) of all columns from the first on.
    """

    party: Party
    chunks: Callable[[], Iterator[Words]]
    rows: int
    columns: int

    async def gram(self) -> SecretArray:
        """Return X X', packed, 96 fractional bits."""
        n, done = self.rows, 0
        total = ring.zeros((n * (n + 1) // 2,), 2)
        for chunk in self.chunks():
            with clock.products:
                part = ring.empty(total.shape[:-1], 2)
                turned = np.ascontiguousarray(chunk[0].transpose(1, 0, 2))
                kernels.matmul_upper(part, turned, np.ascontiguousarray(chunk[1]), n, chunk.shape[1], False)
                total = ring.add(total, part)
            done += chunk.shape[1]
            self.party.progress(f"products of rows, column {done:,} of {self.columns:,}", done / self.columns)
        return await self._exchanged(total, PRODUCTS)

    async def squares(self) -> SecretArray:
        """Return the sum of squares of every column, 96 fractional bits."""
        parts = []
        for chunk in self.chunks():
            with clock.products:
                products = ring.mul(np.ascontiguousarray(chunk[0]), np.ascontiguousarray(chunk[1]))
                parts.append(ring.total(products, 1))
        return await self._exchanged(np.concatenate(parts), PRODUCTS)

    def sums(self) -> SecretArray:
        """Return the sum of every column, 48 fractional bits. Local."""
        parts = [ring.total(np.ascontiguousarray(chunk), 2) for chunk in self.chunks()]
        return SecretArray(self.party, np.concatenate(parts, axis=1), RingType(128, ENTRY_FRAC, 14))

    async def onto_columns(self, vectors: SecretArray) -> SecretArray:
        """Return X' U, 104 fractional bits; U has 56 and the shape (n, k)."""
        right = np.ascontiguousarray(vectors.retype(VECTORS).column)
        parts = []
        for chunk in self.chunks():
            with clock.products:
                parts.append(ring.matmul(np.ascontiguousarray(chunk[0]), right))
        return await self._exchanged(np.concatenate(parts), ONTO)

    async def onto_rows(self, vectors: SecretArray) -> SecretArray:
        """Return X V, 104 fractional bits; V has 56 and the shape (d, k)."""
        right = np.ascontiguousarray(vectors.retype(VECTORS).column)
        total = ring.zeros((self.rows, right.shape[1]), 2)
        start = 0
        for chunk in self.chunks():
            stop = start + chunk.shape[1]
            with clock.products:
                turned = np.ascontiguousarray(chunk[0].transpose(1, 0, 2))
                total = ring.add(total, ring.matmul(turned, right[start:stop]))
            start = stop
        return await self._exchanged(total, ONTO)

    async def _exchanged(self, product: Words, dtype: RingType) -> SecretArray:
        """Return the sum of all servers' local products: one round."""
        template = SecretArray(self.party, np.empty((2, 0, 2), np.uint64), dtype)
        found: SecretArray = await Pending(masked(template, product, Product(dtype, 0, None)))
        return found
