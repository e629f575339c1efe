"""Shuffle and sort: a secret order of the rows, and the order of their values.

- Shuffle (2 rounds): row 0 permutes its column shares by a permutation drawn from its own key and reshares; then row 1
  does the same. Each row knows one factor of the permutation; no server knows their composition.
- Ranks (2 rounds): all pairs i < j are compared in one batch, [x_j < x_i]. The complement serves for i > j, so ranks
  are distinct and equal elements keep their order. No equality tests are needed.
- Sort (5 rounds): ranks; a joint shuffle of values, payload and ranks; opening of the shuffled ranks, a uniformly
  random permutation that reveals nothing. Then all servers reorder their shares locally.
Operations: `shuffle`, `ranks`, `sort`, `argsort`. Range: n(n-1)/2 comparisons, so up to several thousand elements.
Error: none. Reference: the paper's MPS and batch_sort, without the equality matrix.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ..native import ring
from .compare import COMPARE_BITS, less
from .cost import declare
from .dtypes import make_type
from .gates import gate_rounds
from .multiply import ELEMENT
from .opening import open_to_servers
from .party import Party
from .pending import Pending
from .reshare import reshare
from .rounds import Step
from .shares import Shares
from .signs import sign_bytes

S = TypeVar("S", bound=Shares)


def permutation(party: Party, n: int, op: int) -> NDArray[np.int64]:
    """Return a uniform permutation known to this server's row: the order of n fresh 64-bit draws (ties: below n^2
    2^-65).
    """
    draws = party.row_stream.draw((n,), 1, op, 6)
    return np.argsort(draws[:, 0], kind="stable")


@declare(
    "shuffle",
    rounds=2,
    sent=lambda seat, n: 3 * n * ELEMENT,
    bytes_text="3 elements per element",
    input_range="the whole ring",
    error="exact",
)
def shuffle(x: S) -> Step[S]:
    """Put the rows of x (its first axis) into a random order that no server knows."""
    party = x.party
    data = x.data
    n = data.shape[1]
    everything, nothing = slice(0, n), slice(0, 0)
    for row in (0, 1):
        op = party.next_op()
        mixed = np.empty(data.shape, np.uint64)
        if party.row == row:
            pieces = np.ascontiguousarray(data[1][permutation(party, n, op)])
            yield from reshare(party, pieces, mixed, everything, nothing)
        else:
            yield from reshare(party, data[1, nothing], mixed, nothing, everything)
        data = mixed
    return x.like(data)


def ranks(x: S) -> Step[S]:
    """Return the rank of every element of a vector in ascending order, 0..n-1, ties by position; shared integers."""
    if x.ndim != 1:
        raise ValueError(f"`ranks` needs a vector, got shape {x.shape}")
    n = len(x)
    i, j = np.triu_indices(n, 1)
    if n < 2:
        return x.like(np.zeros_like(x.data), make_type(x.dtype.bits, 0))
    behind = yield from less(x[j], x[i])
    # With b_ij = [x_j < x_i] for i < j: rank_i = sum of b_ij over j > i, plus sum of (1 - b_ji) over j < i.
    table = np.zeros((2, n, n, x.dtype.limbs), np.uint64)
    table[:, i, j] = behind.data
    data = ring.sub(ring.total(table, 2), ring.total(table, 1))
    return x.like(data, make_type(x.dtype.bits, 0)).plus_public(np.arange(n))


@declare(
    "sort",
    rounds=lambda n: (gate_rounds(n * (n - 1) // 2) if n > 1 else 0) + 3,
    sent=lambda seat, n: sign_bytes(seat, n * (n - 1) // 2, COMPARE_BITS) + (3 * 2 * n + n) * ELEMENT,
    bytes_text="n(n-1)/2 comparisons, shuffle of values and ranks, opening of ranks",
    input_range="as lt; n up to several thousand (all pairs)",
    error="exact",
)
async def sort_by(keys: S, payload: Sequence[S] = (), descending: bool = False) -> tuple[S, list[S]]:
    """Return sorted keys, and payload arrays (same first axis) in the same order."""
    n = len(keys)
    for array in payload:
        if array.shape[:1] != (n,):
            raise ValueError(
                f"payload of shape {array.shape} does not go with {n} keys: the first axis must have length {n}"
            )
    rank = await Pending(ranks(-keys if descending else keys))
    columns = [keys, *payload]
    frac = [array.dtype for array in columns]
    flat = [array.reshape(n, math.prod(array.shape[1:])) for array in columns]
    widths = np.cumsum([array.shape[1] for array in flat])
    # Columns may have different fractional bits: the shuffle moves ring elements of any type.
    data = np.concatenate([*(array.data for array in flat), rank.reshape(n, 1).data], axis=2)
    mixed = await Pending(shuffle(keys.like(data)))
    public = await Pending(
        open_to_servers(mixed[:, -1].like(mixed.data[:, :, -1], rank.dtype), "shuffled ranks", "sort")
    )
    order = np.argsort(public)
    moved = mixed.data[:, order]
    parts = np.split(moved[:, :, :-1], widths[:-1], axis=2)
    done = [
        keys.like(part.reshape(2, *a.shape, part.shape[-1]), dtype)
        for part, a, dtype in zip(parts, columns, frac, strict=True)
    ]
    return done[0], done[1:]
