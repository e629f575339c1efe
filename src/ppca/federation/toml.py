"""Strict reading and writing of TOML files. Unknown keys are errors. An error names file, field, cause and remedy."""

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

MAX_BYTES = 4 << 20
MAX_PARTS = 8
"""Maximum number of parts of a dotted key. tomllib needs memory quadratic in this number."""

MAX_KEYS = 1 << 13
"""Maximum number of keys, and of tables, of a file. tomllib makes a dictionary for every part of a table's name."""

MAX_VALUES = 1 << 18
"""Maximum number of commas in a file. It bounds the elements of arrays and the number of errors found in them."""

_TEXTS = re.compile(
    r"""
    \#[^\n]*                                                  # a comment
    | \"{3} (?: \\[\s\S] | [^\\"] | \"(?!"") )*+ (?: \"{3,5} | \Z )    # a multi-line string
    | \'{3} (?: [^'] | '(?!'') )*+ (?: '{3,5} | \Z )
    | \" (?: \\. | [^"\\\n] )*+ \"?
    | \' [^'\n]*+ '?
    """,
    re.VERBOSE,
)
_TABLE = re.compile(r"^[ \t]*\[", re.MULTILINE)
_LONG_KEY = re.compile(rf"(?:\.[^.=,\[\]{{}}\n]*+){{{MAX_PARTS}}}")


class Strict(BaseModel):
    """A table of a file: unknown keys are errors, values are not converted, instances are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


Model = TypeVar("Model", bound=BaseModel)


def read(path: Path) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise FileRefused(f"cannot read {path}: {error.strerror}.") from None
    if len(data) > MAX_BYTES:
        raise FileRefused(f"{path} has {len(data):,} bytes, more than {MAX_BYTES:,}: it is not a file of a federation.")
    return data


def parse(model: type[Model], data: bytes, label: str) -> Model:
    """Parse a file and check it against its model."""
    return validated(model, tables(data, label), label)


def tables(data: bytes, label: str) -> dict[str, Any]:
    """Parse a file. Raise FileRefused, before parsing, for a file that would be expensive to parse."""
    try:
        text = data.decode()
    except ValueError as error:
        raise FileRefused(f"{label} is not valid TOML: {error}.") from None
    _check_cost(text, label)
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # not only TOMLDecodeError: numbers of thousands of digits
        raise FileRefused(f"{label} is not valid TOML: {error}.") from None


def _check_cost(text: str, label: str) -> None:
    """Raise FileRefused if a file has too many keys, parts of a key, tables or values, outside strings and comments."""
    if len(text) > MAX_BYTES:
        raise FileRefused(f"{label} has {len(text):,} characters, more than {MAX_BYTES:,}.")
    bare = _TEXTS.sub("s", text.replace("\r\n", "\n"))
    long = _LONG_KEY.search(bare)
    if long is not None:
        line = bare.count("\n", 0, long.start()) + 1
        raise FileRefused(f"{label}: near line {line}, a key has more than {MAX_PARTS} parts. Shorten it.")
    found = [
        (bare.count("="), MAX_KEYS, "keys"),
        (sum(1 for _ in _TABLE.finditer(bare)), MAX_KEYS, "tables"),
        (bare.count(","), MAX_VALUES, "values"),
    ]
    for count, most, what in found:
        if count > most:
            raise FileRefused(f"{label} has {count:,} {what}; the maximum is {most:,}.")


def validated(model: type[Model], found: Mapping[str, Any], label: str) -> Model:
    """Check tables against their model and return the model."""
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
    """Return the path of a field in a file, such as server[1].key."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).lstrip(".") or "the file"


def literal(value: Any) -> str:
    """Return a value as TOML text."""
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
    raise TypeError(f"{type(value).__name__} cannot be written to a TOML file")


def key_literal(key: str) -> str:
    bare = key.replace("-", "").replace("_", "").isalnum() and key.isascii()
    return key if bare else literal(key)


def lines(values: Mapping[str, Any]) -> str:
    """Return one line `key = value` for each value; values that are None are omitted."""
    return "".join(f"{key_literal(key)} = {literal(value)}\n" for key, value in values.items() if value is not None)


def table(name: str, values: Mapping[str, Any]) -> list[str]:
    """Return a table as text, then its sub-tables, such as [data] and [data.align]. name: the name, quoted if
    needed."""
    inner = {key: value for key, value in values.items() if isinstance(value, Mapping)}
    found = [f"[{name}]\n" + lines({key: value for key, value in values.items() if key not in inner})]
    for key, value in inner.items():
        found += table(f"{name}.{key_literal(key)}", value)
    return found
