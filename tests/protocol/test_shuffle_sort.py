"""Shuffles are uniform permutations of rows; sorts are stable, exact, and open nothing but a random permutation."""

from __future__ import annotations

from collections import Counter
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from harness.lockstep import run
from ppca.protocol import RingType, make_type

FALSE_ALARM = 1e-7


@pytest.mark.parametrize("shape", [(1,), (2,), (7,), (5, 3), (4, 2, 2), (0,), (3, 0)])
def test_shuffle_permutes_rows(shape: tuple[int, ...]) -> None:
    a = np.arange(np.prod(shape, dtype=int)).reshape(shape)

    async def program(x: Any) -> Any:
        return await x.shuffle()

    got = run(program, a).value
    assert got.shape == a.shape
    assert sorted(got.tolist()) == a.tolist()  # rows are ascending


def test_shuffle_of_the_64_bit_ring() -> None:
    async def program(x: Any) -> Any:
        return await x.shuffle()

    a = np.array([1.5, -2.0, 3.25])
    assert sorted(run(program, a, dtypes=(make_type(64, 20),)).value.tolist()) == sorted(a.tolist())


@pytest.mark.parametrize("n", [3, 4])
def test_shuffle_is_uniform(n: int) -> None:
    # Many shuffles in one run: each draws from fresh stream addresses. Chi-square over all n! orders.
    runs = 2400

    async def program(x: Any) -> Any:
        return [await x.shuffle() for _ in range(runs)]

    counts = Counter(tuple(order.tolist()) for order in run(program, np.arange(n)).value)
    orders = list(permutations(range(n)))
    assert set(counts) <= set(orders)
    expected = runs / len(orders)
    statistic = sum((counts[order] - expected) ** 2 / expected for order in orders)
    assert statistic < chi2.isf(FALSE_ALARM, len(orders) - 1)


def test_each_row_knows_one_factor_only() -> None:
    # What one row drew says nothing about the result: given row 0's permutation, all six orders remain, evenly.
    from ppca.protocol import shuffle

    drawn: list[tuple[int, ...]] = []
    original = shuffle.permutation

    def spy(party: Any, n: int, op: int) -> Any:
        order = original(party, n, op)
        if party.seat == 0:
            drawn.append(tuple(order.tolist()))
        return order

    async def program(x: Any) -> Any:
        return [await x.shuffle() for _ in range(2400)]

    shuffle.permutation = spy
    try:
        results = run(program, np.arange(3)).value
    finally:
        shuffle.permutation = original
    table = Counter(zip(drawn, (tuple(order.tolist()) for order in results), strict=True))
    orders = list(permutations(range(3)))
    expected = 2400 / 36
    statistic = sum((table[one, two] - expected) ** 2 / expected for one in orders for two in orders)
    assert statistic < chi2.isf(FALSE_ALARM, 35)


VALUES = [
    [3.0],
    [2.0, 1.0],
    [1.0, 2.0],
    [1.0, 1.0],
    [0.0, -1.5, 2.25, -1.5, 0.0, 2.0**30 - 1, 1 - 2.0**30, 2.0**-40, -(2.0**-40)],
]


@pytest.mark.parametrize("values", VALUES, ids=len)
def test_sort(values: list[float]) -> None:
    a = np.array(values)
    payload, matrix = np.arange(a.size), np.arange(2.0 * a.size).reshape(-1, 2) / 4

    async def program(x: Any, p: Any, m: Any) -> Any:
        return [
            await x.sort(), await x.sort(descending=True), await x.argsort(), await x.argsort(descending=True),
            await x.ranks(), *await x.sort(p, m), *await x.sort(m, descending=True),
        ]  # fmt: skip

    up, down = np.argsort(a, kind="stable"), np.argsort(-a, kind="stable")
    want = [a[up], a[down], up, down, np.argsort(up), a[up], payload[up], matrix[up], a[down], matrix[down]]
    for got, expected in zip(run(program, a, payload, matrix).value, want, strict=True):
        assert np.array_equal(got, expected)


def test_argsort_in_the_64_bit_ring() -> None:
    a = np.array([3, -1, 2, -1, 0])

    async def program(x: Any) -> Any:
        return await x.within(20).argsort()

    assert np.array_equal(run(program, a, dtypes=(make_type(64, 0),)).value, np.argsort(a, kind="stable"))


@given(st.lists(st.integers(-20, 20), min_size=1, max_size=12), st.booleans())
def test_sort_of_random_integers_with_ties(values: list[int], descending: bool) -> None:
    a = np.array(values)

    async def program(x: Any) -> Any:
        return [await x.within(20).argsort(descending), await x.sort(descending=descending)]

    order = np.argsort(-a if descending else a, kind="stable")
    got = run(program, a).value
    assert np.array_equal(got[0], order)
    assert np.array_equal(got[1], a[order])


@pytest.mark.parametrize("kind", [make_type(64, 0), make_type(64, 20), RingType(128, 0, 62)], ids=str)
def test_sort_in_other_types(kind: RingType) -> None:
    a = np.array([5, -3, 5, 0, 2**29])

    async def program(x: Any) -> Any:
        return [await x.sort(), await x.ranks()]

    got = run(program, a, dtypes=(kind,)).value
    assert np.array_equal(got[0], np.sort(a))
    assert np.array_equal(got[1], np.argsort(np.argsort(a, kind="stable")))


def test_sort_opens_shuffled_ranks_only() -> None:
    async def program(x: Any) -> Any:
        await x.sort()

    outcome = run(program, np.array([3.0, 1.0, 2.0]))
    for audit in outcome.audits:
        assert [(line.what, line.shape, line.to, line.why) for line in audit] == [
            ("shuffled ranks", (3,), "servers", "sort")
        ]


def test_the_opened_ranks_are_uniform() -> None:
    # Whatever the order of the secret, servers see a uniform permutation. Chi-square over the six orders.
    from ppca.protocol import shuffle

    seen: list[tuple[int, ...]] = []
    original = shuffle.open_to_servers

    def spy(x: Any, what: str, why: str) -> Any:
        values = yield from original(x, what, why)
        if x.party.seat == 0:
            seen.append(tuple(values.tolist()))
        return values

    async def program(x: Any) -> Any:
        x = x.within(3)
        for _ in range(600):
            await x.sort()

    shuffle.open_to_servers = spy
    try:
        run(program, np.array([1, 2, 3]))
    finally:
        shuffle.open_to_servers = original
    counts = Counter(seen)
    statistic = sum((counts[order] - 100) ** 2 / 100 for order in permutations(range(3)))
    assert statistic < chi2.isf(FALSE_ALARM, 5)


def test_wrong_shapes_are_refused() -> None:
    async def of_matrix(x: Any) -> Any:
        return await x.sort()

    with pytest.raises(ValueError, match="needs a vector, got shape"):
        run(of_matrix, np.ones((2, 2)))

    async def with_payload(x: Any, p: Any) -> Any:
        return await x.sort(p)

    with pytest.raises(ValueError, match=r"payload of shape \(2,\) does not go with 3 keys"):
        run(with_payload, np.ones(3), np.ones(2))


def test_empty_vectors() -> None:
    async def program(x: Any) -> Any:
        return [await x.sort(), await x.argsort(), await x.ranks()]

    for got in run(program, np.empty(0)).value:
        assert got.shape == (0,)
