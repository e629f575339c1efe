"""Encoding of values on the control channel: JSON for structure, raw buffers for arrays. No pickle, so messages hold
data only.

Lists, dicts with string keys, numbers, strings, booleans and None are JSON. Arrays, input packets and sealed results
become {"$": kind, ...} with the indices of their buffers. Tuples arrive as lists, NumPy scalars as Python numbers.

Sizes in a message are checked before use: decoding does not allocate more bytes than the message has.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..protocol import InputPacket, Pending, RingType, Sealed, SecretArray

_PLAIN = frozenset({type(None), bool, int, float, str})
_ARRAYS = "biufcSU"  # `kind` of NumPy types that are plain data
_ARRAY_TYPE = re.compile(rf"[<>|=][{_ARRAYS}][0-9]{{1,9}}")

DEEPEST = 64
"""Maximum nesting depth of lists and dictionaries."""

MAX_AXES = 16
MAX_ELEMENTS = 1 << 48
"""Maximum product of the axes of a shape, without axes of length 0, so that sizes fit into 64 bits."""


class CodecError(ValueError):
    """A value cannot be encoded, or a message is malformed."""


@dataclass(frozen=True)
class PerServer:
    """A public value that may differ between servers (a measurement): the client gets the list of all four."""

    value: Any


def pack(value: Any, buffers: list[bytes], where: str = "the value", depth: int = 0) -> Any:
    """Return `value` as data for JSON; append the bytes of its arrays to `buffers`. where: place for error messages."""
    if depth > DEEPEST:
        raise CodecError(f"{where[:60]}... is nested deeper than {DEEPEST} levels; flatten the value")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in _ARRAYS:
            raise CodecError(f"{where} is an array of type {value.dtype}, which cannot be sent; convert it to numbers")
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
    if isinstance(value, PerServer):
        return {"$": "own", "value": pack(value.value, buffers, where, depth + 1)}
    if isinstance(value, list | tuple):
        return [
            item if type(item) in _PLAIN else pack(item, buffers, f"{where}[{i}]", depth + 1)
            for i, item in enumerate(value)
        ]
    if isinstance(value, dict):
        if not all(isinstance(key, str) and key != "$" for key in value):
            raise CodecError(f"{where} is a dictionary with a key that is not a string, or is '$'; rename its keys")
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
    return f"a {type(value).__name__}, which cannot be sent; use numbers, strings, arrays, lists and dictionaries"


def unpack(value: Any, buffers: list[bytes], depth: int = 0) -> Any:
    """Decode what `pack` wrote; raise CodecError for anything else."""
    if depth > DEEPEST:
        raise CodecError(f"a message is nested deeper than {DEEPEST} levels")
    if isinstance(value, list):
        return [item if type(item) in _PLAIN else unpack(item, buffers, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    if "$" not in value:
        return {key: unpack(item, buffers, depth + 1) for key, item in value.items()}
    kind = value["$"]
    try:
        if kind == "own":
            return PerServer(unpack(value["value"], buffers, depth + 1))
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
        raise ValueError("its type is neither a plain number nor text")
    dtype = np.dtype(kind)
    if len(buffer) != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{len(buffer)} bytes are not an array of this shape")
    if not buffer:
        if math.prod(shape):
            raise ValueError("elements of 0 bytes with a non-empty shape are invalid")
        return np.empty(shape, dtype)
    array = np.frombuffer(buffer, dtype).reshape(shape)
    return array if array.flags.writeable else array.copy()


def _shape(value: Any) -> tuple[int, ...]:
    """Return a valid shape. The caller compares its size with the bytes of the buffer."""
    shape = _integers(value)
    if len(shape) > MAX_AXES or min(shape, default=0) < 0 or math.prod(n for n in shape if n) > MAX_ELEMENTS:
        raise ValueError(f"a shape has at most {MAX_AXES} axes and {MAX_ELEMENTS:,} elements")
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
        raise IndexError(f"the index of a buffer is not among the {len(buffers)} buffers")
    return buffers[number]


def _ring(dtype: RingType) -> list[int]:
    return [dtype.bits, dtype.frac, dtype.span]
