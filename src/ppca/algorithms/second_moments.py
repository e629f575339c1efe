"""Second moments of rows whose columns belong to different owners, in the 64-bit ring, in chunks of rows.

A chunk of up to 8,192 rows is one bilinear map: its local product is computed in this process, in worker processes or
on a Dask cluster. The products of all chunks are masked, exchanged and extended to 128 bits together, then added: two
rounds, and messages of the size of the output for each chunk. Chunks are independent (the paper's data parallelism).
Values are on a grid of 2^-24 with |x| <= 1, so every sum is an exact integer.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..native import clock, kernels, ring
from ..protocol import Party, Pending, RingType, SecretArray, make_type, stack, together
from ..protocol.multiply import Product, masked
from ..protocol.triangles import diagonal_positions
from .covariance import MIN_VARIANCE_BITS, MOMENT_FRAC, upper_half
from .scales import EXPONENT, MEAN_FRAC, RAW, maximum, power_table

GRID = 24
"""Fractional bits of the rows."""

COLUMN_ERROR = 2.0**-24
"""Error of a column as a root mean square, in units of its scale: from the grid and the common scale."""

MAX_CHUNK_ROWS = 1 << 13
"""Maximum number of rows of a chunk: 2 * 24 bits of a product, 13 of the sum and the sign fit 62 bits."""

MAX_WAITING_ENTRIES = (1 << 20) - 1
"""Maximum number of entries of products of chunks that are exchanged together.

