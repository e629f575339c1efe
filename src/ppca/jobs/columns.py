"""The form "columns": second moments over the rows that all column owners have, in chunks, become one covariance."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ..algorithms.dominant_rows import MAX_SIZE, dominant_row_conditions
from ..algorithms.input_ranges import Ranges, table_bound, table_projections
from ..algorithms.joint_covariance import JointCovariance
from ..algorithms.scales import EXPONENT, HALF_BITS, MANTISSA, MANTISSA_BITS, UPPER_HALF, on_grid
from ..algorithms.second_moments import (
    COLUMN_ERROR,
    GRID,
    MAX_CHUNK_ROWS,
    Blocks,
    central,
    in_common_scale,
    second_moments,
    shrink,
)
from ..protocol import Party, RingType, SecretArray, concatenate, stack
from .analysis import Parameters
from .errors import NoResult
from .input_checks import check_ranges, check_row_shares
from .kept import drop_sums
from .pools import submitter
from .spec import JobSpec
from .uploads import JobUploads, align


async def enter(party: Party, job: JobSpec, uploads: JobUploads) -> JointCovariance:
    """Return the joint covariance of the rows that all owners have. Raises `NoResult` if there are too few.

    Inputs, owner by owner: exponents of its columns; exponents, mantissas and upper halves of the mantissas of the
    numbers that it subtracted from them; if `Data.owners_multiply`, its own second moments.
    """
    inputs, data, owners = uploads.inputs(party), job.data, job.data.checked_owners
    widths, own = data.widths, data.owners_multiply
    with party.stage("align"):
        rows = align(party, uploads, data).rows
    if refused := too_few(rows, job):
        raise NoResult(refused, rows=rows)
    limit = None if data.align is None else data.align.row_share_at_most
    if limit is not None and rows * math.sqrt(max(widths)) >= MAX_SIZE:
        raise NoResult(f"row_share_at_most cannot be checked for {rows:,} common rows; omit it", rows=rows)
    drop_sums(party, job.keep)
    parts = 5 if own else 4
    exponent, *offsets = (concatenate(inputs[k::parts]) for k in range(4))
    starts = (0, *np.cumsum(widths).tolist())
    blocks = Blocks(tuple(int(s) for s in starts), own=not own)
    count = min(rows, max(data.chunks or 1, -(-rows // MAX_CHUNK_ROWS)))
    if owners is not None:
        with party.stage("input checks"):
            entries = (words[..., None] for words in uploads.chunks(rows, count))
            await _check(party, exponent, offsets, entries, rows, widths, owners)
            if limit is not None:
                again, whose = uploads.chunks(rows, count), np.repeat(np.arange(len(widths)), widths)
                shares = await dominant_row_conditions(party, again, rows, limit, whose, len(widths))
                await check_row_shares(party, shares, owners, limit)
    with party.stage("second moments"), submitter(uploads.workers) as (submit, ahead):
        source = uploads.chunks(rows, count)
        products, columns = await second_moments(party, source, count, blocks, submit, ahead)
        uploads.close_rows()
        packed = _packed(products, blocks, tuple(inputs[4::5]) if own else (), widths)
    with party.stage("covariance"):
        centred, means = await central(packed, columns, rows)
        largest, grid = await means_on_grid(means, exponent, offsets, shrink(rows))
        if not data.standardize:
            centred, exponent = await in_common_scale(centred, exponent)
            exponent = exponent.reshape(1)
    return JointCovariance(centred, exponent, grid, largest, rows, shrink(rows) ** 2, COLUMN_ERROR)


async def _check(
    party: Party,
    exponent: SecretArray,
    offsets: list[SecretArray],
    entries: Iterator[NDArray[np.uint64]],
    rows: int,
    widths: list[int],
    owners: Sequence[str],
) -> None:
    """Refuse owners whose numbers are out of range."""
    ranges, table = Ranges(len(widths)), np.repeat(np.arange(len(widths)), widths)
    ranges.exponents(exponent, table)
    ranges.numbers(offsets[0], offsets[1], offsets[2], table)
    sums = await table_projections(party, entries, table, len(widths)).extend()
    for number, width in enumerate(widths):
        bound = table_bound(rows * width, GRID)
        ranges.between(sums[number], -bound, bound, np.full(sums.shape[1], number))
    await check_ranges(party, ranges, owners)


def too_few(rows: int, job: JobSpec) -> str | None:
    """Return why the job cannot run with this number of common rows, or None."""
    width, least = job.data.width, job.data.rows_at_least
    components = job.analysis.components if isinstance(job.analysis, Parameters) else None
    if least is not None and rows < least:
        return (
            f"all owners together have fewer than {least:,} rows in common, the minimum of this job or of an operator"
        )
    if rows < 2:
        return f"all owners together have {rows} row in common; a covariance needs at least 2"
    if isinstance(components, int) and components > min(rows, width):
        return f"{components} components of {rows} common rows of {width} columns; choose at most {min(rows, width)}"
    return None


async def means_on_grid(
    means: SecretArray, exponent: SecretArray, offsets: list[SecretArray], ratio: float
) -> tuple[SecretArray, SecretArray]:
    """Return joint means on a grid: the numbers that owners subtracted plus the means of the rest, which come times
    `ratio`."""
    frac = means.dtype.frac
    wide = (means * round(2**40 / ratio)).retype(RingType(128, frac + 40, 2))
    left = await wide.truncate(40)
    mantissa, upper = left.astype(MANTISSA_BITS).retype(MANTISSA), await left.truncate(frac - HALF_BITS)
    numbers = [stack([mine, theirs]) for mine, theirs in zip((exponent, mantissa, upper), offsets, strict=True)]
    largest, grid = await on_grid(
        numbers[1].retype(MANTISSA), numbers[2].retype(UPPER_HALF), numbers[0].retype(EXPONENT)
    )
    return largest, grid.sum(0).retype(grid.dtype)


def _packed(products: SecretArray, blocks: Blocks, own: tuple[SecretArray, ...], widths: list[int]) -> SecretArray:
    """Return the packed upper triangle from the computed entries and the owners' own blocks, if they sent them."""
    d = blocks.width
    if blocks.own:
        return products
    i, j = blocks.entries()
    place = np.empty((d, d), np.intp)
    place[i, j] = np.arange(len(i))
    start, at = 0, len(i)
    for width in widths:
        a, b = np.triu_indices(width)
        place[start + a, start + b] = at + np.arange(len(a))
        start, at = start + width, at + len(a)
    every: SecretArray = concatenate([products, *own])
    return every[place[np.triu_indices(d)]]
