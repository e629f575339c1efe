"""Jobs as plain data (dictionaries, lists, numbers, text) and back. Unknown fields and wrong types are refused by
name."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from .checks import SpecError
from .registry import ANALYSES
from .spec import Analysis, Data, JobSpec, Keep

NAME = "name"
"""The field of plain data that names an analysis."""


def as_data(job: JobSpec) -> dict[str, Any]:
    """Return a job as plain data. Fields that are None are left out."""
    found: dict[str, Any] = {
        "data": _plain(job.data),
        "analysis": {NAME: job.analysis.NAME, **_plain(job.analysis)},
        "receivers": _plain(job.receivers),
    }
    return found if job.keep is None else found | {"keep": _plain(job.keep)}


def job_of(data: Mapping[str, Any]) -> JobSpec:
    """Return the job that plain data describe; raise `SpecError` if they describe none."""
    fields = _fields("", data, {"data", "analysis", "receivers", "keep"})
    parameters = dict(_fields("analysis", fields.get("analysis"), None))
    name = parameters.pop(NAME, None)
    if not isinstance(name, str) or name not in ANALYSES:
        raise SpecError("analysis.name", name, f"is unknown; choose from {', '.join(sorted(ANALYSES))}")
    return JobSpec(
        data=typing.cast(Data, _loaded("data", fields.get("data"), Data)),
        analysis=typing.cast(Analysis, _loaded("analysis", parameters, ANALYSES[name])),
        receivers=_loaded("receivers", fields.get("receivers", {}), Mapping[str, tuple[str, ...]]),
        keep=_loaded("keep", fields.get("keep"), Keep | None),
    )


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {name: _plain(one) for name, one in fields.items() if one is not None}
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _fields(place: str, value: Any, known: set[str] | None) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise SpecError(place or "job", value, "a table was expected")
    for name in value:
        if known is not None and name not in known:
            raise SpecError(
                _inside(place, str(name)[:60]), value[name], f"is unknown; known are {', '.join(sorted(known))}"
            )
    return value


def _loaded(place: str, value: Any, expected: Any) -> Any:
    """The value as the expected type, which is a class, a union, a tuple or a mapping."""
    if dataclasses.is_dataclass(expected):
        return record_of(value, typing.cast(type[Any], expected), place)
    origin, arguments = typing.get_origin(expected), typing.get_args(expected)
    if origin in (types.UnionType, typing.Union):
        return _chosen(place, value, arguments)
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(_loaded(place, one, arguments[0]) for one in value)
    if origin is Mapping and isinstance(value, Mapping):
        return {
            _loaded(place, name, str): _loaded(_inside(place, name), one, arguments[1]) for name, one in value.items()
        }
    if expected is float and type(value) is int:
        try:
            return float(value)
        except OverflowError:
            raise SpecError(place, None, "is too large for a number") from None
    if not isinstance(expected, type) or type(value) is not expected:
        raise SpecError(place, value, f"{_word(expected)} was expected")
    return value


def record_of(value: Any, expected: type[Any], place: str = "", **ready: Any) -> Any:
    """Return plain data as a dataclass. place: the field that it is of a larger one. ready: fields that are loaded
    already."""
    hints = _hints(expected)
    given = _fields(place, value, set(hints) - set(ready))
    names = {*given, *ready}
    missing = [field.name for field in dataclasses.fields(expected) if field.name not in names and _is_required(field)]
    if missing:
        raise SpecError(_inside(place, missing[0]), None, "is missing")
    return expected(**{name: _loaded(_inside(place, name), one, hints[name]) for name, one in given.items()}, **ready)


def _chosen(place: str, value: Any, expected: tuple[Any, ...]) -> Any:
    """The first of several types that the value has by its outer form. The error is then about its content."""
    for one in expected:
        form = typing.get_origin(one) or one
        if dataclasses.is_dataclass(form):
            fits = isinstance(value, Mapping) and not any(isinstance(inner, list | tuple) for inner in value.values())
        elif form is tuple:
            fits = isinstance(value, list | tuple)
        elif form is Mapping:
            fits = isinstance(value, Mapping)
        else:
            fits = type(value) is form
        if fits:
            return _loaded(place, value, one)
    words = " or ".join(_word(one) for one in expected if one is not types.NoneType)
    raise SpecError(place, value, f"{words} was expected")


def _hints(expected: type[Any]) -> dict[str, Any]:
    """Types of the fields of a dataclass."""
    names = {field.name for field in dataclasses.fields(expected)}
    return {name: hint for name, hint in typing.get_type_hints(expected).items() if name in names}


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _inside(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _word(expected: Any) -> str:
    words = {str: "text", int: "a whole number", float: "a number", bool: "true or false", datetime: "a time"}
    form = typing.get_origin(expected) or expected
    return words.get(form, "a list" if form is tuple else "a table")