Both splits take less than 32 MB in 128 bits: larger arrays are mapped and zeroed each time. More are exchanged in
parts, of two rounds each: from 420,000 rows of 200 columns on.
"""

ROWS = RingType(64, GRID, 1)
"""Type of the rows."""


Words = NDArray[np.uint64]
Submit = Callable[[Callable[..., Words], Words, Words, "Blocks"], "Future[Words]"]
"""Executor of local products."""


@dataclass(frozen=True)
class Blocks:
    """Columns of each owner, and whether the products within an owner's columns are needed."""

    starts: tuple[int, ...]
    own: bool

    @property
    def width(self) -> int:
        return self.starts[-1]

    def spans(self) -> Iterator[tuple[slice, slice]]:
        """Yield pairs of column ranges to multiply if own products are not needed: all earlier owners' with each
        owner's.
        """
        for start, stop in zip(self.starts[1:-1], self.starts[2:], strict=True):
            yield slice(0, start), slice(start, stop)

    def entries(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return row and column (row <= column) of every product, in the order of `local_product`."""
        if self.own:
            return np.triu_indices(self.width)
        i, j = [np.empty(0, np.intp)], [np.empty(0, np.intp)]
        for a, b in self.spans():
            grid = np.meshgrid(np.arange(a.start, a.stop), np.arange(b.start, b.stop), indexing="ij")
            i.append(grid[0].ravel())
            j.append(grid[1].ravel())
        return np.concatenate(i), np.concatenate(j)


def local_product(row_share: Words, column_share: Words, blocks: Blocks) -> Words:
    """Return one server's local product of a chunk: R'C over the needed entries, flat, shape (entries, 1)."""
    turned = np.ascontiguousarray(row_share.T)[..., None]
    if blocks.own:
        out = ring.empty((blocks.width * (blocks.width + 1) // 2,), 1)
        columns = np.ascontiguousarray(column_share)[..., None]
        kernels.matmul_upper(out, turned, columns, blocks.width, len(row_share), False)
        return out
    parts = [
        ring.matmul(turned[a], np.ascontiguousarray(column_share[:, b])[..., None]).reshape(-1, 1)
        for a, b in blocks.spans()
    ]
    return np.concatenate(parts)


def inline(work: Callable[..., Words], *arguments: Any) -> Future[Words]:
    """Run a task immediately, with the interface of the other executors."""
    done: Future[Words] = Future()
    with clock.products:
        done.set_result(work(*arguments))
    return done


async def second_moments(
    party: Party,
    chunks: Iterator[NDArray[np.uint64]],
    count: int,
    blocks: Blocks,
    submit: Submit | None = None,
    ahead: int = 1,
) -> tuple[SecretArray, SecretArray]:
    """Return sums over all rows: of products (one per entry of `blocks`, 48 fractional bits) and of columns (24), both
    in 128 bits.

    chunks: arrays of shares of shape (2, rows, width), both splits, at most `MAX_CHUNK_ROWS` rows each. count: their
    number, for progress. ahead: number of tasks that run at the same time.
    """
    run = submit or inline
    totals: list[SecretArray] = []
    sums = np.zeros((2, blocks.width, 1), np.uint64)
    waiting: list[Future[Words]] = []
    ready: list[Words] = []
    done = 0
    exhausted = False
    while not exhausted or waiting:
        while not exhausted and len(waiting) < max(1, ahead):
            chunk = next(chunks, None)
            if chunk is None:
                exhausted = True
                break
            sums += ring.total(np.ascontiguousarray(chunk)[..., None], 1)
            waiting.append(run(local_product, chunk[0], chunk[1], blocks))
        if not waiting:
            break
        ready.append(np.asarray(waiting.pop(0).result()))
        done += 1
        party.progress(f"second moments, chunk {done} of {count}", done / count)
        if (len(ready) + 1) * ready[0].size > MAX_WAITING_ENTRIES:
            totals.append(await _exchanged(party, ready))
            ready = []
    if ready:
        totals.append(await _exchanged(party, ready))
    columns = await SecretArray(party, sums, RingType(64, GRID, 37)).extend()
    return reduce(operator.add, totals), columns


async def _exchanged(party: Party, products: list[Words]) -> SecretArray:
    """Return the sum of the products of chunks in 128 bits: two rounds. Only single chunks fit into 64 bits."""
    template = SecretArray(party, np.empty((2, 0, 1), np.uint64), RingType(64, 2 * GRID, 13))
    found = await Pending(masked(template, np.stack(products), Product(template.dtype, 0, None)))
    result: SecretArray = (await found.extend()).sum(0)
    return result


async def central(products: SecretArray, columns: SecretArray, rows: int) -> tuple[SecretArray, SecretArray]:
    """Return covariance (packed upper triangle, 112 fractional bits) and mean (56) from sums over `rows` rows: one
    round, exact.

    products: packed upper triangle with 48 fractional bits. n * G - v v' is an integer below 2^(48 + 2 log2 n).
    """
    i, j = np.triu_indices(len(columns))
    outer = await columns[i].mul(columns[j], frac=2 * GRID)
    scaled = products.retype(make_type(128, 2 * GRID, 30)) * rows - outer
    # The value is n^2 C. Dividing by n^2: first by the power of two above it, which is a change of type, ...
    power = (rows - 1).bit_length()
    wide = scaled.retype(make_type(128, 2 * GRID + 2 * power, 1)).astype(MOMENT_FRAC)
    # ... then by the rest, a public factor between 1 and 4 that the receiver applies (`shrink`).
    sums = columns.retype(make_type(128, GRID + power, 1))
    return wide, sums.astype(MEAN_FRAC) if GRID + power <= MEAN_FRAC else sums


def shrink(rows: int) -> float:
    """Return n / 2^ceil(log2 n): means of `central` contain this factor, covariances its square."""
    return rows / 2.0 ** (rows - 1).bit_length()


UNIT_FRAC = 43
"""Fractional bits of covariances of columns with a variance scaled to [1/4, 1)."""

MAX_SPREAD = 41
"""Deviations count down to 2^-41 of the largest. An omitted entry is below half a unit of the normalised matrix."""

MAX_EXCESS_BITS = -MIN_VARIANCE_BITS // 2
"""log2 of the maximum ratio of a column's scale to its deviation."""

KEPT_FRAC = MOMENT_FRAC - 2 * MAX_EXCESS_BITS
"""Fractional bits of entries before the last scaling."""

ABSENT_OFFSET = 4096
"""Subtracted from the exponents of columns that do not vary, so that they are below all others."""


async def in_common_scale(packed: Any, exponent: Any) -> tuple[Any, Any]:
    """Convert the covariance of columns in units of 2^exponent (packed, 112 fractional bits) to one unit; also return
    its exponent.

    The unit is the largest scale of the columns that vary. The weight of a column depends on deviations, not on scales,
    which owners choose. With variances v_j, a_j such that 4^(a_j) v_j is in [1/4, 1), and s_j = exponent_j - a_j:

    1. N_ij = C_ij 2^(a_i + a_j), so |N_ij| < 1, with 43 fractional bits.
    2. R_ij = N_ij 2^-(w_i + w_j) with w_j = max(s) - s_j: the covariance in units of the largest deviation, zero if w_j
       > 41.
    3. R_ij 4^-c with c = max(exponent) - max(s), from 0 to 23, over the columns with v_j >= 2^-47. The others count as
       zero.

    Error: 2^-42 of the largest variance. Rounds: 13 for up to sixteen columns.
    """
    d = len(exponent)
    i, j = np.triu_indices(d)

    def half(e: int) -> list[int]:
        a = max(0, (MOMENT_FRAC - e) // 2)
        return [1 << a, ABSENT_OFFSET - a, ABSENT_OFFSET]

    found = await packed[diagonal_positions(d)].binade_powers(half, MIN_VARIANCE_BITS, 1)
    present = (exponent + found[..., 2].retype(EXPONENT) - ABSENT_OFFSET).retype(EXPONENT)
    size = (exponent + found[..., 1].retype(EXPONENT) - ABSENT_OFFSET).retype(EXPONENT)

    async def normalised() -> Any:
        power = found[..., 0]
        return (await upper_half(packed, await (power[i] * power[j]), MOMENT_FRAC - 64)).astype(UNIT_FRAC)

    entries, largest = await together(normalised(), maximum(stack([present, size], 1)))
    powers, lower = await together(
        (largest[1] - size).retype(EXPONENT).classify(*power_table(0, MAX_SPREAD, lambda w: 1 << (MAX_SPREAD - w)), 0),
        (largest[0] - largest[1])
        .retype(EXPONENT)
        .classify(*power_table(0, MAX_EXCESS_BITS, lambda c: 1 << (2 * (MAX_EXCESS_BITS - c))), 0),
    )
    power = powers[..., 0]
    products = await entries.retype(RAW).mul(await (power[i] * power[j]), frac=RAW.frac)
    wide = products.retype(RingType(128, UNIT_FRAC + 2 * MAX_SPREAD, 1))
    short = await wide.truncate(UNIT_FRAC + 2 * MAX_SPREAD - KEPT_FRAC)
    return (await short.retype(RAW).mul(lower[0], frac=RAW.frac)).retype(make_type(128, MOMENT_FRAC, 1)), largest[0]
