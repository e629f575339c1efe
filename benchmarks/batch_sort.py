"""The paper's batch_sort, corrected: n^2 comparisons, 2 n^2 equalities and n^2 products in five rounds. A baseline.

    C = [x_j < x_i], E = [x_j = x_i]                       2 rounds, one batch
    position_i = sum_j C_ij + sum_{j < i} E_ij             local: ties are numbered in their order
    M = [position_i = k], sorted_k = sum_i M_ik x_i        2 rounds, 1 round

Correction of the printed text: its lines 4-5 compare the running sums of E with E itself, which keeps only the first of
each group of equal values. The number of equal values before i is the strictly lower triangle of E, summed. What
differs from `SecretArray.sort`: that sort compares half of the pairs, needs no equality, moves rows by a shuffle, and
opens shuffled ranks. Here nothing is opened; payload rows are moved by a product with M.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ppca.protocol import together


async def batch_sort(x: Any, *payload: Any, descending: bool = False) -> list[Any]:
    """Return [sorted x, positions, *payload in that order] of a shared vector; position_i is the new index of x_i
    (shared integers).
    """
    if x.ndim != 1:
        raise ValueError(f"`batch_sort` needs a vector, got shape {x.shape}")
    n = len(x)
    for array in payload:
        if array.shape[:1] != (n,):
            raise ValueError(f"payload of shape {array.shape} does not go with {n} keys")
    key = -x if descending else x
    row, column = key.reshape(1, n), key.reshape(n, 1)
    less, equal = await together(row < column, row == column)
    before = equal * np.tri(n, k=-1, dtype=np.int64)
    positions = (less.sum(1) + before.sum(1)).within(n)
    mask = await (positions.reshape(1, n) == np.arange(n).reshape(n, 1))  # [k, i]: x_i moves to position k
    moved = await together(*(mask @ array for array in (x, *payload)))
    return [moved[0], positions, *moved[1:]]
