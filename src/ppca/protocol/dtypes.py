"""Types of shared numbers: width of the ring, fractional bits, and a public bound on the magnitude."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

DEFAULT_FRAC = 40
"""Fractional bits of fixed-point numbers by default."""

DEFAULT_SPAN = 30
"""Default and maximum span of fixed-point numbers: |v| < 2^30."""

INTEGER_SPAN = 62
"""Default and maximum span of integers: |v| < 2^62."""


@dataclass(frozen=True, slots=True)
class RingType:
    """Fixed-point numbers v represented by round(v * 2^frac) in Z_2^bits, with the promise |v| < 2^span.

    The promise is public. Comparisons and tables work on frac + span + 1 bits, so a smaller span makes keys smaller.
    Clients check their inputs against it. The span of a result is derived from those of its operands, up to the default
    of the type: no function is specified for larger values.
    """

    bits: int = 128
    frac: int = DEFAULT_FRAC
    span: int = DEFAULT_SPAN

    def __post_init__(self) -> None:
        if self.bits not in (64, 128):
            raise ValueError(f"invalid ring width: bits={self.bits}. It must be 64 or 128.")
        if not 0 <= self.frac < self.bits - 2:
            raise ValueError(
                f"invalid fractional bits: frac={self.frac}. A {self.bits}-bit ring allows 0 to {self.bits - 3}."
            )
        if not 1 <= self.span <= self.bits - 1 - self.frac:
            raise ValueError(
                f"invalid span: span={self.span}. It must be at least 1, and frac + span below {self.bits}."
            )

    @property
    def limbs(self) -> int:
        """Number of 64-bit words of an element."""
        return self.bits // 64

    @property
    def itemsize(self) -> int:
        """Bytes of one element of one share."""
        return self.bits // 8

    @property
    def is_integer(self) -> bool:
        """True for types without fractional bits."""
        return self.frac == 0

    def with_frac(self, frac: int) -> RingType:
        """Return the same width with other fractional bits; the span is kept if it fits."""
        return make_type(self.bits, frac, self.span)

    def with_span(self, span: int) -> RingType:
        """Return the same type with another span, at most the default of the type."""
        return self if span == self.span else make_type(self.bits, self.frac, span)

    def __str__(self) -> str:
        return f"int{self.bits}" if self.is_integer else f"fixed{self.bits}.{self.frac}"


def max_span(bits: int, frac: int) -> int:
    """Return the span that is assumed if no smaller one is known."""
    return min(DEFAULT_SPAN if frac else INTEGER_SPAN, bits - 2 - frac)


@lru_cache(maxsize=4096)
def make_type(bits: int, frac: int, span: int | None = None) -> RingType:
    """Return the type with this span (None: the default), limited to the range that the type allows."""
    cap = max_span(bits, frac)
    return RingType(bits, frac, max(1, cap if span is None else min(span, cap)))


LOCAL_FAILURE_BITS = 40
"""Local truncation is used only if it fails with probability below 2^-40 per element; otherwise truncation is exact."""


def truncates_locally(bits: int, whole: int) -> bool:
    """Return whether local truncation is reliable enough for integers |X| < 2^whole in Z_2^bits.

    Each of the two splits fails with probability |X| / 2^bits: if share 0 is so close to 0 that X makes it wrap. Both
    together stay below 2^-LOCAL_FAILURE_BITS. With 2 * 40 fractional bits before the truncation this means |xy| < 2^7.
    """
    return whole + 1 - bits <= -LOCAL_FAILURE_BITS


def span_of(bound: float) -> int:
    """Return the smallest span whose promise |v| < 2^span covers |v| <= bound."""
    if not bound > 0 or not math.isfinite(bound):
        raise ValueError(f"invalid bound: {bound}. A bound must be positive and finite.")
    return max(1, math.floor(math.log2(bound)) + 1)


FIXED = RingType()
"""Default type of real numbers: 128-bit ring, 40 fractional bits, |v| < 2^30."""

INTEGER = make_type(128, 0)
"""Type of integers, counts and indices: 128-bit ring, |v| < 2^62."""


@lru_cache
def bit_type(bits: int) -> RingType:
    """Return the type of the results of comparisons: 0 or 1."""
    return RingType(bits, 0, 1)
