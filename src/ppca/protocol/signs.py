"""Signs: XOR shares of a bit from function secret sharing, converted to arithmetic shares in the same two rounds.

x lies in [-2^(bits-1), 2^(bits-1)); its sign is the top bit of x mod 2^bits.

1. Deal. As in `gates`: a server of row q, which knows Rq, draws alpha and sends each server of the other row (the
   evaluators) an FSS key and Rq + alpha. Both evaluators then know m = x + alpha. The key is one for the bit itself,
   without arithmetic payloads: 16 bytes per bit of range instead of 32, one AES call per level (native/fss/sign.hpp).
   In the same round all four servers make shares of a random bit r = r0 ^ r1 that no server knows (see below); rc is
   drawn from the key of column c.
2. Evaluate and open. The evaluator of column c has bc, with b0 ^ b1 = [x < 0]. It sends bc ^ rc to its row mate, and bc
   ^ rc ^ s to the other row, with s drawn from the key of its row. All servers then know z = b ^ r, which is uniform,
   and the shares of b are those of z + (1 - 2z) r.

Shares of r = r0 ^ r1, described for a batch in which r0 belongs to column 0. (For each quarter of a batch rows and
columns are renamed, so that all servers send the same amount.) R0 is drawn from the key of row 0, C0 from that of
column 0. R1 = r - R0 must reach the servers of row 1, and C1 = r - C0 those of column 1. Each of these servers knows
one of r0 and r1. It selects one of the two possible values of r by three-server oblivious transfer:
- (1,1) gets R1 and C1 for both values of r1 from (0,0), under masks of row 0's key, and the masks for its r1 from
  (0,1);
- (1,0) gets R1 for both values of r0 from (0,1), under masks of row 0's key, and the mask for its r0 from (0,0);
- (0,1) gets C1 for both values of r1 from (1,0), under masks of row 1's key, and the mask for its r1 from (1,1).
Rounds: 2 for each 65,536 elements. Error: none. Failure: never.
Sent: 16 bytes per bit of range and evaluator, 3 elements, 3 bits per two elements.
Security: evaluators see m and one key. For each server z is masked by the bit of the other column. The other row sees
the two shares of z only under s, so it learns no single share of b although it dealt the keys. Of two offers one stays
masked.
References: Boyle et al., Eurocrypt 2021 (FSS gates); Guo et al., "Half-Tree", Eurocrypt 2023 (the tree); Rotaru, Wood,
"MArBled circuits", 2019 (bits shared in both ways); Mohassel, Rindal, "ABY3", 2018, section 5.4 (three-party OT).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple, TypeVar

import numpy as np

from ..native import clock, kernels
from .dtypes import bit_type
from .gates import PASS_ELEMENTS, after_passes, in_passes, masked_bytes
from .party import Party
from .rounds import Round, Step
from .shares import Data, Shares

S = TypeVar("S", bound=Shares)


class _SignLayout(NamedTuple):
    """The elements of a batch that each server handles, as one server needs them. Sizes of messages are in bytes."""

    half: int
    """Row 0 deals the first `half` elements and row 1 the others; row 1 evaluates the first ones."""
    mine: slice
    """Elements dealt by this server."""
    evaluated: slice
    """Elements evaluated by this row."""

    dealt_by: tuple[int, int]
    """Number of elements evaluated here that each server of the other row deals, by column."""
    evaluated_bytes: int
    """Bytes of packed bits of the elements that this row evaluates."""

    other_bytes: int
    """Bytes of packed bits of the elements that the other row evaluates."""


@lru_cache(maxsize=1024)
def _layout(n: int, seat: int) -> _SignLayout:
    """Return the layout of a batch of n elements for one server."""
    half = min(n, -(-n // 16) * 8)  # a multiple of 8: whole bytes of packed bits
    row = seat // 2
    ends = [0, (half + 1) // 2, half, half + (n - half + 1) // 2, n]
    counts = [ends[i + 1] - ends[i] for i in range(4)]
    other = 2 - 2 * row
    halves = (slice(0, half), slice(half, n))
    evaluated, rest = halves[1 - row], halves[row]
    return _SignLayout(
        half,
        slice(ends[seat], ends[seat + 1]),
        evaluated,
        (counts[other], counts[other + 1]),
        -(-(evaluated.stop - evaluated.start) // 8),
        -(-(rest.stop - rest.start) // 8),
    )


def sign_bytes(seat: int, n: int, bits: int, itemsize: int = 16) -> int:
    """Return the payload bytes that one server sends for the signs of n elements."""
    total = 0
    for start in range(0, n, PASS_ELEMENTS):
        count = min(PASS_ELEMENTS, n - start)
        layout = _layout(count, seat)
        dealt = layout.mine.stop - layout.mine.start
        total += 2 * (16 * dealt + kernels.sign_words(dealt, bits) + masked_bytes(dealt, bits))
        total += sum(kernels.bit_messages(count, seat)[:2]) * itemsize + 3 * layout.evaluated_bytes
    return total


def sign_bits(like: S, row_shares: Data, bits: int) -> Step[S]:
    """Return shared bits [X < 0] of `bits`-wide integers X with these row shares (*shape, limbs), in the ring of
    `like`.
    """
    done = []
    for part in in_passes(row_shares):
        done.append((yield from _one_pass(like.party, part, bits)))
    return like.like(after_passes(done).reshape(2, *row_shares.shape), bit_type(like.dtype.bits))


def _one_pass(party: Party, row_shares: Data, bits: int) -> Step[Data]:
    """Compute the signs of at most PASS_ELEMENTS elements."""
    n, limbs = row_shares.shape
    seat, column = party.seat, party.column
    half, mine, evaluated, dealt_by, evaluated_bytes, other_bytes = _layout(n, seat)
    row_mate, mate, diagonal = party.row_mate, party.column_mate, party.diagonal
    rows, columns, private = party.row_stream, party.column_stream, party.private

    # Round 1: deal keys and share random bits.
    dealt = mine.stop - mine.start
    alpha, seeds = np.empty((dealt, 2), np.uint64), np.empty((dealt, 4), np.uint64)
    masked = np.empty(masked_bytes(dealt, bits), np.uint8)
    kernels.deal_masks(alpha, seeds, masked, row_shares[mine], private.key, private.claim(), bits)
    roots = np.empty((2, 16 * dealt), np.uint8)
    words = np.empty(kernels.sign_words(dealt, bits), np.uint8)
    with clock.fss:
        kernels.sign_gen(roots[0], roots[1], words, party.tree, alpha, bits, seeds)
    op = party.next_op()
    rows.claim(op, 0)
    columns.claim(op, 1)
    to_diagonal, to_mate, from_diagonal, from_mate = kernels.bit_messages(n, seat)
    data = np.empty((2, n, limbs), np.uint64)
    own = np.empty((n + 7) // 8, np.uint8)
    offers, choices = np.empty((to_diagonal, limbs), np.uint64), np.empty((to_mate, limbs), np.uint64)
    kernels.bits_out(data, own, offers, choices, seat, rows.key, columns.key, op)
    keys = [
        size for count in dealt_by for size in (16 * count, kernels.sign_words(count, bits), masked_bytes(count, bits))
    ]
    first, second = (mate, diagonal) if column == 0 else (diagonal, mate)  # servers of the other row, by column
    sends = []
    for c, peer in ((0, first), (1, second)):
        sends += party.counted("keys of signs", [(peer, roots[c]), (peer, words)])
        sends += party.counted("masked values", [(peer, masked)])
    sends += party.counted("random bits", [(diagonal, offers), (mate, choices)])
    expects = [*((first, size) for size in keys[:3]), *((second, size) for size in keys[3:])]
    expects += [(diagonal, from_diagonal * 8 * limbs), (mate, from_mate * 8 * limbs)]
    roots0, words0, masked0, roots1, words1, masked1, offered, chosen = yield Round(sends, expects)

    # Round 2: evaluate, and open the bits masked by the random ones.
    m = np.empty((dealt_by[0] + dealt_by[1], 2), np.uint64)
    kernels.masked_points(m, masked0, masked1, dealt_by[0], row_shares[evaluated], 0, 0, bits)
    shares = np.empty(evaluated_bytes, np.uint8)
    with clock.fss:
        kernels.sign_eval(shares, party.tree, column, roots0, words0, roots1, words1, m, bits)
    kernels.bits_in(data, own, offered, chosen, seat)
    here, there = np.empty(evaluated_bytes, np.uint8), np.empty(evaluated_bytes, np.uint8)
    rows.claim(op, 2)
    start = evaluated.start // 8
    kernels.mask_bits(here, there, shares, own[start : start + evaluated_bytes], rows.key, op)
    from_row, a, b = yield Round(
        party.counted("opened under random bits", [(row_mate, here), (mate, there), (diagonal, there)]),
        [(row_mate, evaluated_bytes), (mate, other_bytes), (diagonal, other_bytes)],
    )
    ours, theirs = (here, from_row), (a, b)
    kernels.unmask_bits(data, half, *(theirs if party.row == 0 else ours), *(ours if party.row == 0 else theirs), seat)
    return data
