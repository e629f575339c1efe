"""The form "wide-columns": column owners with more columns than rows. Their Gram matrices add up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ..algorithms import gram_matrix, wide_scales
from ..algorithms.input_ranges import Ranges, table_bound, table_projections
from ..algorithms.joint_covariance import JointCovariance
from ..algorithms.scales import EXPONENT, maximum, on_grid
from ..algorithms.wide_table import COLUMN_ERROR, ENTRY_FRAC, WideTable, columns_per_chunk
from ..native import ring
from ..protocol import Party, RingType, SecretArray, concatenate, stack
from .columns import means_on_grid, too_few
from .errors import NoResult, Refusal
from .input_checks import check_ranges
from .kept import drop_sums
from .spec import JobSpec
from .uploads import JobUploads, align
from .wide import SCALED_AT_ONCE, SharedWide, standardised_table, too_large, too_tall

Words = NDArray[np.uint64]


async def enter(party: Party, job: JobSpec, uploads: JobUploads) -> SharedWide:
    """Return the shared table of the rows that all owners have. Raises `NoResult` if its shape does not allow that.

    Inputs, owner by owner: exponents, mantissas and upper halves of the mantissas of the numbers that it subtracted
    from its columns; the exponent of its unit. If `Data.owners_multiply`, each owner has centred its columns over the
    common rows and also sends its Gram matrix. If columns are standardised, it sends instead of its unit the exponents
    of their deviations, and 2^exponent / deviation. Otherwise the servers centre and standardise; if they standardise,
    every column has its own unit.
    """
    inputs, data, owners = uploads.inputs(party), job.data, job.data.checked_owners
    widths, own, standardize = data.widths, data.owners_multiply, data.standardize
    with party.stage("align"):
        rows = align(party, uploads, data, turned=True).rows
    width = sum(widths)
    if refused := too_few(rows, job) or too_tall(rows, width) or too_large(rows, width):
        raise NoResult(refused, rows=rows)
    if [spool.rows for _, spool in sorted(uploads.rows.items())] != widths:
        raise Refusal("an owner has not uploaded every one of its columns")
    drop_sums(party, job.keep)
    if owners is not None and not own:
        with party.stage("input checks"):
            await _check(party, inputs, uploads, rows, widths, standardize, owners)
    entered = _known if own and uploads.common is None else _matched
    return await entered(party, inputs, uploads, rows, widths, job)


async def _check(
    party: Party,
    inputs: list[SecretArray],
    uploads: JobUploads,
    rows: int,
    widths: list[int],
    standardize: bool,
    owners: Sequence[str],
) -> None:
    """Refuse owners whose numbers are out of range."""
    mean_exponent, mantissa, upper, exponent = (concatenate(inputs[k::4]) for k in range(4))
    ranges, table = Ranges(len(widths)), _owners(widths)
    ranges.numbers(mean_exponent, mantissa, upper, table)
    ranges.exponents(exponent, table if standardize else np.arange(len(widths)))
    for owner, width in enumerate(widths):
        chunks = chunks_of(uploads, rows, only=owner)()
        sums = table_projections(party, chunks, np.zeros(rows, np.intp), 1)
        bound = table_bound(rows * width, ENTRY_FRAC)
        ranges.between(sums, -bound, bound, np.full(sums.size, owner))
    await check_ranges(party, ranges, owners)


async def _known(
    party: Party,
    inputs: list[SecretArray],
    uploads: JobUploads,
    rows: int,
    widths: list[int],
    job: JobSpec,
) -> SharedWide:
    """Fit from columns that owners have centred and scaled, and from the Gram matrices that they sent."""
    parts, width = 6 if job.data.standardize else 5, sum(widths)
    mean_exponent, mantissa, upper, exponent = (concatenate(inputs[k::parts]) for k in range(4))
    products = stack(inputs[4::parts])
    source = WideTable(party, chunks_of(uploads, rows), rows, width)
    inverse = None
    with party.stage("covariance"):
        means = (part.reshape(1, width) for part in (mantissa, upper, mean_exponent))
        largest, grid = await on_grid(*means)
        if job.data.standardize:
            ones = SecretArray.constant(party, np.ones(width, np.int64), RingType(128, 0, 62))
            inverse = (concatenate(inputs[5::parts]), ones)
            packed, shift = gram_matrix.sum_products(products), exponent[:1] * 0
        else:
            packed, shift, exponent = await _in_one_unit(products, exponent, widths)
    joint = JointCovariance(packed, exponent, grid[0], largest, rows, 1.0, COLUMN_ERROR)
    return SharedWide(joint, source, shift, not job.data.standardize, inverse)


async def _in_one_unit(
    products: SecretArray, exponent: SecretArray, widths: list[int]
) -> tuple[SecretArray, SecretArray, SecretArray]:
    """Return the sum of the Gram matrices in the largest unit, by how many bits each column's unit is smaller, and its
    exponent."""
    common = await maximum(exponent)
    below = (common - exponent).retype(EXPONENT)
    packed = await gram_matrix.sum_in_one_unit(products, below * 2)
    return packed, below[_owners(widths)], common.reshape(1)


def _owners(widths: list[int]) -> NDArray[np.intp]:
    """Return the number of the owner of every column."""
    return np.repeat(np.arange(len(widths)), widths)


async def _matched(
    party: Party,
    inputs: list[SecretArray],
    uploads: JobUploads,
    rows: int,
    widths: list[int],
    job: JobSpec,
) -> SharedWide:
    """Fit from columns that the servers centre over the common rows, and standardise, on shares."""
    width = sum(widths)
    *offsets, exponent = (concatenate(inputs[k::4]) for k in range(4))
    raw = WideTable(party, chunks_of(uploads, rows), rows, width)
    with party.stage("covariance"):
        mean = await _mean(raw.sums(), rows)
        units = exponent if job.data.standardize else exponent[_owners(widths)]
        largest, grid = await means_on_grid(mean, units, offsets, 1.0)
    centred = WideTable(party, chunks_of(uploads, rows, mean.data), rows, width)
    if not job.data.standardize:
        with party.stage("second moments"):
            products = []
            for owner, part in enumerate(widths):
                own = WideTable(party, chunks_of(uploads, rows, mean.data, owner), rows, part)
                products.append(await gram_matrix.truncate_products(await own.gram()))
        with party.stage("covariance"):
            packed, shift, common = await _in_one_unit(stack(products), exponent, widths)
        joint = JointCovariance(packed, common, grid, largest, rows, 1.0, COLUMN_ERROR)
        return SharedWide(joint, centred, shift, by_columns=True)
    with party.stage("covariance"):
        squares = (await centred.squares()).retype(RingType(128, 2 * ENTRY_FRAC, 1))
        inverse, power = await wide_scales.inverse_roots(squares)
        factor = (await inverse.mul(power, frac=40)).retype(RingType(128, 40, 24))

    async def standardised(entries: SecretArray, columns: slice) -> SecretArray:
        done: SecretArray = await wide_scales.scale_columns(entries, factor[columns])
        return done

    def joint_of(packed: SecretArray) -> JointCovariance:
        return JointCovariance(packed, exponent, grid, largest, rows, float(rows), COLUMN_ERROR)

    chunks = chunks_of(uploads, rows, mean.data, at_once=SCALED_AT_ONCE)
    return await standardised_table(party, uploads, rows, chunks, standardised, joint_of, (inverse, power))


async def _mean(sums: SecretArray, rows: int) -> SecretArray:
    """Return means of columns from their sums, with 48 fractional bits, in one round."""
    wide = (sums * round(2**60 / rows)).retype(RingType(128, ENTRY_FRAC + 60, 2))
    mean: SecretArray = await wide.truncate(60)
    return mean


def chunks_of(
    uploads: JobUploads, rows: int, mean: Words | None = None, only: int | None = None, at_once: int = 1
) -> Callable[[], Iterator[Words]]:
    """Return a function that reads the common rows minus the mean, in chunks of columns, for `WideTable`; of one owner
    if `only`.

    at_once: factor by which chunks are smaller.
    """

    def chunks() -> Iterator[Words]:
        step, column = columns_per_chunk(at_once * rows), 0
        for owner, spool in sorted(uploads.rows.items()):
            for start in range(0, spool.rows if only in (None, owner) else 0, step):
                words = spool.take(slice(start, start + step))
                chunk = words.reshape(2, words.shape[1], -1, 2)
                if uploads.common is not None:
                    chunk = np.ascontiguousarray(chunk[:, :, uploads.common[owner]])
                if mean is not None:
                    own = mean[:, column + start : column + start + chunk.shape[1], None]
                    chunk = ring.sub(chunk, np.ascontiguousarray(np.broadcast_to(own, chunk.shape)))
                yield chunk
            column += spool.rows

    return chunks
