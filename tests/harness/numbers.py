"""Numbers for tests of the protocols."""

from __future__ import annotations

from typing import Any

import numpy as np


def grid(values: Any, frac: int = 40) -> np.ndarray:
    """Rounded to multiples of 2^-frac, so that sharing is exact."""
    return np.round(np.ldexp(values, frac)) * 2.0**-frac
