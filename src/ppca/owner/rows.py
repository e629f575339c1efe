"""What an owner of rows sends: exact sums of its table as ring elements, scaled by public powers of two; rows for inference."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..algorithms.covariance import MEAN_FRAC, MOMENT_FRAC
from ..jobs import inference
from ..native import ring
from ..protocol import InputPacket, RingType, make_type, share, share_ring
from .dask_moments import moments_on_dask
from .errors import BadValue, OwnerError
from .moments import Moments, Progress, moments
from .tables.dask import DaskTable
from .tables.table import Table

COUNT = make_type(128, 0, 40)
EXPONENT = RingType(128, 0, 12)
NO_EXPONENT = -1100
"""Stands for a column of zeros: below the exponent of any double."""

MEANS = RingType(128, MEAN_FRAC, 1)
MOMENTS = RingType(128, MOMENT_FRAC, 1)


BATCH = 1 << 19
"""Numbers of new rows that travel to the servers in one run: about 8 MB for each."""


def sums_of(table: Table, progress: Progress | None = None) -> Moments:
    """The sums of an owner's table: one pass here, or on the owner's Dask cluster if the table lies there."""
    found = moments_on_dask(table, progress) if isinstance(table, DaskTable) else None
    return moments(table, progress=progress) if found is None else found


def exponents(largest: NDArray[np.float64], per_column: bool) -> NDArray[np.int64]:
    """The smallest e with |x| < 2^e, per column or for all columns together."""
    _, found = np.frexp(largest)
    exact = np.where(largest > 0, found, NO_EXPONENT).astype(np.int64)
    return exact if per_column else exact.max(keepdims=True)


def share_survey(
    count: int, largest: NDArray[np.float64], per_column: bool
) -> tuple[list[InputPacket], list[InputPacket]]:
    """The first message of an owner: its number of rows and its exponents, both secret."""
    return share(np.asarray([count]), COUNT, "row count"), share(exponents(largest, per_column), EXPONENT, "exponents")


def encode_moments(
    moments: Moments, rows: int, scale: NDArray[np.int64]
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """An owner's part of the joint second moments (packed upper triangle) and means, divided by the joint row count.

    The centred sums G come from doubles; the product of means is added as exact integers, so that a large mean does not eat
    the digits of a small deviation: M = G / n + mean * (mean * count / n).
    """
    i, j = np.triu_indices(len(moments.mean))
    shrink = np.ldexp(1.0, -scale)
    mean = moments.mean * shrink
    spread = moments.gram[i, j] * shrink[i] * shrink[j] / rows
    means, bad = ring.encode(mean, MEAN_FRAC, 2)
    parts, worse = ring.encode(mean * (moments.count / rows), MEAN_FRAC, 2)
    spreads, worst = ring.encode(spread, MOMENT_FRAC, 2)
    if max(bad, worse, worst) >= 0 or np.abs(mean).max(initial=0.0) > 1:
        raise ValueError("values exceed the declared bounds: declare larger bounds, or use bounds='auto'")
    return ring.add(spreads, ring.mul(means[i], parts[j])), parts


def share_moments(moments: Moments, rows: int, scale: NDArray[np.int64]) -> tuple[list[InputPacket], list[InputPacket]]:
    """The second message of an owner: moments and means, as secrets. Its size does not depend on the number of rows."""
    packed, means = encode_moments(moments, rows, scale)
    return share_ring(packed, MOMENTS), share_ring(means, MEANS)


def joint_scale(opened: list[int], width: int) -> NDArray[np.int64]:
    """Exponents of all columns from what the survey opened (one for all, or one each)."""
    scale = np.asarray(opened, np.int64)
    scale = np.where(scale <= NO_EXPONENT, 0, scale)
    return np.full(width, scale[0]) if len(scale) == 1 else scale


def declared_scale(bounds: float | NDArray[np.float64], width: int, per_column: bool) -> NDArray[np.int64]:
    """Exponents from declared bounds on |x|."""
    if np.ndim(bounds) and np.size(bounds) != width:
        raise ValueError(f"bounds has {np.size(bounds)} numbers for {width} columns; give one for each")
    limits = np.broadcast_to(np.asarray(bounds, np.float64), (width,))
    if not np.all(np.isfinite(limits)) or np.any(limits <= 0):
        raise ValueError("declared bounds must be positive and finite")
    each = np.asarray([math.frexp(limit)[1] for limit in limits.tolist()], np.int64)
    return each if per_column else np.full(width, each.max())


def check_within(
    label: str, names: Sequence[str] | None, largest: NDArray[np.float64], limits: NDArray[np.float64]
) -> None:
    """Refuse a table whose values exceed their declared bounds."""
    beyond = np.flatnonzero(largest > limits)
    if beyond.size:
        at = int(beyond[0])
        name = names[at] if names else f"column {at + 1}"
        raise OwnerError(f"{label}: {name} reaches {largest[at]:g}, beyond its declared bound")


def new_rows(
    chunks: Iterable[Any], scale: NDArray[np.int64], standardized: bool, names: Sequence[str] | None
) -> Iterator[list[InputPacket]]:
    """Shares of new rows for a shared model, a batch at a time; `scale` and `names` are those of the model's columns."""
    kind = inference.row_type(standardized)
    limits = np.ldexp(1.0, scale + kind.span)
    hint = (
        f"this model takes magnitudes below 2^{kind.span} times the scale of the data it was fitted on. Remove the row."
    )
    before = 0
    for chunk in chunks:
        array = np.asarray(chunk, np.float64)
        if array.ndim != 2 or array.shape[1] != len(scale):
            raise ValueError(f"rows must have {len(scale)} columns, got shape {array.shape}")
        step = max(1, BATCH // len(scale))
        for start in range(0, len(array), step):
            part = array[start : start + step]
            refuse_beyond(part, limits, names, "", hint, before + start)
            yield share(part * np.ldexp(1.0, -scale), kind, "row")
        before += len(array)


def refuse_beyond(
    values: NDArray[np.float64],
    limits: NDArray[np.float64],
    names: Sequence[str] | None,
    label: str,
    hint: str,
    rows_before: int = 0,
) -> None:
    """Raise `BadValue` for the first row with a value that is not below its column's limit."""
    bad = ~(np.abs(values) < limits)
    if bad.any():
        row, column = (int(i) for i in np.argwhere(bad)[0])
        name = names[column] if names else str(column + 1)
        raise BadValue(
            f"{label}column {name!r} has {values[row, column]:g} in row {rows_before + row + 1:,}, its limit is "
            f"{limits[column]:g}: {hint}",
            column=name,
            row=rows_before + row + 1,
        )
