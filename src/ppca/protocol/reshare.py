"""Reshare from a row: the two servers of one row hold additive parts of z; one round makes both splits of z.

The servers of row q hold p0 (column 0) and p1 (column 1) with p0 + p1 = z. Both draw mu, n0, n1 from the key of row q.
1. Column split: C0 = p0 + mu, C1 = p1 - mu. Server (q, c) sends Cc to its column mate.
2. Row split: Rq = n0 + n1, known to row q without a message. Server (q, c) sends pc - nc to both servers of the other
   row; the sum of the two is the other row share.

Rounds: 1, also if both rows reshare (different values). Sent: 3 elements per element and sender. Error: none.
Security: everything sent is masked by a fresh value from a key that the receiving row does not hold.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..native import kernels
from .cost import declare
from .multiply import ELEMENT
from .party import Party
from .rounds import Received, Round, Step
from .shares import Data


@declare(
    "reshare",
    rounds=1,
    sent=lambda seat, n: 3 * n * ELEMENT if seat < 2 else 0,
    bytes_text="3 elements per element from each server of the row",
    input_range="the whole ring",
    error="exact",
)
def reshare(
    party: Party, pieces: Data, data: Data, own: slice, theirs: slice, element: int | None = None
) -> Step[None]:
    """Reshare this row's `pieces` into data[:, own], while the other row reshares data[:, theirs].

    pieces: this server's additive part. data: shape (2, n, ..., limbs). An empty slice: that row has nothing to
    reshare. element: number of low bytes of an element that are sent and correct (None: all).
    """
    kept = 8 * data.shape[-1] if element is None else element
    sends: list[tuple[int, Data]] = []
    op = party.next_op()
    if pieces.size:
        message = np.empty((2, *pieces.shape), np.uint64)
        stream = party.row_stream
        stream.claim(op, 0)
        kernels.reshare_out(data, own.start, message, pieces, stream.key, op, party.column)
        short = _low_bytes(message, kept)
        sends = party.counted("resharing", [(party.column_mate, short), (party.diagonal, short[1])])
    count = theirs.stop - theirs.start
    size = count * (data[0, :1].size // data.shape[-1]) * kept
    if not size:
        yield Round(sends, [])
        return
    mate, diagonal = yield Round(sends, [(party.column_mate, 2 * size), (party.diagonal, size)])
    whole = (_whole_elements(part, kept, data.shape[-1]) for part in (mate, diagonal))
    kernels.reshare_in(data, theirs.start, count, *whole)


def _low_bytes(elements: Data, kept: int) -> NDArray[Any]:
    """Return the low bytes of every element."""
    size = 8 * elements.shape[-1]
    return elements if kept == size else np.ascontiguousarray(elements.view(np.uint8)[..., :kept])


def _whole_elements(part: Received, kept: int, limbs: int) -> Received:
    """Return elements whose low bytes have arrived; the other bytes are zero."""
    if kept == 8 * limbs:
        return part
    low = np.frombuffer(part, np.uint8).reshape(-1, kept)
    whole = np.zeros((len(low), 8 * limbs), np.uint8)
    whole[:, :kept] = low
    return whole.reshape(-1)
