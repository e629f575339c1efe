"""Products: any bilinear map of two secrets in one round (two if it is truncated exactly), sending the output only.

    xy = sum over r, c of Rr(x) * Cc(y)

1. Server (r, c) computes the one local product t = Rr(x) * Cc(y).
2. It sends t + a to its row mate and t + b to its column mate. a comes from the key of column c, plus in row 0 and
   minus in row 1; b from the key of row r, plus in column 0 and minus in column 1.
3. New Rr = sum of the two (t + a) of row r; new Cc = sum of the two (t + b) of column c. The masks cancel.
4. Fractional bits that must go are shifted out of both splits locally, first summands rounded down, second ones up, if
   the span of the result makes that safe; else by exact truncation (see `wrap`), one round more.

With `narrow=True` only the bits that the promise needs travel. For |xy| < 2^span let K = F + span + 41, so that the summands
of xy mod 2^K show its sign but with probability 2^-41. In step 2 a server sends the bits from s - 2 up to K of t + a and
t + b, s being the bits to truncate: frac + span + 43 of 128, the two lowest to guard the rounding, rounded as the summand
will be. In step 3 both mates add what was sent, mod 2^(K - s + 2), and shift out the guard; the second summand is less
2^(K - s) as an integer, so that the sum of both is xy in the whole ring again. Where nothing is truncated: frac + span + 41 bits.

A local truncation fails with probability |xy| 2^(F-k) in either split, F the fractional bits before it (80 by default):
the summand lies so close to 0 that xy carries it over, and the value is off by 2^(k-F). It is used where the span says that
this happens with less than 2^-40, i.e. |xy| < 2^7; `within=` promises so where the operands' spans do not.

Operations: `x * y`, `A @ B`, `inner`, `square`; `mul_high`, which gives the upper half of the bits only.
Rounds: 1, and 1 for an exact truncation, as of default types.
Sent: 2 elements per OUTPUT element, and 2 to 4 words of 64 bits for an exact truncation; 2 (frac + span + 43) bits if narrow.
Range: |xy| < 2^span of the result. Error: below 1 ulp, unbiased; none if no fractional bit has to go; below 1.25 ulp if narrow.
Failure: |xy| 2^(F+1-k) = |xy| 2^-47 of a local truncation; never of an exact one, which `mul(y, exact=True)` forces;
2^-40 if narrow, also where nothing is truncated.
With `only` one split of a narrow product is made: step 2 sends to one mate, half the bytes. What comes of it serves as the left
or the right operand of further products; the types of `shares` see to that.
Security: what a server receives, all of it or some of its bits, is masked by a key it does not hold, fresh for each operation.
Reference: Li, Xu, "PrivPy", 2019 (the 2-out-of-4 product), here in row/column form.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..native import clock, kernels, ring
from .cost import declare
from .dtypes import LOCAL_FAILURE_BITS, RingType, make_type, span_of, truncates_locally
from .party import Party
from .rounds import Round, Step
from .shapes import broadcast_shape, matmul_any, matmul_shape
from .shares import Data, Held, Shares
from .wrap import SENT_WORDS, truncate

S = TypeVar("S", bound=Shares)

ELEMENT = 16  # bytes of one element in the 128-bit ring

GUARD_BITS = 2
"""Bits below the last one that travel where a product is narrow: the error of rounding before adding is a quarter."""


class Product(NamedTuple):
    """How a product is made: the type of the result, the bits to truncate, and the type before an exact truncation.

    exact: None if the truncation is local, in the round of the product. wire: bits of an element that travel, None for all;
    the lowest `guard` of them only guard the rounding. held: the splits that are made of a narrow one.
    """

    dtype: RingType
    shift: int
    exact: RingType | None
    wire: int | None = None
    guard: int = 0
    held: Held = Held.BOTH

    def only(self, held: Held) -> Product:
        """The same, making no other split than these, if it is narrow."""
        return self if self.wire is None else self._replace(held=held)


@lru_cache(maxsize=4096)
def product_type(
    x: RingType,
    y: RingType,
    frac: int | None = None,
    span: int | None = None,
    exact: bool = False,
    narrow: bool = False,
) -> Product:
    """What becomes of a product of these types: by default the larger of the two fractional widths is kept.

    span: of the result (None: the sum of the operands'). exact: truncate exactly, also where the span does not ask for it.
    narrow: send no more bits than the span needs.
    """
    if x.bits != y.bits:
        raise TypeError(f"operands live in different rings: {x} and {y}; use `extend`")
    wanted = max(x.frac, y.frac) if frac is None else frac
    if wanted > x.frac + y.frac:
        raise ValueError(f"a product of {x} and {y} has {x.frac + y.frac} fractional bits, {wanted} were asked for")
    full, shift = x.frac + y.frac, x.frac + y.frac - wanted
    dtype = make_type(x.bits, wanted, x.span + y.span if span is None else span)
    if not shift or (not exact and truncates_locally(x.bits, full + dtype.span)):
        guard = min(GUARD_BITS, shift)
        wire = narrow_width(dtype, guard)
        return (
            Product(dtype, shift, None, wire, guard) if narrow and wire < x.bits == 128 else Product(dtype, shift, None)
        )
    room = x.bits - 2 - full
    if room < 1:
        raise TypeError(f"{full} fractional bits of a product leave {x.bits} bits no room: drop bits with `astype`")
    return Product(dtype, shift, RingType(x.bits, full, min(dtype.span, room)))


def narrow_width(dtype: RingType, guard: int = GUARD_BITS) -> int:
    """Bits of an element that travel where a product of this type is narrow."""
    return dtype.frac + dtype.span + 1 + LOCAL_FAILURE_BITS + guard


def exact_bytes(seat: int, n: int) -> int:
    """Payload bytes one seat sends for n products that are truncated exactly, by up to 64 bits."""
    return 2 * n * ELEMENT + SENT_WORDS[seat] * n * 8


def _span(x: Shares, y: Shares, terms: int, within: float | None) -> int:
    """The span of a sum of `terms` products: what is promised of it, or what the operands' spans say."""
    return x.dtype.span + y.dtype.span + math.ceil(math.log2(max(terms, 1))) if within is None else span_of(within)


@declare(
    "mul",
    rounds=2,
    sent=lambda seat, n: exact_bytes(seat, n),
    bytes_text="2 elements per output element, and 2 to 4 words of 64 bits, by seat",
    input_range="|xy| < 2^30 and its span",
    error="< 1 ulp, unbiased",
)
@declare(
    "mul, tight",
    rounds=1,
    sent=lambda seat, n: 2 * n * ELEMENT,
    bytes_text="2 elements per output element",
    input_range="a span of |xy| <= 2^7, or integers",
    error="< 1 ulp, unbiased; exact for integers",
    failure="|xy| 2^(2f+1-k) per element, i.e. |xy| 2^-47; never for integers",
)
@declare(
    "mul, one split",
    rounds=1,
    sent=lambda seat, n: narrow_bytes(n, narrow_width(make_type(128, 40, 1))),
    bytes_text="frac + span + 43 bits per output element, here 84",
    input_range="|xy| < 2^span, here 2^1",
    error="< 1.25 ulp, unbiased",
    failure="2^-41 per element",
)
@declare(
    "mul, narrow",
    rounds=1,
    sent=lambda seat, n: 2 * narrow_bytes(n, narrow_width(make_type(128, 40, 1))),
    bytes_text="2 (frac + span + 43) bits per output element, here 2 x 84",
    input_range="|xy| < 2^span, here 2^1",
    error="< 1.25 ulp, unbiased",
    failure="2^-40 per element",
)
def multiply(
    x: S,
    y: Shares,
    frac: int | None = None,
    within: float | None = None,
    exact: bool = False,
    narrow: bool = False,
    only: Held = Held.BOTH,
) -> Step[S]:
    """Element-wise product with broadcasting. `frac`: fractional bits to keep (None: the larger operand's)."""
    plan = product_type(x.dtype, y.dtype, frac, _span(x, y, 1, within), exact, narrow).only(only)
    dtype = plan.dtype
    a, b = x.row, y.column
    if a.shape != b.shape:
        shape = (*broadcast_shape(x.shape, y.shape), dtype.limbs)
        a, b = np.broadcast_to(a, shape), np.broadcast_to(b, shape)
    if not (a.flags.c_contiguous and b.flags.c_contiguous):
        a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    party = x.party
    op = party.next_op()
    rows, columns = party.row_stream, party.column_stream
    columns.claim(op, 0)
    rows.claim(op, 1)
    data = np.empty((2, *a.shape), np.uint64)
    row, column = data[0], data[1]
    kernels.mul_mask2(row, column, a, b, columns.key, op, party.row_mask_sign, rows.key, party.column_mask_sign)
    return (yield from _exchanged(x, data, plan))


@declare(
    "mul, upper half",
    rounds=1,
    sent=lambda seat, n: 2 * n * 8,
    bytes_text="2 words of 64 bits per element",
    input_range="|XY| < 2^126 as integers",
    error="< 2 ulp, unbiased",
)
def multiply_high(x: S, y: Shares) -> Step[S]:
    """The upper half of the bits of an element-wise product, in the 64-bit ring: 64 fractional bits fewer, never wrong by a wrap.

    The four local products add up to XY modulo 2^128, so their upper words add up to XY / 2^64 modulo 2^64, within the four
    roundings (two down, two up): only upper words are masked and sent. Where the 128-bit ring is needed again `extend`
    follows; both together take the rounds of a product and an exact truncation, and 16 bytes per element less.
    """
    if (x.dtype.bits, y.dtype.bits) != (128, 128):
        raise TypeError(
            f"the upper half of a product needs the 128-bit ring, got {x.dtype} and {y.dtype}; use `extend`"
        )
    frac, span = x.dtype.frac + y.dtype.frac - 64, x.dtype.span + y.dtype.span
    if frac < 0:
        raise ValueError(f"a product of {x.dtype} and {y.dtype} has fewer than the 64 fractional bits to drop")
    shape = broadcast_shape(x.shape, y.shape)
    product = ring.mul(np.broadcast_to(x.row, (*shape, 2)), np.broadcast_to(y.column, (*shape, 2)))
    upper = np.ascontiguousarray(product[..., 1:])
    if x.party.row != x.party.column:  # rounded up where the other two round down, so that the error has no bias
        upper += product[..., :1] != 0
    del product
    return (yield from masked(x, upper, Product(make_type(64, frac, span), 0, None)))


def narrow_bytes(n: int, bits: int) -> int:
    """Bytes of n elements of which so many bits travel."""
    return (n * bits + 7) // 8


def _exchanged(x: S, data: Data, plan: Product) -> Step[S]:
    """Steps 2 to 4 for masked terms, one for each mate: sums of what is sent and what arrives, truncated as planned."""
    party, local = x.party, plan.shift if plan.exact is None else 0
    roundings = party.row_rounding, party.column_rounding
    if plan.wire is not None:
        size = narrow_bytes(data.size // 4, plan.wire)
        row, column = (np.empty(size, np.uint8) if split in plan.held else None for split in (Held.LEFT, Held.RIGHT))
        kernels.narrow2(row, column, data, plan.shift - plan.guard, plan.wire, *roundings)
        arrived = iter((yield _to_mates(party, row, column)))
        from_row, from_column = (None if sent is None else next(arrived) for sent in (row, column))
        kernels.combine_narrow2(data, from_row, from_column, plan.guard, plan.wire, *roundings)
        return type(x)(party, data, plan.dtype, plan.held)
    from_row, from_column = yield _to_mates(party, data[0], data[1])
    kernels.combine2(data, from_row, from_column, local, *roundings)
    if plan.exact is None:
        return x.like(data, plan.dtype)
    short = yield from truncate(x.like(data, plan.exact), plan.shift)
    return x.like(short.data, plan.dtype)


def bilinear(
    x: S,
    y: Shares,
    shape: tuple[int, ...],
    local: Callable[[Data, Data], Data],
    plan: Product,
) -> Step[S]:
    """Any bilinear map: `local` computes it on ring arrays."""
    with clock.products:
        product = local(x.row, y.column).reshape(*shape, plan.dtype.limbs)
    return (yield from masked(x, product, plan))


def masked(x: S, product: Data, plan: Product) -> Step[S]:
    """Steps 2-4 for a local product: masks it, exchanges it, truncates it as planned."""
    party = x.party
    op = party.next_op()
    rows, columns = party.row_stream, party.column_stream
    columns.claim(op, 0)
    rows.claim(op, 1)
    data = np.empty((2, *product.shape), np.uint64)
    row, column = data[0], data[1]
    whole = np.ascontiguousarray(product)
    kernels.mask2(row, column, whole, columns.key, op, party.row_mask_sign, rows.key, party.column_mask_sign)
    return (yield from _exchanged(x, data, plan))


def _to_mates(party: Party, row: NDArray[Any] | None, column: NDArray[Any] | None) -> Round:
    """Sends a part to each mate that gets one, and expects as much."""
    parts = [(mate, part) for mate, part in ((party.row_mate, row), (party.column_mate, column)) if part is not None]
    return Round(party.counted("products", parts), [(mate, part.nbytes) for mate, part in parts])


@declare(
    "matmul",
    rounds=2,
    sent=lambda seat, n: exact_bytes(seat, n * n),
    bytes_text="2 elements per OUTPUT element (here n x n), and 2 to 4 words of 64 bits, by seat",
    input_range="|entries of the product| < 2^30",
    error="< 1 ulp, unbiased",
)
@declare(
    "matmul, tight",
    rounds=1,
    sent=lambda seat, n: 2 * n * n * ELEMENT,
    bytes_text="2 elements per OUTPUT element (here n x n)",
    input_range="a span of |entries of the product| <= 2^7",
    error="< 1 ulp, unbiased",
    failure="|xy| 2^-47 per output element",
)
def matmul(
    x: S,
    y: Shares,
    frac: int | None = None,
    within: float | None = None,
    narrow: bool = False,
    only: Held = Held.BOTH,
) -> Step[S]:
    """x @ y with NumPy's rules for 1-D operands and leading axes."""
    plan = product_type(x.dtype, y.dtype, frac, _span(x, y, x.shape[-1], within), narrow=narrow).only(only)
    return bilinear(x, y, matmul_shape(x.shape, y.shape), matmul_any, plan)


def matmul_upper(
    x: S,
    y: Shares,
    strict: bool = False,
    frac: int | None = None,
    within: float | None = None,
    narrow: bool = False,
    only: Held = Held.BOTH,
) -> Step[S]:
    """The upper triangle of a product known to be symmetric (or, `strict`, skew), packed row by row: half the work and
    half the bytes. `symmetric` and `skew` unpack it, locally."""
    n, terms = x.shape

    def local(a: Data, b: Data) -> Data:
        out = ring.empty((n * (n - 1 if strict else n + 1) // 2,), a.shape[-1])
        kernels.matmul_upper(out, np.ascontiguousarray(a), np.ascontiguousarray(b), n, terms, strict)
        return out

    plan = product_type(x.dtype, y.dtype, frac, _span(x, y, terms, within), narrow=narrow).only(only)
    return bilinear(x, y, (n * (n - 1 if strict else n + 1) // 2,), local, plan)


def inner(
    x: S,
    y: Shares,
    axis: int | None = None,
    frac: int | None = None,
    within: float | None = None,
    narrow: bool = False,
) -> Step[S]:
    """(x * y).sum(axis), sending the sums only."""
    full = broadcast_shape(x.shape, y.shape)
    if axis is None:
        shape: tuple[int, ...] = ()
        terms = math.prod(full)
    else:
        if not -len(full) <= axis < len(full):
            raise np.exceptions.AxisError(axis, len(full))
        axis %= len(full)
        shape, terms = full[:axis] + full[axis + 1 :], full[axis]

    def local(a: Data, b: Data) -> Data:
        products = ring.mul(np.broadcast_to(a, (*full, a.shape[-1])), np.broadcast_to(b, (*full, b.shape[-1])))
        if axis is None:
            return ring.total(products.reshape(-1, products.shape[-1]), 0)
        return ring.total(products, axis)

    plan = product_type(x.dtype, y.dtype, frac, _span(x, y, terms, within), narrow=narrow)
    return bilinear(x, y, shape, local, plan)


def sum_of_products(pairs: Sequence[tuple[S, Shares]], frac: int | None = None, within: float | None = None) -> Step[S]:
    """x1*y1 + x2*y2 + ... element-wise, sending the sum only. All pairs have the same fractional bits."""
    first, second = pairs[0]
    widest = max(x.dtype.span + y.dtype.span for x, y in pairs) + math.ceil(math.log2(len(pairs)))
    span = widest if within is None else span_of(within)
    plan = product_type(first.dtype, second.dtype, frac, span)
    for x, y in pairs[1:]:
        if (x.dtype.frac, y.dtype.frac) != (first.dtype.frac, second.dtype.frac):
            raise TypeError("all pairs of a sum of products must have the same fractional bits")
    total = ring.mul(first.row, second.column)
    for x, y in pairs[1:]:
        total = ring.add(total, ring.mul(x.row, y.column))
    return (yield from masked(first, total, plan))
