"""TOML files: read strictly, written plainly. Unknown keys are errors; a refusal names file, place and remedy."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from .errors import FileRefused

MOST_BYTES = 4 << 20
MOST_PARTS = 8
"""Parts of a dotted key. tomllib needs memory quadratic in them."""

MOST_KEYS = 1 << 13
"""Keys and tables of a file, each. tomllib makes a dictionary for every part of the name of a table."""

MOST_VALUES = 1 << 18
"""Commas in a file: a bound on the elements of its arrays, and so on the errors that a model can find in them."""

_TEXTS = re.compile(
    r"""
    \#[^\n]*                                                  # a comment
    | \"{3} (?: \\[\s\S] | [^\\"] | \"(?!"") )*+ (?: \"{3,5} | \Z )    # a text over several lines
    | \'{3} (?: [^'] | '(?!'') )*+ (?: '{3,5} | \Z )
    | \" (?: \\. | [^"\\\n] )*+ \"?
    | \' [^'\n]*+ '?
    """,
    re.VERBOSE,
)
_TABLE = re.compile(r"^[ \t]*\[", re.MULTILINE)
_LONG_KEY = re.compile(rf"(?:\.[^.=,\[\]{{}}\n]*+){{{MOST_PARTS}}}")


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
    return validated(model, tables(data, label), label)


def tables(data: bytes, label: str) -> dict[str, Any]:
    """What a file says. Refuses a file that would be expensive to read before reading it."""
    try:
        text = data.decode()
    except ValueError as error:
        raise FileRefused(f"{label} is no TOML: {error}.") from None
    _check_cost(text, label)
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # not only TOMLDecodeError: numbers of thousands of digits
        raise FileRefused(f"{label} is no TOML: {error}.") from None


def _check_cost(text: str, label: str) -> None:
    """Bounds the number of keys, of their parts, of tables and of values, outside texts and comments."""
    if len(text) > MOST_BYTES:
        raise FileRefused(f"{label} has {len(text):,} characters, more than {MOST_BYTES:,}.")
    bare = _TEXTS.sub("s", text.replace("\r\n", "\n"))
    long = _LONG_KEY.search(bare)
    if long is not None:
        line = bare.count("\n", 0, long.start()) + 1
        raise FileRefused(f"{label}: near line {line}, a key has more than {MOST_PARTS} parts. Shorten it.")
    found = [
        (bare.count("="), MOST_KEYS, "keys"),
        (sum(1 for _ in _TABLE.finditer(bare)), MOST_KEYS, "tables"),
        (bare.count(","), MOST_VALUES, "values"),
    ]
    for count, most, what in found:
        if count > most:
            raise FileRefused(f"{label} has {count:,} {what}; at most {most:,} are read.")


def validated(model: type[Model], found: Mapping[str, Any], label: str) -> Model:
    """Tables that were read, or made, checked against their model."""
    try:
        return model.model_validate(found)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_context=False, include_input=False)
        faults = [
            f"{place(fault['loc'])}: {fault['msg'].removeprefix('Value error, ').removesuffix('.')}"
            for fault in errors[:3]
        ]
        raise FileRefused(f"{label}: {'; '.join(faults)}.") from None


def place(steps: Sequence[int | str]) -> str:
    """Where in a file something stands: server[1].key."""
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


def table(name: str, values: Mapping[str, Any]) -> list[str]:
    """A table as text, then the tables in it, such as [data] and [data.align]. name: in its form as a key."""
    inner = {key: value for key, value in values.items() if isinstance(value, Mapping)}
    found = [f"[{name}]\n" + lines({key: value for key, value in values.items() if key not in inner})]
    for key, value in inner.items():
        found += table(f"{name}.{key_literal(key)}", value)
    return found
