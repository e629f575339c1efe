"""Measurement of local time: seconds in ring products and in function secret sharing since the last reset.

There are two numbers per process, always measured (a fifth of a microsecond per call). The profile of a run reads them.
"""

from __future__ import annotations

from time import perf_counter

PRODUCTS, FSS = "ring products", "function secret sharing"
"""Names of the two measured kinds of work."""


_seconds: dict[str, float] = {PRODUCTS: 0.0, FSS: 0.0}


class _Timed:
    """A context manager that adds its duration to one kind of work."""

    __slots__ = ("_kind", "_start")

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def __enter__(self) -> None:
        self._start = perf_counter()

    def __exit__(self, *exc: object) -> None:
        _seconds[self._kind] += perf_counter() - self._start


products, fss = _Timed(PRODUCTS), _Timed(FSS)
"""Use as ``with clock.products:``. A measurement must not be nested in one of the same kind."""


def reset() -> None:
    """Set both times to zero."""
    for kind in _seconds:
        _seconds[kind] = 0.0


def reading() -> dict[str, float]:
    """Return the seconds of each kind of work."""
    return dict(_seconds)
