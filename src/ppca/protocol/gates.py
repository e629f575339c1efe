"""Function secret sharing gates: public functions of a secret, in two rounds, with arithmetic shares as output.

x is known to lie in [0, 2^bits) after adding a public offset. Work modulo N = 2^bits (dropping high bits is local).
1. Dealer: a server of row q, which knows Rq. It draws a mask alpha, makes a pair of FSS keys for alpha, and sends
   each server of the other row (the evaluators) its key and Rq + alpha. Both evaluators know the other row share, so
   both now know m = x + alpha mod N, and nothing else; the dealer does not know m.
2. Each evaluator evaluates its key at m: additive pieces of the wanted functions of x = m - alpha. Public linear
   combinations of the pieces are local. Their row then reshares the result.

A batch is cut into four parts, one for each possible dealer, so that work and traffic are balanced.
Security: an evaluator sees m (uniform) and one FSS key (pseudo-random); dealers see nothing.
Rounds: 2 for each 65,536 elements (larger batches run in passes, to bound memory).
Reference: Boyle et al., "Function Secret Sharing for Mixed-Mode and Fixed-Point Secure Computation", Eurocrypt 2021.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from ..native import clock, kernels, ring
from .party import Party
from .reshare import reshare
from .rounds import Bytes, Round, Step
from .shares import Data

PASS = 65536


class Gate(Protocol):
    """A function family: how its keys are made and evaluated. `outputs` values per element come out."""

    @property
    def bits(self) -> int: ...

    @property
    def outputs(self) -> int: ...

    @property
    def key_size(self) -> int: ...

    def generate(self, alpha: Data, seeds: Data) -> tuple[Bytes, Bytes]: ...

    def evaluate(self, column: int, keys: list[Bytes], m: Data) -> Data:
        """This evaluator's pieces, shape (n, outputs, limbs); `keys` are those of the dealers, in the order of m."""
        ...


