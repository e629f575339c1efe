"""Results by rows whose columns several owners hold, with the ids of the rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass
class Joined:
    """A result by rows, with the ids of the rows.

    ids: as in the receiver's own table; None if aligned owners do not have ids.
    coordinates, scores, flags: the requested parts, otherwise None.
    """

    ids: Any
    coordinates: Floats | None = None
    scores: Floats | None = None
    flags: NDArray[np.bool_] | None = None
