"""Power-of-two normalisation: x = z / scale with z in [1/2, 5/4) and a secret power of two as scale, in three rounds.

Dealing and resharing are those of `gates`. The key is an incremental point function: for every prefix length it gives
shares of whether a node is the prefix of alpha. If g low bits are dropped, D = (m >> g) - (alpha >> g) equals x >> g or
(x >> g) + 1, since the borrow of the dropped bits is unknown. So B = [D <= 4], a sum over five neighbouring nodes,
satisfies

    x < 4 * 2^g  implies  B = 1,        B = 1  implies  x < 5 * 2^g

for every g at once. Evaluation follows five nodes down the tree: ten AES calls per level. Exact thresholds 2^j would
need one walk each. B is monotone in g. The first true B places x in [2^(g+1), 5/4 * 2^(g+2)): the binade of x, wider by
a quarter, which is enough for a polynomial. `exact=True` uses comparison keys and gives exact binades.
Range: 0 <= x < 2^span; zero gives zeros. Rounds: 2 for the binade, 1 for the product z.
Reference: Boneh et al., "Lightweight Techniques for Private Heavy Hitters", IEEE S&P 2021 (incremental DPF).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TypeVar

import numpy as np

from ..native import kernels, ring
from .compare import ThresholdGate, threshold_gate
from .dtypes import LOCAL_FAILURE_BITS, RingType
from .gates import Gate, apply_gate, by_dealer, element_bytes
from .rounds import Bytes, Received, Step
from .shares import Data, Shares

S = TypeVar("S", bound=Shares)

WINDOW_NODES = 5
"""Neighbouring nodes followed at each level: D <= 4 has five."""

MIN_PREFIX_BITS = 4
"""Length of the shortest prefix in bits: 2^4 nodes, more than the window has."""


@dataclass(slots=True)
class BinadeGate:
    """Public linear combinations of the bits B of the prefix lengths depth, depth - stride, ..., at least
    `MIN_PREFIX_BITS`.

    steps: bits per prefix length: [D <= 4], [D <= 5], ... With four of them x is known to a quarter of its binade.
    Twelve do the same for a stride of two, and the key has half as many payloads. element: bytes of an output.
    """

    bits: int
    depth: int
    weights: Data
    bias: Data
    element: int
    steps: int = 1
    stride: int = 1

    @property
    def outputs(self) -> int:
        return int(self.weights.shape[1])

    @property
    def levels(self) -> tuple[int, int]:
        """The shortest prefix, and the stride."""
        return MIN_PREFIX_BITS + (self.depth - MIN_PREFIX_BITS) % self.stride, self.stride

    @property
    def key_size(self) -> int:
        return kernels.prefix_key_size(self.depth, self.weights.shape[-1], self.levels, self.element)

    def generate(self, tree: kernels.TreeKey, alpha: Data, seeds: Data) -> tuple[Bytes, Bytes]:
        keys = np.empty((2, len(alpha), self.key_size), np.uint8)
        prefix = ring.shift_right(alpha, self.bits - self.depth, ring.FLOOR)
        limbs = self.weights.shape[-1]
        kernels.prefix_gen(keys[0], keys[1], tree, prefix, self.depth, limbs, self.levels, self.element, seeds)
        return keys[0], keys[1]

    def evaluate(self, tree: kernels.TreeKey, column: int, keys: list[Received], m: Data) -> Data:
        return self.weighted_bits(tree, column, keys, m, self.bias if column == 0 else None)

    def weighted_bits(
        self,
        tree: kernels.TreeKey,
        column: int,
        keys: list[Received],
        m: Data,
        bias: Data | None = None,
        mirrored: bool = False,
    ) -> Data:
        """Return this evaluator's linear combination of the bits of D; `mirrored`: of -D (at least 1 in the finest
        level).
        """
        levels, window = self.levels, (WINDOW_NODES - 1, self.steps, mirrored)
        prefix = ring.shift_right(m, self.bits - self.depth, ring.FLOOR)
        out = np.empty((len(m), *self.weights.shape[1:]), np.uint64)
        for part, at in by_dealer(keys, self.key_size):
            kernels.prefix_sums(
                out[at], tree, column, part, prefix[at], self.depth, levels, self.element, *window, self.weights
            )
        return out if bias is None else ring.add(out, bias)


@dataclass(frozen=True, slots=True)
class Binades:
    """Public parameters of a normalisation: the binades of the integer X = x 2^frac that are distinguished.

    X is shifted left by `lift` bits, so that even X = 1 is above the window; values below 2^lowest count as zero.
    """

    width: int
    depth: int
    lift: int

    @classmethod
    def of(cls, frac: int, span: int, smallest: int) -> Binades:
        """Return the parameters for 0 <= x < 2^span. All x >= 2^smallest are normalised; x below half of that counts as
        zero.
        """
        lowest = max(smallest + frac, 0)
        lift = max(0, 3 - lowest)
        width = frac + span + lift + 1
        return cls(width, width - max(0, lowest + lift - 3), lift)

    def tables(self, values: Callable[[int], list[int]], zero: list[int], limbs: int) -> tuple[Data, Data]:
        """Return weights and bias of the gate whose outputs on binade j (X < 2^j) are values(j), and `zero` below all
        binades.
        """
        steps, bias = self._steps(values, zero)
        return ring.constants(steps[::-1], limbs), ring.constants(bias, limbs)

    def exponents(self) -> list[int]:
        """Return the binades j of the gate's bits, ascending: prefix length i drops g = width - i bits and marks X <
        2^(g+2-lift).
        """
        return [self.width - i + 2 - self.lift for i in range(self.depth, MIN_PREFIX_BITS - 1, -1)]

    def _steps(self, values: Callable[[int], list[int]], zero: list[int]) -> tuple[list[list[int]], list[int]]:
        """Write the table as a sum over bits: value = last row + sum of bit k times (row k - row k+1)."""
        exponents = self.exponents()
        rows = [zero, *(values(j) for j in exponents[1:]), values(exponents[-1] + 1)]
        return [[a - b for a, b in zip(low, high, strict=True)] for low, high in pairwise(rows)], rows[-1]

    def gate(self, values: Callable[[int], list[int]], zero: list[int], limbs: int) -> BinadeGate:
        """Return the gate with binades that are wider by a quarter."""
        weights, bias = self.tables(values, zero, limbs)
        return BinadeGate(self.width, self.depth, weights, bias, 8 * limbs)

    def exact_gate(self, values: Callable[[int], list[int]], zero: list[int], limbs: int) -> ThresholdGate:
        """Return the gate with exact binades [2^(j-1), 2^j), made of comparison keys, which are larger."""
        steps, bias = self._steps(values, zero)
        return threshold_gate(self.width, limbs, [1 << (j + self.lift) for j in self.exponents()], steps, bias)


@lru_cache(maxsize=64)
def _gate(binades: Binades, values: Callable[[int], list[int]], zero: tuple[int, ...], limbs: int, exact: bool) -> Gate:
    make = binades.exact_gate if exact else binades.gate
    return make(values, list(zero), limbs)


def binade_tables(
    x: S, binades: Binades, values: Callable[[int], list[int]], zero: list[int], exact: bool = False
) -> Step[Data]:
    """Return shares (2, *x.shape, outputs, limbs) of values(j) for 2^(j-1) <= X < 5/4 * 2^j. Two rounds."""
    limbs = x.dtype.limbs
    gate = _gate(binades, values, tuple(zero), limbs, exact)
    shares = ring.shift_left(x.row, binades.lift) if binades.lift else x.row
    return apply_gate(x.party, shares, 0, gate)


LEVEL_STRIDE = 2
"""Prefix lengths with payloads in the key of a coarse power: every second one; its steps cover two binades."""

THRESHOLD_STEPS = range(4, 16)
"""Thresholds at one prefix length, in units of 2^g: from 4 to 15. Those of the next prefix length begin at 16."""


@lru_cache(maxsize=256)
def coarse_gate(width: int, depth: int, frac: int, exponent: float, kind: RingType) -> BinadeGate:
    """Return the gate of x^exponent as a piecewise constant, accurate to a factor of 1.5^(exponent/2).

    The payloads are shares with as many whole bytes as hold the result with 41 spare bits (see `narrowed`).
    """
    levels = range(depth, MIN_PREFIX_BITS - 1, -LEVEL_STRIDE)  # ascending thresholds
    edges = [k * 2.0 ** (width - i - frac) for i in levels for k in THRESHOLD_STEPS]
    above = 2.0 ** (width - levels[-1] - frac)
    ends = [edges[0] / 2, edges[0] / 2, *edges, 16 * above, 18 * above]
    # First true bit J means edges[J-1] <= x < edges[J+1]: take the geometric mean of the two ends.
    values = [round((ends[j + 1] * ends[j + 3]) ** (exponent / 2) * 2.0**kind.frac) for j in range(len(edges) + 1)]
    steps = [low - high for low, high in pairwise(values)]
    by_level = [steps[len(THRESHOLD_STEPS) * i : len(THRESHOLD_STEPS) * (i + 1)] for i in range(len(levels))][::-1]
    weights = ring.constants([[step] for level in by_level for step in level], kind.limbs)
    bias = ring.constants([values[-1]], kind.limbs)
    return BinadeGate(width, depth, weights, bias, element_bytes(kind), len(THRESHOLD_STEPS), LEVEL_STRIDE)


def coarse_type(bits: int, exponent: float, smallest: float, frac: int | None) -> RingType:
    """Return the type of a coarse power. frac: fractional bits; None: three, or as many as fill the bytes that this
    takes.
    """
    span = max(1, math.ceil(abs(math.log2(smallest)) * abs(exponent)) + 1)
    if frac is not None:
        return RingType(bits, frac, span)
    return RingType(bits, max(3, 8 * element_bytes(RingType(bits, 3, span)) - LOCAL_FAILURE_BITS - 1 - span), span)


def coarse_power(x: S, exponent: float, smallest: float, result_frac: int | None) -> Step[S]:
    """Return x^exponent within about 11% (exponent -1/2) for 5/4 smallest <= x < 2^span, in two rounds.

    Uses: start values and angles. Between `smallest` and 5/4 of it the result is within 26%; below it is constant. The
    result for a negative x is undefined.
    """
    frac = x.dtype.frac
    width = frac + x.dtype.span + 1
    dropped = max(0, math.floor(math.log2(smallest)) + frac - 2)
    kind = coarse_type(x.dtype.bits, exponent, smallest, result_frac)
    gate = coarse_gate(width, width - dropped, frac, exponent, kind)
    data = yield from apply_gate(x.party, x.row, 0, gate)
    return x.like(data[..., 0, :], kind)
