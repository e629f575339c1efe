"""Text of others that people read: what is hidden in it, and which texts look the same."""

from __future__ import annotations

import unicodedata

_HIDDEN = frozenset(["Cc", "Cf", "Co", "Cs", "Zl", "Zp"])
"""Categories of characters that act on a terminal or a line, or that are not shown, or that every font shows differently."""

_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2065\u2800\u3164\uffa0\U0001107f\U00016fe4\U0001d159")
"""Letters, marks and symbols that are not shown."""

_INVISIBLE = (("\u180b", "\u180f"), ("\ufe00", "\ufe0f"), ("\ufff0", "\ufffc"), ("\U000e0000", "\U000e0fff"))
"""Ranges of characters that are not shown: some choose the form of the letter before them, others are not assigned."""

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
    invisible = any(first <= character <= last for first, last in _INVISIBLE)
    return invisible or unicodedata.category(character) in _HIDDEN or character in _BLANK


def looks_like(text: str) -> str:
    """The text in a form that is equal for texts that look the same: composed letters, nothing hidden, one kind of space."""
    shown = "".join(" " if c.isspace() else c for c in text if c.isspace() or not is_hidden(c))
    return unicodedata.normalize("NFC", " ".join(shown.split()))
