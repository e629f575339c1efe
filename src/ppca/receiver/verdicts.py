"""Flags of anomalous rows from plaintext scores."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def flags_of(scores: Floats, threshold: float | None, contamination: float | None) -> NDArray[np.bool_] | None:
    """Return what `SharedModel.detect` flags, from plain scores."""
    if threshold is not None:
        return np.asarray(scores > threshold)
    if contamination is None:
        return None
    count = max(1, math.ceil(contamination * len(scores)))
    return np.asarray((scores >= np.sort(scores)[-count]) & (scores > 0))
