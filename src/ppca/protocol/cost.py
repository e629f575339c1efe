"""Declared costs: the rounds of each protocol and the bytes each server sends.

Tests compare them with measured costs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

P = TypeVar("P")

PROTOCOLS: dict[str, Cost] = {}
"""All declared costs by name."""


@dataclass(frozen=True)
class Cost:
    """Cost and contract of one protocol.

    `rounds(n)` and `sent(seat, n)` are those of n elements of the default type (128-bit ring, 40 fractional bits, span
    30), unless the text says otherwise; the formulas use the numbers of that type.
    """

    name: str
    rounds: Callable[[int], int]
    sent: Callable[[int, int], int]
    bytes_text: str
    input_range: str
    error: str
    failure: str = "never"


def declare(
    name: str,
    *,
    rounds: int | Callable[[int], int],
    sent: Callable[[int, int], int],
    bytes_text: str,
    input_range: str,
    error: str,
    failure: str = "never",
) -> Callable[[P], P]:
    """Add the decorated protocol to the table that documentation and tests read; the function itself is unchanged."""
    count: Callable[[int], int] = rounds if callable(rounds) else lambda n: rounds
    PROTOCOLS[name] = Cost(name, count, sent, bytes_text, input_range, error, failure)
    return lambda protocol: protocol
