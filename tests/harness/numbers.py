"""Numbers for tests of the protocols."""

from __future__ import annotations

from typing import Any

import numpy as np

from ppca.protocol import RingType, SecretArray, local_parties, share


def grid(values: Any, frac: int = 40) -> np.ndarray:
    """Rounded to multiples of 2^-frac, so that sharing is exact."""
    return np.round(np.ldexp(values, frac)) * 2.0**-frac


def secret(values: Any, dtype: RingType | None = None) -> SecretArray:
    """One server's shares of these, for what is local."""
    return SecretArray.from_packet(local_parties()[0], share(values, dtype)[0])
