"""Declared costs: number of rounds of each protocol, and number of bytes that each server sends.

Tests compare declared costs with measured costs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

P = TypeVar("P")

PROTOCOLS: dict[str, Cost] = {}
"""All declared costs, by the name of the protocol."""


@dataclass(frozen=True)
class Cost:
    """Cost and contract of one protocol.

    name: name of the protocol. rounds(n): number of rounds for n elements. sent(seat, n): number of bytes that the
    server `seat` (0 to 3) sends for n elements. bytes_text: the bytes as a formula for readers. input_range: promised
    range of the input. error: bound on the error of the output. failure: probability of a wrong output.

    Numbers are for the default type, unless a text says otherwise: 128-bit ring, 40 fractional bits, span 30.
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
    """Return a decorator that adds the cost of a protocol to `PROTOCOLS` and returns the protocol unchanged.

    Documentation and tests read `PROTOCOLS`. Parameters: see `Cost`; an integer for rounds is valid for every n.
    """
    count: Callable[[int], int] = rounds if callable(rounds) else lambda n: rounds
    PROTOCOLS[name] = Cost(name, count, sent, bytes_text, input_range, error, failure)
    return lambda protocol: protocol
