"""Shares of a row owner: count, means and centred sums in secret scales of its own; and new rows for a kept model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..algorithms import joint_covariance, scales
from ..native import ring
from ..protocol import InputPacket, RingType, share, share_ring
from .dask_moments import sums_on_dask
from .errors import BadValue, OwnerError, TooFewRows
from .missing_moments import MissingMoments, moments_with_missing, translated
from .moments import Moments, Progress, moments
from .tables.table import Table, check_present

Floats = NDArray[np.float64]

MIN_ROWS = 10
"""Default minimum number of rows with which clients send data of an owner for a fit with other owners."""

BATCH = 1 << 19
"""Maximum number of entries of new rows that are sent at a time: about 8 MB per server."""


def sums_of(table: Table, progress: Progress | None = None) -> Moments:
    """Compute the sums of an owner's table in this process, or on the owner's Dask cluster if the table is read
    there."""
    found = sums_on_dask(table, moments, progress) if table.on_dask else None
    found = moments(table, progress=progress) if found is None else found
    TooFewRows.refuse(table.label, found.count, table.min_rows)
    return found


def missing_moments_of(table: Table, progress: Progress | None = None) -> MissingMoments:
    """Compute the sums for a job in which missing values count as the joint mean. Refuse a column without any value."""
    found = sums_on_dask(table, moments_with_missing, progress) if table.on_dask else None
    found = moments_with_missing(table, progress=progress) if found is None else found
    check_present(table, found.counts)
    TooFewRows.refuse(table.label, found.count, table.min_rows)
    return found


def check_missing(table: Table, sums: MissingMoments) -> None:
    """Refuse, before anything is sent, a column that few rows miss or few rows have: others could compute the sum of
    these rows.

    The reason: missing values are replaced by the joint mean, and another owner can choose how far it is from this
    owner's values.
    """
    missing = sums.count - sums.counts
    few = np.flatnonzero(((missing > 0) & (missing < table.min_rows)) | (sums.counts < table.min_rows))
    if len(few):
        index = int(few[0])
        raise OwnerError(
            f"{table.label}: {table.column_title(index)} has {int(sums.counts[index]):,} values in {sums.count:,} "
            "rows. Missing values count as the joint mean in this job, so others could compute the sum of the rows "
            "that miss the column, or of those that have it, from the joint result; the minimum is "
            f"{table.min_rows} of either. Nothing was sent. Fill these values in, leave out the rows that miss "
            "them, or lower the minimum.",
            options=["min_rows"],
        )


def share_sums(sums: Moments, owners: int) -> list[list[InputPacket]]:
    """Return shares of an owner's sums, in the order of `OwnerMoments`. Their size does not depend on the number of
    rows."""
    _check_count(sums, owners)
    exponent, scaled = scaled_factor(sums.gram, sums.count)
    factor = packed(scaled)
    rest, left = cut(sums.mean, sums.rest)
    return [
        share(np.array([sums.count]), joint_covariance.COUNT, "count"),
        share(np.array([np.sqrt(sums.count)]), joint_covariance.ROOT, "root"),
        *share_numbers(sums.mean, rest),
        share(exponent, scales.EXPONENT, "exponents of deviations"),
        share(np.concatenate([factor, _remainder(left, exponent, sums.count)]), joint_covariance.ROOT, "factor"),
    ]


def cut(values: Floats, rest: Floats) -> tuple[Floats, Floats]:
    """Split the rest of a number into the part that a mantissa of 79 bits holds, and the remainder.

    79 is one bit less than servers have, so that numbers on both sides of a power of two convert to a common scale
    exactly.
    """
    _, found = np.frexp(values)
    unit = found - (scales.MANTISSA_BITS - 1)
    kept = np.ldexp(np.rint(np.ldexp(rest, -unit)), unit)
    return kept, rest - kept


def _remainder(left: Floats, exponent: NDArray[np.int64], count: int) -> Floats:
    """Return the remainders of the means times sqrt(n) in units of the deviations; 0 if larger (see
    `joint_covariance`)."""
    units = np.where(exponent > scales.NONE, exponent, 0)
    scaled = np.ldexp(left, -units)
    return np.asarray(np.where((exponent > scales.NONE) & (np.abs(scaled) < 1), np.sqrt(count) * scaled, 0.0))


def share_missing_moments(sums: MissingMoments, owners: int) -> list[list[InputPacket]]:
    """Return shares of an owner's sums if missing values count as the joint mean, in the order of
    `OwnerMomentsMissing`.

    Their size does not depend on the number of rows or on missing values. The factor is relative to the means as sent,
    so it includes the remainders that mantissas cut off.
    """
    _check_count(sums, owners)
    d = len(sums.mean)
    rest, left = cut(sums.mean, sums.rest)
    small = np.abs(left) < np.sqrt(np.diagonal(sums.gram)[:d] / sums.count)
    exponent, scaled = scaled_factor(translated(sums.gram, np.where(small, left, 0.0)), sums.count)
    scaled[:, d:] = np.ldexp(scaled[:, d:], exponent[d:])
    return [
        share(np.array([sums.count]), joint_covariance.COUNT, "count"),
        share(sums.counts, joint_covariance.COUNT, "counts of columns"),
        *share_numbers(sums.mean, rest),
        share(exponent[:d], scales.EXPONENT, "exponents of deviations"),
        share(packed(scaled), joint_covariance.ROOT, "factor"),
    ]


def _check_count(sums: Moments | MissingMoments, owners: int) -> None:
    most = (1 << joint_covariance.COUNT_BITS) // owners
    if sums.count >= most:
        raise OwnerError(
            f"{sums.label}: too many rows: {sums.count:,}. With {owners} owners the maximum per owner is {most - 1:,}, "
            f"because the joint number must stay below 2^36. Use fewer rows."
        )


def share_numbers(values: Floats, rest: Floats) -> list[list[InputPacket]]:
    """Share values + rest as exponents, mantissas of 80 bits, and upper halves of the mantissas."""
    _, found = np.frexp(values)
    exponent = np.where(values != 0, found, scales.NONE).astype(np.int64)
    units = np.where(values != 0, found, 0)
    scaled, small = np.ldexp(values, -units), np.ldexp(rest, -units)
    whole, _ = ring.encode(scaled, scales.MANTISSA_BITS, 2)
    part, _ = ring.encode(np.where(values != 0, small, 0.0), scales.MANTISSA_BITS, 2)
    upper, _ = ring.encode(scaled, scales.HALF_BITS, 2)
    return [
        share(exponent, scales.EXPONENT, "exponents"),
        share_ring(ring.add(whole, part), scales.MANTISSA),
        share_ring(upper, scales.UPPER_HALF),
    ]


def scaled_factor(gram: Floats, count: int) -> tuple[NDArray[np.int64], Floats]:
    """Return exponents e with deviation < 2^e, and the upper triangular R with R'R = gram in units of 2^e of its
    columns.

    Cholesky's method; the error of R'R is a few 2^-50 of the product of two deviations. If columns are linearly
    dependent, pivoting is used, with an additional error of at most d 2^-51. Constant columns are exactly zero in R.
    """
    deviation = np.sqrt(np.diagonal(gram) / count)
    _, found = np.frexp(deviation)
    varies = deviation > 0
    exponent = np.where(varies, found, scales.NONE).astype(np.int64)
    units = np.where(varies, found, 0)
    scaled = np.ldexp(np.ldexp(gram, -units), -units[:, None])
    factor = np.zeros_like(scaled)
    factor[np.ix_(varies, varies)] = _root(scaled[np.ix_(varies, varies)])
    return exponent, factor


def packed(matrix: Floats) -> Floats:
    """Return the upper triangle as a vector, row by row."""
    return np.asarray(matrix[np.tri(len(matrix), dtype=bool).T])


def _root(matrix: Floats) -> Floats:
    """Return the upper triangular R with R'R = matrix. Overwrites the matrix."""
    try:
        return np.asarray(np.linalg.cholesky(matrix).T)
    except np.linalg.LinAlgError:
        return _root_of_dependent(matrix)


