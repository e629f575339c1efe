"""Checks of single values of a job: the error names the field, the value and the cause."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime

from .errors import Refusal
from .openings import SERVERS

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,29}[a-z0-9])?")
"""Names of owners and receivers."""


class SpecError(Refusal):
    """A field of a job has an invalid value. Each interface names the field in its own way."""

    def __init__(self, field: str, value: object, cause: str) -> None:
        super().__init__(f"{field}={brief(value)}: {cause}")
        self.field, self.value, self.cause = field, value, cause

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.field, self.value, self.cause)

    def short(self) -> SpecError:
        """Return the same error with the last part of the field's name, such as namespace of data.align.namespace."""
        return SpecError(self.field.rpartition(".")[2], self.value, self.cause)


def brief(value: object) -> str:
    """Return a value as text that is not too long for a message."""
    text = repr(value)
    return text if len(text) <= 100 else text[:97] + "..."


def check_name(field: str, value: object) -> None:
    """Raise `SpecError` unless the value can be the name of an owner or a receiver."""
    if not isinstance(value, str) or not NAME.fullmatch(value) or value == SERVERS:
        cause = f"must consist of a-z, 0-9 and '-', begin and end with a letter or digit, and not be {SERVERS!r}"
        raise SpecError(field, value if not isinstance(value, str) else value[:60], cause)


def is_digest(value: object) -> bool:
    """Return whether the value is a SHA-256 digest in hexadecimal."""
    return isinstance(value, str) and re.fullmatch(r"[0-9a-f]{64}", value) is not None


def check_range(field: str, value: object, low: float, high: float) -> None:
    """Raise `SpecError` unless the value is a finite number between the limits."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or (isinstance(value, float) and not math.isfinite(value))
        or not low <= value <= high
    ):
        limits = f"be a number, at least {low:g}" if high == math.inf else f"lie between {low:g} and {high:g}"
        raise SpecError(field, value, f"must {limits}")


def check_whole(field: str, value: object, low: int, high: int | None = None) -> None:
    """Raise `SpecError` unless the value is a whole number between the limits."""
    if not is_whole(value) or value < low or (high is not None and value > high):  # type: ignore[operator]
        limit = f"at least {low}" if high is None else f"between {low:,} and {high:,}"
        raise SpecError(field, value, f"must be a whole number, {limit}")


def check_choice(field: str, value: object, known: Sequence[str]) -> None:
    """Raise `SpecError` unless the value is one of the known names."""
    if not isinstance(value, str) or value not in known:
        raise SpecError(field, value, f"is unknown; choose from {', '.join(known)}")


def check_switch(field: str, value: object) -> None:
    """Raise `SpecError` unless the value is True or False."""
    if not isinstance(value, bool):
        raise SpecError(field, value, "must be true or false")


def is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def in_utc(field: str, value: datetime) -> datetime:
    """Return a time in UTC; raise `SpecError` without a time zone."""
    if value.tzinfo is None:
        raise SpecError(field, str(value), "needs a time zone, such as 2030-01-31T12:00:00Z")
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise SpecError(field, str(value), "there is no such time in UTC") from None
