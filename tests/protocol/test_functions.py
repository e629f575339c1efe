"""rsqrt, sqrt, reciprocal, division, polynomials and normalisation over their documented ranges.

Contract: error at most 1e-9 relative or 2 ulp (ulp = 2^-40), whichever is larger, from 2^-30 to 2^30.
References are float64 (relative error below 2^-52, far under 1e-9) of the multiples of 2^-40 that are shared.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.lockstep import run
from harness.numbers import grid
from ppca.protocol import RingType, SecretArray, make_type
from ppca.protocol.functions import NORMALISED_MAX, NORMALISED_MIN, coefficients

ULP = 2.0**-40


def inputs(low: int = -30, high: int = 30) -> np.ndarray:
    """A dense logarithmic grid, random numbers, powers of two and their neighbours, and the edges of the binade windows."""
    rng = np.random.default_rng(13)
    powers = 2.0 ** np.arange(low, high)
    values = [
        2.0 ** np.linspace(low, high - 0.001, 1500),
        2.0 ** rng.uniform(low, high, 1500),
        *(powers * factor for factor in (1.0, 1.25, 1.5, 2 - 2.0**-12)),
        *(powers + sign * np.maximum(ULP, powers * 2.0**-52) for sign in (1, -1)),
        *(1.25 * powers + sign * np.maximum(ULP, powers * 2.0**-52) for sign in (1, -1)),
    ]
    everything = grid(np.concatenate(values))
    return everything[(everything >= 2.0**low) & (everything < 2.0**high)]


def check(got: np.ndarray, want: np.ndarray, ulp: float = ULP) -> None:
    slack = np.maximum(1e-9 * np.abs(want), 2 * ulp)
    worst = int(np.argmax(np.abs(got - want) / slack))
    assert np.all(np.abs(got - want) <= slack), f"at {worst}: {got[worst]!r}, expected {want[worst]!r}"


REFERENCE = {"rsqrt": lambda x: 1 / np.sqrt(x), "sqrt": np.sqrt, "reciprocal": lambda x: 1 / x}


@pytest.mark.parametrize("name", sorted(REFERENCE))
def test_whole_range(name: str) -> None:
    a = inputs()

    async def program(x: Any) -> Any:
        return await getattr(x, name)()

    check(run(program, a).value, REFERENCE[name](a))


@given(st.sampled_from(sorted(REFERENCE)), st.lists(st.integers(2**10, 2**70 - 2**17), min_size=1, max_size=30))
def test_random_numbers(name: str, multiples: list[int]) -> None:
    a = grid(np.array([float(m) * ULP for m in multiples]))

    async def program(x: Any) -> Any:
        return await getattr(x, name)()

    check(run(program, a).value, REFERENCE[name](a))


@pytest.mark.parametrize("name", ["rsqrt", "sqrt"])
def test_roots_reach_down_to_one_ulp(name: str) -> None:
    a = np.concatenate([np.arange(1, 200) * ULP, inputs(-40, -30)])

    async def program(x: Any) -> Any:
        return await getattr(x, name)()

    check(run(program, a).value, REFERENCE[name](a))


@pytest.mark.parametrize("name", sorted(REFERENCE))
def test_the_top_of_the_range(name: str) -> None:
    # 2^30 - ulp is no double: shared as a sum of two.
    async def program(x: Any, y: Any) -> Any:
        total = x + y
        return await getattr(total.like(total.data, x.dtype), name)()

    got = run(program, np.array([2.0**30 - 1]), np.array([1 - ULP])).value
    check(got, REFERENCE[name](np.array([2.0**30])))


@pytest.mark.parametrize("name", sorted(REFERENCE))
def test_zero_goes_to_zero(name: str) -> None:
    async def program(x: Any) -> Any:
        return await getattr(x, name)()

    for _ in range(5):
        assert np.array_equal(run(program, np.zeros(20)).value, np.zeros(20))


def test_reciprocal_below_its_range() -> None:
    # Below about 2^-31 the result is 0, never garbage; from 2^-30 on it is accurate; between, one of the two.
    a = np.concatenate([np.arange(1, 300) * ULP, [2.0**-31 - ULP]])

    async def program(x: Any) -> Any:
        return [await x.reciprocal(), await x.reciprocal(signed=True), await (-x).reciprocal(signed=True)]

    for got in run(program, a).value:
        assert np.all(got == 0)
    between = grid(np.linspace(2.0**-31, 2.0**-30, 200, endpoint=False))

    async def near(x: Any) -> Any:
        return await x.reciprocal()

    got = run(near, between).value
    good = got != 0
    assert np.all(got[between >= 0.625 * 2.0**-30] != 0)  # 5/4 * 2^-31
    check(got[good], 1 / between[good])


def test_signed_reciprocal() -> None:
    a = inputs()[::4]
    a = np.concatenate([a, -a, [0.0]])

    async def program(x: Any) -> Any:
        return [await x.reciprocal(signed=True), await (1 / x)]

    want = np.divide(1.0, a, out=np.zeros_like(a), where=a != 0)
    for got in run(program, a).value:
        check(got, want)
        assert got[-1] == 0


def test_public_numerator() -> None:
    # other / x multiplies the reciprocal: its error times |other|, and one ulp of the last truncation.
    a = grid(2.0 ** np.random.default_rng(14).uniform(-8, 8, 200))

    async def program(x: Any) -> Any:
        return [await (3 / x), await (0.7 / -x)]

    got = run(program, a).value
    for one, factor in zip(got, (3, -0.7), strict=True):
        slack = abs(factor) * np.maximum(1e-9 / a, 2 * ULP) + (1 + 1 / a) * ULP
        assert np.all(np.abs(one - factor / a) <= slack)


def test_division() -> None:
    # Documented: 1e-9 relative, or 2 ulp and 2^-49 / |y|, whichever is larger.
    rng = np.random.default_rng(15)
    y = grid(2.0 ** rng.uniform(-30, 30, 3000)) * rng.choice([-1, 1], 3000)
    x = grid(rng.uniform(-1, 1, 3000) * 2.0 ** rng.uniform(-40, 12, 3000))
    keep = np.abs(x / y) < 2.0**12  # a local truncation fails with |x / y| 2^-46: 2^-22 in all
    x, y = x[keep], y[keep]

    async def program(x: Any, y: Any) -> Any:
        return await (x / y)

    got, want = run(program, x, y).value, x / y
    assert np.all(np.abs(got - want) <= np.maximum(1e-9 * np.abs(want), 2 * ULP + 2.0**-49 / np.abs(y)))


def test_division_special_cases() -> None:
    async def program(x: Any, y: Any) -> Any:
        return [await (x / y), await (x[1] / y), await (x / y[0])]

    x, y = np.array([0.0, 1.0, -6.0, 5.0]), np.array([2.0, 0.0, 3.0, -(2.0**-20)])
    got = run(program, x, y).value
    want = [0.0, 0.0, -2.0, -5 * 2.0**20]
    assert got[0][:2].tolist() == [0.0, 0.0]
    assert np.all(np.abs(got[0] - want) <= np.maximum(1e-9 * np.abs(want), 2 * ULP))
    check(got[1], np.array([0.5, 0.0, 1 / 3, -(2.0**20)]))
    check(got[2], x / 2)


def test_small_quotients_keep_their_digits() -> None:
    # 1 / y alone would have an ulp of 2^-40, i.e. 2^-15 relative at y = 2^25: multiplied in late, x would inherit that.
    y = grid(2.0 ** np.linspace(20, 29, 50))
    x = grid(y * 2.0**-6 * np.random.default_rng(16).uniform(0.5, 1, 50))

    async def program(x: Any, y: Any) -> Any:
        return await (x / y)

    check(run(program, x, y).value, x / y)


def test_integers() -> None:
    a = np.array([1, 2, 3, 7, 100, 12345, 2**20, 2**20 + 1, 2**39 - 1, 2**45, 2**61, 0])

    async def program(x: Any) -> Any:
        y = x.within(2**20 + 1)[:8]
        return [await x.rsqrt(), await x.sqrt(), await x.reciprocal(), await y.rsqrt(), await y.reciprocal(signed=True)]

    got = run(program, a).value
    positive = np.where(a == 0, 1, a).astype(float)
    check(got[0], np.where(a == 0, 0, 1 / np.sqrt(positive)))
    check(got[1][:-2], np.sqrt(a[:-2]))
    check(got[2], np.where(a == 0, 0, 1 / positive))
    check(got[3], 1 / np.sqrt(a[:8]))
    check(got[4], 1 / a[:8])


@pytest.mark.parametrize(
    "kind", [RingType(128, 20, 10), RingType(128, 20, 40), RingType(128, 40, 1), RingType(128, 30, 2)]
)
def test_other_types(kind: RingType) -> None:
    # Results keep the fractional bits of x, so the tolerance is two of its ulp.
    top = min(kind.span, 29)
    a = grid(2.0 ** np.linspace(-8, top - 0.01, 300), kind.frac)

    async def program(x: Any) -> Any:
        return [await x.rsqrt(), await x.sqrt(), await x.reciprocal()]

    got = run(program, a, dtypes=(kind,)).value
    for one, name in zip(got, ("rsqrt", "sqrt", "reciprocal"), strict=True):
        check(one, REFERENCE[name](a), 2.0**-kind.frac)


def test_types_without_room_are_refused() -> None:
    with pytest.raises(TypeError, match="128-bit ring"):
        run(lambda x: x.rsqrt(), np.array([1.0]), dtypes=(make_type(64, 20),))
    with pytest.raises(TypeError, match="128-bit ring"):
        run(lambda x: x.normalise(), np.array([1.0]), dtypes=(make_type(64, 20),))
    with pytest.raises(ValueError, match="too many bits for the truncation"):
        run(lambda x: x.sqrt(), np.array([1.0]), dtypes=(RingType(128, 60, 30),))


@pytest.mark.parametrize("name", sorted(REFERENCE))
def test_approximation_polynomial(name: str) -> None:
    # The docstring's claim: within 2^-33 of the function, relatively, on the normalised interval.
    z = np.linspace(NORMALISED_MIN, NORMALISED_MAX, 20_001)
    values = np.polynomial.polynomial.polyval(2 * z - 1.75, coefficients(name))
    assert np.max(np.abs(values / REFERENCE[name](z) - 1)) < 2.0**-33


# -- polynomials -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("degree", [0, 1, 2, 3, 4, 5, 7, 8, 11, 12, 15, 16, 20])
def test_polynomials(degree: int) -> None:
    rng = np.random.default_rng(17)
    coefs = rng.uniform(-1, 1, degree + 1)
    a = np.concatenate([grid(rng.uniform(-1, 1, 200)), [-1.0, 0.0, 1.0]])

    async def program(x: Any) -> Any:
        return await x.polynomial(coefs.tolist())

    got = run(program, a).value
    # Each coefficient is rounded (2^-41); each of at most degree + 4 truncated products errs by 1 ulp and is multiplied by
    # at most the sum of |coefficients| <= degree + 1 afterwards.
    slack = (degree + 1) * ULP / 2 + (degree + 4) * (degree + 1) * ULP
    assert np.max(np.abs(got - np.polynomial.polynomial.polyval(a, coefs))) <= slack


def test_polynomials_of_integers_and_their_promise() -> None:
    async def program(x: Any) -> Any:
        y = x.within(3)
        p = await y.polynomial([100.5, 2.0, 0.25])
        return [p, await (p > 100), await y.polynomial([]), await y.polynomial([5.0])]

    a = np.array([-3, 0, 2])
    got = run(program, a).value
    want = 100.5 + 2.0 * a + 0.25 * a**2
    assert np.max(np.abs(got[0] - want)) <= ULP
    assert got[1].tolist() == [int(v > 100) for v in want]
    assert got[2].tolist() == [0.0, 0.0, 0.0]
    assert got[3].tolist() == [5.0, 5.0, 5.0]


# -- normalisation ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exact", [False, True], ids=["window", "octave"])
def test_normalisation(exact: bool) -> None:
    a = np.concatenate([inputs(), [0.0]])

    async def program(x: Any) -> Any:
        return await x.normalise(exact=exact)

    for _ in range(3):  # where the window overlaps, the answer depends on the dealer's mask
        z, scale = run(program, a).value
        positive = a > 0
        assert np.all(np.frexp(scale[positive])[0] == 0.5)  # a power of two, exactly
        high = 1.0 if exact else 1.25
        product = a * scale
        assert np.all((product[positive] >= 0.5) & (product[positive] < high))
        assert np.max(np.abs(z - product)) <= ULP
        assert z[-1] == 0
        assert scale[-1] == 0


def test_normalisation_down_to_a_chosen_size() -> None:
    a = np.concatenate([np.arange(1, 100) * ULP, inputs(-40, -28)])

    async def program(x: Any) -> Any:
        return [*await x.normalise(smallest=-40), *await x.normalise(smallest=-20), *await x.normalise(-20, exact=True)]

    got = run(program, a).value
    assert np.all((a * got[1] >= 0.5) & (a * got[1] < 1.25))
    assert np.max(np.abs(got[0] - a * got[1])) <= ULP
    for part in got[2:]:
        assert np.all(part[a < 2.0**-21] == 0)


def test_normalisation_of_untruncated_products() -> None:
    # 80 fractional bits: entries of 2^-35 have squares of 2^-70, which a truncated product would lose.
    a = grid(2.0 ** np.linspace(-37, -1, 200))
    squares = [Fraction(v) ** 2 for v in a]

    async def program(x: SecretArray) -> Any:
        y = (await x.mul(x, frac=80)).within(1)
        return await y.normalise(smallest=-75)

    z, scale = run(program, a).value
    product = np.array([float(square * Fraction(s)) for square, s in zip(squares, scale, strict=True)])
    assert np.all((product >= 0.5) & (product < 1.25))
    assert np.max(np.abs(z - product)) <= 1.01 * ULP


def test_coarse_powers() -> None:
    # Each step spans edges of ratio 1.5 at most: the value is right within a factor 1.5^(|exponent| / 2).
    a = inputs(-20, 30)  # up to the end of the range

    async def program(x: Any) -> Any:
        return [
            await x.coarse_power(-0.5, 2.0**-20),
            await x.coarse_power(-1.0, 2.0**-20),
            await x.coarse_power(0.5, 1e-3),
        ]

    for _ in range(3):
        got = run(program, a).value
        for one, exponent, smallest in zip(got, (-0.5, -1.0, 0.5), (2.0**-20, 2.0**-20, 1e-3), strict=True):
            here = a >= 1.25 * smallest
            want, factor = a[here] ** exponent, 1.5 ** (abs(exponent) / 2)
            assert np.all((one[here] <= want * factor + ULP) & (one[here] >= want / factor - ULP))
        near = a < 1.25 * 2.0**-20  # the lowest step: edges of ratio 2.5, of which x lies in the upper half
        assert np.all(np.abs(got[0][near] * np.sqrt(a[near]) - 1) < 0.26)
        below = got[2][a < 2.0**-10]
        assert np.all(below == below[0])


@pytest.mark.parametrize("span", [2, 3, 12, 13, 25])
def test_slopes(span: int) -> None:
    """One step of the staircase (ratios 1.25 to 1.5) and what the other side takes away: within 31% from 1.5 on."""
    rng = np.random.default_rng(span)
    sizes = np.concatenate([2.0 ** rng.uniform(-6, span - 0.1, 2000), [1.0, 15 / 16 * 2.0**span - 0.1, 0.26, 0.51]])
    a = grid(sizes * rng.choice([-1.0, 1.0], len(sizes)))

    async def program(x: Any) -> Any:
        return await x.astype(4).within(2.0**span * 0.999).slope()

    for _ in range(3):
        got = run(program, a).value
        large = np.abs(a) >= 1.5
        assert np.all(np.abs(got[large] * a[large] - 1) < 0.31)
        some = np.abs(a) >= 0.25 + 2.0**-3  # less what `astype` rounds
        assert np.all(got[some] * a[some] > 0)
        assert np.all((np.abs(got[~large]) > 0.55) & (np.abs(got[~large]) <= 1.27))


def test_exact_binade_powers() -> None:
    a = np.concatenate([inputs(-20, 10), [0.0]])

    async def program(x: Any) -> Any:
        return await x.binade_power(lambda e: 1 << (60 - e), -20, 10)

    got = run(program, a).value
    # X = x 2^40 lies in [2^(e-1), 2^e)
    want = np.where(a == 0, 0, 2.0 ** (60.0 - (np.frexp(a)[1] + 40)))
    assert np.array_equal(got, want)


def test_normalisation_of_integers() -> None:
    a = np.array([0, 1, 2, 3, 5, 1000, 2**40 + 1, 2**61])

    async def program(x: Any) -> Any:
        return [*await x.normalise(exact=True), *await x[:6].within(1000).normalise()]

    z, scale, near_z, near_scale = run(program, a).value
    assert np.array_equal(scale, np.where(a == 0, 0, 2.0 ** -np.frexp(a.astype(float))[1]))
    assert np.max(np.abs(z - a * scale)) <= ULP
    assert np.all((near_z[1:] >= 0.5) & (near_z[1:] < 1.25))
    assert np.max(np.abs(near_z - a[:6] * near_scale)) <= ULP
