"""Integers of 64 bits beside the doubles they are rounded to: what rounding leaves of them, exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Rest = NDArray[np.int16] | NDArray[np.float64]
"""Rounding errors of doubles: whole numbers for integers, fractions for means that replace missing values."""

EXACT = 1 << 53
"""Integers up to here are doubles."""


def rest_of(values: NDArray[Any]) -> Rest | None:
    """values - float64(values), of at most 2^10; None if all values are doubles.

    Integers and doubles are equal but for that rest, so their lowest 16 bits tell it, whatever wraps above them.
    """
    if values.dtype.kind not in "iu" or values.dtype.itemsize < 8 or not values.size:
        return None
    if int(values.min()) >= -EXACT and int(values.max()) <= EXACT:
        return None
    doubles = values.astype(np.float64)
    low = (doubles - np.floor(doubles * 2.0**-16) * 2.0**16).astype(np.uint16)
    return (values.astype(np.uint16) - low).view(np.int16)
