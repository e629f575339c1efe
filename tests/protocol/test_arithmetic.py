"""Sums, public factors and products against NumPy; upper halves of products, and triangles in blocks.

Tolerances. ULP = 2^-40 is the last bit of the default type. Sums are exact. A truncated product is within 1 ulp of the exact one
(1.5 where NumPy's float64 product of numbers below 2^13 is the reference: its own rounding is below half an ulp).
A public factor that is not a short binary fraction is rounded to 40 bits first: |x| 2^-41 more.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from harness.lockstep import run
from harness.numbers import grid
from ppca.protocol import Pending, PlainArray, RingType, make_type, skew, symmetric, triangles
from ppca.protocol.dtypes import span_of
from ppca.protocol.multiply import product_type, sum_of_products

ULP = 2.0**-40
FIXED64 = make_type(64, 20)


def shapes() -> st.SearchStrategy[tuple[int, ...]]:
    return hnp.array_shapes(min_dims=0, max_dims=3, max_side=4)


def arrays(shape: tuple[int, ...] | st.SearchStrategy[tuple[int, ...]], bound: float = 1024.0) -> Any:
    elements = st.floats(-bound, bound, width=32) | st.sampled_from([0.0, ULP, -ULP, bound, -bound])
    return hnp.arrays(np.float64, shape, elements=elements).map(grid)


# -- local operations: exact -----------------------------------------------------------------------------------------


@given(data=st.data())
def test_linear_operations_are_exact(data: st.DataObject) -> None:
    pair = data.draw(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, max_side=4))
    a, b = (data.draw(arrays(shape)) for shape in pair.input_shapes)

    async def program(x: Any, y: Any) -> Any:
        return [x + y, x - y, -x, +x, x + 1.5, 1.5 - x, x - b, b - x, x + 3, 3 * x, x * -2, x * 0.25, x.sum(), y.sum()]

    expected = [
        a + b, a - b, -a, a, a + 1.5, 1.5 - a, a - b, b - a, a + 3, 3 * a, a * -2, grid(a * 0.25), a.sum(), b.sum(),
    ]  # fmt: skip
    for i, (got, want) in enumerate(zip(run(program, a, b).value, expected, strict=True)):
        assert np.shape(got) == np.shape(want)
        assert np.max(np.abs(got - want), initial=0.0) <= (ULP if i == 11 else 0.0), i


def test_extremes_are_exact() -> None:
    top = 2.0**30 - 2.0**-22  # the largest double below the default span on a 2^-22 grid
    a, b = np.array([top, -top, ULP, -ULP, 0.0]), np.array([-top, -top, ULP, ULP, 0.0])

    async def program(x: Any, y: Any) -> Any:
        return [x + y, x - y, -x, x * 4]

    for got, want in zip(run(program, a, b).value, [a + b, a - b, -a, a * 4], strict=True):
        assert np.array_equal(got, want)


@pytest.mark.parametrize("bits", [64, 128])
def test_integers_are_exact(bits: int) -> None:
    top = 2**62 - 1
    a, b = np.array([top, -top, 0, 1, -1]), np.array([-top, 1, 5, top, 7])

    async def program(x: Any, y: Any) -> Any:
        return [x + y, x - y, -x, await (x * y.like(y.data * 0)), (x + y).sum(), x[3:] * 12345, await (x[2:] * y[2:])]

    got = run(program, a, b, dtypes=(make_type(bits, 0), make_type(bits, 0))).value
    want = [a + b, a - b, -a, a * 0, (a + b).sum(), a[3:] * 12345, a[2:] * b[2:]]
    for one, two in zip(got, want, strict=True):
        assert np.array_equal(one, two)


@pytest.mark.parametrize("kind", [np.uint8, np.uint64, np.int8, np.bool_])
def test_public_operands_of_any_numpy_type(kind: Any) -> None:
    public = np.array([1, 0, 1]).astype(kind) if kind is np.bool_ else np.array([5, 0, 7]).astype(kind)
    a = np.array([1.5, -2.0, 3.25])

    async def program(x: Any) -> Any:
        return [x + public, x - public, public - x, x * public, await (x < public), await (x == public)]

    wide = public.astype(np.float64)
    want = [a + wide, a - wide, wide - a, a * wide, a < wide, a == wide]
    for got, expected in zip(run(program, a).value, want, strict=True):
        assert np.array_equal(got, expected)


def test_public_factors_round_to_forty_bits() -> None:
    rng = np.random.default_rng(3)
    a, factor = grid(rng.uniform(-8, 8, 200)), rng.uniform(-3, 3, 200)

    async def program(x: Any) -> Any:
        return [x * factor, x / 3.0, x * 0.1, x.mean(), x.reshape(20, 10).mean(axis=1)]

    want = [a * factor, a / 3.0, a * 0.1, a.mean(), a.reshape(20, 10).mean(axis=1)]
    sizes = [np.abs(a), np.abs(a), np.abs(a), abs(a.sum()), np.abs(a.reshape(20, 10).sum(axis=1))]
    for got, expected, size in zip(run(program, a).value, want, sizes, strict=True):
        assert np.all(np.abs(got - expected) <= size * ULP / 2 + 1.5 * ULP)


def test_integer_times_fraction_is_fixed_point() -> None:
    a = np.array([3, -7, 1000])

    async def program(x: Any) -> Any:
        return [x * 0.5, x * 0.1, x + 0.25, x @ np.array([0.5, 0.25, 1.5])]

    got = run(program, a).value
    assert np.array_equal(got[0], a * 0.5)
    assert np.all(np.abs(got[1] - a * 0.1) <= 1000 * ULP / 2)
    assert np.array_equal(got[2], a + 0.25)
    assert got[3] == a @ np.array([0.5, 0.25, 1.5])


@pytest.mark.parametrize("size", [1e-9, 1e-5, 0.3, 7.0, 1e6])
def test_products_with_a_public_matrix_keep_forty_bits_of_its_largest_entry(size: float) -> None:
    """The rule of public factors, on either side: 1e6 times 1e-9 is 1e-3, not 0.00100044."""
    rng = np.random.default_rng(1)
    M = size * np.array([[1.0, -0.3], [0.7, 2.0**-20], [1e-12, 0.1]])
    X = np.concatenate([[[1e6, 0.0, 0.0]], rng.uniform(-1e3, 1e3, (3, 3))])

    async def program(x: Any) -> Any:
        return [x @ M, M.T @ x.T, x * M[0, 0]]

    right, left, scaled = run(program, X).value
    rounding = np.abs(X).sum(axis=1, keepdims=True) * np.abs(M).max() * 2.0**-40 + 2.0**-39
    assert np.all(np.abs(right - X @ M) <= rounding)
    assert np.all(np.abs(left - M.T @ X.T) <= rounding.T)
    assert np.all(np.abs(scaled - X * M[0, 0]) <= rounding)


def test_whole_numbers_times_a_small_public_matrix() -> None:
    async def program(x: Any) -> Any:
        return x @ np.array([[1e-9], [3e-9]])

    np.testing.assert_allclose(run(program, np.array([[10**6, 10**6]])).value, 4e-3, rtol=2.0**-38, atol=2.0**-39)


def test_large_public_numbers() -> None:
    async def program(x: Any) -> Any:
        return [x * 2.0**70, x @ np.array([[2.0**66], [0.0]]), x + np.uint64(2**29)]

    a = np.array([ULP, -ULP])
    got = run(program, a).value
    assert np.array_equal(got[0], a * 2.0**70)
    assert np.array_equal(got[1], [ULP * 2.0**66])
    assert np.array_equal(got[2], a + 2.0**29)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e300, 2**100])
def test_public_operands_that_do_not_fit_are_refused(value: float) -> None:
    for operation in (lambda x: x + value, lambda x: value - x, lambda x: x < value):

        async def program(x: Any, operation: Any = operation) -> Any:
            return operation(x)

        with pytest.raises(ValueError, match="public operand"):
            run(program, np.array([1.0]))


# -- products --------------------------------------------------------------------------------------------------------


@given(data=st.data())
def test_products(data: st.DataObject) -> None:
    pair = data.draw(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, max_side=4))
    a, b = (data.draw(arrays(shape, 64.0)) for shape in pair.input_shapes)

    async def program(x: Any, y: Any) -> Any:
        return [await (x * y), await x.mul(y, exact=True), await x.square(), await x.inner(y), await (y * y).sum()]

    got = run(program, a, b).value
    full = a * b
    for one in got[:2]:
        assert np.shape(one) == full.shape
        assert np.all(np.abs(one - full) <= 1.5 * ULP)
    assert np.all(np.abs(got[2] - a * a) <= 1.5 * ULP)
    # The inner product is truncated once; the sum of squares once per term. Results are read as the nearest double.
    for found, terms, truncated in ((got[3], np.broadcast_arrays(a, b), 1), (got[4], (b, b), b.size)):
        exact = sum(Fraction(x) * Fraction(y) for x, y in zip(*(term.flat for term in terms), strict=True))
        assert abs(Fraction(float(found)) - exact) <= 1.5 * truncated * ULP + np.spacing(float(abs(exact)))


LARGE = 2.0**14.5
"""Products of two such numbers come near 2^30: a local truncation of 2 * 40 fractional bits would fail once in 2^18."""


def test_large_products_are_never_wrong() -> None:
    """Half a million products near 2^29, of every kind: a local truncation would fail for about two of them in either split."""
    n = 512
    a, b = np.full((n, n), LARGE), np.full((n, n), -LARGE)

    async def program(x: Any, y: Any) -> Any:
        return [await (x * y), await x[:, :1].matmul(y[:1]), await x.reshape(-1).inner(y.reshape(-1)[None], axis=0)]

    got = run(program, a, b).value
    for one in got:
        assert np.max(np.abs(one + LARGE**2)) <= 1.5 * ULP


@pytest.mark.parametrize(
    ("kinds", "frac", "within", "local"),
    [
        ((make_type(128, 40), make_type(128, 40)), None, None, False),
        ((make_type(128, 40), make_type(128, 40)), None, 127.9, True),  # 80 + 7 bits: 2^-40
        ((make_type(128, 40), make_type(128, 40)), None, 128.0, False),
        ((make_type(128, 40, 3), make_type(128, 40, 4)), None, None, True),
        ((make_type(128, 40, 4), make_type(128, 40, 4)), None, None, False),
        ((make_type(128, 20), make_type(128, 20)), None, None, True),
        ((make_type(128, 40), make_type(128, 40)), 80, None, True),  # nothing to truncate
        ((make_type(128, 0), make_type(128, 40)), None, None, True),
        ((make_type(64, 20, 1), make_type(64, 20, 1)), None, None, False),
    ],
)
def test_the_span_chooses_the_truncation(
    kinds: tuple[RingType, RingType], frac: int | None, within: float | None, local: bool
) -> None:
    span = None if within is None else span_of(within)
    plan = product_type(*kinds, frac, span)
    assert (plan.exact is None) == local
    assert plan.shift == 0 or plan.exact is None or plan.exact.frac - plan.shift == plan.dtype.frac


MATMULS = [
    ((4,), (4,)),
    ((3, 4), (4,)),
    ((4,), (4, 2)),
    ((3, 4), (4, 2)),
    ((1, 1), (1, 1)),
    ((2, 3, 4), (4, 2)),
    ((3, 4), (2, 4, 2)),
    ((2, 3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (5, 4, 2)),
    ((5, 3, 4), (4,)),
    ((4,), (5, 4, 2)),
    ((0, 4), (4, 2)),
    ((3, 0), (0, 2)),
]


@pytest.mark.parametrize(("left", "right"), MATMULS)
def test_matrix_products(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    rng = np.random.default_rng(4)
    a, b = grid(rng.uniform(-8, 8, left)), grid(rng.uniform(-8, 8, right))
    whole = rng.integers(-5, 6, right)

    async def program(x: Any, y: Any) -> Any:
        return [await (x @ y), await x.matmul(y), x @ b, a @ y, x @ whole]

    got = run(program, a, b).value
    want = a @ b
    # Secret by secret: one truncation, and below half an ulp of float64 in sums of at most four terms of 64. Public factors are
    # rounded to 2^-41 for each of at most four terms of 8.
    for one, slack in zip(got[:4], (1.5, 1.5, 1.5 + 16, 1.5 + 16), strict=True):
        assert np.shape(one) == want.shape
        assert np.all(np.abs(one - want) <= slack * ULP)
    assert np.max(np.abs(got[4] - a @ whole), initial=0.0) == 0.0


def test_kept_fractional_bits() -> None:
    a, b = grid(np.random.default_rng(5).uniform(-1, 1, (2, 50)))

    async def program(x: Any, y: Any) -> Any:
        untruncated = await x.mul(y, frac=80)
        return [untruncated.dtype.frac, untruncated, await x.mul(y, frac=20), await x.mul(y, frac=20, exact=True)]

    frac, exact, short, short_exact = run(program, a, b).value
    assert frac == 80
    products = [Fraction(p) * Fraction(q) for p, q in zip(a, b, strict=True)]
    assert np.array_equal(exact, [float(p) for p in products])  # all 80 bits are there, decoded to the nearest double
    for one in (short, short_exact):
        assert np.array_equal(one, grid(one, 20))
        assert np.all(np.abs(one - a * b) < 2.0**-20 + 2.0**-53)
    with pytest.raises(ValueError, match=r"frac=81\. A product of .* has only 80"):
        run(lambda x, y: x.mul(y, frac=81), a, b)


def test_inner_along_axes() -> None:
    a, b = grid(np.random.default_rng(6).uniform(-4, 4, (2, 3, 4, 5)))

    async def program(x: Any, y: Any) -> Any:
        return [await x.inner(y, axis=axis) for axis in (0, 1, -1, None)]

    for got, axis in zip(run(program, a, b).value, (0, 1, -1, None), strict=True):
        want = (a * b).sum(axis)
        assert np.shape(got) == np.shape(want)
        assert np.all(np.abs(got - want) <= 1.5 * ULP)
    with pytest.raises(np.exceptions.AxisError, match="axis 3 is out of bounds for array of dimension 3"):
        run(lambda x, y: x.inner(y, axis=3), a, b)


@pytest.mark.parametrize("d", [1, 2, 5])
def test_triangles_of_products(d: int) -> None:
    rng = np.random.default_rng(21)
    a = grid(rng.uniform(-2, 2, (7, d)))
    s, t = grid(rng.uniform(-1, 1, (2, d, d)), 20)  # exact products: their commutator of symmetric matrices is skew
    s, t = s + s.T, t + t.T

    async def program(x: Any, p: Any, q: Any) -> Any:
        packed, left = await x.T.matmul_upper(x), await p.matmul_upper(q, strict=True)
        right = await q.matmul_upper(p, strict=True)
        return [packed, symmetric(packed, d), skew(left - right, d), await x.sum_of_squares(x * 2)]

    packed, gram, commutator, squares = run(program, a, s, t).value
    assert np.max(np.abs(gram - a.T @ a)) <= 1.5 * ULP
    assert np.array_equal(packed, gram[np.triu_indices(d)])
    assert np.array_equal(gram, gram.T)
    assert np.array_equal(commutator, s @ t - t @ s)
    assert np.max(np.abs(squares - 5 * a * a)) <= 2 * ULP


def test_truncated_squares_are_never_negative() -> None:
    # A truncation gives one of the two neighbours of the exact value, on both splits; so zero stays zero, and a square of a
    # truncated number (row value times column value) is not negative. Sums of two truncated numbers have no such promise.
    a = np.concatenate([np.zeros(2000), np.full(2000, 3 * ULP), np.full(2000, -3 * ULP)])

    async def program(x: Any) -> Any:
        small = await x.mul(x.zeros(x.shape) + 0.125)  # 3/8 ulp: 0 or 1 ulp
        return [small, await small.mul(small, frac=80), await small.square()]

    small, untruncated, truncated = run(program, a).value
    assert np.array_equal(np.unique(small), [-ULP, 0.0, ULP])
    assert np.all(small[:2000] == 0)
    assert np.all(untruncated >= 0)
    assert np.all(truncated >= 0)


def test_sum_of_products_keeps_the_widest_promise() -> None:
    small, large = np.array([1, 0, 1]), np.array([1000, -1000, 30000])

    async def program(x: Any, y: Any) -> Any:
        x = x.within(1)
        total = await Pending(sum_of_products([(x, x), (y, y)]))
        return [total, await (total < 10**6)]

    total, below = run(program, small, large).value
    assert np.array_equal(total, small + large**2)
    assert np.array_equal(below, total < 10**6)


def test_products_agree_with_the_plain_backend() -> None:
    a, b = grid(np.random.default_rng(7).uniform(-2, 2, (2, 4, 4)))

    async def program(x: Any, y: Any) -> Any:
        z = await (x @ y)
        w = await (z * x)
        return (2 * w - y.T + 1).sum(axis=0)

    shared = run(program, a, b).value
    plain = PlainArray(a), PlainArray(b)
    with pytest.raises(StopIteration) as done:
        program(*plain).send(None)
    # One ulp of z is multiplied by |x| <= 2, one ulp of w is doubled, four rows are added.
    assert np.all(np.abs(shared - done.value.value.values) <= 4 * 2 * (2 + 1) * ULP)


# -- upper halves of products, and triangles in blocks -----------------------------------------------------------------


def test_the_upper_half_of_a_product_is_exact_up_to_two_units_and_unbiased() -> None:
    """Also where the product fills 126 bits, which a local truncation would get wrong every fourth time."""
    x = np.array([2**62 - 1, -(2**62) + 1, 2**61, 3, -1, 0] * 500)
    y = np.array([2**62 - 1, 2**62 - 1, -(2**61), 5, 1, 7] * 500)
    integers, halves = RingType(128, 0, 62), RingType(128, 64, 62)

    async def program(a: Any, b: Any) -> Any:
        upper = await a.retype(halves).mul_high(b)
        assert upper.dtype.bits == 64
        wide = await upper.retype(RingType(64, 0, 62)).extend()
        return [upper.retype(RingType(64, 0, 62)), wide.retype(integers)]

    upper, wide = run(program, x, y, dtypes=(integers, integers)).value
    exact = [Fraction(int(a) * int(b), 2**64) for a, b in zip(x, y, strict=True)]
    errors = np.array([float(int(u) - e) for u, e in zip(upper, exact, strict=True)])
    assert np.abs(errors).max() < 2
    assert abs(errors.mean()) < 5 * 0.58 / np.sqrt(len(errors))  # four roundings, each of a twelfth of variance
    np.testing.assert_array_equal(wide, upper)


def test_upper_halves_need_two_limbs_and_64_fractional_bits() -> None:
    async def of_one_limb(x: Any) -> Any:
        return await x.mul_high(x)

    with pytest.raises(TypeError, match="extend"):
        run(of_one_limb, np.ones(2), dtypes=(FIXED64,))
    with pytest.raises(ValueError, match="64 fractional bits"):
        run(of_one_limb, np.ones(2, np.int64))


@pytest.mark.parametrize("d", [1, 2, 7, 12])
def test_symmetric_matrices_in_blocks(d: int, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = np.arange(d * (d + 1) // 2)

    async def program(x: Any) -> Any:
        return symmetric(x, d)

    whole = run(program, packed).value
    monkeypatch.setattr(triangles, "BLOCK_ENTRIES", 3 * d)
    np.testing.assert_array_equal(run(program, packed).value, whole)
    np.testing.assert_array_equal(symmetric(PlainArray(packed), d).values, whole)
    i, j = np.triu_indices(d)
    np.testing.assert_array_equal(whole[i, j], packed)
    np.testing.assert_array_equal(triangles.diagonal_positions(d), np.flatnonzero(i == j))
    some = len(packed) // 3
    np.testing.assert_array_equal(triangles.triangle_entries(d, some, len(packed)), (i[some:], j[some:]))
