"""Sums of one row owner if missing values count as the joint mean, in one pass over a table of any length.

P is the presence of the values (1 or 0), Z the values minus the owner's own mean of the present ones, 0 if missing. The
rows to analyse are Z + P diag(own mean - joint mean). Therefore the owner computes K = [Z P]'[Z P], the products of 2 d
columns.

Method
------
Chunks are summed by threads and added up in the order of the rows, as in `moments`. Per chunk of m rows:

1. centre c: the mean of the present values of each column (the value itself if they are equal); for integers beyond
   2^53 in two parts, as in `moments`;
   2. y = x - c, 0 if missing; one product [y P]'[y P]. If nothing is missing, [y 1]'[y 1] is sufficient.

For y about another centre, y + P diag(t), the products follow from K (`translated`). All chunks are translated to one
centre per column, that of the first chunk with a value in it, added with compensation, and translated once to the
present means.

Error ----- With u = 2^-53, g_ij = sqrt(K_ii K_jj), n_i values in column i, m_i of them in the first chunk that has any:
a chunk's product errs by (m + 3) u g_ij, the translations by 24 u sqrt((1 + n_i / m_i) (1 + n_j / m_j)) g_ij. For if
the centre lies s away from the mean, K_ii >= m_i s^2, and the sums about the centre are K_ii + n_i s^2. Counts are
exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .errors import BadColumns, NoRows
from .moments import MAX_MAGNITUDE, Array, Progress, add_to, check_spread, pass_over, two_sum, work_array
from .tables.table import ChunkWithRest, Table, UnusableValues, chunk_rows_for


@dataclass(frozen=True, eq=False)
class MissingMoments:
    """Sums of a table with missing values. Only shares of them leave the owner.

    count : number of rows, at least 1
    counts : (d,) number of present values of each column
    mean, rest : (d,) means of the present values are mean + rest; of a column without any, 0
    gram : (2 d, 2 d) K, exactly symmetric; exactly zero for a constant column
    """

    count: int
    counts: NDArray[np.int64]
    mean: Array
    rest: Array
    gram: Array
    names: list[str] | None = None
    label: str = "owner 1"

    def merge(self, other: MissingMoments) -> MissingMoments:
        """Return the sums of both tables together. Columns must be the same; label and names are those of self.

        About present means, terms of both add up without cancellation: an error of 24 u g_ij.
        """
        if self.mean.shape != other.mean.shape or (self.names and other.names and self.names != other.names):
            raise BadColumns(f"{self.label} and {other.label} have different columns; their sums cannot be merged.")
        here, there = self.counts > 0, other.counts > 0
        shift = np.where(here & there, (other.mean - self.mean) + (other.rest - self.rest), 0.0)
        counts = self.counts + other.counts
        part = other.counts / np.maximum(counts, 1)
        mean, rest = two_sum(np.where(here, self.mean, other.mean), shift * part)
        mean, rest = two_sum(mean, rest + np.where(here, self.rest, other.rest))
        gram = translated(self.gram, -shift * part) + translated(other.gram, shift * (1 - part))
        return MissingMoments(
            count=self.count + other.count,
            counts=counts,
            mean=mean,
            rest=rest,
            gram=gram,
            names=self.names or other.names,
            label=self.label,
        )


def moments_with_missing(
    table: Table, *, chunk_rows: int | None = None, progress: Progress | None = None, threads: int | None = None
) -> MissingMoments:
    """Compute the sums in one pass. Raise `OwnerError` as `moments` does; for missing values only if the table refuses
    them."""
    total = _MissingTotal(table)
    pass_over(table, _sum_chunk, total.add, chunk_rows or chunk_rows_for(2 * table.n_columns), progress, threads)
    return total.result()


def translated(gram: Array, shift: Array) -> Array:
    """Return [y P]'[y P] for y + P diag(shift) instead of y."""
    d = len(shift)
    yp, pp = gram[:d, d:], gram[d:, d:]
    cross = yp * shift
    found = gram.copy()
    found[:d, :d] += (cross + cross.T) + np.outer(shift, shift) * pp
    found[:d, d:] += shift[:, None] * pp
    found[d:, :d] = found[:d, d:].T
    return found


@dataclass(frozen=True, eq=False)
class _MissingChunkSums:
    """Result of steps 1 and 2 for one chunk: products about centre + fine; extremes of present values, infinite if
    none."""

    rows: int
    counts: NDArray[np.int64]
    centre: Array
    fine: Array
    gram: Array
    low: Array
    high: Array


