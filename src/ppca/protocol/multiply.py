"""Products: any bilinear map of two secrets in one round (two with exact truncation); only outputs are sent.

Notation: server (r, c), with r and c in {0, 1}, holds the row share Rr(x) and the column share Cc(x) of each secret: x
= R0 + R1 = C0 + C1 mod 2^k. Its row mate is (r, 1 - c), its column mate (1 - r, c). A product has F fractional bits (80
by default), of which frac are kept and s = F - frac are truncated.

    xy = sum over r, c of Rr(x) * Cc(y)

1. Server (r, c) computes its local product t = Rr(x) * Cc(y).
2. It sends t + a to its row mate and t + b to its column mate. Mask a comes from the key of column c, added in row 0
   and subtracted in row 1; b comes from the key of row r, added in column 0 and subtracted in column 1.
3. New Rr = sum of the two values t + a of row r; new Cc = sum of the two values t + b of column c. The masks cancel.
4. Truncation by s bits: local if the span of the result allows it, otherwise exact (see `wrap`).

Local truncation: each server shifts its shares by s bits, share 0 rounded down, share 1 rounded up. Each split fails
with probability |xy| 2^(F-k), if share 0 is so close to 0 that xy makes it wrap; the value is then off by 2^(k-F). It
is used only if this probability is below 2^-40 for both splits together, i.e. for |xy| < 2^7 by default. If the spans
of the operands do not imply that, the caller can promise it with `within=`.

Narrow product (`narrow=True`): fewer bits are sent. For |xy| < 2^span let K = F + span + 41. Modulo 2^K the two shares
still determine the sign of xy, except with probability 2^-41. In step 2 a server sends only the bits from s - 2 up to K
of t + a and t + b: frac + span + 43 bits instead of 128 (frac + span + 41 if s = 0). The two lowest are guard bits;
lower bits are rounded in the direction of the share. In step 3 the mates add modulo 2^(K-s+2) and shift out the guard
bits; share 1 is reduced by 2^(K-s), so that both shares add up to xy in the whole ring.

One-sided product (`only=`): a narrow product, or one without truncation (frac = F), of which one split is made. Step 2
sends to one mate only, half the bytes. The result can be used only as the left or only as the right operand of further
products; `Held` in `shares` enforces this. A row split (left) can be revealed to a receiver.

Operations: `x * y`, `A @ B`, `inner`, `square`; `mul_high` returns the upper half of the bits.
Rounds: 1; 2 with exact truncation (default types).
Sent: 2 elements per OUTPUT element; exact truncation adds 2 to 4 words of 64 bits; narrow: 2 (frac + span + 43) bits.
Range: |xy| < 2^span of the result. Error: below 1 ulp, unbiased; below 1.25 ulp if narrow; none if s = 0.
Failure: local truncation |xy| 2^(F+1-k) = |xy| 2^-47; narrow 2^-40, also if s = 0; exact truncation
(which `mul(y, exact=True)` forces) never.
Security: everything received is masked by a key that the receiving server does not hold, fresh for each operation.
References: Li, Xu, "PrivPy", 2019 (2-out-of-4 product); Mohassel, Zhang, "SecureML", 2017 (truncation).
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

ELEMENT = 16
"""Bytes of one element of the 128-bit ring."""


GUARD_BITS = 2
"""Extra low bits sent in a narrow product, so that rounding before the addition costs at most a quarter ulp."""


class Product(NamedTuple):
    """Plan of a product: the type of the result and the bits to truncate.

    exact: type before an exact truncation (None: the truncation is local, in the round of the product).
    wire: bits of an element that are sent (None: all); the lowest `guard` of them are guard bits.
    held: the splits that are made. All products make both, except a one-sided one.
    """

    dtype: RingType
    shift: int
    exact: RingType | None
    wire: int | None = None
    guard: int = 0
    held: Held = Held.BOTH

    def only(self, held: Held) -> Product:
        """Return the same plan with only these splits, if nothing is truncated or the product is narrow; otherwise the
        same plan.
        """
        if self.wire is not None:
            return self._replace(held=held)
        if self.shift or self.dtype.bits != 128 or held is Held.BOTH:
            return self
        return self._replace(wire=self.dtype.bits, held=held)


@lru_cache(maxsize=4096)
def product_type(
    x: RingType,
    y: RingType,
    frac: int | None = None,
    span: int | None = None,
    exact: bool = False,
    narrow: bool = False,
) -> Product:
    """Return the plan of a product of these types. By default the larger of the two numbers of fractional bits is kept.

    span: of the result (None: the sum of the operands' spans).
    exact: truncate exactly, even if the span allows a local truncation.
    narrow: send only the bits that the span requires.
    """
    if x.bits != y.bits:
        raise TypeError(f"operands of a product are in different rings: {x} and {y}. Use `extend`.")
    wanted = max(x.frac, y.frac) if frac is None else frac
    if wanted > x.frac + y.frac:
        raise ValueError(
            f"too many fractional bits: frac={wanted}. A product of {x} and {y} has only {x.frac + y.frac}."
        )
    full, shift = x.frac + y.frac, x.frac + y.frac - wanted
    dtype = make_type(x.bits, wanted, x.span + y.span if span is None else span)
    if not shift or (not exact and truncates_locally(x.bits, full + dtype.span)):
        guard = min(GUARD_BITS, shift)
        wire = narrow_width(dtype, guard)
        return (
            Product(dtype, shift, None, wire, guard) if narrow and wire < x.bits == 128 else Product(dtype, shift, None)
        )
    max_span = x.bits - 2 - full
    if max_span < 1:
        raise TypeError(
            f"too many fractional bits in a product of {x} and {y}: {full} in a ring of {x.bits} bits. "
            "Remove bits with `astype`."
        )
    return Product(dtype, shift, RingType(x.bits, full, min(dtype.span, max_span)))


def narrow_width(dtype: RingType, guard: int = GUARD_BITS) -> int:
    """Return the number of bits sent of each element of a narrow product of this type."""
    return dtype.frac + dtype.span + 1 + LOCAL_FAILURE_BITS + guard


def exact_bytes(seat: int, n: int) -> int:
    """Return the payload bytes that one server sends for n products that are truncated exactly, by up to 64 bits."""
    return 2 * n * ELEMENT + SENT_WORDS[seat] * n * 8


def _span(x: Shares, y: Shares, terms: int, within: float | None) -> int:
    """Return the span of a sum of `terms` products: from the promise `within`, or from the spans of the operands."""
    return x.dtype.span + y.dtype.span + math.ceil(math.log2(max(terms, 1))) if within is None else span_of(within)


@declare(
    "mul",
    rounds=2,
    sent=lambda seat, n: exact_bytes(seat, n),
    bytes_text="2 elements per output element, and 2 to 4 words of 64 bits, depending on the server",
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
    """Multiply element-wise with broadcasting. frac: fractional bits to keep (None: the larger operand's)."""
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
    """Return the upper half of the bits of an element-wise product, in the 64-bit ring: 64 fractional bits fewer,
    exactly.

    The four local products add up to XY modulo 2^128. Their upper words add up to XY / 2^64 modulo 2^64, within the
    four roundings (two down, two up), so only upper words are masked and sent. `extend` returns to the 128-bit ring.
    Both together take the rounds of a product with exact truncation and 16 bytes per element less.
    """
    if (x.dtype.bits, y.dtype.bits) != (128, 128):
        raise TypeError(f"`mul_high` needs operands of the 128-bit ring, got {x.dtype} and {y.dtype}. Use `extend`.")
    frac, span = x.dtype.frac + y.dtype.frac - 64, x.dtype.span + y.dtype.span
    if frac < 0:
        raise ValueError(
            f"`mul_high` drops 64 fractional bits; a product of {x.dtype} and {y.dtype} has fewer. Use `mul`."
        )
    shape = broadcast_shape(x.shape, y.shape)
    product = ring.mul(np.broadcast_to(x.row, (*shape, 2)), np.broadcast_to(y.column, (*shape, 2)))
    upper = np.ascontiguousarray(product[..., 1:])
    if x.party.row != x.party.column:  # these two servers round up, the other two down: no bias
        upper += product[..., :1] != 0
    del product
    return (yield from masked(x, upper, Product(make_type(64, frac, span), 0, None)))


def narrow_bytes(n: int, bits: int) -> int:
    """Return the bytes of n packed elements of which `bits` bits each are sent."""
    return (n * bits + 7) // 8


def _exchanged(x: S, data: Data, plan: Product) -> Step[S]:
    """Do steps 2 to 4 for masked terms, one for each mate: send, add what arrives, truncate as planned."""
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
    """Compute any bilinear map; `local` computes it on arrays of ring elements."""
    with clock.products:
        product = local(x.row, y.column).reshape(*shape, plan.dtype.limbs)
    return (yield from masked(x, product, plan))


def masked(x: S, product: Data, plan: Product) -> Step[S]:
    """Do steps 2 to 4 for a local product: mask it, exchange it, truncate it as planned."""
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
    """Send a part to each mate that gets one, and expect the same number of bytes from it."""
    parts = [(mate, part) for mate, part in ((party.row_mate, row), (party.column_mate, column)) if part is not None]
    return Round(party.counted("products", parts), [(mate, part.nbytes) for mate, part in parts])


@declare(
    "matmul",
    rounds=2,
    sent=lambda seat, n: exact_bytes(seat, n * n),
    bytes_text="2 elements per OUTPUT element (here n x n), and 2 to 4 words of 64 bits, depending on the server",
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
    """Return x @ y with NumPy's rules for 1-D operands and leading axes."""
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
    """Return the upper triangle, packed row by row, of a product known to be symmetric (skew-symmetric if `strict`).

    This halves the work and the bytes. `symmetric` and `skew` unpack the result locally.
    """
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
    """Return (x * y).sum(axis); only the sums are sent."""
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
    """Return x1*y1 + x2*y2 + ... element-wise; only the sum is sent. All pairs have the same fractional bits."""
    first, second = pairs[0]
    widest = max(x.dtype.span + y.dtype.span for x, y in pairs) + math.ceil(math.log2(len(pairs)))
    span = widest if within is None else span_of(within)
    plan = product_type(first.dtype, second.dtype, frac, span)
    for x, y in pairs[1:]:
        if (x.dtype.frac, y.dtype.frac) != (first.dtype.frac, second.dtype.frac):
            raise TypeError(
                "the pairs of a sum of products have different fractional bits. Make them equal with `astype`."
            )
    total = ring.mul(first.row, second.column)
    for x, y in pairs[1:]:
        total = ring.add(total, ring.mul(x.row, y.column))
    return (yield from masked(first, total, plan))
