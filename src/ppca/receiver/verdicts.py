"""Limits between normal and anomalous rows, and flags from plaintext scores."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..jobs.checks import SpecError

Floats = NDArray[np.float64]


def check_limits(threshold: float | None, contamination: float | None, scores: bool) -> None:
    """Raise for invalid limits, and if neither scores nor flags are requested."""
    if threshold is None and contamination is None and not scores:
        raise ValueError(
            "nothing to compute: threshold and contamination are None and scores is False. Set one of them."
        )
    if threshold is not None and contamination is not None:
        raise ValueError("give either a threshold or a contamination, not both")
    if contamination is not None and not 0 < contamination <= 0.5:
        raise SpecError("contamination", contamination, "must lie in (0, 0.5]")
    if threshold is not None and not 0 <= threshold < np.inf:
        raise SpecError("threshold", threshold, "must be a number, at least 0")


def flags_of(scores: Floats, threshold: float | None, contamination: float | None) -> NDArray[np.bool_] | None:
    """Return what `SharedModel.detect` flags, from plain scores."""
    if threshold is not None:
        return np.asarray(scores > threshold)
    if contamination is None:
        return None
    count = max(1, math.ceil(contamination * len(scores)))
    return np.asarray((scores >= np.sort(scores)[-count]) & (scores > 0))
