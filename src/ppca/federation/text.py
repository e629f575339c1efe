"""Text of others that people read: nothing in it may move a cursor, change colours or turn a line round."""

from __future__ import annotations

import unicodedata

_TURNING = frozenset("\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029")


def is_plain(text: str) -> bool:
    """Whether all characters are ones that are only read."""
    return not any(_acts(character) for character in text)


def plain(text: str) -> str:
    """The text with a space in place of every other character."""
    return "".join(" " if _acts(character) else character for character in text)


def _acts(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cs") or character in _TURNING