def _sum_chunk(table: Table, chunk_with_rest: ChunkWithRest, buffers: list[Array]) -> _MissingChunkSums:
    """Compute the sums of one chunk, in a worker thread. buffers: pool of work arrays."""
    chunk, _ = chunk_with_rest
    m, d = chunk.shape
    missing = np.isnan(chunk)
    whole = not missing.any()
    if not (whole or table.mean_for_missing):
        raise UnusableValues
    counts = m - np.count_nonzero(missing, axis=0)
    low = np.min(chunk, axis=0, where=~missing, initial=np.inf).astype(np.float64)
    high = np.max(chunk, axis=0, where=~missing, initial=-np.inf).astype(np.float64)
    if not (np.maximum(-low, high) <= MAX_MAGNITUDE).all():
        raise UnusableValues
    width = d + 1 if whole else 2 * d
    y, buffer = work_array(buffers, chunk, width)
    centre, fine = _centre(y[:, :d], chunk_with_rest, missing, counts)
    if whole:
        y[:, d] = 1.0
    else:
        np.copyto(y[:, :d], 0.0, where=missing)
        np.logical_not(missing, out=y[:, d:])
    product = y.T @ y
    buffers.append(buffer)
    return _MissingChunkSums(m, counts, centre, fine, _whole_gram(product) if whole else product, low, high)


def _centre(
    y: Array, chunk_with_rest: ChunkWithRest, missing: NDArray[np.bool_], counts: NDArray[np.int64]
) -> tuple[Array, Array]:
    """Return the centre of a chunk and its rounding error for integers with a rest; fill y with the values minus
    both."""
    chunk, rest = chunk_with_rest
    at = missing.argmin(axis=0), np.arange(len(counts))
    first = np.where(counts > 0, chunk[at], 0.0).astype(np.float64)
    np.subtract(chunk, first, out=y)
    if rest is not None:
        y += rest
    mean = np.sum(y, axis=0, where=~missing) / np.maximum(counts, 1)
    moved = np.zeros(len(counts), np.bool_) if rest is None else rest.any(axis=0)
    centre, fine = np.where(moved, first, first + mean), np.where(moved, mean, 0.0)
    np.subtract(chunk, centre, out=y)
    if rest is not None:
        y += rest
        y -= fine
    return centre, fine


def _whole_gram(product: Array) -> Array:
    """Return [y P]'[y P] from [y 1]'[y 1], if nothing is missing."""
    d = len(product) - 1
    place = np.concatenate([np.arange(d), np.full(d, d)])
    return np.asarray(product[np.ix_(place, place)])


class _MissingTotal:
    """Sum of the chunks' sums, all about base + fine. `gram` is a two-part number (value, compensation)."""

    def __init__(self, table: Table) -> None:
        d = table.n_columns
        self.table = table
        self.count = 0
        self.counts = np.zeros(d, np.int64)
        self.base, self.fine = np.zeros(d), np.zeros(d)
        self.gram = np.zeros((2, 2 * d, 2 * d))
        self.low = np.full(d, np.inf)
        self.high = np.full(d, -np.inf)

    def add(self, part: _MissingChunkSums) -> int:
        known = self.counts > 0
        self.base, self.fine = np.where(known, self.base, part.centre), np.where(known, self.fine, part.fine)
        add_to(self.gram, translated(part.gram, (part.centre - self.base) + (part.fine - self.fine)))
        self.count += part.rows
        self.counts += part.counts
        np.minimum(self.low, part.low, out=self.low)
        np.maximum(self.high, part.high, out=self.high)
        return self.count

    def result(self) -> MissingMoments:
        label, d = self.table.label, len(self.base)
        if self.count == 0:
            raise NoRows.for_none(label)
        gram = self.gram[0] + self.gram[1]
        away = np.diagonal(gram[:d, d:]) / np.maximum(self.counts, 1)
        gram = translated(gram, -away)
        gram = np.triu(gram) + np.triu(gram, 1).T
        some = self.counts > 0
        low, high = np.where(some, self.low, 0.0), np.where(some, self.high, 0.0)
        check_spread(self.table, np.diagonal(gram)[:d], low, high)
        mean, rest = two_sum(self.base, self.fine + away)
        return MissingMoments(self.count, self.counts, mean, rest, gram, self.table.names, label)
