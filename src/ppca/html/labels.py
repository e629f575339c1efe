"""Names of columns in pictures: shortened so that they fit, and placed so that they do not cover each other."""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Sequence

import numpy as np

NAME_LENGTH = 30
"""Letters of a name; wide ones, such as Chinese, count twice."""


def shortened(name: str, length: int = NAME_LENGTH) -> str:
    """A name that fits; of a long one the middle is left out, since names often differ at their ends."""
    if width(name) <= length:
        return name
    head = length // 2
    return f"{_fitting(name, head)}…{_fitting(name[::-1], length - 1 - head)[::-1]}"


def labels(names: list[str], length: int = NAME_LENGTH) -> list[str]:
    """Names that fit, each different: those that look alike when shortened get the number of their column."""
    short = [shortened(name, length) for name in names]
    return [f"{text} ({j + 1})" if short.count(text) > 1 else text for j, text in enumerate(short)]


def width(text: str) -> int:
    """Return the number of letters; wide ones count twice."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return positions near the wanted ones, in order, at least `gap` apart if they fit between low and high."""
    count = len(wanted)
    if count == 0:
        return []
    order = np.argsort(wanted, kind="stable")
    steps = min(gap, (high - low) / max(count - 1, 1)) * np.arange(count)
    # Both are feasible, the first by moving up only, the second by moving down only; so is their mean.
    at = np.asarray(wanted, np.float64)[order] - steps
    up, down = np.maximum.accumulate(at), np.minimum.accumulate(at[::-1])[::-1]
    found = np.empty(count)
    found[order] = np.clip((up + down) / 2, low, high - steps[-1]) + steps
    return [float(value) for value in found]


def _fitting(text: str, length: int) -> str:
    """The longest beginning that is not wider."""
    sums = itertools.accumulate(map(width, text))
    return text[: sum(total <= length for total in sums)]
