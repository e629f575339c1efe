"""Malformed inputs, each made from a good one and its number: bytes are changed, or values if the input has a
structure."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Refusals = tuple[type[Exception], ...]


@dataclass(frozen=True)
class Target:
    """A target: good inputs to start from, the function that takes them, and the errors with which it may refuse
    one."""

    seeds: Callable[[], list[bytes]]
    feed: Callable[[bytes, int, Path], None]
    refusals: Refusals
    share: int
    structured: bool = False


WRONG: list[Any] = [
    *(None, True, -1, 0, 1, 2**31, 2**40, 2**63, 10**20, 1e308, float("nan"), "", "x" * 300),
    *("<O8", "<f8", "|V8", "<U999999999", "array", "packet", "sealed", "own"),
    *([], [[]], {}, [1] * 40, [2**40, 2**40], [0, 2**62], [128, 40, 30], [64, 63, 1]),
    *({"$": "array"}, {"$": "packet"}, {"$": "sealed"}, {"$": "own"}),
]


def made(seeds: list[bytes], number: int, structured: bool) -> bytes:
    """The input of a number."""
    draw = random.Random(number)  # noqa: S311 - nothing secret
    content = seeds[number % len(seeds)]
    if structured and draw.random() < 0.7:
        return restructured(content, draw)
    for _ in range(draw.choice([1, 1, 1, 2, 4, 16])):
        content = changed(content, seeds, draw)
    return content


def restructured(content: bytes, draw: random.Random) -> bytes:
    """A message whose text has wrong values in places, with a fitting length; or a text alone."""
    framed = not content.startswith(b"{")
    (length,) = struct.unpack("<I", content[:4]) if framed else (len(content),)
    message = json.loads(content[4 : 4 + length] if framed else content)
    for _ in range(draw.choice([1, 1, 2, 3])):
        message = with_wrong_value(message, draw)
    text = json.dumps(message).encode()
    if draw.random() < 0.05:
        text = text.replace(b"{", b"[" * draw.choice([10, 100, 2000]) + b"{", 1)
    return struct.pack("<I", len(text)) + text + content[4 + length :] if framed else text


def with_wrong_value(value: Any, draw: random.Random) -> Any:
    """A copy with one place replaced, removed or repeated: at any depth."""
    if isinstance(value, dict) and value and draw.random() < 0.85:
        key = draw.choice(list(value))
        if draw.random() < 0.1:
            return {k: v for k, v in value.items() if k != key}
        return {k: with_wrong_value(v, draw) if k == key else v for k, v in value.items()}
    if isinstance(value, list) and value and draw.random() < 0.85:
        place = draw.randrange(len(value))
        if draw.random() < 0.1:
            return value[:place] + value[place:] * draw.choice([0, 2, 50])
        return [*value[:place], with_wrong_value(value[place], draw), *value[place + 1 :]]
    if draw.random() < 0.02:
        deep: Any = value
        for _ in range(draw.choice([70, 300])):
            deep = [deep] if draw.random() < 0.5 else {"a": deep}
        return deep
    return draw.choice(WRONG)


def changed(content: bytes, seeds: list[bytes], draw: random.Random) -> bytes:
    """One change of bytes."""
    if not content:
        return draw.randbytes(draw.randrange(64))
    place, way = draw.randrange(len(content)), draw.randrange(7)
    stop = min(len(content), place + draw.choice([1, 2, 4, 8, 64]))
    if way == 0:
        return content[:place] + bytes([content[place] ^ 1 << draw.randrange(8)]) + content[place + 1 :]
    if way == 1:
        return content[:place] + draw.choice([b"\0", b"\xff", b"\x7f", b"9", b"-"]) * (stop - place) + content[stop:]
    if way == 2:
        return content[:place]
    if way == 3:
        return content[:place] + content[stop:]
    if way == 4:
        return content[:stop] + content[place:stop] * draw.choice([1, 3, 100]) + content[stop:]
    if way == 5:
        return content[:place] + draw.randbytes(stop - place) + content[stop:]
    other = draw.choice(seeds)
    return content[:place] + other[draw.randrange(len(other)) :]
