"""Sums of one row owner: row count, means and centred Gram matrix, in one pass over a table of any length.

Method
------
Chunks are summed by a few threads, each with single-threaded BLAS, and merged in the order of the rows, so the result
does not depend on the number of threads, nor on the kind of file. Per chunk of m rows:

1. centre c: the mean of every 16th row (the value itself if those rows are equal, so that a constant column becomes
   exactly zero); largest and smallest value of each column (NaN is detected here);
2. y = x - c in float64, in the order of x (by rows or by columns), with a column of ones appended: one product [y 1]'[y
   1] gives Gram matrix G and sums r;
3. G - r r'/m is the Gram matrix about the chunk's own mean c + r/m.

Chunks are merged by the formula of Chan, Golub and LeVeque (1979): M <- M + G + (n m/(n+m)) D D', D the difference of
the means. All terms are positive semi-definite, so nothing cancels; M and the sum of the means carry a compensation
(two-sum), and means are kept relative to the first centre.

Error ----- With u = 2^-53 and g_ij = sqrt(G_ii G_jj): the product of a chunk errs by at most (m + 3) u (1 + 17) g_ij,
where 17 bounds how much a centre taken from every 16th row can inflate the sums (typically 1 + 16/m); the merge adds at
most 8 u g_ij. Compensation makes both independent of the number of chunks. With m <= 65536: |error| <= 1.4e-10 g_ij at
the very worst, about 1e-15 g_ij in practice, whatever the ratio of mean to deviation that float64 data can express. The
means (mean + rest) are correct to 2^-50 of the deviations.

Integers of 64 bits come as doubles and what rounding left of them, centres and means then have two parts, too: x - c is
the difference of both parts, exact for integers less than 2^53 apart. Integers further apart than that
are rounded to 2^-53 of their distance from the centre, which is below sqrt(n) deviations. Their means are correct to
2^-43.
Reference: N. Higham, Accuracy and Stability of Numerical Algorithms, ch. 1, 3, 4.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from .errors import BadColumns, NoRows, OwnerError
from .tables.integers import Rest
from .tables.table import Chunk, ChunkWithRest, Table, UnusableValues, chunk_rows_for

Array = NDArray[np.float64]
Progress = Callable[[int, int | None], None]
"""Progress callback: called with the rows done and the total (None if unknown)."""

MAX_MAGNITUDE = 1e150
"""Maximum magnitude of a value: squares summed over all rows stay below the largest float64."""

MIN_GRAM_SIZE = 1e-290
"""Minimum sum of squares of a column that varies: below it, digits are lost to underflow."""

STRIDE = 16
FEW_ROWS = 1024
BLOCK_ROWS, BLOCK_LENGTH = 1024, 8192
"""Number of rows processed at a time, so that they stay in the cache: of row-major chunks, of column-major chunks."""

MAX_THREADS = 4


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums of a table. Only shares of them leave the owner.

    count : number of rows, at least 1
    mean, rest : (d,) column means are mean + rest: the nearest doubles and their rounding errors
    gram : (d, d) sum over rows of (x - mean)(x - mean)', exactly symmetric; exactly zero for a constant column
    """

    count: int
    mean: Array
    rest: Array
    gram: Array
    names: list[str] | None = None
    label: str = "owner 1"

    def merge(self, other: Moments) -> Moments:
        """Return the sums of both tables together. Columns must be the same; label and names are those of self."""
        if self.mean.shape != other.mean.shape or (self.names and other.names and self.names != other.names):
            raise BadColumns(f"{self.label} and {other.label} have different columns; their sums cannot be merged.")
        count = self.count + other.count
        shift = (other.mean - self.mean) + (other.rest - self.rest)
        weight = self.count / count * other.count
        mean, rest = two_sum(self.mean, shift * (other.count / count))
        mean, rest = two_sum(mean, rest + self.rest)  # if means cancel, the rest can be as large as their difference
        return Moments(
            count=count,
            mean=mean,
            rest=rest,
            gram=self.gram + other.gram + weight * np.outer(shift, shift),
            names=self.names or other.names,
            label=self.label,
        )