def parts(n: int) -> list[slice]:
    """Which elements each dealer (by seat) handles: row 0 deals the first half, row 1 the second."""
    half = (n + 1) // 2
    cuts = [0, (half + 1) // 2, half, half + (n - half + 1) // 2, n]
    return [slice(cuts[i], cuts[i + 1]) for i in range(4)]


def passes(n: int) -> int:
    return -(-n // PASS) if n else 1


def gate_bytes(seat: int, n: int, bits: int, key_size: int, outputs: int, itemsize: int = 16) -> int:
    """Payload bytes one seat sends for a gate on n elements."""
    total = 0
    for start in range(0, n, PASS):
        cut = parts(min(PASS, n - start))
        dealt = cut[seat].stop - cut[seat].start
        total += 2 * (dealt * key_size + masked_bytes(dealt, bits))
        row = seat // 2
        first, second = cut[2 - 2 * row], cut[3 - 2 * row]
        total += 3 * (second.stop - first.start) * outputs * itemsize
    return total


def masked_bytes(n: int, bits: int) -> int:
    return (n * bits + 7) // 8


def apply_gate(party: Party, row_shares: Data, offset: int, gate: Gate) -> Step[Data]:
    """Runs a gate on flat row shares (n, limbs); returns the shares (2, n, outputs, limbs) of its outputs."""
    n = row_shares.shape[0]
    if n <= PASS:
        return (yield from _one_pass(party, row_shares, offset, gate))
    done = []
    for start in range(0, n, PASS):
        done.append((yield from _one_pass(party, row_shares[start : start + PASS], offset, gate)))
    return np.concatenate(done, axis=1)


def _one_pass(party: Party, row_shares: Data, offset: int, gate: Gate) -> Step[Data]:
    n, limbs = row_shares.shape
    bits, key_size = gate.bits, gate.key_size
    cut = parts(n)
    mine = cut[party.seat]
    other_row = 1 - party.row
    dealers = (2 * other_row, 2 * other_row + 1)
    evaluated = slice(cut[dealers[0]].start, cut[dealers[1]].stop)

    # Round 1: deal.
    dealt = mine.stop - mine.start
    sends: list[tuple[int, Bytes]] = []
    if dealt:
        random = party.private.draw((3, dealt), 2)
        alpha = np.empty((dealt, 2), np.uint64)
        kernels.mask_low(alpha, random[0], bits)
        with clock.fss:
            keys = gate.generate(alpha, random[1:].reshape(dealt, 4))
        kernels.add(random[0], alpha, _as128(row_shares[mine]))
        opened = np.empty(masked_bytes(dealt, bits), np.uint8)
        kernels.pack_bits(opened, random[0], bits)
        for column in (0, 1):
            sends += [(dealers[column], keys[column]), (dealers[column], opened)]
    counts = [cut[dealer].stop - cut[dealer].start for dealer in dealers]
    expects: list[tuple[int, int]] = []
    for dealer, count in zip(dealers, counts, strict=True):
        if count:
            expects += [(dealer, count * key_size), (dealer, masked_bytes(count, bits))]
    arrived = yield Round(sends, expects)

    # Evaluate.
    total = counts[0] + counts[1]
    m = np.empty((total, 2), np.uint64)
    at, received = 0, []
    for i, count in enumerate(count for count in counts if count):
        received.append(np.frombuffer(arrived[2 * i], np.uint8).reshape(count, key_size))
        kernels.unpack_bits(m[at : at + count], np.frombuffer(arrived[2 * i + 1], np.uint8), bits)
        at += count
    kernels.add(m, m, _as128(row_shares[evaluated]))
    _add_constant(m, offset, bits)
    kernels.mask_low(m, m, bits)
    with clock.fss:
        pieces = gate.evaluate(party.column, received, m)

    # Round 2: both rows reshare what they evaluated.
    first, second = cut[2 * party.row], cut[2 * party.row + 1]
    own, theirs = yield from reshare(party, pieces, (second.stop - first.start, gate.outputs, limbs))
    return np.concatenate([theirs, own] if party.row == 0 else [own, theirs], axis=1)


def _as128(shares: Data) -> Data:
    """Shares of either ring as 128-bit words: a gate works modulo 2^bits, whatever is above does not matter."""
    if shares.shape[-1] == 2:
        return shares
    wide = np.zeros((*shares.shape[:-1], 2), np.uint64)
    wide[..., 0] = shares[..., 0]
    return wide


def _add_constant(m: Data, constant: int, bits: int) -> None:
    """Adds a public constant modulo 2^bits, in place: in one limb where no carry can matter, which is the usual case."""
    low, high = constant & (2**64 - 1), constant >> 64
    if bits <= 64:
        m[:, 0] += np.uint64(low)
    elif not low:
        m[:, 1] += np.uint64(high)
    else:
        kernels.add(m, m, np.ascontiguousarray(np.broadcast_to(ring.constants([constant], 2), m.shape)))


def _is_one(element: Data) -> bool:
    return bool(element[0] == 1 and not element[1:].any())


def combinations(
    fill: Callable[[Data, Bytes, Data], None], keys: list[Bytes], m: Data, weights: Data, bias: Data | None
) -> Data:
    """Public linear combinations of the bits that `fill(out, keys, m)` evaluates.

    Bits have shape (n, P, limbs), weights (P, T, limbs), the result (n, T, limbs). Large batches go in slices, so that the
    bits of all thresholds are never in memory at once.
    """
    count, outputs, limbs = weights.shape
    step = max(64, (1 << 21) // count)
    if len(m) <= step:
        bits = np.empty((len(m), count, limbs), np.uint64)
        at = 0
        for part in keys:
            fill(bits[at : at + len(part)], part, m[at : at + len(part)])
            at += len(part)
        out = bits if weights.shape[:2] == (1, 1) and _is_one(weights[0, 0]) else ring.matmul(bits, weights)
    else:
        out = np.empty((len(m), outputs, limbs), np.uint64)
        at = 0
        for part in keys:
            for start in range(0, len(part), step):
                piece = part[start : start + step]
                here = slice(at + start, at + start + len(piece))
                bits = np.empty((len(piece), count, limbs), np.uint64)
                fill(bits, piece, m[here])
                out[here] = ring.matmul(bits, weights)
            at += len(part)
    return out if bias is None else ring.add(out, bias)
