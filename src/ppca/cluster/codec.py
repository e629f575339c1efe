"""Values on the control channel: JSON for structure, raw buffers for arrays. No pickle: a message can only be data.

Lists, dicts with string keys, numbers, strings, booleans and None are JSON. Arrays, input packets and sealed results
become {"$": kind, ...} with the numbers of their buffers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..protocol import InputPacket, RingType, Sealed
from .outcome import PerSeat


class CodecError(ValueError):
    """A value cannot travel, or a message is malformed."""


def pack(value: Any, buffers: list[bytes]) -> Any:
    """`value` as JSON-able data; the bytes of its arrays are appended to `buffers`."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return pack(value.item(), buffers)
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise CodecError("arrays of Python objects cannot travel; convert them to numbers")
        return {"$": "array", "type": value.dtype.str, "shape": list(value.shape), "at": _put(value.tobytes(), buffers)}
    if isinstance(value, Sealed):
        return {
            "$": "sealed",
            "to": value.to,
            "shape": list(value.shape),
            "ring": _ring(value.dtype),
            "at": _put(value.payload, buffers),
        }
    if isinstance(value, InputPacket):
        return {
            "$": "packet",
            "shape": list(value.shape),
            "ring": _ring(value.dtype),
            "row": _put(value.row, buffers),
            "column": _put(value.column, buffers),
        }
    if isinstance(value, PerSeat):
        return {"$": "own", "value": pack(value.value, buffers)}
    if isinstance(value, list | tuple):
        return [pack(item, buffers) for item in value]
    if isinstance(value, dict):
        if not all(isinstance(key, str) and key != "$" for key in value):
            raise CodecError("dictionaries need string keys other than '$'")
        return {key: pack(item, buffers) for key, item in value.items()}
    raise CodecError(
        f"a {type(value).__name__} cannot leave a server; open it with x.open(...) or reveal it with x.reveal(...)"
    )


def unpack(value: Any, buffers: list[bytes]) -> Any:
    """The inverse of `pack`."""
    if isinstance(value, list):
        return [unpack(item, buffers) for item in value]
    if not isinstance(value, dict):
        return value
    kind = value.get("$")
    if kind is None:
        return {key: unpack(item, buffers) for key, item in value.items()}
    try:
        if kind == "own":
            return PerSeat(unpack(value["value"], buffers))
        shape = tuple(int(n) for n in value["shape"])
        if kind == "array":
            return np.frombuffer(buffers[value["at"]], np.dtype(value["type"])).reshape(shape).copy()
        ring = RingType(*value["ring"])
        if kind == "sealed":
            return Sealed(str(value["to"]), shape, ring, buffers[value["at"]])
        if kind == "packet":
            return InputPacket(shape, ring, buffers[value["row"]], buffers[value["column"]])
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise CodecError(f"malformed {kind!r} in a message: {error}") from None
    raise CodecError(f"unknown kind {kind!r} in a message")


def _put(payload: bytes, buffers: list[bytes]) -> int:
    buffers.append(payload)
    return len(buffers) - 1


def _ring(dtype: RingType) -> list[int]:
    return [dtype.bits, dtype.frac, dtype.span]
