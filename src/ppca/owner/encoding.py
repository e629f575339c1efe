"""What an owner sends of its table: exact sums as ring elements, scaled by public powers of two."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..algorithms.covariance import MEAN_FRAC, MOMENT_FRAC
from ..native import ring
from ..protocol import InputPacket, RingType, make_type, share, share_ring

COUNT = make_type(128, 0, 40)
EXPONENT = RingType(128, 0, 12)
NO_EXPONENT = -1100
"""Stands for a column of zeros: below the exponent of any double."""

MEANS = RingType(128, MEAN_FRAC, 1)
MOMENTS = RingType(128, MOMENT_FRAC, 1)


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


def encode_moments(moments: Any, rows: int, scale: NDArray[np.int64]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
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


def share_moments(moments: Any, rows: int, scale: NDArray[np.int64]) -> tuple[list[InputPacket], list[InputPacket]]:
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
    limits = np.broadcast_to(np.asarray(bounds, np.float64), (width,))
    if not np.all(np.isfinite(limits)) or np.any(limits <= 0):
        raise ValueError("declared bounds must be positive and finite")
    each = np.asarray([math.frexp(limit)[1] for limit in limits.tolist()], np.int64)
    return each if per_column else np.full(width, each.max())
