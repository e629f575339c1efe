"""Symmetric positive definite systems G B = C on shares: an inverse, refined solutions, and bits that say whether they
are right.

    1. scale        G_ij = M_ij 2^(a_i + a_j), with secret powers of two that bring the diagonal to [1/4, 1)
    2. inverse      X ~ 1 / G by Newton's iteration on Z = G / s and X together, s = 2^ceil(log2 d), above the trace
                        Z' = m Z (2 - m Z),   X' = m X (2 - m Z)
                    m = 7/4 until no eigenvalue of Z can be below 1/4, then 1
    3. solve        B = X C, then twice B += X (C - G B)
    4. diagonal     of 1 / G: that of X + X (1 - G X)

Each step of the iteration multiplies a small eigenvalue of Z by 7/2; an eigenvalue 1 becomes 7/16, none less. Its
number of steps follows from d and from the limit of the condition alone: nothing is opened, and a matrix beyond the
limit stays in range.

Condition: the sum of the variance inflation factors G_jj (1/G)_jj must be below 2^20, so the trace of 1 / G is below
2^22 and no eigenvalue of G is below 2^-22. No diagonal element may be zero (a column that does not vary).
Error: products are rounded to 2^-56. In the direction of an eigenvalue w of G the iteration errs by about 2^-56 s / w,
at most 2^-25 at the limit for 500 columns, and by 2^-34 besides. Two steps of refinement leave B with the error of its
residual, which is below 2^-44 in norm if the bit of `is_solved` is 1: at most 2^-44 / w. The diagonal of 1 / G errs by
|1 - G X|^2 / w, with |1 - G X|_F < 2^-20 by that bit, and about 2^-29 as measured.
Range: X < 2^28: the iteration multiplies by at most (7/2)^k 2^6 / s, where (7/2)^k < s 2^22. X has 62 bits, its
fractional ones become fewer as it grows: times 2 - m Z with 60 bits 2^124. G times B < 2^15 with 50 bits: 2^121. X
times residuals below 1 with 60 bits: 2^122. The diagonal, below 2^29, times that of G: 2^125.
Rounds: 6 for the scales; 2 (d > 1) and 2 a step, 20 steps for 10 columns and 23 for 500; 10 for B and the diagonal.
Security: nothing is opened here.
References: G. Schulz, "Iterative Berechnung der reziproken Matrix", ZAMM 1933; N. Higham, Accuracy and Stability of
Numerical Algorithms, ch. 12 and 14.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..protocol import RingType, concatenate, symmetric, together
from ..protocol.dtypes import span_of
from ..protocol.triangles import diagonal_positions
from .covariance import MIN_VARIANCE_BITS, MOMENT_FRAC, VARIANCE_FLOOR
from .eigen import is_below
from .scales import EXPONENT, RAW

FRAC = 56
"""Fractional bits of the scaled matrix."""

INVERSE_FRAC, INVERSE_BITS = 34, 28
"""Fractional bits of the approximate inverse, and log2 of its largest entry."""

SOLUTION_FRAC, SOLUTION_BITS = 50, 15
"""Fractional bits of a solution, and log2 of its largest entry."""

RESIDUAL_FRAC = 60
"""Fractional bits of residuals, and of the factor 2 - m Z of the iteration."""

DIAGONAL_FRAC = 40
"""Fractional bits of the diagonal of the inverse."""

INFLATION_FRAC = 40
"""Fractional bits of variance inflation factors."""

MAX_INFLATION = 2.0**20
"""Limit of the sum of the variance inflation factors."""

TRACE_BITS = 22
"""log2 of the largest trace of 1 / G within that limit: diagonal elements of G are at least 1/4."""

MAX_RESIDUAL = 2.0**-44
"""Norm of C - G B that verification guarantees."""

MAX_INVERSE_ERROR = 2.0**-20
"""Frobenius norm of 1 - G X that verification guarantees."""

LAST_STEPS = 6
"""Steps with m = 1 from eigenvalues of Z of at least 1/4: the error 3/4 becomes (3/4)^64 < 2^-26."""


HEADROOM = 6
"""Diagonal elements may be as large as 4^6, so that a_j is at least -6."""


@dataclass
class Scaled:
    """A matrix with a diagonal in [1/4, 1) or 0, packed (`FRAC`).

    added: what was added to its diagonal, in its scale. exponent: a_j. varies: bits: the diagonal element is not 0.
    """

    matrix: Any
    added: Any
    exponent: Any
    varies: Any


async def scaled(packed: Any, d: int, added: Any = None) -> Scaled:
    """Step 1, from a packed triangle with 112 fractional bits: six rounds. added: numbers to add to its diagonal."""
    i, j = np.triu_indices(d)
    place = diagonal_positions(d)

    def half(e: int) -> list[int]:
        a = max(-HEADROOM, (MOMENT_FRAC - e) // 2)
        return [1 << (a + HEADROOM), a + HEADROOM, HEADROOM, 1]

    diagonal = packed[place] if added is None else (packed[place] + added).retype(RAW)
    # The floor keeps a variance that is zero up to rounding from being negative.
    found = await (diagonal + VARIANCE_FLOOR).binade_powers(half, MIN_VARIANCE_BITS, 2 * HEADROOM)
    power, whole = found[..., 0], MOMENT_FRAC + 2 * HEADROOM
    entries, powers = packed.retype(RAW), await (power[i] * power[j])
    if added is not None:
        entries, powers = joined(entries, added), joined(powers, powers[place])
    wide = await entries.mul(powers, frac=RAW.frac)
    short = (await wide.retype(RingType(128, whole, 1)).truncate(whole - FRAC)).retype(RingType(128, FRAC, 1))
    matrix, extra = short[: len(i)], short[len(i) :] if added is not None else None
    if extra is not None:
        index = np.full(len(i), d)
        index[place] = np.arange(d)
        matrix = (matrix + joined(extra, extra[:1] * 0)[index]).retype(short.dtype)
    exponent = found[..., 1].retype(EXPONENT) - found[..., 2].retype(EXPONENT)
    return Scaled(matrix, extra, exponent.retype(EXPONENT), found[..., 3].retype(EXPONENT))


def steep_steps(d: int) -> int:
    """Return the number of steps with m = 7/4: until no eigenvalue of Z within the limit is below 1/4."""
    smallest, steps = 2.0 ** -(TRACE_BITS + _size_bits(d)), 0
    while smallest < 0.25:
        smallest, steps = min(3.5 * smallest - 3.0625 * smallest**2, 0.4375), steps + 1
    return steps


def _size_bits(d: int) -> int:
    """Return log2 s."""
    return (d - 1).bit_length()


async def inverse(matrix: Any, d: int) -> Any:
    """Step 2: the approximate inverse of a packed matrix, packed."""
    bits, unit, X = _size_bits(d), np.eye(d)[np.triu_indices(d)], matrix
    Z = matrix
    if bits:
        Z = await matrix.retype(RingType(128, FRAC + bits, 1)).truncate(bits)
    bound, steps = 2.0**-bits, [3.5] * steep_steps(d) + [2.0] * LAST_STEPS
    for number, growth in enumerate(steps):
        bound *= growth
        span = INVERSE_BITS if number == len(steps) - 1 else span_of(bound)
        kind = RingType(128, INVERSE_FRAC + INVERSE_BITS - span, span)
        # 7/2 - (49/16) Z: its fractional bits grow by 4.
        factor = -(Z * 49).retype(RingType(128, FRAC + 4, 3)) if growth > 2 else -Z.astype(FRAC + 4)
        factor = (factor + growth * unit).retype(RingType(128, RESIDUAL_FRAC, 3))
        if number == 0:
            X = await factor.retype(RingType(128, RESIDUAL_FRAC + bits, 3)).truncate(RESIDUAL_FRAC + bits - kind.frac)
            Z = await _product(Z, factor, d, RingType(128, FRAC, 1))
        elif number < len(steps) - 1:
            X, Z = await together(_product(X, factor, d, kind), _product(Z, factor, d, RingType(128, FRAC, 1)))
        else:
            X = await _product(X, factor, d, kind)
        X = X.retype(kind)
    return X


async def _product(left: Any, right: Any, d: int, kind: RingType) -> Any:
    """Return a product of symmetric matrices that commute, packed. right: with `RESIDUAL_FRAC` fractional bits."""
    whole = left.dtype.frac + RESIDUAL_FRAC
    wide = await symmetric(left, d).matmul_upper(symmetric(right, d), frac=whole)
    return (await wide.retype(RingType(128, whole, kind.span + 1)).truncate(whole - kind.frac)).retype(kind)


@dataclass
class Solution:
    """B, its residual C - G B (both by column), the diagonal of 1 / G, the inflation factors, and 1 - G X."""

    values: Any
    residual: Any
    diagonal: Any
    inflation: Any
    error: Any


async def solve(matrix: Any, d: int, right: Any) -> Solution:
    """Steps 2 to 4. right: C (d, columns), with `FRAC` fractional bits."""
    G, X = symmetric(matrix, d), symmetric(await inverse(matrix, d), d)
    (values, residual), (diagonal, inflation, error) = await together(_refined(G, X, right), _diagonal(G, X, d))
    return Solution(values, residual, diagonal, inflation, error)


async def _refined(G: Any, X: Any, right: Any) -> tuple[Any, Any]:
    """Step 3: ten rounds."""
    kind = RingType(128, SOLUTION_FRAC, SOLUTION_BITS)
    values, residual = None, right.astype(RESIDUAL_FRAC).retype(RingType(128, RESIDUAL_FRAC, 2))
    for _ in range(3):
        whole = INVERSE_FRAC + RESIDUAL_FRAC
        change = await X.matmul(residual, frac=whole)
        change = await change.retype(RingType(128, whole, 30)).truncate(whole - SOLUTION_FRAC)
        values = (change if values is None else values + change).retype(kind)
        wide = right.astype(FRAC + SOLUTION_FRAC) - await G.matmul(values, frac=FRAC + SOLUTION_FRAC)
        short = await wide.retype(RingType(128, FRAC + SOLUTION_FRAC, 20)).truncate(
            FRAC + SOLUTION_FRAC - RESIDUAL_FRAC
        )
        residual = short.retype(RingType(128, RESIDUAL_FRAC, 2))
    return values, residual


async def _diagonal(G: Any, X: Any, d: int) -> tuple[Any, Any, Any]:
    """Step 4, with the variance inflation factors."""
    wide = -(await G.matmul(X, frac=FRAC + INVERSE_FRAC)) + np.eye(d)
    error = await wide.retype(RingType(128, FRAC + INVERSE_FRAC, 30)).truncate(INVERSE_FRAC)
    error = error.retype(RingType(128, FRAC, 5))
    whole = INVERSE_FRAC + FRAC
    more = await X.inner(error.T, axis=1, frac=whole)
    total = X.diagonal().astype(whole).retype(RingType(128, whole, 33)) + more.retype(RingType(128, whole, 33))
    diagonal = await total.retype(RingType(128, whole, 33)).truncate(whole - DIAGONAL_FRAC)
    whole = DIAGONAL_FRAC + FRAC
    product = await diagonal.retype(RingType(128, DIAGONAL_FRAC, INVERSE_BITS + 1)).mul(G.diagonal(), frac=whole)
    short = await product.retype(RingType(128, whole, INVERSE_BITS + 1)).truncate(whole - INFLATION_FRAC)
    inflation = short.retype(RingType(128, INFLATION_FRAC, INVERSE_BITS + 1))
    return diagonal.retype(RingType(128, DIAGONAL_FRAC, INVERSE_BITS + 1)), inflation, error


async def is_acceptable(varies: Any, inflation: Any) -> Any:
    """Return the shared bit: every column varies, and the inflation factors sum to less than `MAX_INFLATION`.

    Three rounds.
    """
    total = inflation.sum().retype(RingType(128, INFLATION_FRAC, 60))
    enough, few = await together(
        varies.sum().retype(EXPONENT) == len(varies), total.lookup([0.0, MAX_INFLATION], [0, 1, 0], 0)
    )
    return await (enough * few)


async def is_solved(found: Solution) -> Any:
    """Return the shared bit: the residuals and 1 - G X are below their limits. Six rounds."""
    residual, error = await together(
        found.residual.retype(RingType(128, RESIDUAL_FRAC, 10)).truncate(RESIDUAL_FRAC - 52),
        found.error.truncate(FRAC - 40),
    )
    squares = await together(residual.inner(residual, frac=104), error.inner(error, frac=80))
    bits = await together(is_below(squares[0], MAX_RESIDUAL**2), is_below(squares[1], MAX_INVERSE_ERROR**2))
    return await (bits[0] * bits[1])


def ordered(packed: Any, d: int, last: int) -> Any:
    """Return a packed triangle with one column moved to the end. Local."""
    order = np.append(np.delete(np.arange(d), last), last)
    return symmetric(packed, d)[np.ix_(order, order)][np.triu_indices(d)] if last != d - 1 else packed


def joined(*arrays: Any) -> Any:
    """Return vectors and single numbers of one type as one vector. Local."""
    return concatenate([array.reshape(-1) for array in arrays]).retype(arrays[0].dtype)
