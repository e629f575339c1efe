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

from ..native import kernels, ring
from .party import Party
from .reshare import reshare
from .rounds import Bytes, Round, Step
from .shares import Data

PASS = 65536


class Gate(Protocol):
    """A function family: how its keys are made and evaluated. `outputs` values per element come out."""

    bits: int

    @property
    def outputs(self) -> int: ...

    def key_size(self) -> int: ...

    def generate(self, alpha: Data, seeds: Data) -> tuple[Bytes, Bytes]: ...

    def evaluate(self, column: int, keys: Bytes, m: Data) -> Data:
        """This evaluator's pieces, shape (n, outputs, limbs)."""
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
    bits, key_size = gate.bits, gate.key_size()
    cut = parts(n)
    mine = cut[party.seat]
    other_row = 1 - party.row
    evaluated = slice(cut[2 * other_row].start, cut[2 * other_row + 1].stop)

    # Round 1: deal.
    dealt = mine.stop - mine.start
    sends: list[tuple[int, Bytes]] = []
    if dealt:
        random = party.private.draw((dealt, 3), 2)
        alpha = ring.mask_low(random[:, 0], bits)
        keys = gate.generate(alpha, np.ascontiguousarray(random[:, 1:]).reshape(dealt, 4))
        shares = np.zeros((dealt, 2), np.uint64)
        shares[:, :limbs] = row_shares[mine]
        opened = _packed(ring.add(shares, alpha), bits)
        for column in (0, 1):
            evaluator = 2 * other_row + column
            sends += [(evaluator, keys[column]), (evaluator, opened)]
    expects: list[tuple[int, int]] = []
    counts = [cut[2 * other_row + column].stop - cut[2 * other_row + column].start for column in (0, 1)]
    for column, count in enumerate(counts):
        if count:
            dealer = 2 * other_row + column
            expects += [(dealer, count * key_size), (dealer, masked_bytes(count, bits))]
    arrived = iter((yield Round(sends, expects)))

    # Evaluate: every dealer's part with its own keys.
    pieces = np.empty((sum(counts), gate.outputs, limbs), np.uint64)
    shift = ring.constants([offset], 2)
    at = 0
    for count in counts:
        if count:
            keys_here = np.frombuffer(next(arrived), np.uint8).reshape(count, key_size)
            shares = np.zeros((count, 2), np.uint64)
            shares[:, :limbs] = row_shares[evaluated][at : at + count]
            m = ring.add(ring.add(_unpacked(next(arrived), count, bits), shares), shift)
            pieces[at : at + count] = gate.evaluate(party.column, keys_here, ring.mask_low(m, bits))
            at += count

    # Round 2: both rows reshare what they evaluated.
    first, second = cut[2 * party.row], cut[2 * party.row + 1]
    dealt_here = second.stop - first.start
    own, theirs = yield from reshare(party, pieces, (dealt_here, gate.outputs, limbs))
    out = np.empty((2, n, gate.outputs, limbs), np.uint64)
    out[:, evaluated] = own
    out[:, first.start : second.stop] = theirs
    return out


def _packed(values: Data, bits: int) -> Bytes:
    out = np.empty(masked_bytes(values.shape[0], bits), np.uint8)
    kernels.pack_bits(out, values, bits)
    return out


def _unpacked(payload: Bytes, count: int, bits: int) -> Data:
    out = np.empty((count, 2), np.uint64)
    kernels.unpack_bits(out, np.frombuffer(payload, np.uint8), bits)
    return out


def weighted(bits: Data, weights: Data, bias: Data | None) -> Data:
    """Public linear combinations of pieces: (n, P, limbs) with (P, T, limbs) -> (n, T, limbs), plus a public bias."""
    out = ring.matmul(bits, weights)
    return out if bias is None else ring.add(out, bias)


def chunked(n: int, width: int, run: Callable[[slice], None], budget: int = 1 << 21) -> None:
    """Runs over n elements in slices whose intermediate of `width` ring elements each stays small."""
    step = max(64, budget // max(width, 1))
    for start in range(0, n, step):
        run(slice(start, min(n, start + step)))
