"""TOML files: read strictly, written plainly. Unknown keys are errors; a refusal names file, place and remedy."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from .errors import FileRefused

MOST_BYTES = 4 << 20


class Strict(BaseModel):
    """A table of a file: every key is known, nothing is converted, nothing changes."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


Model = TypeVar("Model", bound=BaseModel)


def read(path: Path) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise FileRefused(f"cannot read {path}: {error.strerror}.") from None
    if len(data) > MOST_BYTES:
        raise FileRefused(f"{path} has {len(data):,} bytes, more than {MOST_BYTES:,}: it is no file of a federation.")
    return data


def parse(model: type[Model], data: bytes, label: str) -> Model:
    """What a file says, checked against its model."""
    try:
        found = tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:  # not only TOMLDecodeError: numbers of thousands of digits
        raise FileRefused(f"{label} is no TOML: {error}.") from None
    return validated(model, found, label)


def validated(model: type[Model], found: Mapping[str, Any], label: str) -> Model:
    """Tables that were read, or made, checked against their model."""
    try:
        return model.model_validate(found)
    except ValidationError as error:
        faults = [
            f"{place(fault['loc'])}: {fault['msg'].removeprefix('Value error, ')}" for fault in error.errors()[:3]
        ]
        raise FileRefused(f"{label}: {'; '.join(faults)}.") from None


def place(steps: Sequence[int | str]) -> str:
    """Where in a file something stands: seat[1].key."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).lstrip(".") or "the file"


def literal(value: Any) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key_literal(k)} = {literal(v)}" for k, v in value.items()) + " }"
    if isinstance(value, Sequence):
        inside = [literal(item) for item in value]
        line = ", ".join(inside)
        return f"[{line}]" if len(line) < 100 else "[\n" + "".join(f"    {item},\n" for item in inside) + "]"
    raise TypeError(f"{type(value).__name__} has no place in a TOML file")


def key_literal(key: str) -> str:
    bare = key.replace("-", "").replace("_", "").isalnum() and key.isascii()
    return key if bare else literal(key)


def lines(values: Mapping[str, Any]) -> str:
    """key = value, one line each; what is None is left out."""
    return "".join(f"{key_literal(key)} = {literal(value)}\n" for key, value in values.items() if value is not None)
