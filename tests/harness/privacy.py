"""What the tests of privacy share: a secret, a program that touches every protocol, and the test of uniformity."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import chi2, norm

from ppca.protocol import (
    SecretArray,
    together,
)

FALSE_ALARM = 1e-6
COPIES = 400
SECRET = 5.25


def assert_uniform(view: np.ndarray, label: str, checks: int = 1) -> None:
    """Chi-square of the byte (or, if there are few, half-byte) histogram, both tails, and a z-test of each of the eight
    bits.

    False alarms: FALSE_ALARM / checks, a third for each.
    """
    n, alarm = view.size, FALSE_ALARM / checks / 3
    assert n >= 400, f"{label}: {n} bytes are too few to judge"
    symbols, cells = (view, 256) if n >= 8192 else (np.concatenate([view & 15, view >> 4]), 16)
    expected = symbols.size / cells  # at least 32 per cell, so that the chi-square tail is right
    statistic = float(((np.bincount(symbols, minlength=cells) - expected) ** 2 / expected).sum())
    assert chi2.ppf(alarm, cells - 1) < statistic < chi2.isf(alarm, cells - 1), f"{label}: histogram"
    ones = np.unpackbits(view.reshape(-1, 1), axis=1).sum(axis=0)
    assert np.all(np.abs(ones - n / 2) < norm.isf(alarm / 16) * np.sqrt(n / 4)), f"{label}: bits are not balanced"


def fixed(values: Any = SECRET) -> np.ndarray:
    return np.full(COPIES, values)


async def everything(x: SecretArray, y: SecretArray) -> list[Any]:
    """Touch every protocol, some of them merged."""
    product, less, same = await together(x * y, x < y, x == y)
    gram, shuffled, root = await together(x.reshape(2, 2) @ y.reshape(2, 2), x.shuffle(), x.rsqrt())
    exact, ordered = await together(x.mul(y, exact=True), y.sort(x))
    chosen, quotient = await together(less.where(x, y), x / y)
    z, scale = await x.normalise()
    return [
        product,
        same,
        gram,
        shuffled,
        root,
        exact,
        ordered,
        chosen,
        quotient,
        z,
        scale,
        await x.argsort(),
        await abs(y),
    ]
