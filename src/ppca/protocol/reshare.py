"""Reshare from a row: two servers of one row hold additive pieces of z; one round makes both splits of it.

Row q's servers hold p0 (column 0) and p1 (column 1), p0 + p1 = z. From the key of row q both draw mu, n0, n1.
1. Column split: C0 = p0 + mu, C1 = p1 - mu; server (q, c) sends Cc to its column mate.
2. Row split: Rq = n0 + n1, known to row q without a message; server (q, c) sends pc - nc to both servers of the other
   row, whose sum of the two is the other row share.

Rounds: 1, also if both rows reshare (different values). Sent: 3 elements per element and sender. Error: none.
Security: everything sent is masked by a fresh draw of a key the receiving row does not hold.
"""

from __future__ import annotations

import numpy as np

from ..native import kernels
from .cost import declare
from .multiply import ELEMENT
from .party import Party
from .rounds import Round, Step
from .shares import Data


@declare(
    "reshare",
    rounds=1,
    sent=lambda seat, n: 3 * n * ELEMENT if seat < 2 else 0,
    bytes_text="3 elements per element from each server of the row",
    input_range="the whole ring",
    error="exact",
)
def reshare(party: Party, pieces: Data, data: Data, own: slice, theirs: slice) -> Step[None]:
    """Reshares this row's `pieces` (this server's column's part) into data[:, own], while the other row reshares what goes to
    data[:, theirs]. `data` has the shape (2, n, ..., limbs); an empty slice means that a row has nothing to reshare."""
    sends: list[tuple[int, Data]] = []
    op = party.next_op()
    if pieces.size:
        message = np.empty((2, *pieces.shape), np.uint64)
        stream = party.row_stream
        stream.claim(op, 0)
        kernels.reshare_out(data, own.start, message, pieces, stream.key, op, party.column)
        sends = [(party.column_mate, message), (party.diagonal, message[1])]
    count = theirs.stop - theirs.start
    size = count * (data[0, :1].nbytes)
    if not size:
        yield Round(sends, [])
        return
    mate, diagonal = yield Round(sends, [(party.column_mate, 2 * size), (party.diagonal, size)])
    kernels.reshare_in(data, theirs.start, count, mate, diagonal)
