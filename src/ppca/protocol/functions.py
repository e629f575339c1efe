"""Functions: 1 / sqrt(x), sqrt(x), 1 / x and x / y in three steps (normalise, evaluate a polynomial, scale back).

1. Rounds 1-2: find the binade of x (see `normalise`). It gives a secret power of two that scales x, and the factor that
   scales the result.
2. Round 3: z = x * power, in [1/2, 5/4), with 36 fractional bits.
3. Rounds 4-7: p(z), a Chebyshev interpolant of degree 15 in u = 2z - 7/4 with a relative error below 2^-33.
4. Rounds 8-9: result = p(z) * factor, truncated exactly. One round if the result is below 2^9, such as sqrt(x) for
   x < 2^17.

Newton or Goldschmidt iterations would need three steps of two rounds each; the polynomial takes four rounds in all.
Every function maps zero to zero, as scikit-learn's scaling does for constant columns.
Rounds: 9; 10 for `1 / x`, which also needs the sign of x; 12 for `x / y` (the sign of y, and two rounds for the product
with x);
`polynomial` alone takes 2 + ceil(log2((degree + 1) / 4)) from degree 4 on, for |x| <= 1.
Range: the 128-bit ring; 0 <= x < 2^span, including the smallest representable x. `reciprocal` and divisors: 0, or
2^-30 <= |x| < 2^span.
Error: 1e-9 relative or 2 ulp, whichever is larger. Security: that of gates and products.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeVar

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial

from ..native import kernels, ring
from .compare import negative
from .cost import declare
from .dtypes import DEFAULT_FRAC, DEFAULT_SPAN, RingType, make_type
from .gates import gate_bytes, gate_rounds
from .multiply import ELEMENT, exact_bytes, multiply
from .normalise import MIN_PREFIX_BITS, Binades, binade_tables
from .pending import Pending
from .rounds import together
from .shares import Data, Shares

S = TypeVar("S", bound=Shares)
F = TypeVar("F")

NORMALISED_MIN, NORMALISED_MAX = 0.5, 1.25
"""Interval of a normalised value: [1/2, 5/4)."""

MAX_ARGUMENT = 0.751
"""Bound on |2 z - 7/4|: 3/4 and the error of the last bits of z."""

INNER_FRAC = 36
"""Fractional bits of z, of p(z) and of public coefficients. A local truncation of a product of size one then fails with
probability 2^-55.
"""

FACTOR_FRAC = 42
"""Maximum number of fractional bits of the factor that scales a result."""

MIN_RECIPROCAL_BITS = -30
"""log2 of the smallest |x| of which reciprocals are computed."""


NUMERATOR_FRAC = 50
"""Fractional bits of x p(z) in a division before it is scaled. With the default number of bits, the quotient
of a small x and a small y would lose digits.
"""


@lru_cache
def coefficients(name: str, degree: int = 15) -> tuple[float, ...]:
    """Return the coefficients in u = 2z - 7/4 of the Chebyshev interpolant of a function on [NORMALISED_MIN,
    NORMALISED_MAX].
    """
    exponent = {"rsqrt": -0.5, "sqrt": 0.5, "reciprocal": -1.0}[name]
    ends = [2 * NORMALISED_MIN - 1.75, 2 * NORMALISED_MAX - 1.75]
    fit = Chebyshev.interpolate(lambda u: ((u + 1.75) / 2) ** exponent, degree, domain=ends)
    return tuple(fit.convert(kind=Polynomial, domain=[-1, 1], window=[-1, 1]).coef.tolist())


@lru_cache
def power_and_factor(frac: int, top: int, exponent: float, factor_frac: int) -> Callable[[int], list[int]]:
    """Return a function of the binade j of X = x 2^frac: the integer 2^(top-j), and 2^(exponent * (j - frac)) in fixed
    point.

    top: z = X 2^(top-j) / 2^top. factor_frac: fractional bits of the second number.
    """

    def values(j: int) -> list[int]:
        half_steps = round(2 * exponent) * (j - frac) + 2 * factor_frac
        whole, odd = divmod(half_steps, 2)
        root = math.isqrt(2 << 256)  # sqrt(2) with 128 fractional bits
        if whole < 0:  # below one unit of the factor
            return [1 << (top - j), 0]
        return [1 << (top - j), (root << whole) >> 128 if odd else 1 << whole]

    return values


async def _normalised(x: S, exponent: float, smallest: int, factor_frac: int, signed: bool) -> tuple[S, S]:
    """Return z in [NORMALISED_MIN, NORMALISED_MAX) with INNER_FRAC fractional bits, and the factor that scales the
    result.

    exponent: the function is x^exponent. smallest: log2 of the smallest |x| that is normalised. factor_frac: fractional
    bits of the factor. signed: x may be negative; the factor then has the sign of x.
    """
    dtype = x.dtype
    binades = Binades.of(dtype.frac, dtype.span, smallest)
    top = max(dtype.frac + dtype.span, INNER_FRAC)  # z = X * power / 2^top
    values = power_and_factor(dtype.frac, top, exponent, factor_frac)
    if signed:
        bit, above, below = await together(
            Pending(negative(x)),
            Pending(binade_tables(x, binades, values, [0, 0])),
            Pending(binade_tables(-x, binades, values, [0, 0])),
        )
        plus = x.like(above, make_type(128, 0))
        chosen = await Pending(multiply(bit.reshape(*bit.shape, 1), x.like(below, plus.dtype) + plus))
        tables = (plus - chosen).data
    else:
        tables = await Pending(binade_tables(x, binades, values, [0, 0]))
    power = x.like(tables[..., 0, :], RingType(128, 0, 62))
    scaled = x.like(x.data, RingType(128, top, 1))
    z = await Pending(multiply(scaled, power, INNER_FRAC, NORMALISED_MAX))
    factor = x.like(tables[..., 1, :], RingType(128, factor_frac, 127 - factor_frac - 1))
    return z.like(z.data, RingType(128, INNER_FRAC, 1)), factor


async def polynomial(x: S, coefs: Sequence[float], frac: int | None = None, within: float | None = None) -> S:
    """Return sum of coefs[i] * x^i. Every power of x that occurs must be below 2^DEFAULT_SPAN.

    1. Powers x^2 [1 round], x^3 and x^4 [1 round]; blocks of four terms are then local.
    2. Neighbouring blocks are merged by x^4, x^8, x^16, ...: one round per doubling of the number of blocks.

    within: promise |x| <= within (None: the span of the type). Products that this bound keeps small enough for a
        local truncation take one round (below 2^7 with 40 fractional bits, 2^15 with 36), others two.
    Rounds: 0, 1, 2 for degrees 1, 2, 3; 2 + ceil(log2((degree + 1) / 4)) from degree 4 on, if |x| <= 1.
    """
    bound = min(2.0**x.dtype.span, math.inf if within is None else within)
    x = x.astype(DEFAULT_FRAC) if x.dtype.is_integer else x
    kept = x.dtype.frac if frac is None else frac
    terms = tuple(float(c) for c in coefs) or (0.0,)
    powers = x.reshape(1, *x.shape)
    if len(terms) > 2:
        square = await Pending(multiply(powers, powers, None, bound**2))
        powers = type(x).concatenate([powers, square])
    if len(terms) > 3:
        some = powers if len(terms) > 4 else powers[:1]
        high = await Pending(multiply(some, powers[1:], None, max(1.0, bound**4)))
        powers = type(x).concatenate([powers, high])
    giant = powers[3:]
    blocks = _blocks(powers[:3], terms)
    bits = 4 * len(blocks) * math.log2(max(1.0, bound)) + math.log2(max(1.0, sum(map(abs, terms))))
    largest = 2.0 ** min(bits, DEFAULT_SPAN)
    while len(blocks) > 1:
        pairs = len(blocks) // 2
        last = len(blocks) == 2
        factors = blocks[1::2] if last else type(x).concatenate([blocks[1::2], giant])
        products = await Pending(multiply(factors, giant, kept if last else None, largest))
        giant = products[pairs:]
        even = blocks[0::2].astype(kept) if last else blocks[0::2]
        merged = even[:pairs] + products[:pairs]
        blocks = merged if len(blocks) % 2 == 0 else type(x).concatenate([merged, even[pairs:]])
    result = blocks[0].astype(kept)
    return result.like(result.data, make_type(x.dtype.bits, kept))  # the span is not derived from the coefficients


def weight_bits(frac: int) -> int:
    """Return the number of fractional bits of encoded coefficients if the argument of the polynomial has `frac`."""
    return min(DEFAULT_FRAC, max(frac, INNER_FRAC))


@lru_cache
def _block_weights(terms: tuple[float, ...], powers: int, frac: int, limbs: int) -> tuple[Data, Data]:
    """Return the encoded coefficients of all blocks of four: (blocks, powers) for powers, (blocks, 1) for constants."""
    padded = np.zeros((-(-len(terms) // 4), 4))
    padded.reshape(-1)[: len(terms)] = terms
    weights, _ = ring.encode(np.ascontiguousarray(padded[:, 1 : 1 + powers]), weight_bits(frac), limbs)
    constants, _ = ring.encode(np.ascontiguousarray(padded[:, :1]), frac, limbs)
    return weights, constants


def _blocks(powers: S, terms: tuple[float, ...]) -> S:
    """Return c0 + c1 x + c2 x^2 + c3 x^3 for every block of four coefficients, locally, with one truncation."""
    party, limbs, shape = powers.party, powers.dtype.limbs, powers.shape[1:]
    weights, constants = _block_weights(terms, len(powers), powers.dtype.frac, limbs)
    sums = ring.matmul(weights, powers.data.reshape(2, len(powers), -1, limbs))
    result = powers.like(sums).shifted(weight_bits(powers.dtype.frac), powers.dtype)
    for split, adds in ((0, party.row == 0), (1, party.column == 0)):
        if adds:
            result.data[split] = ring.add(result.data[split], constants)
    return result.reshape(len(weights), *shape)


async def _apply(x: S, name: str, exponent: float, smallest: int, factor_frac: int, signed: bool = False) -> S:
    """Evaluate a function: normalise, polynomial, scale back."""
    _check(x, name)
    z, factor = await _normalised(x, exponent, smallest, factor_frac, signed)
    p = await polynomial(z.times_public(2) - 1.75, coefficients(name), INNER_FRAC, MAX_ARGUMENT)
    # Between 2^smallest and 2^span the function is largest at one of the ends.
    largest = 1.01 * 2.0 ** max(exponent * smallest, exponent * x.dtype.span)
    y: S = await Pending(multiply(factor, p, x.dtype.frac or DEFAULT_FRAC, largest))
    return y


def _check(x: Shares, name: str) -> None:
    """Refuse types for which the last truncation would not be reliable."""
    if x.dtype.bits != 128:
        raise TypeError(f"`{name}` needs the 128-bit ring, got {x.dtype}. Use `extend`.")
    if x.dtype.frac + x.dtype.span > 76:
        raise ValueError(
            f"`{name}`: {x.dtype.frac} fractional bits and values up to 2^{x.dtype.span} are too many bits for the "
            "truncation. Promise a smaller range with `within`, or remove bits with `astype`."
        )


def _declared(name: str, smallest: int, input_range: str) -> Callable[[F], F]:
    """Declare the cost of a function that distinguishes binades from 2^smallest on: one look-up of two numbers, nine
    products.
    """

    def sent(seat: int, n: int) -> int:
        binades = Binades.of(DEFAULT_FRAC, DEFAULT_SPAN, smallest)
        key = kernels.prefix_key_size(binades.depth, 2, (MIN_PREFIX_BITS, 1), ELEMENT)
        return gate_bytes(seat, n, binades.width, key, 2) + 2 * 8 * n * ELEMENT + exact_bytes(seat, n)

    return declare(
        name,
        rounds=lambda n: gate_rounds(n) + 7,
        sent=sent,
        bytes_text="32 bytes for each bit of the range and each evaluator; 9 products, one of them truncated exactly",
        input_range=input_range,
        error="1e-9 relative or 2 ulp, whichever is larger",
        failure="2^-51 per element",
    )


@_declared("rsqrt", -DEFAULT_FRAC, "0, or 2^-40 <= x < 2^30")
def rsqrt(x: S) -> Pending:
    """Return 1 / sqrt(x) for 0 < x < 2^span, including the smallest representable x; 0 for x = 0."""
    return Pending(_apply(x, "rsqrt", -0.5, -x.dtype.frac, FACTOR_FRAC))


@_declared("sqrt", -DEFAULT_FRAC, "0 <= x < 2^30")
def sqrt(x: S) -> Pending:
    """Return sqrt(x) for 0 <= x < 2^span."""
    return Pending(_apply(x, "sqrt", 0.5, -x.dtype.frac, FACTOR_FRAC))


@_declared("reciprocal", MIN_RECIPROCAL_BITS, "2^-30 <= x < 2^30; 0 gives 0")
def reciprocal(x: S, signed: bool = False) -> Pending:
    """Return 1 / x for 2^-30 <= x < 2^span, and 0 if x is below about 2^-31. signed: x may be negative; one more
    round.
    """
    return Pending(_apply(x, "reciprocal", -1.0, MIN_RECIPROCAL_BITS, _inverse_frac(x), signed))


def _inverse_frac(x: Shares) -> int:
    """Return the fractional bits of the factor of 1 / x: enough for 2^-span, at most FACTOR_FRAC."""
    return max(31, min(x.dtype.span + 1, FACTOR_FRAC))


async def divide(x: S, y: S) -> S:
    """Return x / y with |y| in the range of `reciprocal`. x is multiplied in before scaling, so small quotients stay
    accurate.

    Error: 1e-9 |x / y| or 2 ulp + 2^-49 / |y|, whichever is larger. Rounds: 12.
    """
    _check(y, "divide")
    z, factor = await _normalised(y, -1.0, MIN_RECIPROCAL_BITS, _inverse_frac(y), signed=True)
    p = await polynomial(z.times_public(2) - 1.75, coefficients("reciprocal"), INNER_FRAC, MAX_ARGUMENT)
    numerator = await Pending(multiply(p, x.astype(max(x.dtype.frac, DEFAULT_FRAC)), NUMERATOR_FRAC))
    quotient: S = await Pending(multiply(factor, numerator, DEFAULT_FRAC))
    return quotient.like(quotient.data, make_type(128, DEFAULT_FRAC))
