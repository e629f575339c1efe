"""SecretArray: the interface of NumPy over shares. Local operations return arrays; the others return a `Pending` to
await.

total = x.sum(axis=0) - 3 * y                  # local
product, less = await together(x * y, x < y)   # two rounds for both
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from . import compare, functions, multiply, normalise, opening, shuffle, slopes, wrap
from .dtypes import RingType, make_type
from .inputs import InputPacket, receive
from .party import Party
from .pending import Pending
from .shapes import broadcast_shape, matmul_shape
from .shares import Held, Shares


class SecretArray(Shares):
    """An array of secret numbers on one server. See `Shares` for shapes, slicing, sums and public factors."""

    __slots__ = ()

    @classmethod
    def from_packet(cls, party: Party, packet: InputPacket) -> SecretArray:
        """Return the shares that a client sent to this server."""
        return cls(party, receive(packet, party.row, party.column), packet.dtype)

    @classmethod
    def constant(cls, party: Party, values: ArrayLike, dtype: RingType | None = None) -> SecretArray:
        """Return public values in the form of shares."""
        array = np.asarray(values)
        kind = dtype or make_type(128, 0 if array.dtype.kind in "iub" else 40)
        zero = cls(party, np.zeros((2, *array.shape, kind.limbs), np.uint64), kind)
        return zero.like(zero.plus_public(array).data)

    # -- operators -------------------------------------------------------------------------------------------------

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, Shares):
            _check_shapes(self, other)
            return Pending(multiply.multiply(self, other))
        return self.times_public(other)

    __rmul__ = __mul__

    def __matmul__(self, other: Any) -> Any:
        if isinstance(other, Shares):
            matmul_shape(self.shape, other.shape)
            return Pending(multiply.matmul(self, other))
        return self.matmul_public(other, left=False)

    def __rmatmul__(self, other: Any) -> Any:
        return self.matmul_public(other, left=True)

    def __truediv__(self, other: Any) -> Any:
        if isinstance(other, SecretArray):
            _check_shapes(self, other)
            return Pending(functions.divide(self, other))
        return self.times_public(1.0 / np.asarray(other, np.float64))

    def __rtruediv__(self, other: Any) -> Any:
        return functions.reciprocal(self, signed=True).then(lambda y: y * other)

    def __lt__(self, other: Any) -> Pending:
        return Pending(compare.less(self, other))

    def __gt__(self, other: Any) -> Pending:
        return Pending(compare.less(other, self))

    def __ge__(self, other: Any) -> Pending:
        return 1 - self.__lt__(other)

    def __le__(self, other: Any) -> Pending:
        return 1 - self.__gt__(other)

    def __eq__(self, other: Any) -> Pending:  # type: ignore[override]
        return Pending(compare.equal(self, other))

    def __ne__(self, other: Any) -> Pending:  # type: ignore[override]
        return 1 - self.__eq__(other)

    # -- operations with communication -----------------------------------------------------------------------------

    def mul(
        self,
        other: Shares,
        frac: int | None = None,
        within: float | None = None,
        exact: bool = False,
        narrow: bool = False,
        only: Held = Held.BOTH,
    ) -> Pending:
        """Multiply, with control over precision and cost.

        frac: fractional bits of the result. within: promise |xy| <= within, which may avoid the round of an exact
        truncation. exact: truncate exactly in any case. narrow: send only the bits that the promise requires. only:
        compute only one split of a narrow product, for a result that is used only as the left or only as the right
        operand of other products.
        """
        return Pending(multiply.multiply(self, other, frac, within, exact, narrow, only))

    def mul_high(self, other: Shares) -> Pending:
        """Return the product without its lower 64 bits, exactly, in the 64-bit ring: half the bytes of a product; see
        `extend`.
        """
        _check_shapes(self, other)
        return Pending(multiply.multiply_high(self, other))

    def matmul(
        self,
        other: Shares,
        frac: int | None = None,
        within: float | None = None,
        narrow: bool = False,
        only: Held = Held.BOTH,
    ) -> Pending:
        """Multiply matrices, with the options of `mul`."""
        matmul_shape(self.shape, other.shape)
        return Pending(multiply.matmul(self, other, frac, within, narrow, only))

    def matmul_upper(
        self,
        other: Shares,
        strict: bool = False,
        frac: int | None = None,
        within: float | None = None,
        narrow: bool = False,
        only: Held = Held.BOTH,
    ) -> Pending:
        """Return the packed upper triangle of a product known to be symmetric (strict: skew-symmetric); see `symmetric`
        and `skew`.
        """
        matmul_shape(self.shape, other.shape)
        return Pending(multiply.matmul_upper(self, other, strict, frac, within, narrow, only))

    def sum_of_squares(self, other: Shares, frac: int | None = None, within: float | None = None) -> Pending:
        """Return self**2 + other**2; only the sum is sent."""
        return Pending(multiply.sum_of_products([(self, self), (other, other)], frac, within))

    def coarse_power(self, exponent: float, smallest: float, frac: int | None = 40) -> Pending:
        """Return self**exponent within about 11% (exponent -1/2) for smallest <= self.

        Two rounds; frac=None keeps few fractional bits.
        """
        return Pending(normalise.coarse_power(self, exponent, smallest, frac))

    def slope(self) -> Pending:
        """Return sign(self) / max(|self|, 1) within about 31%: two rounds."""
        return Pending(slopes.slope(self))

    def inner(
        self,
        other: Shares,
        axis: int | None = None,
        frac: int | None = None,
        within: float | None = None,
        narrow: bool = False,
    ) -> Pending:
        """Return (self * other).sum(axis); only the sums are sent."""
        return Pending(multiply.inner(self, other, axis, frac, within, narrow))

    def square(self) -> Pending:
        """Return self * self."""
        return Pending(multiply.multiply(self, self))

    def truncate(self, bits: int) -> Pending:
        """Remove exactly `bits` fractional bits, without the failures of a local truncation."""
        return Pending(wrap.truncate(self, bits))

    def extend(self) -> Pending:
        """Convert from the 64-bit to the 128-bit ring, exactly."""
        return Pending(wrap.extend(self))

    def negative(self) -> Pending:
        """Return [self < 0]."""
        return Pending(compare.negative(self))

    def sign(self) -> Pending:
        """Return -1, 0 or 1."""
        return Pending(compare.sign(self))

    def abs(self) -> Pending:
        """Return the magnitude: three rounds."""
        return Pending(_absolute(self))

    __abs__ = abs

    def lookup(self, thresholds: ArrayLike, values: ArrayLike, frac: int | None = None) -> Pending:
        """Evaluate a piecewise-constant function: values[i] for thresholds[i-1] <= x < thresholds[i]."""
        table = np.asarray(values)
        if table.ndim != 1:
            raise ValueError(
                f"`lookup` needs a vector of values, got shape {table.shape}. Use `classify` for several tables."
            )
        return Pending(compare.classify(self, thresholds, table, frac)).then(lambda a: a[..., 0])

    def classify(self, thresholds: ArrayLike, tables: ArrayLike, frac: int | None = None) -> Pending:
        """Evaluate several piecewise-constant functions with one key; the last axis numbers them."""
        return Pending(compare.classify(self, thresholds, tables, frac))

    def normalise(self, smallest: int | None = None, exact: bool = False) -> Pending:
        """Return (z, scale) with z = x * scale in [1/2, 5/4) ([1/2, 1) if exact), scale a power of two.

        Zero gives zeros.
        """
        return Pending(_normalise(self, smallest, exact))

    def binade_power(self, values: Callable[[int], int], smallest: int, span: int) -> Pending:
        """Return the integer values(e) for 2^(e-1) <= X < 2^e, exactly, with the integer X = x 2^frac; 0 below
        2^smallest.

        `values` is public; x must lie in [0, 2^span). Two rounds.
        """
        return self.binade_powers(lambda e: [values(e)], smallest, span).then(lambda found: found[..., 0])

    def binade_powers(self, values: Callable[[int], list[int]], smallest: int, span: int) -> Pending:
        """Return several such integers with one key; the last axis numbers them."""
        binades = normalise.Binades.of(self.dtype.frac, span, smallest)
        outputs = len(values(1))
        step = normalise.binade_tables(self, binades, values, [0] * outputs, exact=True)
        return Pending(step).then(lambda data: self.like(data, RingType(128, 0, 126)))

    def rsqrt(self) -> Pending:
        """Return 1 / sqrt(self), 0 for 0."""
        return functions.rsqrt(self)

    def sqrt(self) -> Pending:
        """Return the square root."""
        return functions.sqrt(self)

    def reciprocal(self, signed: bool = False) -> Pending:
        """Return 1 / self, 0 for 0. signed: self may be negative (one round more)."""
        return functions.reciprocal(self, signed)

    def polynomial(self, coefficients: Sequence[float], within: float | None = None) -> Pending:
        """Return sum of coefficients[i] * x^i.

        `within`: promise |x| <= within, which saves rounds if powers stay small.
        """
        return Pending(functions.polynomial(self, coefficients, None, within))

    def shuffle(self) -> Pending:
        """Return the rows in a random order that no server knows."""
        return Pending(shuffle.shuffle(self))

    def ranks(self) -> Pending:
        """Return the rank of each element of a vector, ascending, ties by position."""
        return Pending(shuffle.ranks(self))

    def sort(self, *payload: SecretArray, descending: bool = False) -> Pending:
        """Return the sorted vector; with payload arrays: `[vector, *payload]` in the same order."""
        sorting = Pending(shuffle.sort_by(self, payload, descending))
        return sorting.then(lambda r: [r[0], *r[1]] if payload else r[0])

    def argsort(self, descending: bool = False) -> Pending:
        """Return the (secret) indices that would sort the vector."""
        index = SecretArray.constant(self.party, np.arange(len(self)), make_type(self.dtype.bits, 0))
        return Pending(shuffle.sort_by(self, [index], descending)).then(lambda r: r[1][0])

    def where(self, a: Any, b: Any) -> Pending:
        """Return a if this bit is 1, b if it is 0."""
        return Pending(_select(self, a, b))

    def open(self, *, why: str, what: str = "value") -> Pending:
        """Open the values to all four servers and record it."""
        return Pending(opening.open_to_servers(self, what, why))

    def reveal(self, to: str = "client", *, why: str, what: str = "value") -> opening.Sealed:
        """Prepare the values for the named receiver; the program returns the result. No round."""
        return opening.seal(self, what, to, why)

    def zeros(self, shape: tuple[int, ...]) -> Self:
        """Return shares of zero of the same type."""
        return self.like(np.zeros((2, *shape, self.dtype.limbs), np.uint64))


def _check_shapes(a: Shares, b: Shares) -> None:
    """Raise NumPy's error for shapes that do not match, at the call instead of at the await."""
    if a.data.shape != b.data.shape:
        broadcast_shape(a.shape, b.shape)


