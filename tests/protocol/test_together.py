"""Rounds: merging with `together`, results in order, desynchronised programs found, and the same results over a transport."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.lockstep import run
from harness.memory import memory_meshes
from ppca.native import kernels
from ppca.protocol import (
    Pending,
    Round,
    SecretArray,
    agree_keys,
    drive,
    local_parties,
    run_lockstep,
    share,
    together,
    unseal,
)
from ppca.protocol.rounds import DesynchronisedError, Step
from ppca.transport.mesh import split_frames


async def chain(x: Any, rounds: int) -> Any:
    """A program of so many rounds."""
    for _ in range(rounds):
        x = await (x * 1.0).mul(x.zeros(x.shape) + 1, within=100)
    return x


@given(st.lists(st.integers(0, 4), max_size=5))
def test_parts_of_different_lengths(lengths: list[int]) -> None:
    values = np.array([1.0, -2.0])

    async def program(x: Any) -> Any:
        return await together(*(chain(x + i, length) for i, length in enumerate(lengths)))

    outcome = run(program, values)
    assert outcome.traffic.rounds == max(lengths, default=0)
    assert [part.tolist() for part in outcome.value] == [(values + i).tolist() for i in range(len(lengths))]


def test_nesting() -> None:
    async def inner(x: Any, y: Any) -> Any:
        product, less = await together(x * y, x < y)
        return product + less

    async def outer(x: Any, y: Any) -> Any:
        first, (second, third), fourth = await together(
            inner(x, y), together(y * y, together(x == y, x * x)), x.open(why="test")
        )
        return [first, second, *third, fourth]

    a, b = np.array([1.0, 2.0, 4.0]), np.array([2.0, 2.0, 3.0])
    outcome = run(outer, a, b)
    assert outcome.traffic.rounds == 2
    want = [a * b + (a < b), b * b, a == b, a * a, a]
    for got, expected in zip(outcome.value, want, strict=True):
        assert np.array_equal(got, expected)


def test_coroutines_generators_and_pendings_mix() -> None:
    def protocol(x: SecretArray) -> Step[str]:
        yield Round([], [])
        return f"protocol of {x.shape}"

    async def nothing() -> str:
        return "no rounds"

    async def program(x: Any) -> Any:
        kept = await together(nothing(), Pending(protocol(x)), x * x, chain(x, 3))
        assert kept[:2] == ["no rounds", "protocol of (2,)"]
        return kept[2:]

    outcome = run(program, np.array([1.5, 2.0]))
    assert outcome.traffic.rounds == 3
    assert [part.tolist() for part in outcome.value] == [[2.25, 4.0], [1.5, 2.0]]


def test_together_of_nothing() -> None:
    async def program(x: Any) -> Any:
        assert await together() == []
        return x

    assert run(program, np.array([1.0])).traffic.rounds == 0


def test_the_same_part_twice_is_an_error() -> None:
    async def program(x: Any) -> Any:
        product = x * x
        return await together(product, product)

    with pytest.raises(RuntimeError, match="awaited before"):
        run(program, np.array([1.0]))


def test_an_error_in_one_part_comes_out() -> None:
    async def failing(x: Any) -> Any:
        await (x * x)
        raise ArithmeticError("in the second round")

    async def program(x: Any) -> Any:
        return await together(x < 1, failing(x))

    with pytest.raises(ArithmeticError, match="in the second round"):
        run(program, np.array([1.0]))


# -- programs that disagree ------------------------------------------------------------------------------------------


def four(programs: list[Any]) -> Any:
    try:
        return run_lockstep(programs)
    finally:
        for program in programs:
            program.close()


async def one_round(sends: list[Any], expects: list[Any]) -> Any:
    def step() -> Step[Any]:
        return (yield Round(sends, expects))

    return await Pending(step())


def test_different_operations_are_detected() -> None:
    parties, packets = local_parties(), share([1.0, 2.0])

    async def program(seat: int) -> Any:
        x = SecretArray.from_packet(parties[seat], packets[seat])
        return await (x * x if seat else x < 1.0)

    with pytest.raises(DesynchronisedError, match="round 0"):
        four([program(seat) for seat in range(4)])


def test_one_that_ends_early_is_detected() -> None:
    parties, packets = local_parties(), share([1.0, 2.0])

    async def program(seat: int) -> Any:
        x = SecretArray.from_packet(parties[seat], packets[seat])
        y = await (x * x)
        return y if seat == 2 else await (y * y)

    with pytest.raises(DesynchronisedError, match=r"programs of servers \[2\] ended before round 2"):
        four([program(seat) for seat in range(4)])


def test_sizes_and_surplus_messages_are_detected() -> None:
    message = np.zeros(8, np.uint8)
    quiet = [one_round([], []) for _ in range(2)]
    with pytest.raises(DesynchronisedError, match="server 1 expects 9 bytes from server 0, found 8 bytes"):
        four([one_round([(1, message)], []), one_round([], [(0, 9)]), *quiet])
    quiet = [one_round([], []) for _ in range(2)]
    with pytest.raises(DesynchronisedError, match="server 1 expects 8 bytes from server 0, found nothing"):
        four([one_round([], []), one_round([], [(0, 8)]), *quiet])
    quiet = [one_round([], []) for _ in range(3)]
    with pytest.raises(DesynchronisedError, match=r"unexpected messages .*\(0, 1\): 1"):
        four([one_round([(1, message)], []), *quiet])


def test_messages_of_one_pair_keep_their_order() -> None:
    first, second = np.arange(8, dtype=np.uint8), np.arange(8, 12, dtype=np.uint8)
    programs = [one_round([(1, first), (2, second), (1, second)], []), one_round([], [(0, 8), (0, 4)])]
    results, traffic = four([*programs, one_round([], [(0, 4)]), one_round([], [])])
    assert [piece.tolist() for piece in results[1]] == [first.tolist(), second.tolist()]
    assert traffic.sent == [16, 0, 0, 0]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=12))
def test_merged_frames_are_cut_back(expects: list[tuple[int, int]]) -> None:
    rng = np.random.default_rng(20)
    pieces = [rng.integers(0, 256, size, dtype=np.uint8) for _, size in expects]
    payloads = {
        peer: np.concatenate([piece for (to, _), piece in zip(expects, pieces, strict=True) if to == peer])
        for peer in {peer for peer, _ in expects}
    }
    for got, want in zip(split_frames(expects, payloads), pieces, strict=True):
        assert np.array_equal(got, want)


# -- over a transport ------------------------------------------------------------------------------------------------


async def mixture(x: Any, y: Any) -> list[Any]:
    """Exact results only, so that two runs agree to the last bit; every link and many merged messages are used."""
    product, less, moved = await together(x * y, x < y, x.shuffle())
    ordered, root, gram = await together(y.sort(), (y * y).sum(), x.reshape(2, 2) @ y.reshape(2, 2))
    exact, empty = await together(product.truncate(20), x[:0] * y[:0])
    opened = await (await (moved == 3)).sum().open(why="test")
    assert int(opened) == 1
    return [item.reveal("test", why="test") for item in (product, less, ordered, root, gram, exact, empty)]


def test_threads_over_a_mesh_give_the_same_as_lockstep() -> None:
    a, b = np.array([1.0, 2.0, 3.0, -4.0]), np.array([2.0, 0.5, 3.0, 8.0])
    packets = [share(a), share(b)]

    async def server(seat: int) -> tuple[list[Any], list[Any]]:
        party = await Pending(agree_keys(seat, b"session"))
        arrays = [SecretArray.from_packet(party, packet[seat]) for packet in packets]
        return await mixture(*arrays), party.audit

    meshes = memory_meshes(timeout=60)
    with ThreadPoolExecutor(4) as threads:
        futures = [threads.submit(drive, server(seat), meshes[seat]) for seat in range(4)]
        over_mesh = [future.result() for future in futures]
    in_lockstep, traffic = run_lockstep([server(seat) for seat in range(4)])

    for results in (over_mesh, in_lockstep):
        product, less, ordered, root, gram, exact, empty = (
            unseal(parts) for parts in zip(*(r[0] for r in results), strict=True)
        )
        assert np.array_equal(product, a * b)
        assert np.array_equal(less, a < b)
        assert np.array_equal(ordered, np.sort(b))
        assert root == (b * b).sum()
        assert np.array_equal(gram, a.reshape(2, 2) @ b.reshape(2, 2))
        assert np.array_equal(exact, a * b)
        assert empty.shape == (0,)
    assert [mesh.step for mesh in meshes] == [traffic.rounds] * 4
    assert [sum(mesh.stats.current.sent_to) for mesh in meshes] == traffic.sent
    lines = [[(line.what, line.shape) for line in result[1]] for result in over_mesh + in_lockstep]
    assert all(line == lines[0] for line in lines)


def test_agreed_keys() -> None:
    parties, traffic = run_lockstep([_agree(seat, b"one") for seat in range(4)])
    assert traffic.rounds == 1
    # One draw for each of the four pairs, the nonce to all, and the digest of every server to the three others.
    assert traffic.sent == [2 * 32 + 3 * 32 + 3 * 16, 32 + 3 * 16, 32 + 3 * 16, 3 * 16]

    def draw(party: Any, stream: str) -> bytes:
        return getattr(party, stream).draw((4,), 2, 1, 0).tobytes()

    rows, columns = [draw(p, "row_stream") for p in parties], [draw(p, "column_stream") for p in parties]
    assert rows[0] == rows[1]
    assert rows[2] == rows[3]
    assert columns[0] == columns[2]
    assert columns[1] == columns[3]
    assert len({rows[0], rows[2], columns[0], columns[1]}) == 4
    again, _ = run_lockstep([_agree(seat, b"one") for seat in range(4)])
    assert draw(again[0], "row_stream") != rows[0]  # the same session name, other keys


def test_agreed_tree_keys() -> None:
    """The four servers of a run make the same FSS keys of the same seeds; two runs, of the same session name, different ones."""

    def made(party: Any) -> bytes:
        keys = np.zeros((2, 3, kernels.dpf_key_size(16, 2)), np.uint8)
        alpha, seeds = np.zeros((3, 2), np.uint64), np.arange(12, dtype=np.uint64).reshape(3, 4)
        kernels.dpf_gen(keys[0], keys[1], party.tree, alpha, 16, 2, seeds)
        return keys.tobytes()

    runs = [run_lockstep([_agree(seat, b"one") for seat in range(4)])[0] for _ in range(2)]
    by_run = [{made(party) for party in parties} for parties in (*runs, local_parties(), local_parties())]
    assert [len(keys) for keys in by_run] == [1, 1, 1, 1]
    assert len(set.union(*by_run)) == 4


async def _agree(seat: int, session: bytes) -> Any:
    return await Pending(agree_keys(seat, session))
