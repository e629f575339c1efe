"""Shares of a secret array on one server, with all operations that need no communication.

Both splits are in one NumPy array of shape (2, *shape, limbs): index 0 is the row share Rr, index 1 the column share
Cc. Addition, public factors, slicing and reshaping work on the shares locally. `SecretArray` adds operations with
messages.
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
from .indexing import indexed
from .party import Party
from .pending import Pending
from .public_numbers import encoded, public_factor, scalar_factor
from .shapes import broadcast_shape, matmul_any, matmul_shape
from .unreadable import Unreadable

Data = NDArray[np.uint64]


class Held(IntFlag):
    """Splits of an array that a server holds. The row split is the left operand of products, the column split the
    right.
    """

    LEFT = 1
    RIGHT = 2
    BOTH = 3


class Shares(Unreadable):
    """One server's shares of an array of fixed-point numbers. They do not contain the values; only `open` gives them.

    If a result is needed as one operand of products only, a one-sided product computes one split (see `multiply`). Such
    an array can be added, sliced and multiplied by public numbers like any other. `held` names the splits that it has.
    """

    __slots__ = ("_data", "dtype", "held", "party")

    def __init__(self, party: Party, data: Data, dtype: RingType, held: Held = Held.BOTH) -> None:
        self.party = party
        self._data = data
        self.dtype = dtype
        self.held = held

    def like(self, data: Data, dtype: RingType | None = None) -> Self:
        """Return an array of the same class and party with other shares."""
        return type(self)(self.party, data, self.dtype if dtype is None else dtype)

    def _derived(self, data: Data, dtype: RingType | None = None, other: Shares | None = None) -> Self:
        """Return an array with other shares and with the splits that this array and `other` both have."""
        held = self.held if other is None else self.held & other.held
        return type(self)(self.party, data, self.dtype if dtype is None else dtype, held)

    @property
    def data(self) -> Data:
        """Both splits, shape (2, *shape, limbs)."""
        if self.held is not Held.BOTH:
            raise TypeError(
                f"{self!r} holds only its {self.held.name} split: it is the result of a one-sided product. "
                "Compute that product without only=."
            )
        return self._data

    # -- shape -----------------------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the secret array."""
        return self._data.shape[1:-1]

    @property
    def ndim(self) -> int:
        return self._data.ndim - 2

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def row(self) -> Data:
        """The row share, the left operand of a product."""
        return self._split(Held.LEFT)

    @property
    def column(self) -> Data:
        """The column share, the right operand of a product."""
        return self._split(Held.RIGHT)

    def _split(self, which: Held) -> Data:
        if which not in self.held:
            raise TypeError(
                f"{self!r} cannot be the {which.name} operand of a product: it holds only its {self.held.name} split, "
                "as the result of a one-sided product. Compute that product without only=."
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
        return self._derived(indexed(self._data, index if isinstance(index, tuple) else (index,)))

    def gathered(self, blocks: Iterable[NDArray[np.intp]], shape: tuple[int, ...]) -> Self:
        """Return the parts self[index] of all `blocks`, concatenated; only one part at a time is in memory besides the
        result.
        """
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
            raise ValueError(f"`diagonal` needs an array of two dimensions, got shape {self.shape}.")
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
        """Return the same shares with the public promise |v| <= bound: comparisons and tables then need fewer bits."""
        return self._derived(self._data, RingType(self.dtype.bits, self.dtype.frac, span_of(bound)))

    def retype(self, dtype: RingType) -> Self:
        """Read the same ring elements as another type: the value is multiplied by 2^(old frac - new frac)."""
        return self._derived(self._data, dtype)

    def astype(self, frac: int) -> Self:
        """Change the fractional bits. Adding bits is exact; removing bits is a local truncation (`truncate` is the
        exact one).
        """
        extra = frac - self.dtype.frac
        dtype = self.dtype.with_frac(frac)
        if extra == 0:
            return self
        if extra > 0:
            return self._derived(ring.shift_left(self._data, extra), dtype)
        return self.shifted(-extra, dtype)

    def shifted(self, bits: int, dtype: RingType) -> Self:
        """Truncate locally by `bits`: share 0 is rounded down, share 1 is rounded up.

        The result is within 1 ulp and unbiased. For |z| < 2^l before the shift it is wrong by 2^(k - bits) with
        probability 2^(l+1-k). The caller must choose a range for which this is negligible.
        """
        data = np.empty(self._data.shape, np.uint64)
        source = np.ascontiguousarray(self._data)
        kernels.shift_right(data[0], source[0], bits, self.party.row_rounding)
        kernels.shift_right(data[1], source[1], bits, self.party.column_rounding)
        return self._derived(data, dtype)

    # -- linear algebra with public operands -----------------------------------------------------------------------

    def public(self, values: ArrayLike, frac: int) -> tuple[Data, int]:
        """Encode public numbers as elements of this array's ring; also return their span."""
        return encoded(np.asarray(values), frac, self.dtype)

    def plus_public(self, values: ArrayLike, negate: bool = False) -> Self:
        """Add public numbers (subtract if `negate`). Local and exact."""
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
        """Add another shared array (subtract if `negate`). Local."""
        frac = max(self.dtype.frac, other.dtype.frac)
        if self.dtype.bits != other.dtype.bits:
            raise TypeError(f"operands of a sum are in different rings: {self.dtype} and {other.dtype}. Use `extend`.")
        a, b = self.astype(frac), other.astype(frac)
        shape = broadcast_shape(a.shape, b.shape)
        one, two = (a, b) if a.shape == b.shape else (a.broadcast_to(shape), b.broadcast_to(shape))
        data = (ring.sub if negate else ring.add)(one._data, two._data)
        return self._derived(data, a.dtype.with_span(max(a.dtype.span, b.dtype.span) + 1), other)

    def times_public(self, values: ArrayLike) -> Self:
        """Multiply by public numbers: exact for integers and short binary fractions, otherwise see `fraction_bits`."""
        if np.ndim(values) == 0:
            shift, number, span = scalar_factor(np.asarray(values).item(), self.dtype)
            data = ring.scale(self._data, number)
        else:
            array = np.asarray(values)
            shift, factor, span = public_factor(array, self.dtype)
            shape = broadcast_shape(self.shape, array.shape)
            data = ring.mul(self.broadcast_to(shape)._data, np.broadcast_to(factor, (2, *shape, self.dtype.limbs)))
        grown = self.dtype.span + span
        if not shift:
            return self._derived(data, self.dtype.with_span(grown))
        if self.dtype.is_integer:
            return self._derived(data, make_type(self.dtype.bits, shift, grown)).astype(DEFAULT_FRAC)
        return self._derived(data).shifted(shift, self.dtype.with_span(grown))

    def matmul_public(self, matrix: ArrayLike, left: bool) -> Self:
        """Multiply by a public matrix, rounded as by `times_public`. left: the public matrix is the left operand."""
        array = np.asarray(matrix)
        shift, factor, span = public_factor(array, self.dtype)
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
        """Return an array made of parts: it has the splits that all parts have."""
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
    """Return the first array, and all arrays with equal fractional bits (the largest number)."""
    if not arrays:
        raise ValueError("need at least one array to concatenate")
    frac = max(a.dtype.frac for a in arrays)
    same = [a if a.dtype.frac == frac else a.astype(frac) for a in arrays]
    return same[0], same
