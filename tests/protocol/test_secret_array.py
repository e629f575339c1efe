"""NumPy's feel: indexing, shapes and error texts are NumPy's own; one algorithm text runs on both backends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from harness.lockstep import run
from ppca.protocol import (
    Pending,
    PlainArray,
    RangeError,
    RingType,
    SecretArray,
    concatenate,
    local_parties,
    make_type,
    share,
    stack,
    together,
    where,
)

ULP = 2.0**-40
PARTY = local_parties()[0]


def secret(values: Any, dtype: RingType | None = None) -> SecretArray:
    return SecretArray.from_packet(PARTY, share(values, dtype)[0])


def opened(x: SecretArray) -> np.ndarray:
    """The row shares seen as integers: local operations act on them as on values (shares are linear)."""
    return x.data[0][..., 0]


def outcome(action: Callable[[], Any]) -> Any:
    """(shape, elements) of a result, or (error class, text)."""
    try:
        result = action()
    except (ValueError, IndexError, TypeError, np.exceptions.AxisError) as error:
        return type(error), str(error)
    if isinstance(result, SecretArray):
        return result.shape, opened(result).tolist()
    return np.shape(result), np.asarray(result).tolist()


def plain(program: Callable[..., Any], *values: Any, mode: str = "float") -> Any:
    """The program's result on the plaintext backend."""
    coroutine = program(*(PlainArray(value, mode) for value in values))
    with pytest.raises(StopIteration) as done:
        coroutine.send(None)
    return done.value.value


# -- indexing --------------------------------------------------------------------------------------------------------


def numbered(shape: tuple[int, ...]) -> tuple[SecretArray, np.ndarray]:
    """A secret array, and the plain array of its share elements in the same shape."""
    x = secret(np.zeros(shape))
    return x, x.data[0][..., 0].copy()


def same_selection(shape: tuple[int, ...], index: Any) -> None:
    x, values = numbered(shape)
    wanted = outcome(lambda: values[index])
    if wanted[0] is IndexError:
        assert outcome(lambda: x[index]) == wanted
        return
    got, want = x[index], values[index]
    assert got.shape == np.shape(want)
    assert np.array_equal(opened(got), want)
    assert np.array_equal(got.data[1][..., 0], x.data[1][..., 0][index])
    assert got.dtype == x.dtype


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_basic_indices(data: st.DataObject) -> None:
    shape = data.draw(hnp.array_shapes(min_dims=0, max_dims=4, max_side=4, min_side=0))
    same_selection(shape, data.draw(hnp.basic_indices(shape, allow_newaxis=True)))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_integer_arrays_mixed_with_slices(data: st.DataObject) -> None:
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=4, max_side=4))
    selection = hnp.broadcastable_shapes((2,), max_dims=2, max_side=3)
    parts: list[Any] = []
    common = data.draw(selection)
    for side in shape[: data.draw(st.integers(1, len(shape)))]:
        kind = data.draw(st.sampled_from(["array", "slice", "integer", "list"]))
        if kind == "array":
            parts.append(data.draw(hnp.arrays(np.int64, common, elements=st.integers(-side, side - 1))))
        elif kind == "list":
            parts.append(data.draw(hnp.arrays(np.int64, common, elements=st.integers(-side, side - 1))).tolist())
        elif kind == "slice":
            parts.append(data.draw(st.slices(side)))
        else:
            parts.append(data.draw(st.integers(-side, side - 1)))
    if data.draw(st.booleans()):
        parts.insert(data.draw(st.integers(0, len(parts))), data.draw(st.sampled_from([None, Ellipsis])))
    same_selection(shape, tuple(parts))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_boolean_masks(data: st.DataObject) -> None:
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=3, max_side=4))
    covered = data.draw(st.integers(1, len(shape)))
    mask = data.draw(hnp.arrays(np.bool_, shape[:covered]))
    same_selection(shape, mask)
    same_selection(shape, (mask, ...))
    same_selection(shape, (None, mask))


