"""Comparisons, tables and selections: exact over the whole documented range, its ends included. No tolerances here but one.

Encoded fixed-point values are multiples of 2^-frac; the reference is Python's exact comparison of the same multiples.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.lockstep import run
from ppca.native import kernels, ring
from ppca.protocol import RingType, SecretArray, make_type, together, where
from ppca.protocol.compare import threshold_gate

ULP = 2.0**-40
INT = make_type(128, 0)
OPERATORS = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]


def of_integers(x: SecretArray, kind: RingType) -> SecretArray:
    """Integers X seen as the fixed-point numbers X 2^-frac: reaches ends of a range that doubles do not."""
    return x.like(x.data, kind)


async def all_comparisons(x: Any, y: Any) -> list[Any]:
    return list(await together(*(compare(x, y) for compare in OPERATORS)))


def check_pairs(left: list[int], right: list[int], kind: RingType) -> None:
    """All six comparisons of all pairs of integers X, Y seen as numbers of `kind`."""
    a, b = (np.array(grid).ravel() for grid in np.meshgrid(left, right, indexing="ij"))

    async def program(x: Any, y: Any) -> Any:
        return await all_comparisons(of_integers(x, kind), of_integers(y, kind))

    integer = RingType(kind.bits, 0, min(62, kind.bits - 2))
    for got, compare in zip(run(program, a, b, dtypes=(integer, integer)).value, OPERATORS, strict=True):
        assert np.array_equal(got, compare(a, b)), compare.__name__


WHOLE = 2**62 - 1  # sharing takes integers up to here


@pytest.mark.parametrize(
    ("kind", "top"),
    [
        (RingType(128, 0, 62), WHOLE),
        (RingType(128, 32, 30), WHOLE),
        (RingType(128, 60, 2), WHOLE),
        (RingType(64, 0, 62), WHOLE),
        (RingType(64, 20, 30), 2**50 - 1),
        (RingType(64, 20, 42), WHOLE),
        (RingType(128, 0, 1), 1),
        (RingType(64, 0, 1), 1),
        (RingType(128, 0, 8), 255),
    ],
    ids=lambda value: f"{value}+{value.span}" if isinstance(value, RingType) else None,
)
def test_ends_of_the_range(kind: RingType, top: int) -> None:
    points = sorted({-top, -top + 1, -top // 2, -1, 0, 1, top // 2, top - 1, top})
    check_pairs(points, points, kind)


def test_ends_of_the_default_range() -> None:
    # +-(2^30 - ulp) are no doubles: they are made of two shared numbers.
    high = np.array([2.0**30 - 1, 2.0**30 - 1, -(2.0**30 - 1), 0.0, 0.0, 0.0, 1.0, -(2.0**30 - 1)])
    low = np.array([1 - ULP, 1 - 2 * ULP, -(1 - ULP), 0.0, ULP, -ULP, 0.0, 0.0])
    exact = [int(h) * 2**40 + int(v * 2**40) for h, v in zip(high, low, strict=True)]
    i, j = (np.array(grid).ravel() for grid in np.meshgrid(range(8), range(8)))

    async def program(h: Any, v: Any) -> Any:
        x = (h + v).like((h + v).data, h.dtype)
        return [*await all_comparisons(x[i], x[j]), await x.sign(), await x.negative()]

    got = run(program, high, low).value
    for one, compare in zip(got, OPERATORS, strict=False):
        assert one.tolist() == [int(compare(exact[p], exact[q])) for p, q in zip(i, j, strict=True)], compare.__name__
    assert got[6].tolist() == [(v > 0) - (v < 0) for v in exact]
    assert got[7].tolist() == [int(v < 0) for v in exact]


def test_small_domain_exhaustively() -> None:
    everything = list(range(-7, 8))
    check_pairs(everything, everything, RingType(128, 0, 3))
    check_pairs(everything, everything, RingType(64, 2, 1))


@pytest.mark.parametrize("bound", [1, 3, 7, 8, 100])
def test_within_covers_its_bound(bound: int) -> None:
    a, b = (np.array(grid).ravel() for grid in np.meshgrid([-bound, -1, 0, 1, bound], [-bound, -1, 0, 1, bound]))

    async def program(x: Any, y: Any) -> Any:
        x, y = x.within(bound), y.within(bound)
        return [*await all_comparisons(x, y), await x.sign(), await x.lookup([-bound, 0, bound], [1, 2, 3, 4])]

    got = run(program, a, b).value
    for one, compare in zip(got, OPERATORS, strict=False):
        assert np.array_equal(one, compare(a, b))
    assert np.array_equal(got[6], np.sign(a))
    assert np.array_equal(got[7], 1 + np.searchsorted([-bound, 0, bound], a, side="right"))


@given(st.lists(st.tuples(st.integers(-WHOLE, WHOLE), st.integers(-WHOLE, WHOLE)), min_size=1, max_size=20))
def test_random_integers(pairs: list[tuple[int, int]]) -> None:
    a, b = np.array(pairs).T

    async def program(x: Any, y: Any) -> Any:
        return await all_comparisons(x, y)

    for got, compare in zip(run(program, a, b).value, OPERATORS, strict=True):
        assert np.array_equal(got, compare(a, b))


@given(st.lists(st.floats(-(2.0**29), 2.0**29), min_size=1, max_size=20), st.data())
def test_random_numbers_and_their_neighbours(values: list[float], data: st.DataObject) -> None:
    a = np.round(np.ldexp(values, 20)) * 2.0**-20
    steps = data.draw(st.lists(st.integers(-2, 2), min_size=a.size, max_size=a.size))
    b = a + 2.0**-22 * np.array(steps)  # doubles below 2^30 hold multiples of 2^-22 exactly

    async def program(x: Any, y: Any) -> Any:
        return [*await all_comparisons(x, y), *await all_comparisons(x, b), *await all_comparisons(a, y)]

    got = run(program, a, b).value
    for k, one in enumerate(got):
        assert np.array_equal(one, OPERATORS[k % 6](a, b)), k


def test_mixed_types_and_broadcasting() -> None:
    a, b = np.array([[1, 2, 3], [-(2**50), 0, 2**50]]), np.array([1.5, 2.0, -0.25])

    async def program(x: Any, y: Any) -> Any:
        return [*await all_comparisons(x, y), *await all_comparisons(y[1], x)]

    got = run(program, a, b).value
    for k, compare in enumerate(OPERATORS):
        assert np.array_equal(got[k], compare(a, b))
        assert np.array_equal(got[6 + k], compare(b[1], a))


@pytest.mark.parametrize(
    "public", [0, 1, -1, 0.5, 2.0**30, -(2.0**30), 2.0**31, 2.0**35, -(2.0**40), 2**33, np.uint8(1)]
)
def test_public_operands_within_and_beyond_the_range(public: Any) -> None:
    a = np.array([0.0, 1.0, -1.0, 0.5, ULP, 0.5 - ULP, 2.0**30 - 1, 1 - 2.0**30])

    async def program(x: Any) -> Any:
        return [*await all_comparisons(x, public), *await all_comparisons(x.within(2.0**30), public)]

    got = run(program, a).value
    for k, one in enumerate(got):
        assert np.array_equal(one, OPERATORS[k % 6](a, float(public))), k


def test_public_integers_at_the_ends() -> None:
    a = np.array([WHOLE, -WHOLE, 0])
    for kind in (INT, make_type(64, 0)):
        for public in (WHOLE, -WHOLE, WHOLE - 1, 0):

            async def program(x: Any, public: int = public) -> Any:
                return await all_comparisons(x, public)

            for got, compare in zip(run(program, a, dtypes=(kind,)).value, OPERATORS, strict=True):
                assert np.array_equal(got, compare(a, public))


def test_a_range_without_room_for_the_difference_is_refused() -> None:
    async def program(x: Any) -> Any:
        return await (x < x)

    with pytest.raises(ValueError, match=r"does not fit fixed64\.20: promise a smaller range"):
        run(program, np.array([1.0]), dtypes=(RingType(64, 20, 43),))


# -- sign, abs, selection --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [RingType(), make_type(64, 20), INT, make_type(64, 0)], ids=str)
def test_sign_and_abs(kind: RingType) -> None:
    top = 2**30 - 1
    ulp = 2.0**-kind.frac
    a = np.array([0.0, ulp, -ulp, 1.0, -1.0, top, -top])

    async def program(x: Any) -> Any:
        return [await x.sign(), await abs(x), await x.abs(), await x.negative()]

    got = run(program, a, dtypes=(kind,)).value
    for one, want in zip(got, [np.sign(a), np.abs(a), np.abs(a), a < 0], strict=True):
        assert np.array_equal(one, want)


def test_where_is_exact() -> None:
    rng = np.random.default_rng(12)
    a, b = np.round(rng.uniform(-(2.0**20), 2.0**20, (2, 60)) * 2**20) * 2.0**-20
    bits = rng.integers(0, 2, 60)

    async def program(bit: Any, x: Any, y: Any) -> Any:
        return [
            await where(bit, x, y), await bit.where(x, 1.5), await bit.where(-2, y), await bit.where(3, -4),
            await bit.where(0.25, 2.0), await where(await (x < y), x, y), await bit.where(x, x.sum()),
        ]  # fmt: skip

    got = run(program, bits, a, b).value
    pick = bits == 1
    want = [
        np.where(pick, a, b), np.where(pick, a, 1.5), np.where(pick, -2, b), np.where(pick, 3, -4),
        np.where(pick, 0.25, 2.0), np.minimum(a, b), np.where(pick, a, a.sum()),
    ]  # fmt: skip
    for one, expected in zip(got, want, strict=True):
        assert np.array_equal(one, expected)


# -- tables ----------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.integers(-32, 31), min_size=1, max_size=8, unique=True).map(sorted),
    st.data(),
)
def test_lookup_of_every_value(edges: list[int], data: st.DataObject) -> None:
    a = np.arange(-31, 32)
    table = data.draw(st.lists(st.integers(-(10**6), 10**6), min_size=len(edges) + 1, max_size=len(edges) + 1))

    async def program(x: Any) -> Any:
        x = x.within(31)
        half = x * 0.5
        return [await x.lookup(edges, table), await half.within(31).lookup(np.array(edges) / 4, np.array(table) / 8)]

    got = run(program, a).value
    assert np.array_equal(got[0], np.array(table)[np.searchsorted(edges, a, side="right")])
    assert np.array_equal(got[1], np.array(table)[np.searchsorted(np.array(edges) / 2, a, side="right")] / 8)


@pytest.mark.parametrize("kind", [RingType(128, 0, 4), RingType(64, 0, 4), RingType(64, 2, 2)], ids=str)
def test_thresholds_at_and_beyond_the_ends_of_the_range(kind: RingType) -> None:
    a = np.arange(-15, 16)  # all of |X| < 2^(frac + span)
    unit = 2.0**-kind.frac
    edges = np.array([-100, -17, -16, -15, -14, 0, 14, 15, 16, 17, 100]) * unit

    async def program(x: Any) -> Any:
        x = of_integers(x, kind)
        return [await x.lookup(edges, np.arange(12), frac=0), await x.lookup([50 * unit], [3, 5], frac=0)]

    got = run(program, a, dtypes=(RingType(kind.bits, 0, 8),)).value
    assert np.array_equal(got[0], np.searchsorted(edges, a * unit, side="right"))
    assert np.array_equal(got[1], np.full(31, 3))


def test_thresholds_between_two_representable_numbers() -> None:
    # x < t over the reals: a threshold half an ulp above x counts x as below, one half an ulp under it does not.
    a = np.array([1.0])

    async def program(x: Any) -> Any:
        return [await x.lookup([1 + ULP / 2], [7, 9], frac=0), await x.lookup([1 - ULP / 2], [7, 9], frac=0)]

    assert [int(v[0]) for v in run(program, a).value] == [7, 9]


def test_large_integers_in_tables() -> None:
    a = np.array([2**60, 2**60 + 1, 2**60 + 2, -(2**61) - 1])

    async def program(x: Any) -> Any:
        return await x.lookup([2**60 + 1], [2**61 + 1, -(2**61) - 1])

    assert run(program, a).value.tolist() == [2**61 + 1, -(2**61) - 1, -(2**61) - 1, 2**61 + 1]


def test_a_step_whose_low_word_is_one() -> None:
    # The step between the two values is 2^64 + 1 units: a gate that looked at its low word alone would take it for 1.
    async def program(x: Any) -> Any:
        return await x.lookup([0.0], [2.0**24, -ULP])

    assert run(program, np.array([-1.0, 1.0])).value.tolist() == [2.0**24, -ULP]


def test_classify_gives_several_functions_of_one_key() -> None:
    a = np.array([[-2.0, -1.0], [0.0, 0.75]])
    tables = [[1.0, 2.0, 3.0], [0.1, 0.2, 0.3], [-5.0, 0.0, 5.0]]

    async def program(x: Any) -> Any:
        return [await x.classify([-1.0, 0.5], tables), await x.classify([-1.0, 0.5], tables, frac=20)]

    want = np.moveaxis(np.array(tables)[:, np.searchsorted([-1.0, 0.5], a, side="right")], 0, -1)
    fine, coarse = run(program, a).value
    assert fine.shape == (2, 2, 3)
    assert np.max(np.abs(fine - want)) <= ULP / 2  # the table's own rounding
    assert np.max(np.abs(coarse - want)) <= 2.0**-21


@pytest.mark.parametrize(
    ("edges", "table", "message"),
    [
        ([], [1.0], "non-empty, strictly ascending"),
        ([2.0, 1.0], [1.0, 2.0, 3.0], "ascending"),
        ([1.0, 1.0], [1.0, 2.0, 3.0], "ascending"),
        (np.array([3, 2], np.uint8), [1.0, 2.0, 3.0], "ascending"),
        ([1.0, float("nan")], [1.0, 2.0, 3.0], "ascending"),
        ([1.0], [1.0, 2.0, 3.0], "1 thresholds make 2 intervals, got 3 values"),
    ],
)
def test_wrong_tables_are_refused(edges: Any, table: Any, message: str) -> None:
    async def program(x: Any) -> Any:
        return await x.lookup(edges, table)

    with pytest.raises(ValueError, match=message):
        run(program, np.array([1.0]))


def test_results_are_bits() -> None:
    async def program(x: Any, y: Any) -> Any:
        bit = await (x < y)
        assert bit.dtype == RingType(128, 0, 1)
        data[bit.party.seat] = bit.data
        return bit

    data: dict[int, Any] = {}
    run(program, np.array([1.0, 2.0]), np.array([2.0, 1.0]))
    for split, seats in ((0, (0, 2)), (1, (0, 1))):  # both splits hold the same exact bit
        assert ring.to_int64(ring.add(*(data[seat][split] for seat in seats))).tolist() == [1, 0]


@pytest.mark.parametrize("limbs", [1, 2])
@pytest.mark.parametrize("of_dealers", [(150, 70), (0, 200), (1, 3)])
def test_tables_with_many_thresholds(of_dealers: tuple[int, int], limbs: int) -> None:
    """Weights and bias are added up for each element with the key of its dealer: here x = m, since alpha = 0."""
    count, bits, n = 1 << 10, 20, sum(of_dealers)
    rng = np.random.default_rng(n)
    thresholds = np.sort(rng.choice(1 << bits, count, replace=False)).tolist()
    weights = rng.integers(0, 1 << 40, (count, 2))
    gate = threshold_gate(bits, limbs, thresholds, weights.tolist(), [5, 7])
    m = np.zeros((n, 2), np.uint64)
    m[:, 0] = rng.integers(0, 1 << bits, n, dtype=np.uint64)
    tree = kernels.TreeKey(bytes(range(32)))
    keys = [
        gate.generate(tree, np.zeros((part, 2), np.uint64), rng.integers(0, 2**64, (part, 4), dtype=np.uint64))
        for part in of_dealers
    ]
    shares = [gate.evaluate(tree, column, [pair[column].tobytes() for pair in keys], m) for column in (0, 1)]
    expected = (m[:, :1] < np.array(thresholds, np.uint64)).astype(np.int64) @ weights + np.array([5, 7])
    assert (ring.to_int64(ring.add(*shares)) == expected).all()
