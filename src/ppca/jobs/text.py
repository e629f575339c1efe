"""Checks of text from other members before people read it: hidden characters, and texts that look the same."""

from __future__ import annotations

import unicodedata

_HIDDEN = frozenset(["Cc", "Cf", "Co", "Cs", "Zl", "Zp"])
"""Unicode categories of characters that control a terminal or a line, are invisible, or differ between fonts."""

_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2065\u2800\u3164\uffa0\U0001107f\U00016fe4\U0001d159")
"""Letters, marks and symbols that are invisible."""

_INVISIBLE = (("\u180b", "\u180f"), ("\ufe00", "\ufe0f"), ("\ufff0", "\ufffc"), ("\U000e0000", "\U000e0fff"))
"""Ranges of invisible characters: variation selectors and unassigned ones."""

_JOINERS = frozenset("\u200c\u200d")
"""Invisible characters that scripts with joining letters need."""

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
"""Maximum number of consecutive combining marks: more of them would cover other lines."""


def is_plain(text: str) -> bool:
    """Return whether every character is visible and harmless: none controls a terminal, reverses a line, or covers
    others."""
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
    """Return whether a character controls a terminal or a line, or is invisible."""
    invisible = any(first <= character <= last for first, last in _INVISIBLE)
    return invisible or unicodedata.category(character) in _HIDDEN or character in _BLANK


def looks_like(text: str) -> str:
    """Return a normal form that is equal for texts that look the same: composed letters, no hidden characters, one kind
    of space."""
    shown = "".join(" " if c.isspace() else c for c in text if c.isspace() or not is_hidden(c))
    return unicodedata.normalize("NFC", " ".join(shown.split()))
