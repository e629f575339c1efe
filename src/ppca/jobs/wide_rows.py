"""The form "wide-rows": row owners with fewer joint rows than columns. Their shared rows and the products of
these."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields

import numpy as np
from numpy.typing import NDArray

from ..algorithms import gram_matrix, wide_scales
from ..algorithms.factors import ROOT_FRAC
from ..algorithms.input_ranges import WHOLE, Ranges, count_and_root, table_bound, table_projections
from ..algorithms.joint_covariance import JointCovariance, joint_mean
from ..algorithms.wide_scales import JointScales, WideOwnerMoments
from ..algorithms.wide_table import COLUMN_ERROR, ENTRY_FRAC, WideTable, columns_per_chunk
from ..native import ring
from ..protocol import Party, Pending, SecretArray, concatenate, stack
from ..protocol.multiply import Product, masked
from ..protocol.opening import SERVERS, record
from .analysis import Parameters
from .errors import Refusal
from .input_checks import check_ranges
from .kept import drop_sums
from .openings import ROUNDED
from .rows import check_rows, check_width
from .spec import JobSpec
from .uploads import JobUploads
from .wide import SCALED_AT_ONCE, SharedWide, standardised_table, too_large, too_tall

ROUNDED_SQUARES = 1 << (2 * ENTRY_FRAC - 20)
"""Tolerance of sums of squares: for an unmodified client they differ by at most 2^-20 from the square of the root it
sends."""

Words = NDArray[np.uint64]


async def enter(party: Party, job: JobSpec, uploads: JobUploads) -> SharedWide:
    """Return the shared table of uploaded rows: columns one below the other, as long as the owner has rows, and zeros.

    Inputs, owner by owner: the fields of `WideOwnerMoments`.
    """
    inputs, data = uploads.inputs(party), job.data
    components = job.analysis.components if isinstance(job.analysis, Parameters) else None
    names = [field.name for field in fields(WideOwnerMoments)][: 7 if data.standardize else 6]
    each = {name: inputs[k :: len(names)] for k, name in enumerate(names)}
    flat = ("count", "root") if data.standardize else ("count", "root", "exponent")
    sums = WideOwnerMoments(
        **{name: concatenate(parts) if name in flat else stack(parts) for name, parts in each.items()}
    )
    width = len(each["mantissa"][0])
    check_width(job, width)
    spools = [spool for _, spool in sorted(uploads.rows.items())]
    if len(spools) != len(sums.count) or any(spool.rows != width for spool in spools):
        raise Refusal("an owner has not uploaded every column of its rows")
    lengths = [spool.width // 2 for spool in spools]
    record(party, ROUNDED, (len(lengths),), SERVERS, "sizes of uploads")
    between = len(lengths) > 1
    owner = np.repeat(np.arange(len(lengths) + between), [*lengths, *([len(lengths)] * between)])
    if refused := too_tall(sum(lengths), width) or too_large(len(owner), width):
        raise Refusal(refused)
    if isinstance(components, int) and components > len(owner):
        raise Refusal(f"{components} components need at least as many rows; choose at most as many as there are rows")
    if data.check_inputs:
        with party.stage("input checks"):
            await _check(party, sums, uploads, lengths, data.owners)
    if data.rows_at_least is not None:
        await check_rows(party, sums.count, data.rows_at_least)
    drop_sums(party, job.keep)
    with party.stage("covariance"):
        party.progress("covariance", 0.0)
        entered = await wide_scales.joint_scales(sums, width)
        grid = await joint_mean(entered.scales, entered.joint)
    fitted = _standardised if data.standardize else _raw
    return await fitted(party, uploads, sums, entered, grid, owner, job)


async def _check(
    party: Party, sums: WideOwnerMoments, uploads: JobUploads, lengths: list[int], owners: Sequence[str]
) -> None:
    """Refuse owners whose numbers are out of range."""
    m, width = sums.mantissa.shape
    ranges = Ranges(m)
    await count_and_root(ranges, sums.count, sums.root)
    ranges.numbers(sums.mean_exponent, sums.mantissa, sums.upper)
    ranges.exponents(sums.exponent)
    squares = await _squares(party, uploads, lengths, sums.square_root is None)
    # The largest entry of an owner (of a column, if columns are standardised) is at least half its unit. An owner
    # cannot choose the unit in which the rows of others are cut off with rows that are small or zero.
    ranges.at_least(squares, 1 << (2 * ENTRY_FRAC - 2), sums.exponent)
    if sums.square_root is not None:
        ranges.between(sums.square_root, 0, (math.isqrt(max(lengths)) + 1) << ROOT_FRAC)
        root = await sums.square_root.mul(sums.square_root, frac=2 * ROOT_FRAC)
        away = squares - (root.retype(WHOLE) * (1 << (2 * (ENTRY_FRAC - ROOT_FRAC)))).retype(WHOLE)
        ranges.between(away, -ROUNDED_SQUARES, ROUNDED_SQUARES)
    chunks = _chunks(uploads, sum(lengths), None)()
    found = table_projections(party, chunks, np.repeat(np.arange(m), lengths), m)
    for number, length in enumerate(lengths):
        bound = table_bound(length * width, ENTRY_FRAC)
        ranges.between(found[number], -bound, bound, np.full(found.shape[1], number))
    await check_ranges(party, ranges, owners)


async def _squares(party: Party, uploads: JobUploads, lengths: list[int], joined: bool) -> SecretArray:
    """Return sums of squares of each owner's entries, per column (m, d) or in total (m), with 96 fractional bits, in
    one round."""
    starts, parts = np.cumsum([0, *lengths]), []
    for chunk in _chunks(uploads, sum(lengths), None)():
        product = ring.mul(np.ascontiguousarray(chunk[0]), np.ascontiguousarray(chunk[1]))
        own = [ring.total(np.ascontiguousarray(product[:, a:b]), 1) for a, b in itertools.pairwise(starts)]
        parts.append(np.stack(own))
    total = np.concatenate(parts, axis=1)
    if joined:
        total = ring.total(total, 1)
    template = SecretArray(party, np.empty((2, 0, 2), np.uint64), WHOLE)
    found: SecretArray = await Pending(masked(template, total, Product(WHOLE, 0, None)))
    return found


async def _raw(
    party: Party,
    uploads: JobUploads,
    sums: WideOwnerMoments,
    entered: JointScales,
    grid: SecretArray,
    owner: NDArray[np.intp],
    job: JobSpec,
) -> SharedWide:
    """Fit without standardisation: rows stay in their owners' units and the Gram matrix is converted to one unit."""
    scales, n = entered.scales, len(owner)
    common = scales.exponent[:1]
    shift = wide_scales.row_shifts(sums.exponent, common, entered.between is not None)
    table = WideTable(party, _chunks(uploads, n, entered.between), n, len(grid))
    with party.stage("second moments"):
        products = await gram_matrix.truncate_products(await table.gram())
    with party.stage("covariance"):
        i, j = np.triu_indices(n)
        place = owner[i] * len(shift) + owner[j]
        packed = await gram_matrix.scale_to_one_unit(products, wide_scales.pair_shifts(shift), place)
    joint = JointCovariance(packed, common, grid, scales.mean_exponent, entered.joint.n_rows, 1.0, COLUMN_ERROR)
    return SharedWide(joint, table, shift[owner], by_columns=False)