@pytest.mark.parametrize(
    ("shape", "index"),
    [
        ((3,), 3),
        ((3,), -4),
        ((3, 2), (0, 2)),
        ((3, 2), (0, 0, 0)),
        ((), 0),
        ((3,), (..., 5)),
        ((3, 2), (..., 0, 0, 0)),
        ((3,), (..., ...)),
        ((3, 2), ([0, 1, 2], [0, 1])),
        ((3, 2), ([0, 5],)),
        ((3,), 1.5),
        ((3,), "a"),
        ((3,), np.array([True, False])),
        ((3, 2), (slice(None), np.array([True, False, True]))),
        ((3,), np.array([0.5])),
    ],
)
def test_wrong_indices_in_numpys_words(shape: tuple[int, ...], index: Any) -> None:
    same_selection(shape, index)


def test_secret_indices_are_refused() -> None:
    x = secret(np.zeros(3))
    with pytest.raises(TypeError, match="indices must be public"):
        x[secret(np.array([1]))]


# -- shapes ----------------------------------------------------------------------------------------------------------


SHAPE_CALLS: list[tuple[tuple[int, ...], Callable[[Any], Any]]] = [
    ((2, 6), lambda a: a.reshape(3, 4)),
    ((2, 6), lambda a: a.reshape((3, -1))),
    ((2, 6), lambda a: a.reshape(-1)),
    ((2, 6), lambda a: a.reshape(4, 1, 3)),
    ((2, 6), lambda a: a.reshape(5, -1)),
    ((2, 6), lambda a: a.reshape(-1, -1)),
    ((2, 6), lambda a: a.reshape(13)),
    ((1,), lambda a: a.reshape(())),
    ((0, 3), lambda a: a.reshape(3, 0)),
    ((2, 3, 4), lambda a: a.ravel()),
    ((2, 3, 4), lambda a: a.T),
    ((3,), lambda a: a.T),
    ((), lambda a: a.T),
    ((2, 3, 4), lambda a: a.transpose()),
    ((2, 3, 4), lambda a: a.transpose(1, 2, 0)),
    ((2, 3, 4), lambda a: a.transpose(-1, 0, 1)),
    ((2, 3, 4), lambda a: a.transpose(0, 1)),
    ((2, 3, 4), lambda a: a.transpose(0, 1, 1)),
    ((2, 3, 4), lambda a: a.transpose(0, 1, 3)),
    ((2, 3, 4), lambda a: a.swapaxes(0, -1)),
    ((2, 3, 4), lambda a: a.swapaxes(0, 3)),
    ((3, 3), lambda a: a.diagonal()),
    ((2, 4), lambda a: a.diagonal()),
    ((2, 3), lambda a: a.sum()),
    ((2, 3), lambda a: a.sum(axis=0)),
    ((2, 3), lambda a: a.sum(axis=-1)),
    ((2, 3, 4), lambda a: a.sum(axis=(0, 2))),
    ((2, 3, 4), lambda a: a.sum(axis=1, keepdims=True)),
    ((2, 3), lambda a: a.sum(axis=2)),
    ((2, 0), lambda a: a.sum(axis=1)),
    ((2, 3), len),
    ((), len),
]


@pytest.mark.parametrize("case", range(len(SHAPE_CALLS)))
def test_shape_calls_as_numpy(case: int) -> None:
    shape, call = SHAPE_CALLS[case]
    x, values = numbered(shape)
    assert outcome(lambda: call(x)) == outcome(lambda: call(values))


