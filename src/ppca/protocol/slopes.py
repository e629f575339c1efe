"""Slopes: sign(x) / max(|x|, 1), accurate to about 31%, from one key with one level per bit of x; used for Jacobi
angles.

Dealing and resharing are those of `gates`; the key and D = (m >> g) - (alpha >> g) are those of `normalise`: at every
second prefix length D equals x >> g or (x >> g) + 1. Let V(t) be a decreasing step function close to 1 / t, and

    V+ = sum over levels and thresholds k = 4 .. 15 of w [0 <= D <= k],      V- the same of -D,      result V+ - V-

1. x > 0: the first true bit of V+ places x within a sixteenth to a quarter of it, as in `normalise`: V+ is about V(x).
   In V- the bits of levels with 2^g > x, where D may be 0, are true. They add up to at most V(4 2^g), a twentieth to a
   quarter of V(x).
2. x < 0: the same with V+ and V- exchanged.
3. |x| below the finest step: D is 0 or -1 at the finest level, and V- does not count 0 there. The coarser levels
   cancel; the finest one decides the sign, at random.

Rounds: 2. Sent: a key of depth + 1 blocks and payloads at every second level to each of two evaluators.
Range: |x| < 15/16 2^span; beyond it the result is 0 or has the wrong sign. Error: below 31% (7% on average) for |x| >=
1.5; for smaller x the result lies between 0.55 and 1.27, with the correct sign if |x| >= 1/4.
Security: that of `gates`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TypeVar

from ..native import kernels, ring
from .dtypes import RingType
from .gates import apply_gate, element_bytes
from .normalise import LEVEL_STRIDE, MIN_PREFIX_BITS, THRESHOLD_STEPS, BinadeGate
from .rounds import Received, Step
from .shares import Data, Shares

S = TypeVar("S", bound=Shares)

FINEST_STEP_BITS = 2
"""The finest step is 2^-FINEST_STEP_BITS; one bit finer if the number of levels would otherwise be even."""

EXTRA_FRAC = 5
"""Fractional bits of a slope beyond those of the smallest slope."""

STAIRCASE_SCALE = 1.06
"""Factor of V+ that compensates for what V- subtracts on average."""

LOWEST_STEP_EXTRA = 0.2
"""Added to the value below the first threshold, where the coarser levels cancel."""


@dataclass(slots=True)
class SlopeGate(BinadeGate):
    """The difference of the same step function of x and of -x."""

    def evaluate(self, tree: kernels.TreeKey, column: int, keys: list[Received], m: Data) -> Data:
        positive = self.weighted_bits(tree, column, keys, m)
        return ring.sub(positive, self.weighted_bits(tree, column, keys, m, mirrored=True))


@lru_cache(maxsize=256)
def slope_gate(frac: int, span: int, kind: RingType) -> SlopeGate:
    """Return the gate for |x| < 2^span with `frac` fractional bits, at least as many as the finest step has."""
    finest = (
        FINEST_STEP_BITS + (span + FINEST_STEP_BITS) % 2
    )  # an odd number of levels: the shortest prefix then has MIN_PREFIX_BITS + 1 bits
    depth, width = finest + span + 1, frac + span + 1
    if frac < finest or depth <= MIN_PREFIX_BITS:
        raise ValueError(f"too few bits for a slope: {frac} fractional bits and a span of {span}.")
    levels = range(depth, MIN_PREFIX_BITS, -LEVEL_STRIDE)
    edges = [k * 2.0 ** (depth - i - finest) for i in levels for k in THRESHOLD_STEPS]
    last = 2.0**span
    ends = [edges[0], edges[0], *edges, last, last]
    # First true bit J means edges[J-1] <= x < edges[J+1]: take the geometric mean of the two ends.
    values = [STAIRCASE_SCALE / max((ends[j + 1] * ends[j + 3]) ** 0.5, 1.0) for j in range(len(edges))]
    whole = [round(value * 2.0**kind.frac) for value in (values[0] + LOWEST_STEP_EXTRA, *values[1:], 0.0)]
    steps = [low - high for low, high in pairwise(whole)]
    by_level = [steps[len(THRESHOLD_STEPS) * i : len(THRESHOLD_STEPS) * (i + 1)] for i in range(len(levels))][::-1]
    weights = ring.constants([[step] for level in by_level for step in level], kind.limbs)
    return SlopeGate(
        width, depth, weights, ring.constants([0], kind.limbs), element_bytes(kind), len(THRESHOLD_STEPS), LEVEL_STRIDE
    )


def slope_type(bits: int, span: int) -> RingType:
    """Return the type of slopes of numbers with this span."""
    return RingType(bits, span + EXTRA_FRAC, 1)


def slope(x: S) -> Step[S]:
    """Return sign(x) / max(|x|, 1), accurate to about 31%."""
    kind = slope_type(x.dtype.bits, x.dtype.span)
    data = yield from apply_gate(x.party, x.row, 0, slope_gate(x.dtype.frac, x.dtype.span, kind))
    return x.like(data[..., 0, :], kind)