async def _standardised(
    party: Party,
    uploads: JobUploads,
    sums: WideOwnerMoments,
    entered: JointScales,
    grid: SecretArray,
    owner: NDArray[np.intp],
    job: JobSpec,
) -> SharedWide:
    """Fit with standardisation: entries are first divided by the joint deviation, in chunks; columns then have norm
    1."""
    with party.stage("covariance"):
        standard = await wide_scales.standardisation(sums, entered)
    between = standard.between
    own = owner if between is None else owner[: -len(sums.count)]

    async def standardised(entries: SecretArray, columns: slice) -> SecretArray:
        done: SecretArray = await wide_scales.standardise(entries, standard.factor[:, columns], own)
        return done if between is None else concatenate([done, between[:, columns].T], 1)

    def joint_of(packed: SecretArray) -> JointCovariance:
        scales, rows = entered.scales, entered.joint
        return JointCovariance(
            packed, scales.exponent, grid, scales.mean_exponent, rows.n_rows, rows.n_rows_scaled, COLUMN_ERROR
        )

    chunks = _chunks(uploads, SCALED_AT_ONCE * len(owner), None)
    inverse = (standard.inverse, standard.power)
    return await standardised_table(party, uploads, len(owner), chunks, standardised, joint_of, inverse)


def _chunks(uploads: JobUploads, rows: int, last: SecretArray | None) -> Callable[[], Iterator[Words]]:
    """Return a function that reads all owners' rows, then the rows `last`, in chunks of columns, for `WideTable`."""
    width = min(spool.rows for spool in uploads.rows.values())
    count = -(-width // columns_per_chunk(rows))

    def chunks() -> Iterator[Words]:
        start = 0
        for words in uploads.chunks(width, count):
            chunk = words.reshape(2, words.shape[1], -1, 2)
            if last is not None:
                stop = start + chunk.shape[1]
                chunk = np.concatenate([chunk, last.data[:, :, start:stop].transpose(0, 2, 1, 3)], axis=2)
                start = stop
            yield chunk

    return chunks
