"""Reshare from a row: two servers of one row hold additive pieces of z; one round makes both splits of it.

Row q's servers hold p0 (column 0) and p1 (column 1), p0 + p1 = z. From the key of row q both draw mu, n0, n1.
1. Column split: C0 = p0 + mu, C1 = p1 - mu; server (q, c) sends Cc to its column mate.
2. Row split: Rq = n0 + n1, known to row q without a message; server (q, c) sends pc - nc to both servers of the other
   row, whose sum of the two is the other row share.

Both rows may reshare different values in the same round. Rounds: 1. Sent: 3 elements per element and sender.
Security: everything sent is masked by a fresh draw of a key the receiving row does not hold.
"""

from __future__ import annotations

import numpy as np

from ..native import kernels, ring
from .cost import declare
from .multiply import ELEMENT
from .party import Party
from .rounds import Round, Step
from .shares import Data

declare(
    "reshare",
    rounds=1,
    sent=lambda seat, n: 3 * n * ELEMENT if seat < 2 else 0,
    bytes_text="3 elements per element from each server of the row",
    input_range="the whole ring",
    error="exact",
)


def reshare(party: Party, pieces: Data, other: tuple[int, ...]) -> Step[tuple[Data, Data]]:
    """Reshares this row's `pieces` (this server's column's part) while the other row reshares an array of shape `other`.

    Shapes include the limb axis; an empty array means that a row has nothing to reshare. Returns the shares of this row's
    value and of the other row's, each of shape (2, *shape).
    """
    mine = np.empty((2, *pieces.shape), np.uint64)
    sends = []
    op = party.next_op()
    if pieces.size:
        pieces = np.ascontiguousarray(pieces)
        mu, n0, n1 = party.row_stream.draw((3, *pieces.shape[:-1]), pieces.shape[-1], op, 0)
        kernels.add(mine[0], n0, n1)
        (kernels.add if party.column == 0 else kernels.sub)(mine[1], pieces, mu)
        to_other = mu  # its memory is free again
        kernels.sub(to_other, pieces, n0 if party.column == 0 else n1)
        sends = [(party.column_mate, mine[1]), (party.column_mate, to_other), (party.diagonal, to_other)]
    theirs = np.empty((2, *other), np.uint64)
    size = theirs[0].nbytes
    expects = [(party.column_mate, size), (party.column_mate, size), (party.diagonal, size)] if size else []
    arrived = yield Round(sends, expects)
    if size:
        column, half, rest = (ring.as_ring(piece, other) for piece in arrived)
        kernels.add(theirs[0], half, rest)
        theirs[1] = column
    return mine, theirs
