"""What a shared number means: ring width, fractional bits, and the public promise how large it can be."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

DEFAULT_FRAC = 40
DEFAULT_SPAN = 30
INTEGER_SPAN = 62


@dataclass(frozen=True, slots=True)
class RingType:
    """Fixed-point numbers v held as round(v * 2^frac) in Z_2^bits, with the promise |v| < 2^span.

    The promise is public. Comparisons and tables work on frac + span + 1 bits, so a tight span means small keys;
    inputs are checked against it at the client. Results carry a span derived from their operands', never above
    the type's default: values beyond it are outside the contract of every function.
    """

    bits: int = 128
    frac: int = DEFAULT_FRAC
    span: int = DEFAULT_SPAN

    def __post_init__(self) -> None:
        if self.bits not in (64, 128):
            raise ValueError(f"ring width must be 64 or 128 bits, got {self.bits}")
        if not 0 <= self.frac < self.bits - 2:
            raise ValueError(
                f"fractional bits must lie in 0..{self.bits - 3} for a {self.bits}-bit ring, got {self.frac}"
            )
        if not 1 <= self.span <= self.bits - 1 - self.frac:
            raise ValueError(f"span {self.span} does not fit: frac + span must stay below {self.bits}")

    @property
    def limbs(self) -> int:
        return self.bits // 64

    @property
    def itemsize(self) -> int:
        """Bytes of one element of one share."""
        return self.bits // 8

    @property
    def is_integer(self) -> bool:
        return self.frac == 0

    def with_frac(self, frac: int) -> RingType:
        """The same width with other fractional bits, the span kept as far as it fits."""
        return make_type(self.bits, frac, self.span)

    def with_span(self, span: int) -> RingType:
        """The same type with another promise, capped at the type's default."""
        return self if span == self.span else make_type(self.bits, self.frac, span)

    def __str__(self) -> str:
        return f"int{self.bits}" if self.is_integer else f"fixed{self.bits}.{self.frac}"


def max_span(bits: int, frac: int) -> int:
    """The span assumed when nothing tighter is known."""
    return min(DEFAULT_SPAN if frac else INTEGER_SPAN, bits - 2 - frac)


@lru_cache(maxsize=4096)
def make_type(bits: int, frac: int, span: int | None = None) -> RingType:
    cap = max_span(bits, frac)
    return RingType(bits, frac, max(1, cap if span is None else min(span, cap)))


LOCAL_FAILURE_BITS = 40
"""A product whose local truncation may fail with more than 2^-40 is truncated exactly."""


def truncates_locally(bits: int, whole: int) -> bool:
    """Whether a local truncation is good enough for integers |X| < 2^whole in Z_2^bits.

    Each of the two splits fails with probability |X| / 2^bits: where its first summand lies so close to 0 that X carries it
    over. Both together stay below 2^-LOCAL_FAILURE_BITS. With 2 * 40 fractional bits before the truncation: |xy| < 2^7.
    """
    return whole + 1 - bits <= -LOCAL_FAILURE_BITS


def span_of(bound: float) -> int:
    """The smallest span whose promise |v| < 2^span covers |v| <= bound."""
    if not bound > 0 or not math.isfinite(bound):
        raise ValueError(f"a bound must be positive and finite, got {bound}")
    return max(1, math.floor(math.log2(bound)) + 1)


FIXED = RingType()
"""The default: 128-bit ring, 40 fractional bits, |v| < 2^30."""

INTEGER = make_type(128, 0)
"""Integers, counts and indices: |v| < 2^62."""


@lru_cache
def bit_type(bits: int) -> RingType:
    """Results of comparisons: 0 or 1."""
    return RingType(bits, 0, 1)
