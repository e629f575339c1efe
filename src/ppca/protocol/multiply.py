"""Products: any bilinear map of two secrets in one round, sending the output only.

    xy = sum over r, c of Rr(x) * Cc(y)

1. Server (r, c) computes the one local product t = Rr(x) * Cc(y).
2. It sends t + a to its row mate and t + b to its column mate. a comes from the key of column c, plus in row 0 and
   minus in row 1; b from the key of row r, plus in column 0 and minus in column 1.
3. New Rr = sum of the two (t + a) of row r; new Cc = sum of the two (t + b) of column c. The masks cancel.
4. Fractional bits that must go are shifted out of both splits locally: first summands rounded down, second ones up.

Operations: `x * y`, `A @ B`, `inner`, `square`. Rounds: 1. Sent: 2 elements per OUTPUT element.
Range: |xy| < 2^span of the result. Error: below 1 ulp, unbiased; none if no fractional bit has to go.
Failure: one split fails with probability |xy| 2^(2f-k), either of them with |xy| 2^(2f+1-k) = |xy| 2^-47; the value is
then off by about 2^(k-2f). 64-bit fixed point has no room for it. `mul(y, exact=True)` never fails, in 2 rounds.
Security: what a server receives is masked by a key it does not hold, fresh for each operation.
Reference: Li, Xu, "PrivPy", 2019 (the 2-out-of-4 product), here in row/column form.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeVar

import numpy as np

from ..native import clock, kernels, ring
from .cost import declare
from .dtypes import RingType, make_type
from .party import Party
from .rounds import Round, Step
from .shapes import broadcast_shape, matmul_any, matmul_shape
from .shares import Data, Shares

S = TypeVar("S", bound=Shares)

ELEMENT = 16  # bytes of one element in the 128-bit ring


@lru_cache(maxsize=4096)
def product_type(x: RingType, y: RingType, frac: int | None, terms: int = 1) -> tuple[RingType, int]:
    """The type of a product and the bits to truncate: by default the larger of the two fractional widths is kept."""
    if x.bits != y.bits:
        raise TypeError(f"operands live in different rings: {x} and {y}; use `extend`")
    wanted = max(x.frac, y.frac) if frac is None else frac
    if wanted > x.frac + y.frac:
        raise ValueError(f"a product of {x} and {y} has {x.frac + y.frac} fractional bits, {wanted} were asked for")
    span = x.span + y.span + math.ceil(math.log2(max(terms, 1)))
    return make_type(x.bits, wanted, span), x.frac + y.frac - wanted


@declare(
    "mul",
    rounds=1,
    sent=lambda seat, n: 2 * n * ELEMENT,
    bytes_text="2 elements per output element",
    input_range="|xy| < 2^30 and its span",
    error="< 1 ulp, unbiased; exact for integers",
    failure="|xy| 2^(2f+1-k) per element, i.e. |xy| 2^-47",
)
def multiply(x: S, y: Shares, frac: int | None = None) -> Step[S]:
    """Element-wise product with broadcasting. `frac`: fractional bits to keep (None: the larger operand's)."""
    dtype, shift = product_type(x.dtype, y.dtype, frac)
    if shift and dtype.bits == 64:
        raise _no_room()
    a, b = x.data[0], y.data[1]
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
    from_row, from_column = yield _to_mates(party, row, column)
    kernels.combine2(data, from_row, from_column, shift, party.row_rounding, party.column_rounding)
    return x.like(data, dtype)


def bilinear(
    x: S,
    y: Shares,
    shape: tuple[int, ...],
    local: Callable[[Data, Data], Data],
    frac: int | None = None,
    terms: int = 1,
) -> Step[S]:
    """Any bilinear map: `local` computes it on ring arrays, `terms` is how many products add up in one output."""
    dtype, shift = product_type(x.dtype, y.dtype, frac, terms)
    with clock.products:
        product = local(x.data[0], y.data[1]).reshape(*shape, dtype.limbs)
    data = yield from masked(x, product, shift)
    return x.like(data, dtype)


def masked(x: Shares, product: Data, shift: int) -> Step[Data]:
    """Steps 2-4 for a local product: masks it, exchanges it, truncates both splits by `shift`."""
    if shift and x.dtype.bits == 64:
        raise _no_room()
    party = x.party
    op = party.next_op()
    rows, columns = party.row_stream, party.column_stream
    columns.claim(op, 0)
    rows.claim(op, 1)
    data = np.empty((2, *product.shape), np.uint64)
    row, column = data[0], data[1]
    whole = np.ascontiguousarray(product)
    kernels.mask2(row, column, whole, columns.key, op, party.row_mask_sign, rows.key, party.column_mask_sign)
    from_row, from_column = yield _to_mates(party, row, column)
    kernels.combine2(data, from_row, from_column, shift, party.row_rounding, party.column_rounding)
    return data


def _to_mates(party: Party, row: Data, column: Data) -> Round:
    size = row.nbytes
    return Round(
        [(party.row_mate, row), (party.column_mate, column)],
        [(party.row_mate, size), (party.column_mate, size)],
    )


def _no_room() -> TypeError:
    return TypeError("the 64-bit ring has no room for a local truncation: keep all bits with frac=..., or exact=True")


@declare(
    "matmul",
    rounds=1,
    sent=lambda seat, n: 2 * n * n * ELEMENT,
    bytes_text="2 elements per OUTPUT element (here n x n)",
    input_range="|entries of the product| < 2^30",
    error="< 1 ulp, unbiased",
    failure="|xy| 2^-47 per output element",
)
def matmul(x: S, y: Shares, frac: int | None = None) -> Step[S]:
    """x @ y with NumPy's rules for 1-D operands and leading axes."""
    return bilinear(x, y, matmul_shape(x.shape, y.shape), matmul_any, frac, x.shape[-1])


def matmul_upper(x: S, y: Shares, strict: bool = False, frac: int | None = None) -> Step[S]:
    """The upper triangle of a product known to be symmetric (or, `strict`, skew), packed row by row: half the work and
    half the bytes. `symmetric` and `skew` unpack it, locally."""
    n, terms = x.shape

    def local(a: Data, b: Data) -> Data:
        out = ring.empty((n * (n - 1 if strict else n + 1) // 2,), a.shape[-1])
        kernels.matmul_upper(out, np.ascontiguousarray(a), np.ascontiguousarray(b), n, terms, strict)
        return out

    return bilinear(x, y, (n * (n - 1 if strict else n + 1) // 2,), local, frac, terms)


def inner(x: S, y: Shares, axis: int | None = None, frac: int | None = None) -> Step[S]:
    """(x * y).sum(axis) in one round, sending the sums only."""
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

    return bilinear(x, y, shape, local, frac, terms)


def sum_of_products(pairs: Sequence[tuple[S, Shares]], frac: int | None = None) -> Step[S]:
    """x1*y1 + x2*y2 + ... element-wise in one round, sending the sum only. All pairs have the same fractional bits."""
    first, second = pairs[0]
    dtype, shift = product_type(first.dtype, second.dtype, frac)
    widest = max(x.dtype.span + y.dtype.span for x, y in pairs)
    dtype = dtype.with_span(widest + math.ceil(math.log2(len(pairs))))
    for x, y in pairs[1:]:
        if (x.dtype.frac, y.dtype.frac) != (first.dtype.frac, second.dtype.frac):
            raise TypeError("all pairs of a sum of products must have the same fractional bits")
    total = ring.mul(first.data[0], second.data[1])
    for x, y in pairs[1:]:
        total = ring.add(total, ring.mul(x.data[0], y.data[1]))
    data = yield from masked(first, total, shift)
    return first.like(data, dtype)
