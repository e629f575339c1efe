"""What secret arrays do not tell, their types, and one algorithm text that runs on both backends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from harness.lockstep import run
from harness.numbers import secret
from harness.spectra import finish
from ppca.protocol import Pending, PlainArray, RangeError, RingType, SecretArray, make_type, together, where

ULP = 2.0**-40


def plain(program: Callable[..., Any], *values: Any, mode: str = "float") -> Any:
    """The program's result on the plaintext backend."""
    coroutine = program(*(PlainArray(value, mode) for value in values))
    with pytest.raises(StopIteration) as done:
        coroutine.send(None)
    return done.value.value


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

    with pytest.raises(TypeError, match="Await them first"):
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
    assert (n.within(7) + 7).dtype.span == 4
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
    """Pin the structure: an algorithm that runs on one backend must not miss a method on the other."""
    assert public_names(SecretArray) - ONLY_ON_SHARES == public_names(PlainArray) - ONLY_ON_PLAIN
    for name in OPERATORS:
        assert getattr(SecretArray, f"__{name}__", None) is not None, name
        assert getattr(PlainArray, f"__{name}__", None) is not None, name


def test_both_backends_give_the_same_types() -> None:
    """A public fraction makes integers fixed-point, and only that."""
    n = PlainArray(np.array([1, -2, 3]), dtype=make_type(128, 0))
    assert (n + n).dtype.frac == 0
    assert (n + 1).dtype.frac == 0
    assert (n + 0.5).dtype.frac == 40

    async def root_of(x: Any) -> Any:
        return await x.sqrt()

    root = finish(root_of(PlainArray(np.array([2, 9]), dtype=make_type(128, 0))))
    assert root.dtype.frac == 40
    np.testing.assert_allclose(root.values, np.sqrt([2, 9]), atol=2.0**-40)


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
