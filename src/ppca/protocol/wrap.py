"""Exact truncation and ring extension: the wrap of a split, found in one round.

For |X| < 2^(k-2) let X' = X + 2^(k-2), so 0 <= X' < 2^(k-1). Its two summands wrap around the ring iff at least one of
their top bits is set: w = m0 + m1 - m0 m1, with m0 known to both servers of row 0 and m1 to both of row 1 (and the same
for the column split, with columns in place of rows). Then X' = R0 + R1 - w 2^k over the integers. Only the product
m0 m1 needs a message. Three-server oblivious transfer, for each server A of line 0:

1. Line 1 draws u1 from its own key. Its server D on the diagonal of A offers both possible answers,
   0 - u1 and m1 - u1, each masked by a draw of the key that D shares with its mate B (B is in A's line and knows m0).
2. B sends A the mask of the answer numbered m0. A unmasks u0 = m0 m1 - u1, and line 0 holds u0, line 1 holds u1.
3. With the wrap known as shares, the summands are shifted (`truncate`) or widened (`extend`) exactly.
Rounds: 1 for both splits. Sent: 2 to 4 words of 64 bits per element, by seat.
Error: `truncate` below 1 ulp, unbiased; `extend` none. Failure: never.
Security: A learns one answer, masked by u1; the other stays under a mask it never gets.
Reference: Mohassel, Rindal, "ABY3", 2018, section 5.4 (three-party OT).
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from ..native import ring
from .cost import declare
from .dtypes import make_type
from .party import Party
from .rounds import Round, Step
from .shares import Data, Shares

S = TypeVar("S", bound=Shares)

SENT_WORDS = (2, 3, 3, 4)  # sent by each seat: one as a server of line 0, two as one of line 1, in each split


@declare(
    "truncate",
    rounds=1,
    sent=lambda seat, n: SENT_WORDS[seat] * n * 8,
    bytes_text="2 to 4 words of 64 bits per element, by seat (up to 64 bits truncated)",
    input_range="|X| < 2^(k-2) as an integer",
    error="< 1 ulp, unbiased",
)
def truncate(x: S, bits: int) -> Step[S]:
    """x with `bits` fewer fractional bits: within 1 ulp, unbiased, and never wrong by a wrap of the ring."""
    if not 0 <= bits <= x.dtype.frac:
        raise ValueError(f"cannot remove {bits} fractional bits from {x.dtype}")
    dtype = x.dtype.with_frac(x.dtype.frac - bits)
    if bits == 0:
        return x
    k, limbs = x.dtype.bits, x.dtype.limbs
    shares, tops = _lifted(x)
    wraps = yield from _wraps(x.party, tops, 1 if bits <= 64 else limbs)
    data = np.empty(shares.shape, np.uint64)
    for split, second in ((0, x.party.row == 1), (1, x.party.column == 1)):
        part = ring.shift_right(shares[split], bits, ring.FLOOR)
        if second:  # rounded up where the first summand is rounded down, so that the error has no bias
            rest = ring.mask_low(shares[split], bits)
            part = ring.add(part, ring.integers(np.any(rest != 0, axis=-1).astype(np.uint64), limbs))
        wrap = _widen(wraps[split], limbs)
        data[split] = ring.sub(part, ring.shift_left(wrap, k - bits))
    return x.like(_lowered(x.party, data, k - 2 - bits), dtype)


@declare(
    "extend",
    rounds=1,
    sent=lambda seat, n: SENT_WORDS[seat] * n * 8,
    bytes_text="2 to 4 words of 64 bits per element, by seat",
    input_range="|X| < 2^62 as an integer",
    error="exact",
)
def extend(x: S) -> Step[S]:
    """The same value in the 128-bit ring (from 64 bits), exactly."""
    if x.dtype.bits != 64:
        raise TypeError(f"extend takes an array of the 64-bit ring, got {x.dtype}")
    shares, tops = _lifted(x)
    wraps = yield from _wraps(x.party, tops, 1)
    wide = np.zeros((*shares.shape[:-1], 2), np.uint64)
    wide[..., 0] = shares[..., 0]
    for split in (0, 1):
        high = np.zeros((*x.shape, 2), np.uint64)
        high[..., 1] = wraps[split][..., 0]  # wrap * 2^64: only its low 64 bits survive mod 2^128
        wide[split] = ring.sub(wide[split], high)
    return x.like(_lowered(x.party, wide, 62), make_type(128, x.dtype.frac, x.dtype.span))


def _lifted(x: Shares) -> tuple[Data, list[Data]]:
    """The shares of x + 2^(k-2), and the top bit of each of this server's two summands."""
    shares = np.array(x.data)
    offset = ring.constants([1 << (x.dtype.bits - 2)], x.dtype.limbs)
    for split, first in ((0, x.party.row == 0), (1, x.party.column == 0)):
        if first:
            shares[split] = ring.add(shares[split], offset)
    return shares, [shares[split][..., -1] >> np.uint64(63) for split in (0, 1)]


