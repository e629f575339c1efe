"""Comparisons and tables: sign, less-than, equality and piecewise constants; exact, in two rounds.

x < y is the sign of x - y (see `signs`). Equality needs only a point function: [x = y] = DPF(m) at alpha (see `gates`).
A table compares x with ANY number of public thresholds t and needs one key. With DCF(y) = [y < alpha] and m = x +
alpha,

    [x < t] = [m < t] + DCF(m - t) - DCF(m)      (mod N = 2^bits)

Operations: `<`, `<=`, `>`, `>=`, `==`, `!=`, `negative`, `sign`, `lookup`, `classify`.
Rounds: 2 for each 65,536 elements. `abs` takes 3: it adds a product.
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
from .gates import apply_gate, by_dealer, gate_bytes, gate_rounds
from .rounds import Bytes, Received, Step
from .shapes import broadcast_shape
from .shares import Data, Shares
from .signs import sign_bits, sign_bytes

S = TypeVar("S", bound=Shares)

COMPARE_BITS = FIXED.frac + FIXED.span + 2
"""Bits of the difference of two values of the default type, with its sign."""


@dataclass(slots=True)
class ThresholdGate:
    """Public linear combinations of [x < t] over public thresholds t: one distributed comparison function per element.

    weights: shape (thresholds, outputs, limbs). bias: shape (outputs, limbs) or None; the evaluator of column 0 adds
        it.
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
        out = np.empty((len(m), *self.weights.shape[1:]), np.uint64)
        for part, at in by_dealer(keys, self.key_size):
            kernels.classify_sums(out[at], tree, column, part, m[at], self.thresholds, self.bits, self.weights)
        return out if self.bias is None or column else ring.add(out, self.bias)


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
    """Return a gate made from public integers: weights[threshold][output]."""
    return ThresholdGate(
        bits,
        ring.constants(thresholds, 2),
        ring.constants(weights, limbs),
        ring.constants(bias, limbs) if any(bias) else None,
        kernels.dcf_key_size(bits, limbs),
    )


@lru_cache
def equality_gate(bits: int, limbs: int) -> EqualityGate:
    """Return the gate that tests integers of `bits` bits for zero."""
    return EqualityGate(bits, limbs, kernels.dpf_key_size(bits, limbs))


def gate_width(dtype: RingType) -> int:
    """Return the number of bits that hold every value of the type with its sign."""
    return dtype.frac + dtype.span + 1


@declare(
    "negative",
    rounds=gate_rounds,
    sent=lambda seat, n: sign_bytes(seat, n, COMPARE_BITS - 1),
    bytes_text="as lt, with one bit less of range",
    input_range="|x| < 2^span",
    error="exact",
)
def negative(x: S) -> Step[S]:
    """Return [x < 0], exactly, as a shared bit."""
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
    """Return [x < y], exactly; one of the two may be public."""
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
    """Return [x = y], exactly; one of the two may be public."""
    return _zero(*_difference(x, y))


def _zero(like: S, row_shares: Data, width: int) -> Step[S]:
    """Return shared bits [X = 0] of `width`-bit integers X with these row shares."""
    data = yield from apply_gate(like.party, row_shares, 0, equality_gate(width, row_shares.shape[-1]))
    return like.like(data[..., 0, :], bit_type(like.dtype.bits))


def _difference(x: Any, y: Any) -> tuple[Any, Data, int]:
    """Return a secret one of the two, the row shares of x - y (comparisons need no column shares), and the bits of the
    difference.

    The other one may be public. It may exceed the span of the secret one: the number of bits takes it into account.
    """
    if isinstance(x, Shares) and isinstance(y, Shares):
        width = _difference_width(x, y.dtype.frac, y.dtype.span)
        if (x.dtype.bits, x.dtype.frac) != (y.dtype.bits, y.dtype.frac):
            return x, x.plus_shares(y, negate=True).row, width
        broadcast_shape(x.shape, y.shape)  # NumPy's error for wrong shapes, at the call
        return x, ring.sub(x.row, y.row), width
    secret, public = (x, y) if isinstance(x, Shares) else (y, x)
    difference = x.plus_public(y, negate=True) if secret is x else (-y).plus_public(x)
    frac = difference.dtype.frac
    return secret, difference.row, _difference_width(secret, frac, secret.public(public, frac)[1])


