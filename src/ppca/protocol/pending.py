"""Pending: a result that needs communication. Awaiting it is the communication.

Local operations on a pending result are remembered and applied when it arrives, so that ``(x * y).sum()`` reads as in
NumPy and still shows its one round at the ``await``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from types import GeneratorType
from typing import Any

from .rounds import Bytes, Round


def ready(value: Any) -> Pending:
    """A result that needs no communication, in the form of one that does."""

    def run() -> Generator[Round, list[Bytes], Any]:
        return value
        yield

    return Pending(run())


class Pending(Awaitable[Any]):
    """An operation that talks, not yet run. It runs once, when awaited (alone or inside `together`)."""

    __slots__ = ("_step",)
    __array_ufunc__ = None
    __iter__ = None  # `a, b = pending` would otherwise index it for ever

    def __init__(self, step: Any) -> None:
        self._step = step

    def __await__(self) -> Generator[Round, list[Bytes], Any]:
        step, self._step = self._step, None
        if step is None:
            raise RuntimeError("this operation was awaited before; keep its result instead")
        generator: Generator[Round, list[Bytes], Any] = step if type(step) is GeneratorType else step.__await__()
        return generator

    def __bool__(self) -> bool:
        raise TypeError(
            "this result is still pending and has no truth value: await it, and open the bit if it must be known"
        )

    def then(self, local: Callable[[Any], Any]) -> Pending:
        """The same operation followed by a local one."""

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
    if isinstance(operand, Pending):
        raise TypeError("both operands are still pending: await them first, for example with `together`")
    return operand