def _lowered(party: Party, data: Data, power: int) -> Data:
    """Takes the public offset 2^power off again."""
    offset = ring.constants([1 << power], data.shape[-1])
    for split, first in ((0, party.row == 0), (1, party.column == 0)):
        if first:
            data[split] = ring.sub(data[split], offset)
    return data


def _widen(words: Data, limbs: int) -> Data:
    """Words modulo 2^64 seen in a wider ring; the caller shifts the unknown upper part out."""
    if words.shape[-1] == limbs:
        return words
    wide = np.zeros((*words.shape[:-1], limbs), np.uint64)
    wide[..., 0] = words[..., 0]
    return wide


def _wraps(party: Party, tops: list[Data], limbs: int) -> Step[list[Data]]:
    """Shares of the wrap bit, modulo 2^(64 limbs): of the row split by rows, of the column split by columns."""
    # The two splits are the same protocol with rows and columns exchanged: `line` is the row (column) of this server,
    # `line_mate` the other server of that line, `line_stream` the key of the line, `cross` the key with the other line.
    views = [
        (party.row, party.row_mate, party.row_stream, party.column_stream, 2),
        (party.column, party.column_mate, party.column_stream, party.row_stream, 4),
    ]
    sends: list[tuple[int, Data]] = []
    expects: list[tuple[int, int]] = []
    op = party.next_op()
    shape = tops[0].shape
    size = int(np.prod(shape, dtype=np.int64)) * 8 * limbs
    masks: list[Data] = []
    for top, (line, line_mate, line_stream, cross, purpose) in zip(tops, views, strict=True):
        both = cross.draw((2, *shape), limbs, op, purpose)
        if line == 0:
            chosen = np.where(top[..., None].astype(bool), both[1], both[0])
            sends.append((line_mate, np.ascontiguousarray(chosen)))
            expects += [(party.diagonal, 2 * size), (line_mate, size)]
            masks.append(both)
        else:
            own = line_stream.draw(shape, limbs, op, purpose + 1)
            answers = np.stack([ring.neg(own), ring.sub(ring.integers(top, limbs), own)])
            sends.append((party.diagonal, ring.add(answers, both)))
            masks.append(own)
    arrived = yield Round(party.counted("exact truncations", sends), expects)
    result: list[Data] = []
    for top, mask, (line, *_) in zip(tops, masks, views, strict=True):
        bit = ring.integers(top, limbs)
        if line == 0:
            offers = ring.as_ring(arrived.pop(0), (2, *shape, limbs))
            mask_of_chosen = ring.as_ring(arrived.pop(0), (*shape, limbs))
            offer = np.where(top[..., None].astype(bool), offers[1], offers[0])
            product = ring.sub(np.ascontiguousarray(offer), mask_of_chosen)
        else:
            product = mask
        result.append(ring.sub(bit, product))
    return result
