"""What an owner of rows sends: count, means and centred sums in secret scales of its own, once; and new rows for inference."""

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
from .missing_moments import MissingMoments, gap_sums, translated
from .moments import Moments, Progress, moments
from .tables.table import Table, check_present

Floats = NDArray[np.float64]

MIN_ROWS = 10
"""The default of the fewest rows per owner with which clients send data for a fit with other owners."""

BATCH = 1 << 19
"""Numbers of new rows that travel to the servers in one run: about 8 MB for each."""


def sums_of(table: Table, progress: Progress | None = None) -> Moments:
    """The sums of an owner's table: one pass here, or on the owner's Dask cluster if the table lies there or is read there."""
    found = sums_on_dask(table, moments, progress) if table.on_dask else None
    found = moments(table, progress=progress) if found is None else found
    TooFewRows.refuse(table.label, found.count, table.min_rows)
    return found


def gap_sums_of(table: Table, progress: Progress | None = None) -> MissingMoments:
    """The same for a job in which missing values count as the joint mean; a column without any value is refused."""
    found = sums_on_dask(table, gap_sums, progress) if table.on_dask else None
    found = gap_sums(table, progress=progress) if found is None else found
    check_present(table, found.counts)
    TooFewRows.refuse(table.label, found.count, table.min_rows)
    return found


def check_gaps(table: Table, sums: MissingMoments) -> None:
    """Refuse a column that few rows miss, or few rows have, before anything is sent: others can compute the sum of these rows.

    The joint mean in place of a missing value lies as far from the owner's other values as another owner chooses with its own.
    """
    missing = sums.count - sums.counts
    few = np.flatnonzero(((missing > 0) & (missing < table.min_rows)) | (sums.counts < table.min_rows))
    if len(few):
        index = int(few[0])
        raise OwnerError(
            f"{table.label}: {table.column_title(index)} has {int(sums.counts[index]):,} values in {sums.count:,} rows. Missing "
            "values count as the joint mean in this job, so others could compute the sum of the rows that miss the column, or of "
            f"those that have it, from the joint result; the minimum is {table.min_rows} of either. Nothing was sent. Fill these "
            "values in, leave out the rows that miss them, or lower the minimum.",
            options=["min_rows"],
        )


def share_sums(sums: Moments, owners: int) -> list[list[InputPacket]]:
    """All that an owner sends, in the order of `OwnerMoments`. Its size does not depend on the number of rows."""
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
    """What 79 bits of mantissa hold of the rest of a number, and what is left: one bit less than servers have, so that numbers
    on both sides of a power of two are brought to a common scale without loss."""
    _, found = np.frexp(values)
    unit = found - (scales.MANTISSA_BITS - 1)
    kept = np.ldexp(np.rint(np.ldexp(rest, -unit)), unit)
    return kept, rest - kept


def _remainder(left: Floats, exponent: NDArray[np.int64], count: int) -> Floats:
    """What is left of the means, times sqrt(n), in units of the deviations; 0 if it is above them (see `joint_covariance`)."""
    units = np.where(exponent > scales.NONE, exponent, 0)
    scaled = np.ldexp(left, -units)
    return np.asarray(np.where((exponent > scales.NONE) & (np.abs(scaled) < 1), np.sqrt(count) * scaled, 0.0))


def share_gap_sums(sums: MissingMoments, owners: int) -> list[list[InputPacket]]:
    """All that an owner sends if missing values count as the joint mean, in the order of `OwnerMomentsMissing`.

    Its size depends neither on the number of rows nor on whether, where and how many values are missing. What mantissas leave of
    the means is in the factor: its rows are those about the means as they are sent.
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
        raise OwnerError(f"{sums.label}: {sums.count:,} rows; each of {owners} owners may have at most {most - 1:,}.")


def share_numbers(values: Floats, rest: Floats) -> list[list[InputPacket]]:
    """values + rest as shared exponents and mantissas: exponents, mantissas of 80 bits, the upper halves of these."""
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
    """Exponents e with deviation < 2^e, and the upper triangular R with R'R = gram in units of 2^e of its columns.

    By Cholesky, then R'R errs by a few 2^-50 of the product of two deviations; if columns depend on each other with pivots,
    then by d 2^-51 at most besides. Constant columns are left out of both: they are exactly zero.
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
    """The upper triangle, row by row."""
    return np.asarray(matrix[np.tri(len(matrix), dtype=bool).T])


def _root(matrix: Floats) -> Floats:
    """Upper triangular R with R'R = matrix, which is overwritten."""
    try:
        return np.asarray(np.linalg.cholesky(matrix).T)
    except np.linalg.LinAlgError:
        return _root_of_dependent(matrix)


def _root_of_dependent(matrix: Floats) -> Floats:
    """The same where columns depend on each other, as those of fewer rows do: r d^2 operations for rank r.

    Cholesky's method that takes the largest diagonal entry left as the next pivot ends where that is below d 2^-53 of the largest
    of all, and so everything left is. The r rows that it found, their columns in order again, are made triangular by rotations.
    Reference: N. Higham, Accuracy and Stability of Numerical Algorithms, section 10.3.
    """
    from scipy.linalg import lapack  # slow to import, and few owners need it

    d = len(matrix)
    # Symmetric: its transpose is the same, in the order of LAPACK.
    found, order, rank, _ = lapack.dpstrf(matrix.T, overwrite_a=True)
    rows = np.empty((rank, d))
    rows[:, order - 1] = np.triu(found[:rank])
    root = np.zeros((d, d))
    root[:rank] = np.linalg.qr(rows, mode="r")
    return root


def new_rows(
    chunks: Iterable[Any], scale: NDArray[np.int64], kind: RingType, names: Sequence[str] | None
) -> Iterator[list[InputPacket]]:
    """Shares of new rows for a shared model, a batch at a time; `scale` and `names` are those of the model's columns."""
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
    """New rows in the units of a model's columns; zero in columns that were constant in the fit, as they count for nothing.

    Raises `BadValue` for the first row with a value that does not fit the numbers of a model. `before`: rows before these.
    What rounding integers to doubles takes from a value that fits is below 2^-33 units.
    """
    constant = scale <= scales.NONE + 2
    limits = np.where(constant, np.inf, np.ldexp(1.0, scale + kind.span))
    bad = ~(np.abs(values) < limits)
    if bad.any():
        row, column = (int(i) for i in np.argwhere(bad)[0])
        name = names[column] if names else str(column + 1)
        raise BadValue(
            f"{label}column {name!r} has {values[row, column]:g} in row {before + row + 1:,}; this model takes magnitudes "
            f"below {limits[column]:g}, 2^{kind.span} times the scale of the column. Remove the row; if "
            "all rows are so large, subtract one number from the column everywhere, and fit again.",
            columns=[name],
            row=before + row + 1,
        )
    return np.asarray(np.where(constant, 0.0, np.ldexp(values, np.where(constant, 0, -scale))))
