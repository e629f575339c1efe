"""Declared rounds and bytes are the measured ones, for every protocol, byte by byte and seat by seat."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from harness.lockstep import Ended, run
from ppca.protocol import Held, Pending, SecretArray, make_type, together
from ppca.protocol.cost import PROTOCOLS
from ppca.protocol.gates import PASS_ELEMENTS
from ppca.protocol.reshare import reshare
from ppca.protocol.signs import sign_bytes
from ppca.protocol.wrap import SENT_WORDS

SIZES = (1, 2, 3, 5, 64, 1000)
SMALLER = {
    "matmul": 64,
    "matmul, tight": 64,
    "sort": 64,
}  # n x n outputs, n (n - 1) / 2 comparisons: the largest n of the test


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).uniform(0.5, 2.0, shape)


async def reshare_from_row_0(x: SecretArray) -> SecretArray:
    everything, nothing = slice(0, len(x)), slice(0, 0)
    own, theirs = (everything, nothing) if x.party.row == 0 else (nothing, everything)
    data = np.empty_like(x.data)
    await Pending(reshare(x.party, x.data[1, own], data, own, theirs))
    return x.like(data)


def binary(operation: Callable[[Any, Any], Any]) -> Callable[[int], Ended]:
    async def program(x: Any, y: Any) -> Any:
        return await operation(x, y)

    return lambda n: run(program, numbers(n), numbers(n))


def unary(operation: Callable[[Any], Any]) -> Callable[[int], Ended]:
    async def program(x: Any) -> Any:
        return await operation(x)

    return lambda n: run(program, numbers(n))


def matmul(within: float | None) -> Callable[[int], Ended]:
    async def program(x: Any, y: Any) -> Any:
        return await x.matmul(y, within=within)

    return lambda n: run(program, numbers(n, n) / n, numbers(n, n))


def extend(n: int) -> Ended:
    async def program(x: Any) -> Any:
        return await x.extend()

    return run(program, numbers(n), dtypes=(make_type(64, 20),))


RUNNERS: dict[str, Callable[[int], Ended]] = {
    "mul": binary(lambda x, y: x * y),
    "mul, tight": binary(lambda x, y: x.within(8) * y.within(7)),
    "mul, one split": binary(lambda x, y: x.mul(y, within=1.9, narrow=True, only=Held.LEFT)),
    "mul, narrow": binary(lambda x, y: x.mul(y, within=1.9, narrow=True)),
    "mul, upper half": binary(lambda x, y: x.mul_high(y)),
    "matmul": matmul(None),
    "matmul, tight": matmul(100.0),
    "open": unary(lambda x: x.open(why="test")),
    "reshare": unary(reshare_from_row_0),
    "lt": binary(lambda x, y: x < y),
    "eq": binary(lambda x, y: x == y),
    "negative": unary(lambda x: x.negative()),
    "sign": unary(lambda x: x.sign()),
    "table": unary(lambda x: x.lookup([-1.0, 0.25, 1.0, 7.5], [1.0, 2.0, 3.0, 4.0, 5.0])),
    "rsqrt": unary(lambda x: x.rsqrt()),
    "sqrt": unary(lambda x: x.sqrt()),
    "reciprocal": unary(lambda x: x.reciprocal()),
    "truncate": unary(lambda x: x.truncate(20)),
    "extend": extend,
    "shuffle": unary(lambda x: x.shuffle()),
    "sort": unary(lambda x: x.sort()),
}


def test_every_protocol_has_a_runner() -> None:
    assert set(RUNNERS) == set(PROTOCOLS)


@pytest.mark.parametrize("name", sorted(PROTOCOLS))
def test_measured_equals_declared(name: str) -> None:
    cost = PROTOCOLS[name]
    for n in SIZES:
        n = min(n, SMALLER.get(name, n))
        traffic = RUNNERS[name](n).traffic
        assert traffic.rounds == cost.rounds(n), f"{name}: rounds at n = {n}"
        assert traffic.sent == [cost.sent(seat, n) for seat in range(4)], f"{name}: bytes at n = {n}"


@pytest.mark.parametrize(
    ("names", "rounds"),
    [
        ("mul, tight; mul, upper half; matmul, tight; open; reshare; truncate; extend", 1),
        ("mul; matmul; lt; eq; negative; sign; table; shuffle", 2),
    ],
)
def test_promised_rounds(names: str, rounds: int) -> None:
    for name in names.split("; "):
        assert [PROTOCOLS[name].rounds(n) for n in SIZES] == [rounds] * len(SIZES), name


@pytest.mark.parametrize("name", ["rsqrt", "sqrt", "reciprocal"])
def test_functions_take_at_most_ten_rounds(name: str) -> None:
    assert max(PROTOCOLS[name].rounds(n) for n in SIZES) <= 10


@pytest.mark.parametrize(
    ("operation", "rounds"),
    [
        (lambda x, y: x.reciprocal(signed=True), 10),
        (lambda x, y: x / y, 12),
        (lambda x, y: 1.0 / x, 10),
        (lambda x, y: x.within(2.0**16).sqrt(), 8),
        (lambda x, y: x.normalise(), 3),
        (lambda x, y: x.normalise(exact=True), 3),
        (lambda x, y: x.sign(), 2),
        (lambda x, y: x <= y, 2),
        (lambda x, y: x != 1.5, 2),
        (lambda x, y: abs(x), 3),
        (lambda x, y: x.classify([1.0], [[1, 2], [3, 4], [5, 6]]), 2),
        (lambda x, y: x.mul(y, exact=True), 2),
        (lambda x, y: x.inner(y), 2),
        (lambda x, y: x.inner(y, within=100), 1),
        (lambda x, y: x.square(), 2),
        (lambda x, y: x.within(3).square(), 1),
        (lambda x, y: x.mul(y, frac=80), 1),
        (lambda x, y: x.astype(20) * y.astype(20), 1),
        (lambda x, y: x.ranks(), 2),
        (lambda x, y: x.argsort(), 5),
        (lambda x, y: x.polynomial([1.0, 2.0]), 0),
        (lambda x, y: x.polynomial([1.0, 2.0, 3.0]), 2),
        (lambda x, y: x.polynomial([1.0, 2.0, 3.0], within=2), 1),
        (lambda x, y: x.polynomial([1.0, 2.0, 3.0, 4.0], within=2), 2),
        (lambda x, y: (x * 0.5).polynomial([0.1] * 5, within=1), 3),
        (lambda x, y: (x * 0.5).polynomial([0.1] * 9, within=1), 4),
        (lambda x, y: (x * 0.5).polynomial([0.1] * 16, within=1), 4),
        (lambda x, y: (x * 0.5).polynomial([0.1] * 17, within=1), 5),
        (lambda x, y: x.polynomial([0.1] * 5), 6),
    ],
)
def test_documented_rounds_of_composites(operation: Callable[[Any, Any], Any], rounds: int) -> None:
    assert binary(operation)(3).traffic.rounds == rounds


def test_large_batches_run_in_passes() -> None:
    # Five-bit keys keep the test small: |x| <= 7 needs 3 bits, a difference 1 more, its sign 1 more.
    n, width = PASS_ELEMENTS + 1000, 5
    values = np.random.default_rng(2).integers(-7, 8, (2, n))

    async def program(x: Any, y: Any) -> Any:
        return await (x.within(7) < y.within(7))

    outcome = run(program, *values)
    assert np.array_equal(outcome.value, values[0] < values[1])
    assert outcome.traffic.rounds == PROTOCOLS["lt"].rounds(n) == 4
    assert outcome.traffic.sent == [sign_bytes(seat, n, width) for seat in range(4)]


def test_one_server_never_carries_the_batch() -> None:
    # Dealing is split four ways and evaluation two ways: at n = 4000 no seat sends more than 1% above another. (In an exact
    # truncation seat 3 sends two words of 64 bits more than seat 0.)
    for name in ("lt", "eq", "negative", "sign", "table", "rsqrt", "mul, tight", "shuffle"):
        sent = [PROTOCOLS[name].sent(seat, 4000) - (name == "rsqrt") * SENT_WORDS[seat] * 4000 * 8 for seat in range(4)]
        assert max(sent) <= 1.01 * min(sent), name


def test_together_costs_the_longest_part() -> None:
    async def program(x: Any, y: Any) -> Any:
        return await together(x * y, x < y, x.rsqrt(), x.open(why="test"))

    outcome = run(program, numbers(7), numbers(7))
    names = ("mul", "lt", "rsqrt", "open")
    assert outcome.traffic.rounds == max(PROTOCOLS[name].rounds(7) for name in names)
    assert outcome.traffic.sent == [sum(PROTOCOLS[name].sent(seat, 7) for name in names) for seat in range(4)]
