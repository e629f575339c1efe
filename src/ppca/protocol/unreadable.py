"""Arrays whose values Python code cannot read by mistake."""

from __future__ import annotations


class Unreadable:
    """Base of arrays whose values a program must not read: they cannot become truth values or numbers."""

    __slots__ = ()
    __array_ufunc__ = None  # NumPy operands defer to our reflected operators
    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise TypeError(
            "a secret array cannot be used as a truth value: no server knows its values. Use `where`, or open the bit."
        )

    def __float__(self) -> float:
        raise TypeError(
            "a secret array cannot become a number: no server knows its values. Use `open`, which records the opening."
        )
