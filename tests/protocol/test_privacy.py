"""What one server sees.

A view is all a seat receives in a run, and its initial shares. Over many runs with the SAME secret its bytes must be uniform.
Each statistical test shares its false-alarm probability of 1e-6 among the checks it makes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from harness.lockstep import run
from harness.privacy import FALSE_ALARM, SECRET, assert_uniform, fixed
from ppca.native import kernels
from ppca.protocol import (
    Held,
    Pending,
    SecretArray,
    make_type,
    share,
    together,
)
from ppca.protocol.inputs import receive
from ppca.protocol.party import Stream
from ppca.protocol.reshare import reshare


def views(program: Callable[..., Any], *inputs: Any, dtypes: Any = (), runs: int = 1) -> list[list[np.ndarray]]:
    """For each seat its initial shares and every message it received."""
    seen: list[list[np.ndarray]] = [[] for _ in range(4)]

    async def watched(*arrays: SecretArray) -> None:
        for array in arrays:
            seen[array.party.seat].append(array.data.reshape(-1).view(np.uint8).copy())
        await program(*arrays)

    for _ in range(runs):
        run(watched, *inputs, dtypes=dtypes, tap=lambda _, receiver, message: seen[receiver].append(message.copy()))
    return seen


async def reshare_both_rows(x: SecretArray) -> None:
    """Row 0 reshares x, row 1 too."""
    n = len(x)
    halves = slice(0, n), slice(n, 2 * n)
    own, theirs = halves if x.party.row == 0 else halves[::-1]
    await Pending(reshare(x.party, x.data[1], np.empty((2, 2 * n, x.dtype.limbs), np.uint64), own, theirs))


async def awaited(pending: Any) -> Any:
    return await pending


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], Any]] = {
    "shares": (lambda x: awaited(together()), (fixed(),), ()),
    "mul": (lambda x, y: awaited(x * y), (fixed(), fixed(-3.5)), ()),
    "mul by zero": (lambda x, y: awaited(x * y), (fixed(0.0), fixed(0.0)), ()),
    "matmul": (lambda x, y: awaited(x @ y), (fixed().reshape(20, 20), fixed(0.0).reshape(20, 20)), ()),
    "square": (lambda x: awaited(x.square()), (fixed(),), ()),
    "lt": (lambda x, y: awaited(x < y), (fixed(), fixed(7.0)), ()),
    "lt of equals": (lambda x: awaited(x < x), (fixed(0.0),), ()),
    "eq": (lambda x, y: awaited(x == y), (fixed(), fixed()), ()),
    "sign": (lambda x: awaited(x.sign()), (fixed(0.0),), ()),
    "lookup": (lambda x: awaited(x.lookup([1.0, 2.0], [1.0, 0.0, 0.0])), (fixed(),), ()),
    "normalise": (lambda x: awaited(x.normalise()), (fixed(),), ()),
    "coarse power": (lambda x: awaited(x.coarse_power(-0.5, 2.0**-20)), (fixed(),), ()),
    "mul, one split": (
        lambda x, y: awaited(x.mul(y, within=64, narrow=True, only=Held.LEFT)),
        (fixed(), fixed(0.0)),
        (),
    ),
    "slope": (lambda x: awaited(x.slope()), (fixed(-SECRET),), ()),
    "triangle": (lambda x, y: awaited(x.matmul_upper(y)), (fixed().reshape(20, 20), fixed(0.0).reshape(20, 20)), ()),
    "rsqrt": (lambda x: awaited(x.rsqrt()), (fixed(),), ()),
    "rsqrt of zero": (lambda x: awaited(x.rsqrt()), (fixed(0.0),), ()),
    "reciprocal": (lambda x: awaited(x.reciprocal(signed=True)), (fixed(-SECRET),), ()),
    "shuffle": (lambda x: awaited(x.shuffle()), (fixed(),), ()),
    "reshare": (reshare_both_rows, (fixed(),), ()),
    "truncate": (lambda x: awaited(x.truncate(20)), (fixed(0.0),), ()),
    "truncate negative": (lambda x: awaited(x.truncate(20)), (fixed(-SECRET),), ()),
    "extend": (lambda x: awaited(x.extend()), (fixed(-SECRET),), (make_type(64, 20),)),
    "mul 64": (lambda x, y: awaited(x.mul(y, exact=True)), (fixed(0.0), fixed()), (make_type(64, 20),) * 2),
    "where": (lambda x: awaited(x.where(3.5, x)), (fixed(1),), ()),
    "abs": (lambda x: awaited(abs(x)), (fixed(-SECRET),), ()),
}


MATRICES = ("matmul", "triangle")


@pytest.mark.parametrize("name", CASES)
def test_one_servers_view_is_uniform(name: str) -> None:
    program, inputs, dtypes = CASES[name]
    seen = views(program, *inputs, dtypes=dtypes, runs=2)
    for seat in range(4):
        assert_uniform(np.concatenate(seen[seat]), f"{name}, seat {seat}", checks=4)


def assert_unrelated(view: list[np.ndarray], label: str, seats: int = 4) -> None:
    """Sums and differences of any two parts of a view that have the same number of ring elements are uniform, too."""
    words = [part.view(np.uint64) for part in view if part.size % 8 == 0 and part.size >= 400]
    pairs = [(a, b) for i, a in enumerate(words) for b in words[:i] if a.size == b.size]
    for a, b in pairs:
        for mixed in (a + b, a - b):
            assert_uniform(mixed.view(np.uint8), label, checks=2 * len(pairs) * seats)


@pytest.mark.parametrize("name", CASES)
def test_no_two_parts_of_a_view_are_related(name: str) -> None:
    # Uniform parts could still add up to the secret, or be masked alike: then some sum or difference would be constant.
    program, inputs, dtypes = CASES[name]
    if name not in MATRICES:
        inputs = tuple(np.asarray(values)[:100] for values in inputs)
    seen = views(program, *inputs, dtypes=dtypes)
    for seat in range(4):
        splits = [half for part in seen[seat][: len(inputs)] for half in np.split(part, 2)]
        assert_unrelated(splits + seen[seat][len(inputs) :], f"{name}, seat {seat}")


def test_the_tests_notice_missing_and_repeated_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    # The control: without masks a reshare hands over shares the receiver knows; with the same masks twice messages repeat.
    class Silent:
        def __getattr__(self, name: str) -> Any:
            return getattr(kernels, name)

        @staticmethod
        def reshare_out(data: np.ndarray, start: int, message: np.ndarray, pieces: np.ndarray, *_: Any) -> None:
            message[...] = pieces  # what is left when the masks are zero

    with monkeypatch.context() as patch:
        patch.setattr("ppca.protocol.reshare.kernels", Silent())
        seen = views(reshare_both_rows, fixed())
    with pytest.raises(AssertionError, match=r"histogram|balanced"):
        assert_unrelated(np.split(seen[0][0], 2) + seen[0][1:], "unmasked")

    async def repeated(x: Any) -> None:
        await (x * x)
        x.party._ops = 0
        await (x * x)

    with monkeypatch.context() as patch:
        patch.setattr(Stream, "claim", lambda *_: None)
        seen = views(repeated, fixed())
    with pytest.raises(AssertionError, match=r"histogram|balanced"):
        assert_unrelated(seen[0][1:], "repeated")


@pytest.mark.parametrize("name", CASES)
def test_each_message_position_is_uniform_over_runs(name: str) -> None:
    # The same message of the same protocol over 30 runs with one secret: a constant or biased word would show. With 256
    # elements each dealer masks 64, so that no packed message ends in padding, and packed bits are enough to judge.
    program, inputs, dtypes = CASES[name]
    small = [np.asarray(values).reshape(-1)[:256] for values in inputs]
    if name in MATRICES:
        small = [small[0][:32].reshape(4, 8), small[1][:32].reshape(8, 4)]
    repeats = 30
    seen = views(program, *small, dtypes=dtypes, runs=repeats)
    for seat in range(4):
        per_run = len(seen[seat]) // repeats
        for position in range(per_run):
            column = np.concatenate([seen[seat][i * per_run + position] for i in range(repeats)])
            if column.size:
                assert_uniform(column, f"{name}, seat {seat}, message {position}", checks=4 * per_run)


@pytest.mark.parametrize("name", CASES)
def test_a_view_does_not_depend_on_the_secret(name: str) -> None:
    # Two secrets, one statistic: the mean of every byte position. Differences stay within chance (z-test).
    program, inputs, dtypes = CASES[name]
    if name == "where":
        others: tuple[Any, ...] = (np.zeros(4, np.int64),)
    else:
        others = tuple(np.full(4, 1000.5) for _ in inputs)
    first = [np.asarray(values).reshape(-1)[:4] for values in inputs]
    if name in MATRICES:
        first, others = [v.reshape(2, 2) for v in first], tuple(v.reshape(2, 2) for v in others)
    repeats = 60
    means = []
    for secret in (first, others):
        seen = views(program, *secret, dtypes=dtypes, runs=repeats)
        means.append([np.concatenate(part).reshape(repeats, -1).mean(axis=0) for part in seen])
    for seat in range(4):
        difference = means[0][seat] - means[1][seat]
        sigma = np.sqrt(2 * (256**2 - 1) / 12 / repeats)
        assert np.max(np.abs(difference)) < norm.isf(FALSE_ALARM / 8 / difference.size) * sigma, f"{name}, seat {seat}"


def test_evaluators_do_not_see_the_dealers_mask_twice() -> None:
    # The masked values of two comparisons of one secret differ: each gate draws its own alpha.
    messages: list[bytes] = []

    async def program(x: Any) -> None:
        for _ in range(20):
            await x.negative()

    run(program, np.array([SECRET]), tap=lambda sender, receiver, message: messages.append(message.tobytes()))
    opened = [message for message in messages if len(message) == 9]  # 71 bits of x + alpha, to both evaluators
    assert len(opened) == 40
    assert len(set(opened)) == 20


def test_input_packets_are_uniform() -> None:
    for seat in range(4):
        parts = [share(fixed())[seat] for _ in range(20)]
        payload = b"".join(packet.row + packet.column for packet in parts)
        assert_uniform(np.frombuffer(payload, np.uint8), f"packet of seat {seat}", checks=8)
        data = np.concatenate([receive(packet, *divmod(seat, 2)).reshape(-1) for packet in parts])
        assert_uniform(data.view(np.uint8), f"shares of seat {seat}", checks=8)
    keys = {packet.row for _ in range(50) for packet in share([1.0])[:1]}
    assert len(keys) == 50


def test_the_two_splits_are_independent() -> None:
    # Row and column share of one seat, and their sum and difference, are uniform: one split says nothing about the other.
    packets = share(np.full(4000, SECRET))
    for seat in range(4):
        row, column = receive(packets[seat], *divmod(seat, 2))
        for mixed in (row ^ column, row + column, row - column):
            assert_uniform(mixed.reshape(-1).view(np.uint8), f"seat {seat}", checks=12)
