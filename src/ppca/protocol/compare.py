"""Comparisons and tables: sign, less-than, equality, piecewise constants, all exact and in two rounds.

x < y is the sign of x - y (see `signs`). Equality needs a point function only: [x = y] = DPF(m) at alpha (see `gates`).
For tables, [x < t] for ANY number of public thresholds t costs one key: with DCF(y) = [y < alpha] and m = x + alpha,

    [x < t] = [m < t] + DCF(m - t) - DCF(m)      (mod N = 2^bits)

Operations: `<`, `<=`, `>`, `>=`, `==`, `!=`, `negative`, `sign`, `lookup`, `classify`.
Rounds: 2 for each 65,536 elements; with one product more, `abs` takes 3.
Range: |x| < 2^span for signs and thresholds; the difference of two such values for x < y. `within` makes keys smaller.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from ..native import kernels, ring
from .cost import declare
from .dtypes import FIXED, RingType, bit_type
from .gates import apply_gate, by_dealer, gate_bytes, gate_rounds, weighted_sums
from .rounds import Bytes, Received, Step
from .shapes import broadcast_shape
from .shares import Data, Shares
from .signs import sign_bits, sign_bytes

S = TypeVar("S", bound=Shares)

COMPARE_BITS = FIXED.frac + FIXED.span + 2  # the difference of two values, with its sign


@dataclass(slots=True)
class ThresholdGate:
    """Public linear combinations of [x < t] over public thresholds: one distributed comparison function per element.

    `weights` has shape (thresholds, outputs, limbs); `bias` (outputs, limbs), if any, is added by the first evaluator.
    """

    bits: int
    thresholds: Data
    weights: Data
    bias: Data | None
    key_size: int

    @property
    def outputs(self) -> int:
        return int(self.weights.shape[1])

    @property
    def element(self) -> int:
        return 8 * int(self.weights.shape[-1])

    def generate(self, tree: kernels.TreeKey, alpha: Data, seeds: Data) -> tuple[Bytes, Bytes]:
        keys = np.empty((2, len(alpha), self.key_size), np.uint8)
        kernels.dcf_gen(keys[0], keys[1], tree, alpha, self.bits, self.weights.shape[-1], seeds)
        return keys[0], keys[1]

    def evaluate(self, tree: kernels.TreeKey, column: int, keys: list[Received], m: Data) -> Data:
        def fill(out: Data, part: Received, at: Data) -> None:
            kernels.classify_bits(out, tree, column, part, at, self.thresholds, self.bits)

        return weighted_sums(fill, keys, self.key_size, m, self.weights, self.bias if column == 0 else None)


@dataclass(slots=True)
class EqualityGate:
    """[x = 0]: one distributed point function per element."""

    bits: int
    limbs: int
    key_size: int
    outputs: int = 1

    @property
    def element(self) -> int:
        return 8 * self.limbs

    def generate(self, tree: kernels.TreeKey, alpha: Data, seeds: Data) -> tuple[Bytes, Bytes]:
        keys = np.empty((2, len(alpha), self.key_size), np.uint8)
        kernels.dpf_gen(keys[0], keys[1], tree, alpha, self.bits, self.limbs, seeds)
        return keys[0], keys[1]

    def evaluate(self, tree: kernels.TreeKey, column: int, keys: list[Received], m: Data) -> Data:
        out = np.empty((len(m), 1, self.limbs), np.uint64)
        for part, here in by_dealer(keys, self.key_size):
            kernels.dpf_eval(out[here], tree, column, part, m[here], self.bits)
        return out


def threshold_gate(
    bits: int, limbs: int, thresholds: Sequence[int], weights: Sequence[Sequence[int]], bias: Sequence[int]
) -> ThresholdGate:
    """A gate from public integers: weights[threshold][output]."""
    return ThresholdGate(
        bits,
        ring.constants(thresholds, 2),
        ring.constants(weights, limbs),
        ring.constants(bias, limbs) if any(bias) else None,
        kernels.dcf_key_size(bits, limbs),
    )


@lru_cache
def equality_gate(bits: int, limbs: int) -> EqualityGate:
    return EqualityGate(bits, limbs, kernels.dpf_key_size(bits, limbs))


def gate_width(dtype: RingType) -> int:
    """Bits that hold every value of the type with its sign."""
    return dtype.frac + dtype.span + 1


@declare(
    "negative",
    rounds=gate_rounds,
    sent=lambda seat, n: sign_bytes(seat, n, COMPARE_BITS - 1),
    bytes_text="as lt, one bit less of range",
    input_range="|x| < 2^span",
    error="exact",
)
def negative(x: S) -> Step[S]:
    """[x < 0], exactly, as a shared bit."""
    return sign_bits(x, x.row, gate_width(x.dtype))


@declare(
    "lt",
    rounds=gate_rounds,
    sent=lambda seat, n: sign_bytes(seat, n, COMPARE_BITS),
    bytes_text="16 bytes per bit of range and evaluator (72 bits by default), 3 elements",
    input_range="|x|, |y| < 2^span",
    error="exact",
)
def less(x: Any, y: Any) -> Step[Any]:
    """[x < y], exactly; one of the two may be public."""
    return sign_bits(*_difference(x, y))


@declare(
    "eq",
    rounds=gate_rounds,
    sent=lambda seat, n: gate_bytes(seat, n, COMPARE_BITS, kernels.dpf_key_size(COMPARE_BITS, 2), 1),
    bytes_text="about 16 bytes per bit of range and evaluator (72 bits by default)",
    input_range="|x|, |y| < 2^span",
    error="exact",
)
def equal(x: Any, y: Any) -> Step[Any]:
    """[x = y], exactly; one of the two may be public."""
    return _zero(*_difference(x, y))


def _zero(like: S, row_shares: Data, width: int) -> Step[S]:
    """Shared bits [X = 0] of `width`-bit integers X with these row shares."""
    data = yield from apply_gate(like.party, row_shares, 0, equality_gate(width, row_shares.shape[-1]))
    return like.like(data[..., 0, :], bit_type(like.dtype.bits))


def _difference(x: Any, y: Any) -> tuple[Any, Data, int]:
    """A secret one of the two, row shares of x - y (all that a comparison needs), and the bits that hold the difference.

    The other one may be public, and may then lie beyond the span of the secret one: it counts towards the range.
    """
    if isinstance(x, Shares) and isinstance(y, Shares):
        width = _difference_width(x, y.dtype.frac, y.dtype.span)
        if (x.dtype.bits, x.dtype.frac) != (y.dtype.bits, y.dtype.frac):
            return x, x.plus_shares(y, negate=True).row, width
        broadcast_shape(x.shape, y.shape)  # wrong shapes are refused here and now, in NumPy's words
        return x, ring.sub(x.row, y.row), width
    secret, public = (x, y) if isinstance(x, Shares) else (y, x)
    difference = x.plus_public(y, negate=True) if secret is x else (-y).plus_public(x)
    frac = difference.dtype.frac
    return secret, difference.row, _difference_width(secret, frac, secret.public(public, frac)[1])


def _difference_width(x: Shares, frac: int, span: int) -> int:
    """Bits that hold the difference of x and an operand with these fractional bits and span, with its sign."""
    width = max(x.dtype.frac, frac) + max(x.dtype.span, span) + 2
    if width > x.dtype.bits:
        raise ValueError(
            f"a difference of {width} bits does not fit {x.dtype}: promise a smaller range with `within`, or use `extend`"
        )
    return width


def _table_bytes(seat: int, n: int) -> int:
    return gate_bytes(seat, n, COMPARE_BITS - 1, kernels.dcf_key_size(COMPARE_BITS - 1, 2), 1)


@declare(
    "table",
    rounds=gate_rounds,
    sent=_table_bytes,
    bytes_text="32 bytes per bit of range and evaluator, for any number of thresholds; 3 elements per function",
    input_range="|x| < 2^span",
    error="exact in x; values rounded to frac bits",
)
def classify(x: S, thresholds: ArrayLike, tables: ArrayLike, frac: int | None = None) -> Step[S]:
    """Piecewise-constant functions of x: tables[j][i] is the value of function j on the i-th interval.

    Intervals are cut at the ascending `thresholds` (left-closed, as `numpy.searchsorted(..., side="right")` counts).
    Returns shape (*x.shape, functions) with `frac` fractional bits (None: x's, or 0 when all values are whole).
    """
    edges, values = np.asarray(thresholds), np.atleast_2d(np.asarray(tables))
    if edges.ndim != 1 or edges.size == 0 or not np.all(edges[:-1] < edges[1:]):
        raise ValueError("thresholds must be a non-empty ascending sequence")
    if values.shape[1] != edges.size + 1:
        raise ValueError(f"{edges.size} thresholds make {edges.size + 1} intervals, got {values.shape[1]} values")
    if frac is None:
        frac = 0 if np.all(values == np.round(values)) and x.dtype.is_integer else max(x.dtype.frac, FIXED.frac)
    width = gate_width(x.dtype)
    half = 1 << (width - 1)
    # x < t over the reals is X < ceil(t 2^f) over the integers.
    cuts = [_scaled(edge, x.dtype.frac, up=True) for edge in edges.tolist()]
    whole = [[_scaled(value, frac) for value in table] for table in values.tolist()]
    steps = [[table[i] - table[i + 1] for table in whole] for i in range(len(cuts))]
    bias = [table[-1] for table in whole]
    for i, cut in enumerate(cuts):
        if cut >= half:  # a threshold above the range: every x lies below it
            bias = [last + step for last, step in zip(bias, steps[i], strict=True)]
            steps[i] = [0] * len(whole)
    places = [min(max(cut, -half), half - 1) + half for cut in cuts]
    gate = threshold_gate(width, x.dtype.limbs, places, steps, bias)
    data = yield from apply_gate(x.party, x.row, half, gate)
    largest = max(1, int(np.abs(values).max()).bit_length())
    return x.like(data, RingType(x.dtype.bits, frac, min(largest, x.dtype.bits - 1 - frac)))


@declare(
    "sign",
    rounds=gate_rounds,
    sent=_table_bytes,
    bytes_text="as table",
    input_range="|x| < 2^span",
    error="exact",
)
def sign(x: S) -> Step[S]:
    """-1, 0 or 1, exactly: the table with a cut at 0 and one at the last bit."""
    found = yield from classify(x, [0.0, 2.0**-x.dtype.frac], [[-1, 0, 1]], frac=0)
    return found[..., 0]


def _scaled(value: float, frac: int, up: bool = False) -> int:
    """value * 2^frac as an integer, to the nearest or up; exact for doubles and for integers of any size."""
    numerator, denominator = value.as_integer_ratio()
    numerator <<= frac
    return -(-numerator // denominator) if up else (2 * numerator + denominator) // (2 * denominator)
