"""Input: a client's numbers become shares before they leave the client.

1. The client encodes round(v 2^f). It refuses values that are not finite or beyond the span, and names the first one.
   Nothing is sent before this check.
2. It draws two keys from the operating system. R0 and C0 are their streams; R1 and C1 are the encoded data minus these
   streams.
3. For each split, server (r, c) gets the key (share 0) or the array (share 1).
Rounds: none among servers. Sent: 4 elements per element in all. Error: half an ulp.
Security: a server has one share of each split, and the splits have independent keys, so its shares are uniform.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..native import kernels, ring
from .dtypes import FIXED, INTEGER, RingType
from .party import KEY_BYTES
from .shares import Data


class InputRefused(ValueError):
    """A client's values cannot be shared. Nothing was sent."""


@dataclass(frozen=True, slots=True)
class InputPacket:
    """One server's part of a shared array. Each split is a 16-byte key (share 0) or the bytes of an array (share 1)."""

    shape: tuple[int, ...]
    dtype: RingType
    row: bytes
    column: bytes


def encode(values: ArrayLike, dtype: RingType | None = None, name: str = "input") -> tuple[Data, RingType]:
    """Encode a client's numbers as ring elements: integers as integers, floats as fixed point."""
    array = np.asarray(values)
    if array.dtype.kind not in "iufb":
        raise InputRefused(
            f"{name}: cannot share values of type {array.dtype}. They are not numbers; convert them first."
        )
    kind = dtype or (FIXED if array.dtype.kind == "f" else INTEGER)
    if array.dtype.kind != "f" and kind.is_integer:
        _check_span(array, kind, name)
        return ring.integers(array, kind.limbs), kind
    floats = array.astype(np.float64)
    _check_span(floats, kind, name)
    encoded, bad = ring.encode(floats, kind.frac, kind.limbs)
    if bad >= 0:
        raise InputRefused(_error_message(floats, bad, kind, name))
    return encoded, kind


def _check_span(array: NDArray[Any], kind: RingType, name: str) -> None:
    """Refuse values beyond the span of the type, and values that are not finite."""
    limit = (
        2.0**kind.span if array.dtype.kind == "f" else 1 << kind.span
    )  # integers near 2^62 are compared as integers, not as doubles
    with np.errstate(invalid="ignore"):
        wrong = ~((array < limit) & (array > -limit))
    if wrong.any():
        raise InputRefused(_error_message(array, int(np.argmax(wrong)), kind, name))


def _error_message(array: NDArray[Any], flat: int, kind: RingType, name: str) -> str:
    """Return the message for a value that cannot be shared."""
    where = [int(i) for i in np.unravel_index(flat, array.shape)]
    value = array.flat[flat]
    place = f"{name}{where}" if where else name
    if not np.isfinite(value):
        return f"{place} is {value}: fill or drop missing and infinite values first. Nothing was sent."
    return f"{place} = {value} is outside |v| < 2^{kind.span} of {kind}: scale the data first. Nothing was sent."


def share(values: ArrayLike, dtype: RingType | None = None, name: str = "input") -> list[InputPacket]:
    """Return the four packets of an array, by server."""
    return share_ring(*encode(values, dtype, name))


def share_ring(encoded: Data, kind: RingType) -> list[InputPacket]:
    """Return the four packets of ring elements that the caller encoded (sums with more digits than a double has)."""
    row_key, column_key = secrets.token_bytes(KEY_BYTES), secrets.token_bytes(KEY_BYTES)
    shape = encoded.shape[:-1]
    rows = (row_key, ring.sub(encoded, _stream(row_key, shape, kind)).tobytes())
    columns = (column_key, ring.sub(encoded, _stream(column_key, shape, kind)).tobytes())
    return [InputPacket(shape, kind, rows[seat // 2], columns[seat % 2]) for seat in range(4)]


def receive(packet: InputPacket, row: int, column: int) -> Data:
    """Return a server's shares from a packet of correct size. Check `size_of` first if the sender is not trusted."""
    parts = summands(packet, row, column)
    data = np.empty((2, *packet.shape, packet.dtype.limbs), np.uint64)
    for split, (is_key, payload) in enumerate(parts):
        if is_key:
            expand(payload, data[split])
        else:
            data[split] = ring.as_ring(payload, data[split].shape)
    return data


def size_of(packet: InputPacket) -> int:
    """Return the bytes of the shares that `receive` makes from a packet. A packet can be much shorter: a key stands for
    any shape.
    """
    return 2 * math.prod(packet.shape) * packet.dtype.itemsize


def summands(packet: InputPacket, row: int, column: int) -> list[tuple[bool, bytes]]:
    """Return a server's share of each split as it arrived: (True, key) or (False, bytes of the array). Wrong sizes are
    refused.
    """
    size = size_of(packet) // 2
    found = [(row == 0, packet.row), (column == 0, packet.column)]
    for is_key, payload in found:
        expected = KEY_BYTES if is_key else size
        if len(payload) != expected:
            raise InputRefused(
                f"invalid packet for server ({row}, {column}): it has {len(payload)} bytes, expected {expected}"
            )
    return found


def expand(key: bytes, out: Data) -> Data:
    """Fill a contiguous array with the stream of a key: share 0 of an input."""
    kernels.prg(out, kernels.Key(key), 0, 0)
    return out


def stream_words(key: kernels.Key, begin: int, count: int) -> NDArray[np.uint64]:
    """Return words `begin` to `begin + count` of the stream that `expand` fills in from its start. begin: even."""
    counters = np.zeros(((count + 1) // 2, 2), np.uint64)
    counters[:, 1] = np.arange(begin // 2, begin // 2 + len(counters), dtype=np.uint64)
    out = np.empty_like(counters)
    kernels.aes_blocks(out.view(np.uint8), key, counters.view(np.uint8))
    return out.reshape(-1)[:count]


def blocks(packet: InputPacket, row: int, column: int, words: int) -> Iterator[tuple[Data, Data]]:
    """Yield a server's shares of both splits in blocks of at most this even number of words, each an array of elements.

    A key is expanded block by block, so memory does not grow with the shape.
    """
    limbs, total = packet.dtype.limbs, size_of(packet) // 16
    parts = [
        (kernels.Key(payload) if is_key else np.frombuffer(payload, np.uint8))
        for is_key, payload in summands(packet, row, column)
    ]

    def block(part: Any, begin: int, count: int) -> Data:
        if isinstance(part, kernels.Key):
            return stream_words(part, begin, count).reshape(-1, limbs)
        return ring.as_ring(part[8 * begin : 8 * (begin + count)], (count // limbs, limbs))

    for begin in range(0, total, words):
        count = min(words, total - begin)
        yield block(parts[0], begin, count), block(parts[1], begin, count)


def _stream(key: bytes, shape: tuple[int, ...], kind: RingType) -> Data:
    """Return the stream of a key as an array of this shape."""
    return expand(key, ring.empty(shape, kind.limbs))