def moments(
    table: Table,
    *,
    chunk_rows: int | None = None,
    progress: Progress | None = None,
    threads: int | None = None,
) -> Moments:
    """Compute the sums in one pass. Raise `OwnerError` for text, missing, infinite or too large values, or an empty
    table.

    Meanwhile BLAS is limited to one thread in the whole process, because chunks are processed in parallel.
    """
    total = _Total(table)
    pass_over(table, _sum_chunk, total.add, chunk_rows or chunk_rows_for(table.n_columns), progress, threads)
    return total.result()


S = TypeVar("S")


def pass_over(
    table: Table,
    sum_chunk: Callable[[Table, ChunkWithRest, list[Array]], S],
    add: Callable[[S], int],
    rows: int,
    progress: Progress | None,
    threads: int | None,
) -> None:
    """Sum all chunks in worker threads and add their sums in the order of the rows. add: adds one and returns the rows
    so far.

    With one thread everything runs in the caller's thread, as on the workers of a cluster.
    """

    def finish(part: S) -> None:
        done = add(part)
        if progress is not None:
            progress(done, table.rows)

    try:
        with closing(_summed(table, sum_chunk, rows, threads)) as parts:
            for part in parts:
                finish(part)
    except UnusableValues:
        table.refuse_values(missing=not table.mean_for_missing, largest=MAX_MAGNITUDE)
        raise OwnerError(f"{table.label}: the table has changed while it was read. Run again.") from None


def _summed(
    table: Table, sum_chunk: Callable[[Table, ChunkWithRest, list[Array]], S], rows: int, threads: int | None
) -> Generator[S, None, None]:
    """Yield the sums of all chunks, in the order of the rows."""
    buffers: list[Array] = []
    if threads is None and table.rows is not None and table.rows <= rows:
        for chunk_with_rest in table.chunks_with_rest(rows, check=False):
            yield sum_chunk(table, chunk_with_rest, buffers)
        return
    if threads == 1:
        with _SINGLE_THREADED_BLAS:
            for chunk_with_rest in table.chunks_with_rest(rows, check=False):
                yield sum_chunk(table, chunk_with_rest, buffers)
        return
    workers = threads or min(MAX_THREADS, len(os.sched_getaffinity(0)))
    pending: deque[Future[S]] = deque()
    with _SINGLE_THREADED_BLAS, ThreadPoolExecutor(workers, "ppca-owner") as pool:
        for chunk_with_rest in table.chunks_with_rest(rows, check=False):
            if len(pending) > workers:
                yield pending.popleft().result()
            pending.append(pool.submit(sum_chunk, table, chunk_with_rest, buffers))
        while pending:
            yield pending.popleft().result()