@pytest.mark.parametrize("target", [(2, 3), (4, 2, 3), (2, 2), (3,), (6,)])
def test_broadcast_to(target: tuple[int, ...]) -> None:
    x, values = numbered((1, 3))
    assert outcome(lambda: x.broadcast_to(target)) == outcome(lambda: np.broadcast_to(values, target))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_concatenate_and_stack(data: st.DataObject) -> None:
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=3, max_side=3))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    pairs = []
    for _ in range(data.draw(st.integers(1, 3))):
        side = data.draw(st.integers(0, 3))
        pairs.append(numbered((*shape[: axis % len(shape)], side, *shape[axis % len(shape) + 1 :])))
    arrays, values = zip(*pairs, strict=True)
    assert np.array_equal(opened(concatenate(arrays, axis)), np.concatenate(values, axis))
    arrays, values = zip(*[numbered(shape) for _ in range(3)], strict=True)
    axis = data.draw(st.integers(-len(shape) - 1, len(shape)))
    assert np.array_equal(opened(stack(arrays, axis)), np.stack(values, axis))


@pytest.mark.parametrize(
    ("secret_call", "numpy_call"),
    [
        (lambda a, b: concatenate([a, b]), lambda a, b: np.concatenate([a, b])),
        (lambda a, b: concatenate([a, b], axis=5), lambda a, b: np.concatenate([a, b], axis=5)),
        (lambda a, b: concatenate([a, b], axis=-5), lambda a, b: np.concatenate([a, b], axis=-5)),
        (lambda a, b: stack([a, b]), lambda a, b: np.stack([a, b])),
        (lambda a, b: stack([a, a], axis=3), lambda a, b: np.stack([a, a], axis=3)),
        (lambda a, b: stack([a, a], axis=-4), lambda a, b: np.stack([a, a], axis=-4)),
        (lambda a, b: a + b, lambda a, b: a + b),
        (lambda a, b: a - b, lambda a, b: a - b),
        (lambda a, b: a * b, lambda a, b: a * b),
        (lambda a, b: a / b, lambda a, b: a / b),
        (lambda a, b: a < b, lambda a, b: a < b),
        (lambda a, b: a @ b, lambda a, b: a @ b),
        (lambda a, b: a.matmul(b), np.matmul),
        (lambda a, b: a[0] @ b, lambda a, b: a[0] @ b),
        (lambda a, b: a[0, 0] @ b, lambda a, b: a[0, 0] @ b),
        (lambda a, b: a + np.ones((2, 2)), lambda a, b: a + np.ones((2, 2))),
        (lambda a, b: a * np.ones((2, 2)), lambda a, b: a * np.ones((2, 2))),
        (lambda a, b: a @ np.ones((2, 2)), lambda a, b: a @ np.ones((2, 2))),
    ],
)
def test_shape_errors_are_numpys_and_come_at_once(secret_call: Any, numpy_call: Any) -> None:
    a, b = numbered((2, 3))[0], numbered((4, 2))[0]
    x, y = np.ones((2, 3)), np.ones((4, 2))
    with pytest.raises((ValueError, np.exceptions.AxisError)) as wanted:
        numpy_call(x, y)
    with pytest.raises(type(wanted.value)) as caught:
        secret_call(a, b)
    # NumPy ends broadcasting errors with a space.
    assert str(caught.value).strip() == str(wanted.value).strip()


def test_iteration() -> None:
    x, values = numbered((3, 2))
    assert [opened(row).tolist() for row in x] == [row.tolist() for row in values]
    with pytest.raises(TypeError):
        iter(numbered(())[0])


# -- what a secret does not do ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [secret, PlainArray], ids=["secret", "plain"])
def test_no_truth_value_and_no_float(make: Any) -> None:
    x = make(np.array([1.0]))
    for forbidden in (bool, float, lambda a: 1 if a else 0, lambda a: a and 1, hash):
        with pytest.raises(TypeError):
            forbidden(x)


@pytest.mark.parametrize("make", [secret, PlainArray], ids=["secret", "plain"])
def test_pending_results_have_no_truth_value(make: Any) -> None:
    x, y = make(np.array([1.0])), make(np.array([2.0]))
    with pytest.raises(TypeError, match="pending"):
        bool(x < y)
    with pytest.raises(TypeError, match="pending"):
        assert 0 < x < 3
    with pytest.raises(TypeError):
        assert x in [y]
    with pytest.raises(TypeError):
        _, _ = x < y


