"""Make text from other members safe to display: it cannot move a cursor, change colours, reverse a line or be
invisible."""

from __future__ import annotations

import unicodedata

from ..jobs.text import is_hidden, is_plain, looks_like

__all__ = ["is_plain", "is_plain_text", "looks_like", "plain"]
MAX_TEXT = 2000
"""Maximum number of characters of a text in the header of an object."""


def is_plain_text(value: object) -> bool:
    """Return whether this is a short text that people can read safely."""
    return isinstance(value, str) and len(value) <= MAX_TEXT and is_plain(value)


def plain(text: str) -> str:
    """Replace every hidden character by a space; remove combining marks if there are too many."""
    found = "".join(" " if is_hidden(character) else character for character in text)
    return found if is_plain(found) else "".join(c for c in found if unicodedata.category(c) not in ("Mn", "Me"))