def _difference_width(x: Shares, frac: int, span: int) -> int:
    """Return the bits of the difference of x and an operand with these fractional bits and span, with its sign."""
    width = max(x.dtype.frac, frac) + max(x.dtype.span, span) + 2
    if width > x.dtype.bits:
        raise ValueError(
            f"a difference of {width} bits does not fit {x.dtype}: promise a smaller range with "
            "`within`, or use `extend`."
        )
    return width


def _table_bytes(seat: int, n: int) -> int:
    """Return the payload bytes that one server sends for a table look-up of n elements of the default type."""
    return gate_bytes(seat, n, COMPARE_BITS - 1, kernels.dcf_key_size(COMPARE_BITS - 1, 2), 1)


@lru_cache(maxsize=128)
def _table_gate(
    dtype: RingType, frac: int, edges: tuple[float, ...], tables: tuple[tuple[float, ...], ...]
) -> ThresholdGate:
    """Return the gate of `classify` for numbers of a type. Iterations use the same tables again."""
    width = gate_width(dtype)
    half = 1 << (width - 1)
    # x < t over the reals is X < ceil(t 2^f) over the integers.
    cuts = [_scaled(edge, dtype.frac, up=True) for edge in edges]
    whole = [[_scaled(value, frac) for value in table] for table in tables]
    steps = [[table[i] - table[i + 1] for table in whole] for i in range(len(cuts))]
    bias = [table[-1] for table in whole]
    for i, cut in enumerate(cuts):
        if cut >= half:  # a threshold above the range: all x are smaller
            bias = [last + step for last, step in zip(bias, steps[i], strict=True)]
            steps[i] = [0] * len(whole)
    places = [min(max(cut, -half), half - 1) + half for cut in cuts]
    return threshold_gate(width, dtype.limbs, places, steps, bias)


@declare(
    "table",
    rounds=gate_rounds,
    sent=_table_bytes,
    bytes_text="32 bytes per bit of range and evaluator, for any number of thresholds; 3 elements per function",
    input_range="|x| < 2^span",
    error="exact in x; values rounded to frac bits",
)
def classify(x: S, thresholds: ArrayLike, tables: ArrayLike, frac: int | None = None) -> Step[S]:
    """Evaluate piecewise-constant functions of x: tables[j][i] is the value of function j on the i-th interval.

    The ascending `thresholds` bound the intervals (left-closed, as in `numpy.searchsorted(..., side="right")`). The
    result has the shape (*x.shape, functions) and `frac` fractional bits (None: those of x, or 0 if x and all values
    are integers).
    """
    edges, values = np.asarray(thresholds), np.atleast_2d(np.asarray(tables))
    if edges.ndim != 1 or edges.size == 0 or not np.all(edges[:-1] < edges[1:]):
        raise ValueError("invalid thresholds: they must be a non-empty, strictly ascending sequence.")
    if values.shape[1] != edges.size + 1:
        raise ValueError(
            f"invalid table: {edges.size} thresholds make {edges.size + 1} intervals, got {values.shape[1]} values"
        )
    if frac is None:
        frac = 0 if np.all(values == np.round(values)) and x.dtype.is_integer else max(x.dtype.frac, FIXED.frac)
    gate = _table_gate(x.dtype, frac, tuple(edges.tolist()), tuple(map(tuple, values.tolist())))
    data = yield from apply_gate(x.party, x.row, 1 << (gate.bits - 1), gate)
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
    """Return -1, 0 or 1, exactly: a table with thresholds at 0 and at one unit of the last bit."""
    found = yield from classify(x, [0.0, 2.0**-x.dtype.frac], [[-1, 0, 1]], frac=0)
    return found[..., 0]


def _scaled(value: float, frac: int, up: bool = False) -> int:
    """Return value * 2^frac as an integer, rounded to the nearest or up; exact for doubles and for integers of any
    size.
    """
    numerator, denominator = value.as_integer_ratio()
    numerator <<= frac
    return -(-numerator // denominator) if up else (2 * numerator + denominator) // (2 * denominator)