def test_repr_shows_no_values() -> None:
    x = secret(np.array([123.25, 7.5]))
    assert repr(x) == "SecretArray(shape=(2,), dtype=fixed128.40, seat=(0,0))"
    assert str(x) == repr(x)


def test_numpy_does_not_take_over() -> None:
    x = secret(np.array([1.0, 2.0]))
    assert isinstance(np.ones(2) + x, SecretArray)
    assert isinstance(np.ones(2) * x, SecretArray)
    assert isinstance(np.ones((2, 2)) @ x, SecretArray)
    assert isinstance(np.ones(2) < x, Pending)
    with pytest.raises(TypeError):
        np.sin(x)


def test_awaiting_twice_is_an_error() -> None:
    async def program(x: Any) -> Any:
        product = x * x
        await product
        with pytest.raises(RuntimeError, match="awaited before"):
            await product
        total = (x * x).sum()
        await total
        with pytest.raises(RuntimeError):
            await total
        return x

    run(program, np.array([2.0]))


def test_local_operations_on_pending_results() -> None:
    a, b = np.array([[1.0, -2.0], [3.0, 4.5]]), np.array([[2.0, 2.0], [0.5, -1.0]])

    async def program(x: Any, y: Any) -> Any:
        return [
            await (x * y).sum(axis=0), await (x * y).T, await (x * y)[0], await (x * y).reshape(-1), await (-(x * y)),
            await (x * y + x), await (1 - x * y), await (x + x * y), await (x * y - 1), await (x * y).within(10),
            await (x * y).astype(20),
        ]  # fmt: skip

    p = a * b
    want = [p.sum(axis=0), p.T, p[0], p.ravel(), -p, p + a, 1 - p, a + p, p - 1, p, p]
    for results in (run(program, a, b).value, [r.values for r in plain(program, a, b)]):
        for got, expected in zip(results, want, strict=True):
            # All products are multiples of 1/4 below 2^4: truncation is exact.
            assert np.array_equal(got, expected)

    async def two_pending(x: Any, y: Any) -> Any:
        return await (x * y + y * x)

    with pytest.raises(TypeError, match="await them first"):
        run(two_pending, a, b)


# -- types -----------------------------------------------------------------------------------------------------------


def test_types_of_results() -> None:
    x, n = secret(np.array([1.0])), secret(np.array([1]))
    assert str(x.dtype) == "fixed128.40"
    assert str(n.dtype) == "int128"
    assert str((x + n).dtype) == "fixed128.40"
    assert (n + n).dtype.frac == 0
    assert (n + 0.5).dtype.frac == 40
    assert n.within(7).dtype.span == 3
    assert n.within(8).dtype.span == 4
    assert (n.within(7) + n.within(7)).dtype.span == 4
    assert n.within(7).broadcast_to((8,)).sum().dtype.span == 6
    assert x.astype(80).dtype.frac == 80
    assert x.astype(40) is x


@pytest.mark.parametrize(("bits", "frac", "span"), [(32, 0, 1), (128, 126, 1), (128, -1, 1), (64, 20, 44), (128, 0, 0)])
def test_impossible_types_are_refused(bits: int, frac: int, span: int) -> None:
    with pytest.raises(ValueError, match=r"bits|span"):
        RingType(bits, frac, span)


def test_constants_are_shares_of_public_values() -> None:
    async def program(x: Any) -> Any:
        return [
            SecretArray.constant(x.party, [1, -2]),
            SecretArray.constant(x.party, 2.5),
            x.zeros((2, 2)),
            x.zeros(()) + 1,
        ]

    got = run(program, np.array([1.0])).value
    assert got[0].tolist() == [1, -2]
    assert got[1] == 2.5
    assert got[2].tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert got[3] == 1


# -- two backends ----------------------------------------------------------------------------------------------------

