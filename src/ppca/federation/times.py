"""Times in files: spans such as 7d, and moments with a time zone."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from .errors import FileRefused

_SPAN = re.compile(r"([0-9]{1,6})([smhd])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def is_span(text: str) -> bool:
    """Return whether a text is a number and s, m, h or d."""
    return _SPAN.fullmatch(text) is not None


def seconds(span: str) -> float:
    """Return the length of a span."""
    found = _SPAN.fullmatch(span)
    if found is None:
        raise FileRefused(f"{span!r} is not a time span: write a number and s, m, h or d, such as 7d.")
    return float(found[1]) * _UNITS[found[2]]


def after(moment: datetime, span: str) -> datetime:
    """Return the time one span after another time."""
    return moment + timedelta(seconds=seconds(span))


def moment(text: str) -> datetime:
    """Parse a time given as a span from now, such as 7d, or as a time such as 2030-01-31T12:00:00Z."""
    if is_span(text):
        return after(datetime.now(UTC).replace(microsecond=0), text)
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is not None:
            return found.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise FileRefused(f"{text[:60]!r} is not a time: write a span such as 7d, or a time such as 2030-01-31T12:00:00Z.")
