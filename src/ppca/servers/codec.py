"""Values on the control channel: JSON for structure, raw buffers for arrays. No pickle: a message can only be data.

Lists, dicts with string keys, numbers, strings, booleans and None are JSON. Arrays, input packets and sealed results
become {"$": kind, ...} with the numbers of their buffers. Tuples arrive as lists, NumPy scalars as Python numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..protocol import InputPacket, Pending, RingType, Sealed, SecretArray

_PLAIN = frozenset({type(None), bool, int, float, str})
_ARRAYS = "biufcSU"  # kinds of NumPy types that are plain data


class CodecError(ValueError):
    """A value cannot travel, or a message is malformed."""


@dataclass(frozen=True)
class PerSeat:
    """A public value that may differ between servers (a measurement): the client gets the list of all four."""

    value: Any


def pack(value: Any, buffers: list[bytes], where: str = "the value") -> Any:
    """`value` as JSON-able data; the bytes of its arrays are appended to `buffers`. `where` is for error messages."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in _ARRAYS:
            raise CodecError(f"{where} is an array of type {value.dtype}, which cannot travel; convert it to numbers")
        return {"$": "array", "type": value.dtype.str, "shape": list(value.shape), "at": _put(value.tobytes(), buffers)}
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        return value.item()
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
        return {"$": "own", "value": pack(value.value, buffers, where)}
    if isinstance(value, list | tuple):
        return [item if type(item) in _PLAIN else pack(item, buffers, f"{where}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, dict):
        if not all(isinstance(key, str) and key != "$" for key in value):
            raise CodecError(f"{where} is a dictionary whose keys are not all strings other than '$'; rename its keys")
        return {key: pack(item, buffers, f"{where}[{key!r}]") for key, item in value.items()}
    raise CodecError(f"{where} is {_refusal(value)}")


def _refusal(value: Any) -> str:
    if isinstance(value, SecretArray):
        return (
            "a SecretArray, which never leaves a server as it is: return x.reveal(why='...') for the client's eyes, "
            "or open it with await x.open(why='...')"
        )
    if isinstance(value, Pending):
        return "an operation that was not awaited; write 'await' before it"
    return f"a {type(value).__name__}, which cannot travel; use numbers, strings, arrays, lists and dictionaries"


def unpack(value: Any, buffers: list[bytes]) -> Any:
    """The inverse of `pack`."""
    if isinstance(value, list):
        return [item if type(item) in _PLAIN else unpack(item, buffers) for item in value]
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
            array = np.frombuffer(_get(value["at"], buffers), np.dtype(value["type"])).reshape(shape)
            return array if array.flags.writeable else array.copy()
        ring = RingType(*value["ring"])
        if kind == "sealed":
            return Sealed(str(value["to"]), shape, ring, _get(value["at"], buffers))
        if kind == "packet":
            return InputPacket(shape, ring, _get(value["row"], buffers), _get(value["column"], buffers))
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise CodecError(f"malformed {kind!r} in a message: {error}") from None
    raise CodecError(f"unknown kind {kind!r} in a message")


def _put(payload: bytes, buffers: list[bytes]) -> int:
    buffers.append(payload)
    return len(buffers) - 1


def _get(number: Any, buffers: list[bytes]) -> bytes:
    if not isinstance(number, int) or not 0 <= number < len(buffers):
        raise IndexError(f"no buffer of that number among {len(buffers)}")
    return buffers[number]


def _ring(dtype: RingType) -> list[int]:
    return [dtype.bits, dtype.frac, dtype.span]
