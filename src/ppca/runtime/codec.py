"""Values on the control channel: JSON for structure, raw buffers for arrays. No pickle: a message can only be data.

Lists, dicts with string keys, numbers, strings, booleans and None are JSON. Arrays, input packets and sealed results
become {"$": kind, ...} with the numbers of their buffers. Tuples arrive as lists, NumPy scalars as Python numbers.

What a message says of sizes is checked before anything is made of it: nothing here allocates more than the message has bytes.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..protocol import InputPacket, Pending, RingType, Sealed, SecretArray

_PLAIN = frozenset({type(None), bool, int, float, str})
_ARRAYS = "biufcSU"  # kinds of NumPy types that are plain data
_ARRAY_TYPE = re.compile(rf"[<>|=][{_ARRAYS}][0-9]{{1,9}}")

DEEPEST = 64
"""Levels of lists and dictionaries inside each other."""

MOST_AXES = 16
MOST_ELEMENTS = 1 << 48
"""Of any shape, axes of length 0 left out, so that sizes fit into 64 bits. What a server takes is limited by its operator."""


class CodecError(ValueError):
    """A value cannot travel, or a message is malformed."""


@dataclass(frozen=True)
class PerSeat:
    """A public value that may differ between servers (a measurement): the client gets the list of all four."""

    value: Any


def pack(value: Any, buffers: list[bytes], where: str = "the value", depth: int = 0) -> Any:
    """`value` as JSON-able data; the bytes of its arrays are appended to `buffers`. `where` is for error messages."""
    if depth > DEEPEST:
        raise CodecError(f"{where[:60]}... lies deeper than {DEEPEST} levels; flatten the value")
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
        return {"$": "own", "value": pack(value.value, buffers, where, depth + 1)}
    if isinstance(value, list | tuple):
        return [
            item if type(item) in _PLAIN else pack(item, buffers, f"{where}[{i}]", depth + 1)
            for i, item in enumerate(value)
        ]
    if isinstance(value, dict):
        if not all(isinstance(key, str) and key != "$" for key in value):
            raise CodecError(f"{where} is a dictionary whose keys are not all strings other than '$'; rename its keys")
        return {key: pack(item, buffers, f"{where}[{key!r}]", depth + 1) for key, item in value.items()}
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


def unpack(value: Any, buffers: list[bytes], depth: int = 0) -> Any:
    """The inverse of `pack`. Anything that `pack` does not write is a CodecError."""
    if depth > DEEPEST:
        raise CodecError(f"a message lies deeper than {DEEPEST} levels")
    if isinstance(value, list):
        return [item if type(item) in _PLAIN else unpack(item, buffers, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    if "$" not in value:
        return {key: unpack(item, buffers, depth + 1) for key, item in value.items()}
    kind = value["$"]
    try:
        if kind == "own":
            return PerSeat(unpack(value["value"], buffers, depth + 1))
        shape = _shape(value["shape"])
        if kind == "array":
            return _array(value["type"], shape, _get(value["at"], buffers))
        ring = RingType(*_integers(value["ring"]))
        if kind == "sealed":
            return Sealed(str(value["to"]), shape, ring, _get(value["at"], buffers))
        if kind == "packet":
            return InputPacket(shape, ring, _get(value["row"], buffers), _get(value["column"], buffers))
    except CodecError:
        raise
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise CodecError(f"malformed {str(kind)[:20]!r} in a message: {error}") from None
    raise CodecError(f"unknown kind {str(kind)[:20]!r} in a message")


def _array(kind: Any, shape: tuple[int, ...], buffer: bytes) -> Any:
    if not (isinstance(kind, str) and _ARRAY_TYPE.fullmatch(kind)):
        raise ValueError("its type is none of plain numbers and texts")
    dtype = np.dtype(kind)
    if len(buffer) != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{len(buffer)} bytes are not an array of this shape")
    if not buffer:
        if math.prod(shape):
            raise ValueError("elements of no size are no array")
        return np.empty(shape, dtype)
    array = np.frombuffer(buffer, dtype).reshape(shape)
    return array if array.flags.writeable else array.copy()


def _shape(value: Any) -> tuple[int, ...]:
    """A shape of which sizes can be computed; whether there are so many bytes is for the caller to say."""
    shape = _integers(value)
    if len(shape) > MOST_AXES or min(shape, default=0) < 0 or math.prod(n for n in shape if n) > MOST_ELEMENTS:
        raise ValueError(f"a shape has at most {MOST_AXES} axes and {MOST_ELEMENTS:,} elements")
    return shape


def _integers(value: Any) -> tuple[int, ...]:
    if not (isinstance(value, list) and all(type(n) is int for n in value)):
        raise ValueError("a list of whole numbers was expected")
    return tuple(value)


def _put(payload: bytes, buffers: list[bytes]) -> int:
    buffers.append(payload)
    return len(buffers) - 1


def _get(number: Any, buffers: list[bytes]) -> bytes:
    if type(number) is not int or not 0 <= number < len(buffers):
        raise IndexError(f"no buffer of that number among {len(buffers)}")
    return buffers[number]


def _ring(dtype: RingType) -> list[int]:
    return [dtype.bits, dtype.frac, dtype.span]
