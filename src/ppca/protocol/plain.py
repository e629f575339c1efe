"""The plaintext backend: the interface of `SecretArray` over ordinary NumPy numbers.

The same algorithm runs on both. In float mode results are those of float64. In fixed mode every result is rounded to
its fractional bits, and products get the unbiased error below one ulp of a local truncation, so that the accuracy of an
algorithm can be studied without servers. Promises (`within`) are checked: a value beyond its span raises `RangeError`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .dtypes import DEFAULT_FRAC, RingType, make_type, span_of
from .functions import MIN_RECIPROCAL_BITS
from .pending import Pending, ready
from .shares import Held
from .slopes import slope_type
from .unreadable import Unreadable

FLOAT, FIXED_POINT = "float", "fixed"


class RangeError(ValueError):
    """A value broke the promise of its type. On shares the result would be wrong without notice."""


class PlainArray(Unreadable):
    """Plain numbers with the interface of `SecretArray`."""

    __slots__ = ("dtype", "mode", "values")
    __hash__ = None

    def __init__(self, values: ArrayLike, mode: str = FLOAT, dtype: RingType | None = None) -> None:
        array = np.asarray(values)
        self.dtype = dtype or make_type(128, 0 if array.dtype.kind in "iub" else DEFAULT_FRAC)
        self.mode = mode
        self.values: NDArray[Any] = array.astype(np.int64 if array.dtype.kind in "iub" else np.float64)
        limit = 2.0**self.dtype.span
        if not self.dtype.is_integer and self.values.size and not np.all(np.abs(self.values) <= limit):
            worst = int(np.argmax(np.abs(self.values)))
            raise RangeError(
                f"value {self.values.flat[worst]} is outside |v| < 2^{self.dtype.span} of "
                f"{self.dtype}: the promise is broken"
            )

    def like(self, values: ArrayLike, dtype: RingType | None = None) -> Self:
        """Return an array of the same mode with other values, rounded to the type in fixed mode."""
        kind = self.dtype if dtype is None else dtype
        array = np.asarray(values)
        if self.mode == FIXED_POINT and array.dtype.kind == "f":
            array = np.round(np.ldexp(array, kind.frac)) * 2.0**-kind.frac
        return type(self)(array, self.mode, kind)

    def _truncated(self, values: NDArray[Any], dtype: RingType, bits: int) -> Self:
        """Return a product after truncation by `bits`: in fixed mode floor(v + u) with u uniform, below 1 ulp."""
        if self.mode == FIXED_POINT and bits > 0 and values.dtype.kind == "f":
            noise = np.random.default_rng().random(values.shape)
            values = np.floor(np.ldexp(values, dtype.frac) + noise) * 2.0**-dtype.frac
        return type(self)(values, self.mode, dtype)

    # -- shape: NumPy's own ----------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def ndim(self) -> int:
        return self.values.ndim

    @property
    def size(self) -> int:
        return self.values.size

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        return f"PlainArray({self.values!r}, mode={self.mode!r}, dtype={self.dtype})"

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: Any) -> Self:
        return self.like(self.values[index])

    def gathered(self, blocks: Iterable[NDArray[np.intp]], shape: tuple[int, ...]) -> Self:
        return self.like(np.concatenate([self.values[index] for index in blocks]).reshape(shape))

    def reshape(self, *shape: Any) -> Self:
        return self.like(self.values.reshape(*shape))

    def ravel(self) -> Self:
        return self.like(self.values.ravel())

    def transpose(self, *axes: int) -> Self:
        return self.like(self.values.transpose(*axes))

    @property
    def T(self) -> Self:  # noqa: N802
        return self.like(self.values.T)

    def swapaxes(self, a: int, b: int) -> Self:
        return self.like(self.values.swapaxes(a, b))

    def broadcast_to(self, shape: tuple[int, ...]) -> Self:
        return self.like(np.broadcast_to(self.values, shape))

    def diagonal(self) -> Self:
        return self.like(np.diagonal(self.values))

    def sum(self, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Self:
        return self.like(self.values.sum(axis=axis, keepdims=keepdims), self.dtype.with_span(63))

    def mean(self, axis: int | None = None) -> Self:
        count = self.size if axis is None else self.shape[axis]
        return self.sum(axis) * (1.0 / count)  # type: ignore[no-any-return]

    def within(self, bound: float) -> Self:
        return self.like(self.values, RingType(self.dtype.bits, self.dtype.frac, span_of(bound)))

    def retype(self, dtype: RingType) -> Self:
        return self.like(self.values * 2.0 ** (self.dtype.frac - dtype.frac), dtype)

    def astype(self, frac: int) -> Self:
        values = self.values.astype(np.float64) if frac and self.values.dtype.kind == "i" else self.values
        return self.like(values, self.dtype.with_frac(frac))

    # -- operators -------------------------------------------------------------------------------------------------

    def _kind(self, values: NDArray[Any], *operands: Any) -> RingType:
        """Return the type of a result of these operands."""
        frac = max(o.dtype.frac for o in operands if isinstance(o, PlainArray))
        # Integers beyond int64 are held as doubles and stay integers; only a public fraction makes them fixed-point.
        if values.dtype.kind == "f" and frac == 0 and not all(isinstance(o, PlainArray) for o in operands):
            frac = DEFAULT_FRAC
        return make_type(self.dtype.bits, frac)

    def _plus(self, other: Any, negate: bool = False) -> Self:
        values = self.values - _value(other) if negate else self.values + _value(other)
        return self.like(values, self._kind(values, self, other))

    def __add__(self, other: Any) -> Any:
        return NotImplemented if isinstance(other, Pending) else self._plus(other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return NotImplemented if isinstance(other, Pending) else self._plus(other, negate=True)

    def __rsub__(self, other: Any) -> Any:
        return (-self)._plus(other)

    def __neg__(self) -> Self:
        return self.like(-self.values)

    def __pos__(self) -> Self:
        return self

    def _product(self, other: Any, values: NDArray[Any], frac: int | None = None, within: float | None = None) -> Self:
        kind = self._kind(values, self, other)
        if frac is not None or within is not None:
            kind = make_type(
                kind.bits, kind.frac if frac is None else frac, None if within is None else span_of(within)
            )
        other_frac = other.dtype.frac if isinstance(other, PlainArray) else DEFAULT_FRAC
        return self._truncated(values, kind, self.dtype.frac + other_frac - kind.frac)

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, PlainArray):
            return ready(self._product(other, self.values * other.values))
        return self._product(other, self.values * np.asarray(other))

    __rmul__ = __mul__

    def __matmul__(self, other: Any) -> Any:
        if isinstance(other, PlainArray):
            return ready(self._product(other, np.asarray(self.values @ other.values)))
        return self._product(other, np.asarray(self.values @ np.asarray(other)))

    def __rmatmul__(self, other: Any) -> Any:
        return self._product(other, np.asarray(np.asarray(other) @ self.values))

    def __truediv__(self, other: Any) -> Any:
        if isinstance(other, PlainArray):
            return ready(self._function(self.values * _inverse(other.values)))
        return self._product(other, self.values / np.asarray(other))

    def __rtruediv__(self, other: Any) -> Any:
        return ready(self._function(np.asarray(other) * _inverse(self.values)))

    def _bit(self, truth: Any) -> Pending:
        return ready(self.like(np.asarray(truth).astype(np.int64), RingType(self.dtype.bits, 0, 1)))

    def __lt__(self, other: Any) -> Pending:
        return self._bit(self.values < _value(other))

    def __le__(self, other: Any) -> Pending:
        return self._bit(self.values <= _value(other))

    def __gt__(self, other: Any) -> Pending:
        return self._bit(self.values > _value(other))

    def __ge__(self, other: Any) -> Pending:
        return self._bit(self.values >= _value(other))

    def __eq__(self, other: Any) -> Pending:  # type: ignore[override]
        return self._bit(self._equal(other))

    def __ne__(self, other: Any) -> Pending:  # type: ignore[override]
        return self._bit(~self._equal(other))

    def _equal(self, other: Any) -> NDArray[np.bool_]:
        """Compare up to the last bit of the type, in float mode too."""
        frac = max(self.dtype.frac, other.dtype.frac) if isinstance(other, PlainArray) else self.dtype.frac
        return np.abs(self.values - _value(other)) < 2.0 ** -(frac + 1)  # type: ignore[no-any-return]

    # -- operations with communication on shares -----------------------------------------------------------------------

    def mul(
        self,
        other: PlainArray,
        frac: int | None = None,
        within: float | None = None,
        exact: bool = False,
        narrow: bool = False,
        only: Held = Held.BOTH,
    ) -> Pending:
        return ready(self._product(other, self.values * other.values, frac, within))

    def mul_high(self, other: PlainArray) -> Pending:
        kind = make_type(64, self.dtype.frac + other.dtype.frac - 64, self.dtype.span + other.dtype.span)
        return ready(self._truncated(self.values * other.values, kind, 64))

    def matmul(
        self,
        other: PlainArray,
        frac: int | None = None,
        within: float | None = None,
        narrow: bool = False,
        only: Held = Held.BOTH,
    ) -> Pending:
        return ready(self._product(other, np.asarray(self.values @ other.values), frac, within))

    def inner(
        self,
        other: PlainArray,
        axis: int | None = None,
        frac: int | None = None,
        within: float | None = None,
        narrow: bool = False,
    ) -> Pending:
        return ready(self._product(other, np.asarray((self.values * other.values).sum(axis)), frac, within))

    def matmul_upper(
        self,
        other: PlainArray,
        strict: bool = False,
        frac: int | None = None,
        within: float | None = None,
        narrow: bool = False,
        only: Held = Held.BOTH,
    ) -> Pending:
        product = np.asarray(self.values @ other.values)
        return ready(self._product(other, product[np.triu_indices(len(product), 1 if strict else 0)], frac, within))

    def sum_of_squares(self, other: PlainArray, frac: int | None = None, within: float | None = None) -> Pending:
        return ready(self._product(other, self.values**2 + other.values**2, frac, within))

    def coarse_power(self, exponent: float, smallest: float, frac: int | None = 40) -> Pending:
        octave = np.floor(np.log2(np.maximum(self.values, smallest)) * 2) / 2 + 0.25
        kept = DEFAULT_FRAC if frac is None else frac
        kind = RingType(self.dtype.bits, kept, min(62, self.dtype.bits - 1 - kept))
        return ready(type(self)(2.0 ** (octave * exponent), self.mode, kind))

    def slope(self) -> Pending:
        octave = np.floor(np.log2(np.maximum(np.abs(self.values), 1)) * 2) / 2 + 0.25
        values = np.where(self.values < 0, -1.0, 1.0) * 2.0 ** -np.where(np.abs(self.values) < 1, 0, octave)
        return ready(type(self)(values, self.mode, slope_type(self.dtype.bits, self.dtype.span)))

    def square(self) -> Pending:
        return self.mul(self)

    def truncate(self, bits: int) -> Pending:
        kind = self.dtype.with_frac(self.dtype.frac - bits)
        return ready(self._truncated(self.values, kind, bits))

    def extend(self) -> Pending:
        return ready(self.like(self.values, make_type(128, self.dtype.frac, self.dtype.span)))

    def negative(self) -> Pending:
        return self < 0

    def sign(self) -> Pending:
        return ready(self.like(np.sign(self.values).astype(np.int64), RingType(self.dtype.bits, 0, 1)))

    def abs(self) -> Pending:
        return ready(self.like(np.abs(self.values)))

    __abs__ = abs

    def lookup(self, thresholds: ArrayLike, values: ArrayLike, frac: int | None = None) -> Pending:
        return self.classify(thresholds, np.asarray([values]), frac).then(lambda a: a[..., 0])

    def classify(self, thresholds: ArrayLike, tables: ArrayLike, frac: int | None = None) -> Pending:
        table = np.atleast_2d(np.asarray(tables))
        at = np.searchsorted(np.asarray(thresholds, np.float64), self.values, side="right")
        values = np.moveaxis(table[:, at], 0, -1)
        whole = frac == 0 or (self.dtype.is_integer and bool(np.all(table == np.round(table))))
        kind = make_type(self.dtype.bits, 0 if whole else frac or max(self.dtype.frac, DEFAULT_FRAC))
        return ready(self.like(values.astype(np.int64 if whole else np.float64), kind))

    def normalise(self, smallest: int | None = None, exact: bool = False) -> Pending:
        lowest = max(-30, -self.dtype.frac) if smallest is None else smallest
        z, exponent = np.frexp(np.where(self.values < 2.0 ** (lowest - 1), 0.0, self.values))
        scale = np.where(z == 0, 0.0, np.ldexp(1.0, -exponent))
        kind = RingType(self.dtype.bits, max(self.dtype.span, 31), 62)
        return ready((self.like(z, RingType(self.dtype.bits, 40, 1)), type(self)(scale, self.mode, kind)))

    def binade_power(self, values: Callable[[int], int], smallest: int, span: int) -> Pending:
        return self.binade_powers(lambda e: [values(e)], smallest, span).then(lambda found: found[..., 0])

    def binade_powers(self, values: Callable[[int], list[int]], smallest: int, span: int) -> Pending:
        exponents = np.frexp(self.values)[1] + self.dtype.frac
        none = [0] * len(values(1))
        table = [
            none if v < 2.0**smallest else values(int(e)) for v, e in zip(self.values.flat, exponents.flat, strict=True)
        ]
        found = np.array(table, np.float64).reshape(*self.shape, len(none))
        return ready(type(self)(found, self.mode, RingType(128, 0, 126)))

    def _function(self, values: NDArray[Any]) -> Self:
        kind = make_type(self.dtype.bits, self.dtype.frac or DEFAULT_FRAC)
        return self._truncated(np.asarray(values, np.float64), kind, 1)

    def rsqrt(self) -> Pending:
        return ready(self._function(np.sqrt(_inverse(np.maximum(self.values, 0.0), np.finfo(float).tiny))))

    def sqrt(self) -> Pending:
        return ready(self._function(np.sqrt(self.values)))

    def reciprocal(self, signed: bool = False) -> Pending:
        return ready(self._function(_inverse(self.values)))

    def polynomial(self, coefficients: Sequence[float], within: float | None = None) -> Pending:
        return ready(self._function(np.polynomial.polynomial.polyval(self.values, list(coefficients))))

    def shuffle(self) -> Pending:
        return ready(self.like(np.random.default_rng().permutation(self.values)))

    def ranks(self) -> Pending:
        order = np.argsort(self.values, kind="stable")
        return ready(self.like(np.argsort(order), make_type(self.dtype.bits, 0)))

    def sort(self, *payload: PlainArray, descending: bool = False) -> Pending:
        order = np.argsort(-self.values if descending else self.values, kind="stable")
        return ready([self[order], *(array[order] for array in payload)] if payload else self[order])

    def argsort(self, descending: bool = False) -> Pending:
        order = np.argsort(-self.values if descending else self.values, kind="stable")
        return ready(self.like(order, make_type(self.dtype.bits, 0)))

    def where(self, a: Any, b: Any) -> Pending:
        template = next((o for o in (a, b) if isinstance(o, PlainArray)), self)
        values = np.where(self.values == 1, _value(a), _value(b))
        kind = template.dtype if values.dtype.kind != "f" else template._kind(values, template)
        return ready(template.like(values, kind))

    def open(self, *, why: str, what: str = "value") -> Pending:
        return ready(self.values)

    def reveal(self, to: str = "client", *, why: str, what: str = "value") -> NDArray[Any]:
        return self.values

    def zeros(self, shape: tuple[int, ...]) -> Self:
        return self.like(np.zeros(shape, self.values.dtype))

    @classmethod
    def concatenate(cls, arrays: Sequence[PlainArray], axis: int = 0) -> Any:
        values = np.concatenate([a.values for a in arrays], axis)
        return arrays[0].like(values, arrays[0]._kind(values, *arrays))

    @classmethod
    def stack(cls, arrays: Sequence[PlainArray], axis: int = 0) -> Any:
        values = np.stack([a.values for a in arrays], axis)
        return arrays[0].like(values, arrays[0]._kind(values, *arrays))


def _value(operand: Any) -> Any:
    """Return the plain values of an operand."""
    return operand.values if isinstance(operand, PlainArray) else np.asarray(operand)


def _inverse(values: NDArray[Any], least: float = 2.0**MIN_RECIPROCAL_BITS) -> Any:
    """Return 1 / v, and 0 below the range of the functions on shares, as these do."""
    return np.divide(1.0, values, out=np.zeros(values.shape), where=np.abs(values) >= least)
