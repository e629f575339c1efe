"""Pending: a result that needs communication, which happens when it is awaited.

Local operations on a pending result are stored and applied when it arrives. So ``await (x * y).sum()`` reads as in
NumPy, and each ``await`` shows where communication takes place.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from types import GeneratorType
from typing import Any

from .rounds import Bytes, Round


def ready(value: Any) -> Pending:
    """Wrap a value that needs no communication as a pending result."""

    def run() -> Generator[Round, list[Bytes], Any]:
        return value
        yield

    return Pending(run())


class Pending(Awaitable[Any]):
    """An operation with communication that has not run yet. It runs once, when awaited (alone or inside `together`)."""

    __slots__ = ("_step",)
    __array_ufunc__ = None
    __iter__ = None  # without it, `a, b = pending` would index without end

    def __init__(self, step: Any) -> None:
        self._step = step

    def __await__(self) -> Generator[Round, list[Bytes], Any]:
        step, self._step = self._step, None
        if step is None:
            raise RuntimeError("this operation was awaited before. Await it once and keep its result.")
        generator: Generator[Round, list[Bytes], Any] = step if type(step) is GeneratorType else step.__await__()
        return generator

    def __bool__(self) -> bool:
        raise TypeError(
            "a pending result cannot be used as a truth value. Await it, and open the bit if its value is needed."
        )

    def then(self, local: Callable[[Any], Any]) -> Pending:
        """Return the same operation followed by a local one."""

        def run() -> Generator[Round, list[Bytes], Any]:
            value = yield from self.__await__()
            return local(value)

        return Pending(run())

    def sum(self, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Pending:
        return self.then(lambda a: a.sum(axis, keepdims))

    def reshape(self, *shape: Any) -> Pending:
        return self.then(lambda a: a.reshape(*shape))

    def within(self, bound: float) -> Pending:
        return self.then(lambda a: a.within(bound))

    def astype(self, frac: int) -> Pending:
        return self.then(lambda a: a.astype(frac))

    @property
    def T(self) -> Pending:  # noqa: N802
        return self.then(lambda a: a.T)

    def __getitem__(self, index: Any) -> Pending:
        return self.then(lambda a: a[index])

    def __neg__(self) -> Pending:
        return self.then(lambda a: -a)

    def __add__(self, other: Any) -> Pending:
        return self.then(lambda a: a + _not_pending(other))

    def __radd__(self, other: Any) -> Pending:
        return self.then(lambda a: _not_pending(other) + a)

    def __sub__(self, other: Any) -> Pending:
        return self.then(lambda a: a - _not_pending(other))

    def __rsub__(self, other: Any) -> Pending:
        return self.then(lambda a: _not_pending(other) - a)


def _not_pending(operand: Any) -> Any:
    """Return an operand, which must not be pending itself."""
    if isinstance(operand, Pending):
        raise TypeError("both operands are pending. Await them first, for example with `together`.")
    return operand
