"""Expensive operations, counted: the paper's Table 2, measured by running each solver on arrays that count.

`CountingArray` is the plaintext backend with a tally. What counts is a call on an array (a batch), as in the paper: a
comparison of fifty pairs is one. Square roots and their reciprocals are told apart; tables are this package's own way
round expensive operations and are counted, too (one table costs as much as one comparison).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ...protocol import Pending, PlainArray
from ..allpairs import eigh_allpairs
from ..eigen import Eigen
from ..jacobi import eigh_jacobi
from .jacobi_classic import eigh_jacobi_classic
from .jacobi_eo import eigh_jacobi_eo
from .power import eigh_power
from .qr import iterate, wilkinson_shift

OPERATIONS = ("comparison", "equality", "sqrt", "rsqrt", "reciprocal", "table")


class CountingArray(PlainArray):
    """Plain numbers that count the expensive operations of all arrays of this class in `tally`."""

    __slots__ = ()
    __hash__ = None
    tally: ClassVar[Counter[str]] = Counter()

    def _count(self, name: str) -> None:
        self.tally[name] += 1

    def __lt__(self, other: Any) -> Pending:
        self._count("comparison")
        return super().__lt__(other)

    def __le__(self, other: Any) -> Pending:
        self._count("comparison")
        return super().__le__(other)

    def __gt__(self, other: Any) -> Pending:
        self._count("comparison")
        return super().__gt__(other)

    def __ge__(self, other: Any) -> Pending:
        self._count("comparison")
        return super().__ge__(other)

    def __eq__(self, other: Any) -> Pending:  # type: ignore[override]
        self._count("equality")
        return super().__eq__(other)

    def __ne__(self, other: Any) -> Pending:  # type: ignore[override]
        self._count("equality")
        return super().__ne__(other)

    def sign(self) -> Pending:
        self._count("comparison")
        return super().sign()

    def abs(self) -> Pending:
        self._count("comparison")
        return super().abs()

    __abs__ = abs

    def sqrt(self) -> Pending:
        self._count("sqrt")
        return super().sqrt()

    def rsqrt(self) -> Pending:
        self._count("rsqrt")
        return super().rsqrt()

    def reciprocal(self, signed: bool = False) -> Pending:
        self._count("reciprocal")
        return super().reciprocal(signed)

    def __truediv__(self, other: Any) -> Any:
        if isinstance(other, PlainArray):
            self._count("reciprocal")
        return super().__truediv__(other)

    def __rtruediv__(self, other: Any) -> Any:
        self._count("reciprocal")
        return super().__rtruediv__(other)

    def classify(self, *arguments: Any, **options: Any) -> Pending:
        self._count("table")
        return super().classify(*arguments, **options)

    def coarse_power(self, *arguments: Any, **options: Any) -> Pending:
        self._count("table")
        return super().coarse_power(*arguments, **options)


def counted(program: Callable[[Any, Any], Awaitable[Any]], A: Any) -> Counter[str]:
    """Expensive operations of `program(A, identity)` on plain numbers."""
    CountingArray.tally = Counter()
    running = program(CountingArray(A), CountingArray(np.eye(len(A)))).__await__()
    try:
        next(running)
    except StopIteration:
        return CountingArray.tally
    raise RuntimeError("the plaintext backend never waits")


async def _qr_iteration(A: Any, identity: Any) -> None:
    """One QR iteration of the whole matrix, taken as tridiagonal: shift, d - 1 reflections."""
    below = np.arange(len(A) - 1)
    a, b = A.diagonal(), A[below + 1, below]
    await iterate(a, b, identity, await wilkinson_shift(a, b[-1]), identity[:2, :2])


def expensive_operations(d: int = 8) -> dict[str, dict[str, int]]:
    """Per solver: the expensive operations of one iteration at dimension d.

    Iteration: of all-pairs; a step of a cyclic Jacobi (d/2 pairs); a QR iteration of a whole matrix, d - 1 reflections;
    one squaring of the power method. Measured as the difference of two runs that open nothing; a QR iteration by itself.
    """
    X = np.random.default_rng(d).standard_normal((3 * d, d))
    A = X.T @ X / np.linalg.norm(X.T @ X)

    def difference(solver: Callable[..., Awaitable[Eigen]]) -> dict[str, int]:
        few, more = (counted(partial(solver, fixed_iterations=n), A) for n in (2, 3))
        return {name: more[name] - few[name] for name in OPERATIONS}

    qr = counted(_qr_iteration, A)
    return {
        "allpairs": difference(eigh_allpairs),
        "jacobi": difference(eigh_jacobi),
        "jacobi-classic": difference(eigh_jacobi_classic),
        "jacobi-eo": difference(eigh_jacobi_eo),
        "qr": {name: qr[name] for name in OPERATIONS},
        "power": difference(eigh_power),
    }


def table(d: int = 8) -> str:
    """The counts as text."""
    rows = [["per iteration", *OPERATIONS]]
    for name, counts in expensive_operations(d).items():
        rows.append([name, *(f"{counts[operation]}" for operation in OPERATIONS)])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
