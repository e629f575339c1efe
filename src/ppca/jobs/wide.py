"""Tables with more columns than rows: products of rows are decomposed, and components made of their eigenvectors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..algorithms import gram_matrix
from ..algorithms.covariance import Normalised
from ..algorithms.decomposition import residual_bound, resolution
from ..algorithms.joint_covariance import JointCovariance
from ..algorithms.scales import EXPONENT
from ..algorithms.wide_table import ENTRIES, MAX_TABLE_ENTRIES, WideTable, columns_per_chunk
from ..protocol import Party, SecretArray, together
from .analysis import components_wanted, concluded, joint_means, parameters_of, solved
from .spec import JobSpec
from .spool import Spool
from .uploads import JobUploads

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


@dataclass
class SharedWide:
    """A shared table with more columns than rows, and the products of its rows.

    joint: `joint.triangle` has the products of rows, 90 fractional bits. table: what they are of.
    shift: units of the rows (by_columns: columns) of the table below those of the products, as exponents of two; one
    for all, or one for each. inverse_deviation: the factors of columns, if they are standardised; see `Normalised`.
    summed: whether eigenvalues of the products are those of sums over rows, not of means.
    """

    joint: JointCovariance
    table: WideTable
    shift: SecretArray
    by_columns: bool
    inverse_deviation: tuple[SecretArray, SecretArray] | None = None
    summed: bool = True


async def analyse_wide(party: Party, shared: SharedWide, job: JobSpec) -> dict[str, Any]:
    """From the products of rows and the table they are of to the result."""
    joint, table, inverse_deviation = shared.joint, shared.table, shared.inverse_deviation
    with party.stage("covariance"):
        scaled: Normalised
        scaled, means = await together(gram_matrix.normalised_gram(joint.triangle, table.rows), joint_means(joint, job))
        scaled = replace(scaled, inverse_deviation=inverse_deviation)
    spectrum = await solved(party, scaled.matrix, job)
    with party.stage("components"):
        party.progress("components", 0.98)
        count = await components_wanted(parameters_of(job).components, spectrum, joint.n_rows)
        unit = await gram_matrix.table_unit(scaled)
        make = gram_matrix.ScaledTable.by_columns if shared.by_columns else gram_matrix.ScaledTable.by_rows
        Y = await make(table, shared.shift + unit.exponent)
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
    return {**answer, "summed": shared.summed, "resolution": noise, "errors": errors}


async def standardised_table(
    party: Party,
    uploads: JobUploads,
    rows: int,
    chunks: Callable[[], Iterator[Words]],
    standardised: Callable[[SecretArray, slice], Awaitable[SecretArray]],
    joint_of: Callable[[SecretArray], JointCovariance],
    inverse_deviation: tuple[SecretArray, SecretArray],
) -> SharedWide:
    """Divide uploaded entries by joint deviations, a chunk at a time; the uploaded rows are then let go.

    chunks: yields chunks of columns of the uploads. standardised: divides the entries of columns. joint_of: makes the
    `JointCovariance` from the Gram matrix.
    """
    width = len(inverse_deviation[0])
    spool = uploads.spool(2 * rows)
    with party.stage("standardise"):
        for chunk in chunks():
            columns = slice(spool.rows, spool.rows + chunk.shape[1])
            done = await standardised(SecretArray(party, chunk, ENTRIES), columns)
            spool.append(chunk.shape[1], [(False, np.ascontiguousarray(split)) for split in done.data])
            party.progress(f"standardise, column {spool.rows:,} of {width:,}", spool.rows / width)
    uploads.close_rows()
    table = WideTable(party, _pieces_in(spool, rows), rows, width)
    with party.stage("second moments"):
        products = await gram_matrix.truncate_products(await table.gram())
    joint = joint_of(gram_matrix.sum_products(products.reshape(1, -1)))
    shift = SecretArray.constant(party, np.zeros(1, np.int64), EXPONENT)
    return SharedWide(joint, table, shift, False, inverse_deviation, summed=False)


def _pieces_in(spool: Spool, rows: int) -> Callable[[], Iterator[Words]]:
    """Return a function that reads a spool of columns with this number of rows, for `WideTable`."""

    def chunks() -> Iterator[Words]:
        step = columns_per_chunk(rows)
        for first in range(0, spool.rows, step):
            words = spool.take(slice(first, first + step))
            yield words.reshape(2, -1, rows, 2)

    return chunks