ONLY_ON_SHARES = {
    "from_packet", "held", "constant", "party", "data", "row", "column", "shifted", "public", "plus_public", "plus_shares",
    "times_public", "matmul_public",
}  # fmt: skip
ONLY_ON_PLAIN = {"values", "mode"}
OPERATORS = [
    "add", "radd", "sub", "rsub", "mul", "rmul", "matmul", "rmatmul", "truediv", "rtruediv", "neg", "pos", "abs",
    "lt", "le", "gt", "ge", "eq", "ne", "getitem", "len", "iter", "bool", "float",
]  # fmt: skip


def public_names(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_both_backends_offer_the_same_methods() -> None:
    assert public_names(SecretArray) - ONLY_ON_SHARES == public_names(PlainArray) - ONLY_ON_PLAIN
    for name in OPERATORS:
        assert getattr(SecretArray, f"__{name}__", None) is not None, name
        assert getattr(PlainArray, f"__{name}__", None) is not None, name


async def whiten(x: Any, y: Any) -> Any:
    """A small algorithm: centre, scale, correlate, compare, select, sort."""
    centred = x - x.mean(axis=0)
    scale = await (await (centred * centred).sum(axis=0)).rsqrt()
    unit, half = await together(centred * scale, y.sqrt())
    gram = await (unit.T @ unit)
    bigger = await (gram > 0.5)
    chosen, ratio = await together(where(bigger, gram, -1.0), half / y)
    z, power = await y.normalise(exact=True)
    order = await y.argsort(descending=True)
    ordered, carried = await y.sort(unit[: len(y)])
    table = await y.lookup([1.0, 2.0], [0.0, 0.5, 2.0])
    return [
        chosen,
        ratio,
        z,
        power,
        order,
        ordered,
        carried,
        table,
        await abs(unit),
        await unit.polynomial([1, 0.5, 0.25]),
    ]


def test_one_text_runs_on_both_backends() -> None:
    rng = np.random.default_rng(18)
    a = np.round(rng.uniform(-1, 1, (8, 3)) * 2**20) / 2**20
    b = np.array([1.5, 0.75, 2.0, 3.5])
    shared = run(whiten, a, b).value
    for mode in ("float", "fixed"):
        expected = plain(whiten, a, b, mode=mode)
        for i, (got, want) in enumerate(zip(shared, expected, strict=True)):
            assert got.shape == want.shape
            # Errors: 1e-9 of each function, a few ulp of each product (8 terms at most), none for the rest.
            assert np.max(np.abs(got - want.values)) <= (0 if i in (2, 3, 4, 5, 7) else 4e-9), (mode, i)


def test_fixed_mode_models_the_error_of_a_truncation() -> None:
    # Unbiased, below one ulp, and rounded to multiples of it, as on shares. False alarm of the mean test: 6e-7.
    a, b = np.random.default_rng(19).uniform(-1, 1, (2, 20_000))
    a, b = np.round(a * 2**20) / 2**20, np.round(b * 2**20) / 2**20  # their product is exact in float64
    kind = make_type(128, 30)
    x, y = PlainArray(a, "fixed", kind), PlainArray(b, "fixed", kind)

    async def program(x: Any, y: Any) -> Any:
        return await (x * y)

    with pytest.raises(StopIteration) as done:
        program(x, y).send(None)
    product = done.value.value.values
    errors = np.ldexp(product - a * b, 30)
    assert np.array_equal(np.ldexp(product, 30), np.round(np.ldexp(product, 30)))
    assert np.max(np.abs(errors)) < 1
    assert np.max(np.abs(errors)) > 0.5  # not rounding to nearest
    assert abs(errors.mean()) < 5 * np.sqrt(0.25 / errors.size)


def test_plain_arrays_check_promises() -> None:
    with pytest.raises(RangeError, match=r"value 9.0 is outside"):
        PlainArray(np.array([1.0, 9.0])).within(7)
    with pytest.raises(RangeError):
        PlainArray(np.array([2.0**31]))
    with pytest.raises(RangeError):
        PlainArray(np.array([np.nan]))
