"""Counts of expensive operations: the paper's Table 2, measured by running each solver on arrays that count.

`CountingArray` is the plaintext backend with a counter. As in the paper, a call on an array (a batch) counts as one
operation: a comparison of fifty pairs is one. Square roots and their reciprocals are counted separately. Table
look-ups, by which this package avoids expensive operations, are counted, too (one table costs as much as one
comparison).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ppca.algorithms.allpairs import eigh_allpairs
from ppca.algorithms.baselines.jacobi_classic import eigh_jacobi_classic
from ppca.algorithms.baselines.jacobi_eo import eigh_jacobi_eo
from ppca.algorithms.baselines.power import eigh_power
from ppca.algorithms.baselines.qr import iterate, wilkinson_shift
from ppca.algorithms.eigen import Eigen
from ppca.algorithms.jacobi import eigh_jacobi
from ppca.protocol import PlainArray

OPERATIONS = {
    "comparison": ("__lt__", "__le__", "__gt__", "__ge__", "sign", "abs", "__abs__"),
    "equality": ("__eq__", "__ne__"),
    "sqrt": ("sqrt",),
    "rsqrt": ("rsqrt",),
    "reciprocal": ("reciprocal", "__rtruediv__"),
    "table": ("classify", "coarse_power", "slope"),
}
"""All expensive operations, with the methods that count as one.

Division counts only if the divisor is secret, see below.
"""


class CountingArray(PlainArray):
    """Plain numbers that count the expensive operations of all arrays of this class in `tally`."""

    __slots__ = ()
    tally: ClassVar[Counter[str]] = Counter()

    def __truediv__(self, other: Any) -> Any:
        if isinstance(other, PlainArray):
            self.tally["reciprocal"] += 1
        return super().__truediv__(other)


def _counting(method: str, operation: str) -> Callable[..., Any]:
    """Return the method of plain arrays with a count of that operation."""
    plain: Callable[..., Any] = getattr(PlainArray, method)

    def counting(self: CountingArray, *arguments: Any, **options: Any) -> Any:
        self.tally[operation] += 1
        return plain(self, *arguments, **options)

    return counting


for _operation, _methods in OPERATIONS.items():
    for _method in _methods:
        setattr(CountingArray, _method, _counting(_method, _operation))


def counted(program: Callable[[Any, Any], Awaitable[Any]], A: Any) -> Counter[str]:
    """Return the expensive operations of `program(A, identity)` on plain numbers."""
    CountingArray.tally = Counter()
    running = program(CountingArray(A), CountingArray(np.eye(len(A)))).__await__()
    try:
        next(running)
    except StopIteration:
        return CountingArray.tally
    raise RuntimeError("the plaintext backend never waits")


async def _qr_iteration(A: Any, identity: Any) -> None:
    """Run one QR iteration of the whole matrix, taken as tridiagonal: shift, d - 1 reflections."""
    below = np.arange(len(A) - 1)
    a, b = A.diagonal(), A[below + 1, below]
    await iterate(a, b, identity, await wilkinson_shift(a, b[-1]), identity[:2, :2])


def expensive_operations(d: int = 8) -> dict[str, dict[str, int]]:
    """Return, for each solver, the expensive operations of one iteration at dimension d.

    Iteration: of all-pairs; a step of a cyclic Jacobi (d/2 pairs); a QR iteration of a whole matrix, d - 1 reflections;
    one squaring of the power method. It is the difference of two runs that open nothing; a QR iteration is counted
    directly.
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
