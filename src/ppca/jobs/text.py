"""Text of others that people read: what is hidden in it, and which texts look the same."""

from __future__ import annotations

import unicodedata

_HIDDEN = frozenset(["Cc", "Cs", "Cf", "Zl", "Zp"])
"""Categories of characters that act on a terminal or a line, or that are not shown."""

_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Letters, marks and symbols that are not shown."""

_JOINERS = frozenset("\u200c\u200d")
"""Not shown, but needed in words of scripts whose letters join."""

_JOINING = (
    "ARABIC",
    "SYRIAC",
    "DEVANAGARI",
    "BENGALI",
    "GUJARATI",
    "KANNADA",
    "MALAYALAM",
    "ORIYA",
    "TAMIL",
    "TELUGU",
    "SINHALA",
)
MAX_MARKS = 4
"""Combining marks in a row: more of them would cover other lines."""


def is_plain(text: str) -> bool:
    """Whether every character is shown and only read: none acts on a terminal, turns a line round, hides, or covers others."""
    if text.isascii() and text.isprintable():
        return True
    marks, before = 0, ""
    for character in text:
        marks = marks + 1 if unicodedata.category(character) in ("Mn", "Me") else 0
        joins = character in _JOINERS and unicodedata.name(before or " ", "").startswith(_JOINING)
        if (is_hidden(character) and not joins) or marks > MAX_MARKS:
            return False
        before = character
    return True


def is_hidden(character: str) -> bool:
    """Whether a character acts on a terminal or a line, or is not shown."""
    # The last two ranges choose the form of the letter before them.
    selects = "\ufe00" <= character <= "\ufe0f" or "\U000e0100" <= character <= "\U000e01ef"
    return unicodedata.category(character) in _HIDDEN or character in _BLANK or selects


def looks_like(text: str) -> str:
    """The text in a form that is equal for texts that look the same: composed letters, no hidden characters."""
    return unicodedata.normalize("NFC", "".join(c for c in text if not is_hidden(c))).strip()
