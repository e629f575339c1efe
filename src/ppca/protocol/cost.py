"""Declared costs. Every protocol carries its rounds and the bytes each seat sends; tests hold it to that exactly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

P = TypeVar("P")

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
) -> Callable[[P], P]:
    """Enters the protocol it decorates into the table that documentation and tests read; the function stays as it is."""
    count: Callable[[int], int] = rounds if callable(rounds) else lambda n: rounds
    PROTOCOLS[name] = Cost(name, count, sent, bytes_text, input_range, error, failure)
    return lambda protocol: protocol
