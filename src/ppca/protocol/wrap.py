"""Exact truncation and ring extension: the wrap of a split, computed in one round.

For |X| < 2^(k-2) let X' = X + 2^(k-2), so 0 <= X' < 2^(k-1). The shares of X' are not negative integers below 2^k. They
wrap around the ring if and only if at least one of their top bits is set: w = m0 + m1 - m0 m1. Both servers of row 0
know m0, both of row 1 know m1 (for the column split, columns take the place of rows). Over the integers X' = R0 + R1 -
w 2^k. Only the product m0 m1 needs messages: three-server oblivious transfer. Write line 0 and line 1 for the two rows
(columns). For each server A of line 0, B is the other server of its line and D the server on its diagonal, in line 1:

1. Line 1 draws u1 from its own key. D sends A both possible answers, 0 - u1 and m1 - u1, each masked by a value that D
   and B draw from their common key.
2. B sends A the mask of the answer with index m0. A unmasks u0 = m0 m1 - u1. Line 0 then holds u0 and line 1 holds u1.
3. With the wrap known as shares, the shares are shifted (`truncate`) or widened (`extend`) exactly.
Rounds: 1 for both splits. Sent: 2 to 4 words of 64 bits per element, depending on the server.
Error: `truncate` below 1 ulp, unbiased; `extend` none. Failure: never.
Security: A learns one answer, masked by u1; the mask of the other answer is never sent to A.
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

SENT_WORDS = (2, 3, 3, 4)
"""Words of 64 bits per element that servers 0 to 3 send: one as a server of line 0 and two as one of line 1, in each
split.
"""


@declare(
    "truncate",
    rounds=1,
    sent=lambda seat, n: SENT_WORDS[seat] * n * 8,
    bytes_text="2 to 4 words of 64 bits per element, depending on the server (up to 64 bits truncated)",
    input_range="|X| < 2^(k-2) as an integer",
    error="< 1 ulp, unbiased",
)
def truncate(x: S, bits: int) -> Step[S]:
    """Remove `bits` fractional bits: within 1 ulp, unbiased, and without the failures of a local truncation."""
    if not 0 <= bits <= x.dtype.frac:
        raise ValueError(f"cannot truncate {bits} bits of {x.dtype}: it has {x.dtype.frac} fractional bits.")
    dtype = x.dtype.with_frac(x.dtype.frac - bits)
    if bits == 0:
        return x
    k, limbs = x.dtype.bits, x.dtype.limbs
    shares, tops = _lifted(x)
    wraps = yield from _wraps(x.party, tops, 1 if bits <= 64 else limbs)
    data = np.empty(shares.shape, np.uint64)
    for split, second in ((0, x.party.row == 1), (1, x.party.column == 1)):
        part = ring.shift_right(shares[split], bits, ring.FLOOR)
        if second:  # share 1 is rounded up, share 0 down: no bias
            rest = ring.mask_low(shares[split], bits)
            part = ring.add(part, ring.integers(np.any(rest != 0, axis=-1).astype(np.uint64), limbs))
        wrap = _widen(wraps[split], limbs)
        data[split] = ring.sub(part, ring.shift_left(wrap, k - bits))
    return x.like(_lowered(x.party, data, k - 2 - bits), dtype)


@declare(
    "extend",
    rounds=1,
    sent=lambda seat, n: SENT_WORDS[seat] * n * 8,
    bytes_text="2 to 4 words of 64 bits per element, depending on the server",
    input_range="|X| < 2^62 as an integer",
    error="exact",
)
def extend(x: S) -> Step[S]:
    """Return the same value in the 128-bit ring (from 64 bits), exactly."""
    if x.dtype.bits != 64:
        raise TypeError(f"`extend` needs an array of the 64-bit ring, got {x.dtype}.")
    shares, tops = _lifted(x)
    wraps = yield from _wraps(x.party, tops, 1)
    wide = np.zeros((*shares.shape[:-1], 2), np.uint64)
    wide[..., 0] = shares[..., 0]
    for split in (0, 1):
        high = np.zeros((*x.shape, 2), np.uint64)
        high[..., 1] = wraps[split][..., 0]  # wrap * 2^64 mod 2^128 keeps only the low 64 bits of the wrap
        wide[split] = ring.sub(wide[split], high)
    return x.like(_lowered(x.party, wide, 62), make_type(128, x.dtype.frac, x.dtype.span))


def _lifted(x: Shares) -> tuple[Data, list[Data]]:
    """Return the shares of x + 2^(k-2), and the top bit of each of this server's two shares."""
    shares = np.array(x.data)
    offset = ring.constants([1 << (x.dtype.bits - 2)], x.dtype.limbs)
    for split, first in ((0, x.party.row == 0), (1, x.party.column == 0)):
        if first:
            shares[split] = ring.add(shares[split], offset)
    return shares, [shares[split][..., -1] >> np.uint64(63) for split in (0, 1)]


def _lowered(party: Party, data: Data, power: int) -> Data:
    """Subtract the public offset 2^power."""
    offset = ring.constants([1 << power], data.shape[-1])
    for split, first in ((0, party.row == 0), (1, party.column == 0)):
        if first:
            data[split] = ring.sub(data[split], offset)
    return data


def _widen(words: Data, limbs: int) -> Data:
    """Read words modulo 2^64 as elements of a wider ring; the caller shifts out the unknown upper part."""
    if words.shape[-1] == limbs:
        return words
    wide = np.zeros((*words.shape[:-1], limbs), np.uint64)
    wide[..., 0] = words[..., 0]
    return wide


def _wraps(party: Party, tops: list[Data], limbs: int) -> Step[list[Data]]:
    """Return shares of the wrap bit, modulo 2^(64 limbs): of the row split by rows, of the column split by columns."""
    # Both splits run the same protocol, with rows and columns exchanged: `line` is the row (column) of this server,
    # `line_mate` the other server of that line, `line_stream` the key of the line, `cross` the key shared with the
    # other line.
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