def _root_of_dependent(matrix: Floats) -> Floats:
    """Return R for linearly dependent columns, such as those of fewer rows than columns: r d^2 operations for rank r.

    Cholesky's method with the largest remaining diagonal entry as pivot. It stops when that entry, and so the whole
    rest, is below d 2^-53 of the largest entry of the matrix. Rotations make the r rows triangular after their columns
    are reordered.
    Reference: N. Higham, Accuracy and Stability of Numerical Algorithms, section 10.3.
    """
    from scipy.linalg import lapack  # slow to import, and rarely needed

    d = len(matrix)
    # The matrix is symmetric, so its transpose has the memory order of LAPACK.
    found, order, rank, _ = lapack.dpstrf(matrix.T, overwrite_a=True)
    rows = np.empty((rank, d))
    rows[:, order - 1] = np.triu(found[:rank])
    root = np.zeros((d, d))
    root[:rank] = np.linalg.qr(rows, mode="r")
    return root


def new_rows(
    chunks: Iterable[Any], scale: NDArray[np.int64], kind: RingType, names: Sequence[str] | None
) -> Iterator[list[InputPacket]]:
    """Yield shares of new rows for a kept model, in batches. scale, names: of the model's columns."""
    before = 0
    for chunk in chunks:
        array = np.asarray(chunk, np.float64)
        if array.ndim != 2 or array.shape[1] != len(scale):
            raise ValueError(f"rows must have {len(scale)} columns, got shape {array.shape}")
        step = max(1, BATCH // len(scale))
        for start in range(0, len(array), step):
            part = in_units(array[start : start + step], scale, kind, names, "", before + start)
            yield share(part, kind, "row")
        before += len(array)


def in_units(
    values: Floats, scale: NDArray[np.int64], kind: RingType, names: Sequence[str] | None, label: str, before: int = 0
) -> Floats:
    """Return new rows in the units of a model's columns; zero in columns that were constant in the fit, which do not
    have weight.

    Raise `BadValue` for the first row with a value outside the range of the model. before: number of rows before these.
    The rounding error of integers in range is below 2^-33 units.
    """
    constant = scale <= scales.NONE + 2
    limits = np.where(constant, np.inf, np.ldexp(1.0, scale + kind.span))
    bad = ~(np.abs(values) < limits)
    if bad.any():
        row, column = (int(i) for i in np.argwhere(bad)[0])
        name = names[column] if names else str(column + 1)
        raise BadValue(
            f"{label}column {name!r} has {values[row, column]:g} in row {before + row + 1:,}; this model takes "
            f"magnitudes below {limits[column]:g}, 2^{kind.span} times the scale of the column. Remove the row; if "
            "all rows are so large, subtract one number from the column everywhere, and fit again.",
            columns=[name],
            row=before + row + 1,
        )
    return np.asarray(np.where(constant, 0.0, np.ldexp(values, np.where(constant, 0, -scale))))