class _BlasLimit:
    """Limit BLAS to one thread in nested or concurrent blocks; restore the previous limits when the last block ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._limits: Any = None

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._limits = threadpool_limits(1, user_api="blas")

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._limits.restore_original_limits()


_SINGLE_THREADED_BLAS = _BlasLimit()


@dataclass(frozen=True, eq=False)
class _ChunkSums:
    """Result of steps 1 to 3 for one chunk. Its mean is centre + fine + offset."""

    count: int
    centre: Array
    fine: Array
    offset: Array
    gram: Array
    low: Array
    high: Array


def _sum_chunk(table: Table, chunk_with_rest: ChunkWithRest, buffers: list[Array]) -> _ChunkSums:
    """The sums of one chunk; runs in a worker thread. `buffers` are work arrays to take and to give back."""
    chunk, rest = chunk_with_rest
    m, d = chunk.shape
    y, buffer = work_array(buffers, chunk, d + 1)
    every = STRIDE if m > FEW_ROWS else 1
    sample = np.ascontiguousarray(
        chunk[::every].astype(np.float64)
    )  # converted in its own memory order, which is faster
    step = BLOCK_LENGTH if by_columns(chunk) else BLOCK_ROWS
    low, high = sample[0].copy(), sample[0].copy()
    with np.errstate(all="ignore"):  # NaN, infinity and overflow are checked below
        centre = np.where((sample == sample[0]).all(axis=0), sample[0], sample.mean(axis=0))
        fine = np.zeros(d) if rest is None else _fine(sample, rest[::every], centre, np.asarray(rest.any(axis=0)))
        for start in range(0, m, step):
            block = chunk[start : start + step]
            np.minimum(low, block.min(axis=0), out=low)
            np.maximum(high, block.max(axis=0), out=high)
            away = np.subtract(block, centre, out=y[start : start + step, :d])
            if rest is not None:
                away += rest[start : start + step]
                away -= fine
    y[:, d] = 1.0
    largest = np.maximum(-low, high)
    if not (largest <= MAX_MAGNITUDE).all():
        raise UnusableValues
    product = y.T @ y
    buffers.append(buffer)
    offset = product[:d, d] / m
    gram = product[:d, :d] - np.outer(offset, product[:d, d])
    return _ChunkSums(m, centre, fine, offset, gram, low, high)


def _fine(sample: Array, rest: Rest, centre: Array, moved: NDArray[np.bool_]) -> Array:
    """Return the rounding error of a centre, for columns of integers that have a rest; otherwise zero."""
    away = (sample - centre) + rest
    return np.where(moved, np.where((away == away[0]).all(axis=0), away[0], away.mean(axis=0)), 0.0)


def by_columns(chunk: Chunk) -> bool:
    """Return whether a chunk is column-major."""
    return abs(chunk.strides[0]) < abs(chunk.strides[1])


def work_array(buffers: list[Array], chunk: Chunk, width: int) -> tuple[Array, Array]:
    """Return an array with the rows and the memory order of the chunk, and its buffer: one of `buffers` if large
    enough."""
    rows = len(chunk)
    try:
        buffer = buffers.pop()
    except IndexError:
        buffer = np.empty(0)
    if buffer.size < rows * width:
        buffer = np.empty(rows * width)
    flat = buffer[: rows * width]
    return flat.reshape(width, rows).T if by_columns(chunk) else flat.reshape(rows, width), buffer


class _Total:
    """Merged sums of chunks. `gram` and `sums` are two-part numbers (value, compensation); means are relative to base +
    fine."""

    def __init__(self, table: Table) -> None:
        d = table.n_columns
        self.table = table
        self.count = 0
        self.base, self.fine = np.zeros(d), np.zeros(d)
        self.sums = np.zeros((2, d))
        self.gram = np.zeros((2, d, d))
        self.low = np.full(d, np.inf)
        self.high = np.full(d, -np.inf)

    def add(self, part: _ChunkSums) -> int:
        n, m = self.count, part.count
        if n == 0:
            self.base, self.fine = part.centre, part.fine
        mean = ((part.centre - self.base) + (part.fine - self.fine)) + part.offset
        term = part.gram
        if n:
            shift = mean - (self.sums[0] + self.sums[1]) / n
            term = term + (n / (n + m) * m) * np.outer(shift, shift)
        add_to(self.gram, term)
        add_to(self.sums, m * mean)
        self.count = n + m
        np.minimum(self.low, part.low, out=self.low)
        np.maximum(self.high, part.high, out=self.high)
        return self.count

    def result(self) -> Moments:
        label = self.table.label
        if self.count == 0:
            raise NoRows.for_none(label)
        gram = self.gram[0] + self.gram[1]
        gram = np.triu(gram) + np.triu(gram, 1).T
        check_spread(self.table, np.diagonal(gram), self.low, self.high)
        mean, rest = two_sum(self.base, self.fine + (self.sums[0] + self.sums[1]) / self.count)
        return Moments(
            count=self.count,
            mean=mean,
            rest=rest,
            gram=gram,
            names=self.table.names,
            label=label,
        )


def check_spread(table: Table, spread: Array, low: Array, high: Array) -> None:
    """Refuse columns whose sum of squares about the mean (`spread`) overflowed or lost digits to underflow."""
    if not np.isfinite(spread).all():
        column = table.column_title(int((~np.isfinite(spread)).argmax()))
        raise OwnerError(f"{table.label}: the squares of {column} overflow. Express the column in a larger unit.")
    lost = (low != high) & (spread < MIN_GRAM_SIZE)
    if lost.any():
        column = table.column_title(int(lost.argmax()))
        raise OwnerError(f"{table.label}: {column} varies by less than 1e-145. Express the column in a smaller unit.")


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """Return a + b as the nearest doubles and their rounding errors (Knuth's TwoSum)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def add_to(total: Array, term: Array) -> None:
    """Add term to total[0]; add the rounding error of the sum to total[1]."""
    total[0], error = two_sum(total[0], term)
    total[1] += error
