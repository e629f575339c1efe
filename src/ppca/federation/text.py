"""Text of others that people read: nothing in it may move a cursor, change colours, turn a line round or hide."""

from __future__ import annotations

import unicodedata

from ..jobs.text import is_hidden, is_plain, looks_like

__all__ = ["is_plain", "is_plain_text", "looks_like", "plain"]
MOST_TEXT = 2000
"""Characters of a text in the header of an object."""


def is_plain_text(value: object) -> bool:
    """Whether this is a short text that people can read safely."""
    return isinstance(value, str) and len(value) <= MOST_TEXT and is_plain(value)


def plain(text: str) -> str:
    """The text with a space instead of every hidden character; without combining marks if there are too many of them."""
    found = "".join(" " if is_hidden(character) else character for character in text)
    return found if is_plain(found) else "".join(c for c in found if unicodedata.category(c) not in ("Mn", "Me"))