async def _absolute(x: SecretArray) -> SecretArray:
    bit = await x.negative()
    flipped = await (bit * x)
    result: SecretArray = x - 2 * flipped
    return result.like(result.data, x.dtype)


async def _normalise(x: SecretArray, smallest: int | None, exact: bool) -> tuple[SecretArray, SecretArray]:
    if x.dtype.bits != 128:
        raise TypeError(f"`normalise` needs the 128-bit ring, got {x.dtype}. Use `extend`.")
    lowest = max(-30, -x.dtype.frac) if smallest is None else smallest
    binades = normalise.Binades.of(x.dtype.frac, x.dtype.span, lowest)
    top, scale_frac = max(x.dtype.frac + x.dtype.span, 40), max(x.dtype.span, 31)
    values = functions.power_and_factor(x.dtype.frac, top, -1.0, scale_frac)
    tables = await Pending(normalise.binade_tables(x, binades, values, [0, 0], exact))
    power = x.like(tables[..., 0, :], RingType(128, 0, 62))
    scaled = x.like(x.data, RingType(128, top, 1))
    z = await Pending(multiply.multiply(scaled, power, 40, functions.NORMALISED_MAX))
    return z.like(z.data, RingType(128, 40, 1)), x.like(tables[..., 1, :], RingType(128, scale_frac, 62))


async def _select(bit: SecretArray, a: Any, b: Any) -> SecretArray:
    if not isinstance(a, Shares) and not isinstance(b, Shares):
        a, b = np.asarray(a), np.asarray(b)
        result: SecretArray = bit * (a - b) + b
        return result
    difference = a - b
    product = await (bit * difference)
    result = product + b
    spans = [operand.dtype.span for operand in (a, b) if isinstance(operand, Shares)]
    return result.like(result.data, result.dtype.with_span(max(spans)) if len(spans) == 2 else result.dtype)


def where(condition: Any, a: Any, b: Any) -> Pending:
    """Return a if the shared bit is 1, else b (one round)."""
    pending: Pending = condition.where(a, b)
    return pending


def concatenate(arrays: Sequence[Any], axis: int = 0) -> Any:
    """Concatenate arrays along an axis. Local."""
    return type(arrays[0]).concatenate(arrays, axis)


def stack(arrays: Sequence[Any], axis: int = 0) -> Any:
    """Stack arrays along a new axis. Local."""
    return type(arrays[0]).stack(arrays, axis)
