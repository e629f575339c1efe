"""Gates: public functions of a secret by function secret sharing, in two rounds, with arithmetic shares as output.

After a public offset is added, x lies in [0, 2^bits). All values are taken modulo N = 2^bits (dropping high bits is
local).
1. Deal. A server of row q, the dealer, knows Rq. It draws a mask alpha and makes a pair of FSS keys for alpha. It sends
   each server of the other row (the evaluators) one key and Rq + alpha. Both evaluators know the other row share. So
   both know m = x + alpha mod N and nothing else; the dealer does not know m.
2. Evaluate. Each evaluator evaluates its key at m and gets additive parts of the wanted functions of x = m - alpha.
   Public linear combinations of the parts are local. The row of the evaluators then reshares the result.

A batch is cut into four parts, one for each dealer, to balance work and traffic.
Rounds: 2 for each 65,536 elements (larger batches run in passes, to limit memory).
Sent: a key and a masked value to each of two evaluators, then 3 elements per output (as many bytes of each as needed).
Security: an evaluator sees m (uniform) and one FSS key (pseudo-random); dealers see nothing before the reshare.
Reference: Boyle et al., "Function Secret Sharing for Mixed-Mode and Fixed-Point Secure Computation", Eurocrypt 2021.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np

from ..native import clock, kernels, ring
from .dtypes import LOCAL_FAILURE_BITS, RingType
from .party import Party
from .reshare import reshare
from .rounds import Bytes, Received, Round, Step
from .shares import Data

PASS_ELEMENTS = 65536
"""Maximum number of elements of one pass of a gate. It limits memory for keys."""

_LOW = 2**64 - 1


class Gate(Protocol):
    """A family of functions: makes and evaluates keys. Each element has `outputs` results."""

    @property
    def bits(self) -> int:
        """Number of bits of the argument."""
        ...

    @property
    def outputs(self) -> int:
        """Results per element."""
        ...

    @property
    def key_size(self) -> int:
        """Bytes of one key."""
        ...

    @property
    def element(self) -> int:
        """Bytes sent of each output; fewer than the ring has if outputs are small, see `narrowed`."""
        ...

    def generate(self, tree: kernels.TreeKey, alpha: Data, seeds: Data) -> tuple[Bytes, Bytes]:
        """Return the keys of both evaluators for the masks alpha."""
        ...

    def evaluate(self, tree: kernels.TreeKey, column: int, keys: list[Received], m: Data) -> Data:
        """Return this evaluator's additive parts, shape (n, outputs, limbs).

        `keys` are those of the two dealers, in the order of m.
        """
        ...


def parts(n: int) -> list[slice]:
    """Return the elements that each server deals: row 0 deals the first half, row 1 the second."""
    half = (n + 1) // 2
    cuts = [0, (half + 1) // 2, half, half + (n - half + 1) // 2, n]
    return [slice(cuts[i], cuts[i + 1]) for i in range(4)]


def gate_rounds(n: int) -> int:
    """Return the rounds of a gate on n elements: two for each pass."""
    return 2 * max(1, -(-n // PASS_ELEMENTS))


def gate_bytes(seat: int, n: int, bits: int, key_size: int, outputs: int, itemsize: int = 16) -> int:
    """Return the payload bytes that one server sends for a gate on n elements."""
    total = 0
    for start in range(0, n, PASS_ELEMENTS):
        cut = parts(min(PASS_ELEMENTS, n - start))
        dealt = cut[seat].stop - cut[seat].start
        total += 2 * (dealt * key_size + masked_bytes(dealt, bits))
        row = seat // 2
        first, second = cut[2 - 2 * row], cut[3 - 2 * row]
        total += 3 * (second.stop - first.start) * outputs * itemsize
    return total


def masked_bytes(n: int, bits: int) -> int:
    """Return the bytes of n packed masked values of `bits` bits."""
    return (n * bits + 7) // 8


def apply_gate(party: Party, row_shares: Data, offset: int, gate: Gate) -> Step[Data]:
    """Evaluate a gate on row shares (*shape, limbs). Return the shares (2, *shape, outputs, limbs) of its outputs."""
    done = []
    for part in in_passes(row_shares):
        done.append((yield from _one_pass(party, part, offset, gate)))
    *shape, limbs = row_shares.shape
    return after_passes(done).reshape(2, *shape, gate.outputs, limbs)


def in_passes(row_shares: Data) -> list[Data]:
    """Cut row shares of any shape into flat parts of at most PASS_ELEMENTS elements, which run one after the other."""
    flat = np.ascontiguousarray(row_shares).reshape(-1, row_shares.shape[-1])
    return (
        [flat]
        if len(flat) <= PASS_ELEMENTS
        else [flat[start : start + PASS_ELEMENTS] for start in range(0, len(flat), PASS_ELEMENTS)]
    )


def after_passes(done: list[Data]) -> Data:
    """Concatenate the results of all passes, shares (2, n, ...) each."""
    return done[0] if len(done) == 1 else np.concatenate(done, axis=1)


class _GateLayout(NamedTuple):
    """The elements of a batch that each server handles, as one server needs them."""

    mine: slice
    """Elements dealt by this server."""
    evaluators: tuple[int, int]
    """The two servers of the other row: they evaluate what this server deals, and deal what it evaluates."""
    counts: tuple[int, int]
    """Number of elements dealt by each of them."""
    evaluated: slice
    """Elements evaluated by this row."""

    theirs: slice
    """Elements evaluated by the other row."""


@lru_cache(maxsize=1024)
def _layout(n: int, seat: int) -> _GateLayout:
    """Return the layout of a batch of n elements for one server."""
    cut = parts(n)
    first = 2 - 2 * (seat // 2)
    mates = (first, first + 1)
    counts = (cut[first].stop - cut[first].start, cut[first + 1].stop - cut[first + 1].start)
    evaluated = [slice(cut[i].start, cut[i + 1].stop) for i in (0, 2)]
    return _GateLayout(cut[seat], mates, counts, evaluated[first // 2], evaluated[1 - first // 2])


def _one_pass(party: Party, row_shares: Data, offset: int, gate: Gate) -> Step[Data]:
    """Evaluate a gate on at most PASS_ELEMENTS elements."""
    n, limbs = row_shares.shape
    bits, key_size = gate.bits, gate.key_size
    mine, mates, counts, evaluated, theirs = _layout(n, party.seat)

    # Round 1: deal.
    dealt = mine.stop - mine.start
    sends: list[tuple[int, Bytes]] = []
    if dealt:
        alpha, seeds = np.empty((dealt, 2), np.uint64), np.empty((dealt, 4), np.uint64)
        masked = np.empty(masked_bytes(dealt, bits), np.uint8)
        op = party.private.claim()
        kernels.deal_masks(alpha, seeds, masked, row_shares[mine], party.private.key, op, bits)
        with clock.fss:
            first, second = gate.generate(party.tree, alpha, seeds)
        keys = party.counted("keys of tables", [(mates[0], first), (mates[1], second)])
        points = party.counted("masked values", [(mates[0], masked), (mates[1], masked)])
        sends = [keys[0], points[0], keys[1], points[1]]
    expects = [
        (mate, size)
        for mate, count in zip(mates, counts, strict=True)
        for size in (count * key_size, masked_bytes(count, bits))
        if count
    ]
    arrived: list[Received] = [*(yield Round(sends, expects))]

    # Evaluate.
    arrived += [b""] * (4 - len(arrived))  # for dealers without elements
    m = np.empty((counts[0] + counts[1], 2), np.uint64)
    low, high = offset & _LOW, offset >> 64
    kernels.masked_points(m, arrived[1], arrived[3], counts[0], row_shares[evaluated], low, high, bits)
    with clock.fss:
        pieces = gate.evaluate(party.tree, party.column, [arrived[0], arrived[2]], m)

    # Round 2: both rows reshare their results.
    data = np.empty((2, n, gate.outputs, limbs), np.uint64)
    yield from reshare(party, pieces, data, evaluated, theirs, gate.element)
    return data if gate.element == 8 * limbs else narrowed(party, data, gate.element)


def element_bytes(kind: RingType) -> int:
    """Return the bytes of shares that hold values of this type with 41 spare bits, at most those of the ring."""
    return min(kind.bits, kind.frac + kind.span + LOCAL_FAILURE_BITS + 1 + 7) // 8


def narrowed(party: Party, data: Data, element: int) -> Data:
    """Convert shares that are correct mod N = 2^(8 element) to shares in the 128-bit ring. No round.

    For |x| < N 2^-41 the two shares of x, taken in [0, N), add up to x + N, except with probability 2^-40 for both
    splits together. So share 1 minus N is the other share of x. The argument is that of a local truncation (see
    `multiply`).
    """
    low = ring.mask_low(data, 8 * element)
    offset = ring.constants([1 << (8 * element)], data.shape[-1])
    for split, second in ((0, party.row == 1), (1, party.column == 1)):
        if second:
            low[split] = ring.sub(low[split], offset)
    return low


def by_dealer(keys: list[Received], key_size: int) -> Iterator[tuple[Received, slice]]:
    """Yield the keys of each dealer, with the elements they belong to."""
    at = 0
    for part in keys:
        count = len(part) // key_size
        if count:
            yield part, slice(at, at + count)
        at += count
