"""The element order and the stop rule of the paper's Algorithm 1, as options of its two Jacobi solvers.

Order. The paper shows which elements of a 7 x 7 matrix are rotated together: those whose indices have the same sum
modulo d, for the sums d-2, d-4, ... and then d-1, d-3, ... (`modulus_order`). Every pair occurs once in d steps. If d
is even, two indices rest in every second step; the round robin of `rotations` then needs d - 1 steps.

Stop rule. The paper stops if the mean of the off-diagonal elements is below its threshold, checked every r steps.
`signed_mean_is_small` is that rule as printed. Entries of both signs cancel in it, and a negative mean stops the
iteration at the first check. `mean_is_small` uses the mean of the magnitudes, as the rule requires to be meaningful.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from ..rotations import Index, Order, StopRule, norm_is_small, round_robin


@lru_cache
def modulus_order(d: int) -> tuple[Index, ...]:
    """Return the paper's order: pairs (p < q) of every step of a sweep, by p + q modulo d."""
    sums = [*range(d - 2, -1, -2), *range(d - 1, -1, -2)]
    p, q = np.triu_indices(d, 1)
    return tuple(np.column_stack([p, q])[(p + q) % d == s] for s in sums if np.any((p + q) % d == s))


async def signed_mean_is_small(A: Any, tol: float) -> Any:
    """Return [mean of the off-diagonal < tol], as printed: two rounds."""
    entries = A[np.triu_indices(len(A), 1)]
    return await (entries.sum() - tol * entries.size).within(entries.size).negative()


async def mean_is_small(A: Any, tol: float) -> Any:
    """Return [mean of the magnitudes of the off-diagonal < tol]: five rounds."""
    entries = A[np.triu_indices(len(A), 1)].within(2)
    magnitudes = await abs(entries)
    return await (magnitudes.sum() - tol * entries.size).within(entries.size).negative()


ORDERS: dict[str, Order] = {"round-robin": round_robin, "modulus": modulus_order}
STOP_RULES: dict[str, StopRule] = {
    "norm": norm_is_small,
    "mean": mean_is_small,
    "signed mean": signed_mean_is_small,
}
"""Stop rules by name: this project's choice first, then those of the paper."""
