"""Where local time goes: seconds spent in ring products and in function secret sharing since the last reset.

Two numbers per process, always on (a fifth of a microsecond a call), read by the profile of a run.
"""

from __future__ import annotations

from time import perf_counter

PRODUCTS, FSS = "ring products", "function secret sharing"

_seconds: dict[str, float] = {PRODUCTS: 0.0, FSS: 0.0}


class _Timed:
    __slots__ = ("_kind", "_start")

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def __enter__(self) -> None:
        self._start = perf_counter()

    def __exit__(self, *exc: object) -> None:
        _seconds[self._kind] += perf_counter() - self._start


products, fss = _Timed(PRODUCTS), _Timed(FSS)
"""Use as ``with clock.products:``; not to be nested within itself."""


def reset() -> None:
    for kind in _seconds:
        _seconds[kind] = 0.0


def reading() -> dict[str, float]:
    return dict(_seconds)
