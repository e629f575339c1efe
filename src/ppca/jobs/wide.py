"""Analysis of a table with more columns than rows: decompose the Gram matrix X X', then compute components from its
eigenvectors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..algorithms import gram_matrix
from ..algorithms.covariance import Normalised
from ..algorithms.decomposition import residual_bound, resolution
from ..algorithms.joint_covariance import JointCovariance
from ..algorithms.scales import EXPONENT
from ..algorithms.wide_table import ENTRIES, MAX_TABLE_ENTRIES, WideTable, columns_of_piece
from ..protocol import Party, SecretArray, together
from .analysis import components_wanted, concluded, joint_means, parameters_of, solved
from .spec import JobSpec
from .spool import Spool
from .uploads import Uploads

STANDARD_ERROR = 2.0**-27
"""Bound of |E|_2 / |X|_2 per row for standardised X of n rows: entries of E are at most 5 * 2^-30, |X|_2 >= sqrt(d /
n)."""

SCALED_AT_ONCE = 4
"""Factor by which chunks are smaller while entries are standardised, because several copies are in memory then."""

Words = NDArray[np.uint64]


def too_tall(rows: int, width: int) -> str | None:
    """Return why a table of this shape cannot be analysed as a wide table, or None. rows: including rows of zeros."""
    if rows < width:
        return None
    return (
        f"the table is not wide: it has at least as many rows as its {width:,} columns (including rows of zeros that "
        "owners add). Submit a job of the form rows or columns, which analyses the covariance"
    )


def too_large(rows: int, width: int) -> str | None:
    """Return why a table of this shape is too large, or None."""
    if rows * width <= MAX_TABLE_ENTRIES:
        return None
    return (
        f"{rows:,} rows of {width:,} columns are more than {MAX_TABLE_ENTRIES:,} numbers, the maximum of a table "
        "with more columns than rows. Omit columns, for instance those that vary least"
    )


async def analyse_wide(
    party: Party,
    joint: JointCovariance,
    table: WideTable,
    shift: SecretArray,
    by_columns: bool,
    inverse_deviation: tuple[SecretArray, SecretArray] | None,
    job: JobSpec,
    summed: bool = True,
) -> dict[str, Any]:
    """Compute the result from the Gram matrix (`joint.triangle`, 90 fractional bits) and the table of which it is.

    shift: units of the table's rows, or columns, below those of the products, as exponents of two; one for all, or one
    for each.
    inverse_deviation: the factors of columns, if they are standardised; see `Normalised`.
    summed: whether eigenvalues of the products are those of sums over rows, not of means.
    """
    with party.stage("covariance"):
        scaled: Normalised
        scaled, means = await together(gram_matrix.normalised_gram(joint.triangle, table.rows), joint_means(joint, job))
        scaled = replace(scaled, inverse_deviation=inverse_deviation)
    spectrum = await solved(party, scaled.matrix, job)
    with party.stage("components"):
        party.progress("components", 0.98)
        count = await components_wanted(parameters_of(job).components, spectrum, joint.n_rows)
        unit = await gram_matrix.table_unit(scaled)
        make = gram_matrix.ScaledTable.by_columns if by_columns else gram_matrix.ScaledTable.by_rows
        Y = await make(table, shift + unit.exponent)
        values = spectrum.values[:count]
        tolerance = spectrum.tolerance
        noise = max(resolution(table.rows, tolerance, spectrum.certified), gram_matrix.MIN_VARIANCE_FRACTION)
        least = scaled.matrix.diagonal().sum() * (noise / 2)
        found = await gram_matrix.components(Y, values, spectrum.vectors[:count], least)
        reached = await gram_matrix.is_accurate(
            Y, values, found, unit, (tolerance, max(tolerance, gram_matrix.LOOSE_TOLERANCE))
        )
        tolerance = tolerance if reached is None else reached
    verified = replace(
        spectrum,
        vectors=found.vectors.T,
        verified=spectrum.verified and reached is not None,
        tolerance=tolerance,
    )
    answer = await concluded(party, joint, scaled, verified, count, means, job)
    errors = answer["errors"] | {
        "residual": residual_bound(table.columns, count, tolerance, gram_matrix.VERIFICATION_ULPS)
    }
    if inverse_deviation is not None:
        errors["scaling"] += table.rows * STANDARD_ERROR
    return {**answer, "summed": summed, "resolution": noise, "errors": errors}


async def analyse_standardised(
    party: Party,
    uploads: Uploads,
    rows: int,
    pieces: Callable[[], Iterator[Words]],
    standardised: Callable[[SecretArray, slice], Awaitable[SecretArray]],
    joint_of: Callable[[SecretArray], JointCovariance],
    inverse_deviation: tuple[SecretArray, SecretArray],
    job: JobSpec,
) -> dict[str, Any]:
    """Do the same for uploads whose entries are first divided by joint deviations on shares, in chunks, and then freed.

    pieces: yields chunks of columns of the uploads. standardised: divides the entries of columns. joint_of: makes the
    `JointCovariance` from the Gram matrix.
    """
    width = len(inverse_deviation[0])
    spool = Spool(2 * rows)
    try:
        with party.stage("standardise"):
            for piece in pieces():
                columns = slice(spool.rows, spool.rows + piece.shape[1])
                done = await standardised(SecretArray(party, piece, ENTRIES), columns)
                spool.append(piece.shape[1], [(False, np.ascontiguousarray(split)) for split in done.data])
                party.progress(f"standardise, column {spool.rows:,} of {width:,}", spool.rows / width)
        uploads.close()
        table = WideTable(party, _pieces_in(spool, rows), rows, width)
        with party.stage("second moments"):
            products = await gram_matrix.truncate_products(await table.gram())
        joint = joint_of(gram_matrix.sum_products(products.reshape(1, -1)))
        shift = SecretArray.constant(party, np.zeros(1, np.int64), EXPONENT)
        return await analyse_wide(party, joint, table, shift, False, inverse_deviation, job, summed=False)
    finally:
        spool.close()


def _pieces_in(spool: Spool, rows: int) -> Callable[[], Iterator[Words]]:
    """Return a function that reads a spool of columns with this number of rows, for `WideTable`."""

    def pieces() -> Iterator[Words]:
        step = columns_of_piece(rows)
        for first in range(0, spool.rows, step):
            words = spool.take(slice(first, first + step))
            yield words.reshape(2, -1, rows, 2)

    return pieces
