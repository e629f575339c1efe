"""Gram matrix of the packed triangular factors of all owners in secret scales, one block of rows at a time.

X is one factor below the other, and X'X is wanted. Row k of a triangle has d - k entries, so X'X takes m d^3 / 6
products of elements. X itself, m d^2 elements with its zeros, is never built.

1. A pass takes the same rows of all factors, up to 2^20 entries. Each entry is multiplied by the secret power of two of
   its owner and column and truncated exactly: the upper half of a product, extended to 128 bits again. Two rounds.
2. Their local products are added up, 128 rows of every factor at a time. Rows from k on affect only columns from k on,
   which are the end of the packed triangle.
3. After the last pass the sum is masked and exchanged: one round, d (d + 1) / 2 elements.

Sent: 2 words and those of an extension (2 to 4) per entry of a factor, 2 elements per entry of the result.
Memory of a server: the factors, two packed triangles of local products, and the arrays of one pass (about 250 MB).
Range: |entry| 2^-u < 1, with 2^-u the secret power of two. Error of an entry of X: half of 2^-55.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..native import clock, kernels, ring
from ..protocol import Pending, RingType, SecretArray
from ..protocol.multiply import Product, masked
from ..protocol.triangles import row_starts
from .scales import EXPONENT, RAW, power_table

ROOT_FRAC = 45
"""Fractional bits of sqrt(n_i) and of the entries of factors, which reach sqrt(n_i)."""

X_FRAC = 56
"""Fractional bits of X."""

SPARE_FRAC = 4
"""Fractional bits of the upper half of a product beyond those of X, so that its rounding is negligible."""

MAX_SHIFT = X_FRAC + SPARE_FRAC + 64 - ROOT_FRAC
"""Maximum shift u: entries times 2^-u with a larger u are zero."""

PASS_ENTRIES = 1 << 19
"""Maximum number of entries of a pass: both splits take 16 MB (see `covariance.PASS_ENTRIES`)."""

BLOCK_ROWS = 128
"""Rows of every factor whose products are computed at once."""


async def shift_powers(shift: Any) -> Any:
    """Return the powers of two that `shifted` takes, for 2^-shift: two rounds."""
    # R 2^(15 - u) = (R 2^(79 - u)) 2^-64 with u = D - e + h >= h + 2, for roots u = h: R < 2^(45 + h), so the product
    # stays below 2^124, and with R < 2^63 the result is 0 beyond 79.
    thresholds, values = power_table(0, MAX_SHIFT, lambda u: 1 << (MAX_SHIFT - u))
    return (await shift.retype(EXPONENT).classify(thresholds, values, 0))[..., 0]


async def shifted(numbers: Any, power: Any) -> Any:
    """Return roots or entries of factors times 2^-shift, 56 fractional bits; the results are below 1. Two rounds."""
    upper = await numbers.retype(RAW).mul_high(power)
    wide = await upper.retype(RingType(64, X_FRAC + SPARE_FRAC, 1)).extend()
    return wide.astype(X_FRAC).retype(RingType(128, X_FRAC, 1))


def passes(m: int, d: int, first: int = 0, last: int | None = None) -> Iterator[tuple[int, int]]:
    """Yield ranges of the rows of m packed triangles with at most PASS_ENTRIES entries each (or one row)."""
    starts, row = row_starts(d), first
    end = d if last is None else last
    while row < end:
        stop = int(np.searchsorted(starts, starts[row] + PASS_ENTRIES // m, side="right")) - 1
        stop = min(end, max(row + 1, stop))
        yield row, stop
        row = stop


@dataclass
class GramSum:
    """Accumulated X'X: this server's local products, packed (d (d + 1) / 2), of the rows of X added so far."""

    like: SecretArray
    d: int

    def __post_init__(self) -> None:
        self._total = ring.zeros((self.d * (self.d + 1) // 2,), 2)
        self._starts = row_starts(self.d)

    async def add_factors(self, factor: SecretArray, power: SecretArray, rows: tuple[int, int]) -> None:
        """Do steps 1 and 2 for a range of rows: packed factors (m, ..) and the powers of owners and columns (m, d)."""
        first, last = rows
        numbers = factor[:, self._starts[first] : self._starts[last]]
        columns = np.nonzero(_trapezoid(last - first, self.d - first))[1] + first
        short = await shifted(numbers, power[:, columns])
        for start in range(first, last, BLOCK_ROWS):
            stop = min(last, start + BLOCK_ROWS)
            part = short[:, self._starts[start] - self._starts[first] : self._starts[stop] - self._starts[first]]
            self._add(*(_unpacked(share, stop - start, self.d - start) for share in part.data))

    def add_rows(self, rows: SecretArray) -> None:
        """Add rows of X as they are (k, w), without leading zeros: the last w columns."""
        self._add(*rows.data)

    def _add(self, left: NDArray[np.uint64], right: NDArray[np.uint64]) -> None:
        """Add the products of rows (k, w, 2) of the last w columns, given by both splits."""
        terms, width = left.shape[:2]
        end = self._total[len(self._total) - width * (width + 1) // 2 :]
        with clock.products:
            part = np.empty_like(end)
            turned = np.ascontiguousarray(left.transpose(1, 0, 2))
            kernels.matmul_upper(part, turned, np.ascontiguousarray(right), width, terms, False)
            kernels.add(end, end, part)

    async def exchanged(self) -> SecretArray:
        """Do step 3. It can be called once."""
        total, self._total = self._total, self._total[:0]
        kind = RingType(128, 2 * X_FRAC, 1)
        found: SecretArray = await Pending(masked(self.like, total, Product(kind, 0, None)))
        return found


def _trapezoid(rows: int, width: int) -> NDArray[np.bool_]:
    """Return the positions of possible non-zeros in the first rows of an upper triangular matrix."""
    return np.arange(width) >= np.arange(rows)[:, None]


def _unpacked(packed: NDArray[np.uint64], rows: int, width: int) -> NDArray[np.uint64]:
    """Return the same rows of m packed triangles, (m, entries, 2), as (m rows, width, 2) with their zeros."""
    full = np.zeros((len(packed), rows, width, 2), np.uint64)
    full[:, _trapezoid(rows, width)] = packed
    return full.reshape(-1, width, 2)
