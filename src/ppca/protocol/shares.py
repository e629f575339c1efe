"""Shares: one server's part of a secret array, with everything that needs no communication.

Both splits are kept in one NumPy array of shape (2, *shape, limbs): [0] is the row share Rr, [1] the column share Cc.
Sums, public factors, slicing and reshaping act on shares alone and return at once. What talks is added by `SecretArray`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from enum import IntFlag
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..native import kernels, ring
from .dtypes import DEFAULT_FRAC, RingType, make_type, span_of
from .party import Party
from .pending import Pending
from .shapes import broadcast_shape, matmul_any, matmul_shape

Data = NDArray[np.uint64]


class Unreadable:
    """An array whose values a program may not look at: it has no truth value and is no number."""

    __slots__ = ()
    __array_ufunc__ = None  # NumPy operands defer to our reflected operators
    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise TypeError("the truth value of a secret array is known to no server; use `where`, or open the bit")

    def __float__(self) -> float:
        raise TypeError("a secret array has no value on a server; use `open`, which records what is opened and why")


class Held(IntFlag):
    """The splits of an array that a server has: the row split serves on the left of products, the column split on the right."""

    LEFT = 1
    RIGHT = 2
    BOTH = 3


class Shares(Unreadable):
    """Shares of an array of fixed-point numbers held by one party. Values are never in it; only `open` gives them.

    A product of which one split is enough is asked for that split only (`multiply`): such an array can be added, sliced and
    multiplied by public numbers as any other, but used only where that split is. `held` says which it is.
    """

    __slots__ = ("_data", "dtype", "held", "party")

    def __init__(self, party: Party, data: Data, dtype: RingType, held: Held = Held.BOTH) -> None:
        self.party = party
        self._data = data
        self.dtype = dtype
        self.held = held

    def like(self, data: Data, dtype: RingType | None = None) -> Self:
        """An array of the same class and party around other shares."""
        return type(self)(self.party, data, self.dtype if dtype is None else dtype)

    def _derived(self, data: Data, dtype: RingType | None = None, other: Shares | None = None) -> Self:
        """The same with the splits that this array has, and the other."""
        held = self.held if other is None else self.held & other.held
        return type(self)(self.party, data, self.dtype if dtype is None else dtype, held)

    @property
    def data(self) -> Data:
        """Both splits."""
        if self.held is not Held.BOTH:
            raise TypeError(f"{self!r} has one split only: it was made by a product that was asked for no more")
        return self._data

    # -- shape -----------------------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        return self._data.shape[1:-1]

    @property
    def ndim(self) -> int:
        return self._data.ndim - 2

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def row(self) -> Data:
        """The row share."""
        return self._split(Held.LEFT)

    @property
    def column(self) -> Data:
        """The column share."""
        return self._split(Held.RIGHT)

    def _split(self, which: Held) -> Data:
        if which not in self.held:
            raise TypeError(
                f"{self!r} lacks the split for the {which.name} of a product: the product it is of was asked for the other"
            )
        share: Data = self._data[which - 1]
        return share

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={self.shape}, dtype={self.dtype}, seat={self.party.name})"

    def __iter__(self) -> Iterator[Self]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: Any) -> Self:
        index = asked = index if isinstance(index, tuple) else (index,)
        taken, advanced, spread = 0, False, False
        for part in index:
            if part is Ellipsis or part is None:
                spread = True
            elif isinstance(part, slice):
                taken, spread = taken + 1, True
            elif isinstance(part, int | np.integer):
                taken += 1
            elif isinstance(part, Shares):
                raise TypeError("indices must be public; a secret index needs a table look-up")
            else:
                part = np.asarray(part)
                taken, advanced = taken + (part.ndim if part.dtype == bool else 1), True
        if taken > self.ndim:
            np.broadcast_to(0, self.shape)[index]  # raises IndexError in NumPy's words
        if any(part is Ellipsis for part in index):
            index = (*index, slice(None))  # the limb axis is not the caller's
        try:
            if advanced and spread:
                return self._derived(np.stack([self._data[0][index], self._data[1][index]]))
            if advanced and self.dtype.limbs == 2 and self._data.flags.c_contiguous:
                # Both limbs of an element move as one 16-byte item: half the time of a gather with a trailing axis.
                items = self._data.view(np.complex128)[..., 0][(slice(None), *index)]
                return self._derived(items[..., None].view(np.uint64))
            return self._derived(self._data[(slice(None), *index)])
        except IndexError:
            np.broadcast_to(0, self.shape)[asked]
            raise

    def gathered(self, blocks: Iterable[NDArray[np.intp]], shape: tuple[int, ...]) -> Self:
        """self[index] of every index, one below the other; beside the result only one of them is in memory."""
        data, start = np.empty((2, *shape, self.dtype.limbs), np.uint64), 0
        for index in blocks:
            data[:, start : start + len(index)] = self[index]._data
            start += len(index)
        return self._derived(data)

    def reshape(self, *shape: Any) -> Self:
        wanted = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        target = (wanted,) if isinstance(wanted, int) else tuple(wanted)
        if -1 in target or math.prod(target) != self.size:
            target = np.broadcast_to(0, self.shape).reshape(target).shape  # NumPy's own rules and messages
        return self._derived(self._data.reshape(2, *target, self._data.shape[-1]))

    def ravel(self) -> Self:
        return self.reshape(-1)

    def transpose(self, *axes: int) -> Self:
        np.broadcast_to(0, self.shape).transpose(*axes)  # NumPy's messages for wrong axes
        order = axes or tuple(reversed(range(self.ndim)))
        return self._derived(self._data.transpose(0, *(1 + axis % self.ndim for axis in order), self.ndim + 1))

    @property
    def T(self) -> Self:  # noqa: N802
        return self.transpose() if self.ndim > 1 else self

    def swapaxes(self, a: int, b: int) -> Self:
        np.broadcast_to(0, self.shape).swapaxes(a, b)
        order = list(range(self.ndim))
        order[a], order[b] = order[b], order[a]
        return self.transpose(*order)

    def broadcast_to(self, shape: tuple[int, ...]) -> Self:
        if shape == self.shape:
            return self
        np.broadcast_to(np.broadcast_to(0, self.shape), shape)
        data = self._data.reshape(2, *(1,) * (len(shape) - self.ndim), *self._data.shape[1:])
        return self._derived(np.broadcast_to(data, (2, *shape, self.dtype.limbs)))

    def diagonal(self) -> Self:
        if self.ndim != 2:
            raise ValueError("diag requires an array of two dimensions")
        count = np.arange(min(self.shape))
        return self[count, count]

    def sum(self, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Self:
        axes = tuple(range(self.ndim)) if axis is None else (axis if isinstance(axis, tuple) else (axis,))
        for one in axes:
            if not -self.ndim <= one < self.ndim:
                raise np.exceptions.AxisError(one, self.ndim)
        data, terms = self._data, 1
        for one in sorted((one % self.ndim for one in axes), reverse=True):
            terms *= self.shape[one]
            data = ring.total(data, one + 1)
        if keepdims:
            kept = tuple(1 if i in {one % self.ndim for one in axes} else n for i, n in enumerate(self.shape))
            data = data.reshape(2, *kept, self.dtype.limbs)
        return self._derived(data, self.dtype.with_span(self.dtype.span + math.ceil(math.log2(max(terms, 1)))))

    def mean(self, axis: int | None = None) -> Self:
        count = self.size if axis is None else self.shape[axis]
        return self.sum(axis).times_public(1.0 / count)

    # -- promises and representation -------------------------------------------------------------------------------

    def within(self, bound: float) -> Self:
        """The same shares with the public promise |v| <= bound: comparisons and tables then need fewer bits."""
        return self._derived(self._data, RingType(self.dtype.bits, self.dtype.frac, span_of(bound)))

    def retype(self, dtype: RingType) -> Self:
        """The same ring elements read as another type: the value changes by 2^(old frac - new frac)."""
        return self._derived(self._data, dtype)

    def astype(self, frac: int) -> Self:
        """Other fractional bits: more is exact; fewer is a local truncation (see `truncate` for the exact one)."""
        extra = frac - self.dtype.frac
        dtype = self.dtype.with_frac(frac)
        if extra == 0:
            return self
        if extra > 0:
            return self._derived(ring.shift_left(self._data, extra), dtype)
        return self.shifted(-extra, dtype)

    def shifted(self, bits: int, dtype: RingType) -> Self:
        """Local truncation by `bits`: first summands floor-shifted, second ones ceil-shifted.

        The result is within 1 ulp and unbiased. With |z| < 2^l before the shift it is wrong by 2^(k - bits) with
        probability 2^(l+1-k): the caller's range contract must make that negligible.
        """
        data = np.empty(self._data.shape, np.uint64)
        source = np.ascontiguousarray(self._data)
        kernels.shift_right(data[0], source[0], bits, self.party.row_rounding)
        kernels.shift_right(data[1], source[1], bits, self.party.column_rounding)
        return self._derived(data, dtype)

    # -- linear algebra with public operands -----------------------------------------------------------------------

    def public(self, values: ArrayLike, frac: int) -> tuple[Data, int]:
        """Public numbers as ring elements of this array's ring, and their span."""
        array = np.asarray(values)
        if array.dtype.kind in "iub" or (array.dtype == object and frac == 0):
            largest = max(abs(int(array.max())), abs(int(array.min()))) if array.size else 0
            if largest.bit_length() + frac >= self.dtype.bits:
                raise ValueError(f"public operand: values up to {largest} do not fit {self.dtype}")
            if array.dtype == object or largest >= 2**62:
                encoded = ring.constants(array.astype(object), self.dtype.limbs)
            else:
                encoded = ring.integers(array, self.dtype.limbs)
            return (ring.shift_left(encoded, frac) if frac else encoded), max(1, largest.bit_length())
        values64 = array.astype(np.float64)
        encoded, bad = ring.encode(values64, frac, self.dtype.limbs)
        if bad >= 0:
            at = [int(i) for i in np.unravel_index(bad, array.shape)]
            raise ValueError(f"public operand: value {values64.flat[bad]} at {at} does not fit {self.dtype}")
        largest_value = float(np.abs(values64).max(initial=0.0))
        return encoded, span_of(largest_value) if largest_value else 1

    def plus_public(self, values: ArrayLike, negate: bool = False) -> Self:
        array = np.asarray(values)
        if self.dtype.is_integer and array.dtype.kind == "f":
            return self.astype(DEFAULT_FRAC).plus_public(array, negate)
        constant, span = self.public(array, self.dtype.frac)
        shape = broadcast_shape(self.shape, array.shape)
        data = np.array(self.broadcast_to(shape)._data)
        for split, adds in ((0, self.party.row == 0), (1, self.party.column == 0)):
            if adds:
                data[split] = (ring.sub if negate else ring.add)(data[split], constant)
        return self._derived(data, self.dtype.with_span(max(self.dtype.span, span) + 1))

    def plus_shares(self, other: Shares, negate: bool = False) -> Self:
        frac = max(self.dtype.frac, other.dtype.frac)
        if self.dtype.bits != other.dtype.bits:
            raise TypeError(f"operands live in different rings: {self.dtype} and {other.dtype}; use `extend`")
        a, b = self.astype(frac), other.astype(frac)
        shape = broadcast_shape(a.shape, b.shape)
        one, two = (a, b) if a.shape == b.shape else (a.broadcast_to(shape), b.broadcast_to(shape))
        data = (ring.sub if negate else ring.add)(one._data, two._data)
        return self._derived(data, a.dtype.with_span(max(a.dtype.span, b.dtype.span) + 1), other)

    def times_public(self, values: ArrayLike) -> Self:
        """Product with public numbers: exact for integers and short binary fractions, else see `_fraction_bits`."""
        array = np.asarray(values)
        whole = _whole(array)
        shift = _fraction_bits(array) if whole is None else 0
        self._check_truncation(shift)
        factor, span = self.public(array if whole is None else whole, shift)
        shape = broadcast_shape(self.shape, array.shape)
        if array.ndim == 0:
            data = ring.scale(self._data, int(factor[0]) | (int(factor[-1]) << 64 if self.dtype.limbs == 2 else 0))
        else:
            data = ring.mul(self.broadcast_to(shape)._data, np.broadcast_to(factor, (2, *shape, self.dtype.limbs)))
        grown = self.dtype.span + span
        if not shift:
            return self._derived(data, self.dtype.with_span(grown))
        if self.dtype.is_integer:
            return self._derived(data, make_type(self.dtype.bits, shift, grown)).astype(DEFAULT_FRAC)
        return self._derived(data).shifted(shift, self.dtype.with_span(grown))

    def _check_truncation(self, shift: int) -> None:
        """A factor of 40 fractional bits leaves the 64-bit ring no room: its local truncation would mostly fail."""
        if shift >= DEFAULT_FRAC and self.dtype.bits == 64 and not self.dtype.is_integer:
            raise TypeError(f"a product of {self.dtype} with fractions needs the 128-bit ring: use `extend`")

    def matmul_public(self, matrix: ArrayLike, left: bool) -> Self:
        """Matrix product with public numbers, which are rounded as by `times_public`."""
        array = np.asarray(matrix)
        whole = _whole(array)
        shift = _fraction_bits(array) if whole is None else 0
        self._check_truncation(shift)
        factor, span = self.public(array if whole is None else whole, shift)
        shapes = (array.shape, self.shape) if left else (self.shape, array.shape)
        shape = matmul_shape(*shapes)
        terms = shapes[1][-2] if len(shapes[1]) > 1 else shapes[1][0]
        pair = [(factor, split) if left else (split, factor) for split in self._data]
        data = np.stack([matmul_any(a, b) for a, b in pair]).reshape(2, *shape, self.dtype.limbs)
        dtype = self.dtype.with_span(self.dtype.span + span + math.ceil(math.log2(max(terms, 1))))
        result = self._derived(data, dtype)
        if not shift:
            return result
        if self.dtype.is_integer:
            return result._derived(data, make_type(self.dtype.bits, shift, dtype.span)).astype(DEFAULT_FRAC)
        return result.shifted(shift, dtype)

    def __add__(self, other: Any) -> Self:
        if isinstance(other, Pending):
            return NotImplemented
        return self.plus_shares(other) if isinstance(other, Shares) else self.plus_public(other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Self:
        if isinstance(other, Pending):
            return NotImplemented
        return (
            self.plus_shares(other, negate=True) if isinstance(other, Shares) else self.plus_public(other, negate=True)
        )

    def __rsub__(self, other: Any) -> Self:
        return (-self).plus_public(other)

    def __neg__(self) -> Self:
        return self._derived(ring.neg(self._data))

    def __pos__(self) -> Self:
        return self

    def _joined(self, data: Data, parts: Sequence[Shares]) -> Self:
        """Parts of one array: it has the splits that all of them have."""
        held = Held.BOTH
        for part in parts:
            held &= part.held
        dtype = self.dtype.with_span(max(part.dtype.span for part in parts))
        return type(self)(self.party, data, dtype, held)

    @classmethod
    def concatenate(cls, arrays: Sequence[Any], axis: int = 0) -> Any:
        first, same = aligned_types(arrays)
        if not first.ndim or len({a.shape for a in same}) > 1 or not -first.ndim <= axis < first.ndim:
            np.concatenate([np.broadcast_to(0, a.shape) for a in same], axis)  # NumPy's messages for wrong shapes
        data = np.concatenate([a._data for a in same], axis % first.ndim + 1)
        return first._joined(data, same)

    @classmethod
    def stack(cls, arrays: Sequence[Any], axis: int = 0) -> Any:
        first, same = aligned_types(arrays)
        if len({a.shape for a in same}) > 1 or not -first.ndim - 1 <= axis <= first.ndim:
            np.stack([np.broadcast_to(0, a.shape) for a in same], axis)  # NumPy's message
        data = np.stack([a._data for a in same], axis % (first.ndim + 1) + 1)
        return first._joined(data, same)


def aligned_types(arrays: Sequence[Any]) -> tuple[Any, list[Any]]:
    """The arrays with their fractional bits made equal (the largest), and the first of them."""
    if not arrays:
        raise ValueError("need at least one array to concatenate")
    frac = max(a.dtype.frac for a in arrays)
    same = [a if a.dtype.frac == frac else a.astype(frac) for a in arrays]
    return same[0], same


def _whole(array: NDArray[Any]) -> NDArray[Any] | None:
    """The public numbers as integers if all of them are whole, else None."""
    if array.dtype.kind != "f":
        return array
    if not np.all(np.isfinite(array)) or np.any(array != np.round(array)):
        return None
    return array.astype(np.int64 if np.all(np.abs(array) < 2**62) else object)


def _fraction_bits(array: NDArray[Any]) -> int:
    """How many fractional bits represent these public numbers exactly, or give the largest of them 40 significant bits.

    So every public number is right to 2^-40 of the largest magnitude of its array, or to 2^-40 if that is above one, or to 2^-80.

    The fewer, the less the local truncation risks: |xc| 2^(frac + bits + 1 - k).
    A factor below one has correspondingly more: the product is no larger, so the truncation is as safe as with factor one.
    """
    for bits in (1, 2, 4, 8, 16, 32):
        scaled = array * float(1 << bits)
        if np.all(scaled == np.round(scaled)):
            return bits
    return DEFAULT_FRAC + min(40, max(0, -math.frexp(float(np.abs(array).max()))[1]))
