"""Declared costs. Every protocol states its rounds and the bytes each seat sends; tests hold it to that exactly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

PROTOCOLS: dict[str, Cost] = {}


@dataclass(frozen=True)
class Cost:
    """The contract of one protocol.

    `rounds(n)` and `sent(seat, n)` hold for n elements at the default type (128-bit ring, 40 fractional bits, span 30)
    unless the text says otherwise; the formulas take the type's own numbers as defaults.
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
) -> Cost:
    """Enters a protocol into the table that documentation and tests read."""
    fixed = rounds
    count: Callable[[int], int] = fixed if callable(fixed) else lambda n: fixed
    cost = Cost(name, count, sent, bytes_text, input_range, error, failure)
    PROTOCOLS[name] = cost
    return cost
