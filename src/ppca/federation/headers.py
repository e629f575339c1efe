"""Check headers of objects: numbers in range, and the fields of each kind."""

from __future__ import annotations

from ..jobs.checks import is_digest
from .objects import Header
from .text import is_plain_text

FINISHED, BROKEN, WITHDRAWN = "finished", "failed", "withdrawn"
"""Outcomes of an attempt on a server. Withdrawn: the job did not fail there, and the attempt does not count."""

MAX_NUMBERS = {"attempt": 1 << 20, "again": 1 << 20, "turn": 1 << 53, "place": 1 << 53}
"""Maximum values of numbers in headers, which servers increment and write again."""


def _is_count(value: object, most: int) -> bool:
    return type(value) is int and 0 <= value < most


def is_well_formed(header: Header) -> bool:
    """Return whether an object has the fields of its kind."""
    about = header.about
    if any(name in about and not _is_count(about[name], most) for name, most in MAX_NUMBERS.items()):
        return False
    if header.kind in ("start", "ready", "ended", "resume") and not about.get("attempt"):
        return False
    if header.kind == "receipt":
        return isinstance(about.get("owner"), str) and is_digest(about.get("contribution"))
    if header.kind == "ended":
        said = about.get("outcome") in (FINISHED, BROKEN, WITHDRAWN) and isinstance(about.get("final"), bool)
        return said and is_plain_text(about.get("why"))
    return header.kind != "refusal" or is_plain_text(about.get("why"))
