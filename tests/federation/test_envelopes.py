"""An owner's stream: cut anywhere it is refused, over several chunks it comes back, and memory stays bounded."""

from __future__ import annotations

import contextlib
import itertools
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.federation import IDENTITIES, OWNERS, SERVER_KEYS, contribution, job
from ppca.federation import envelopes as module
from ppca.federation.envelopes import Envelopes, message_of, messages, opened, summands_at
from ppca.federation.errors import ObjectRefused
from ppca.federation.objects import Object
from ppca.native import ring
from ppca.protocol import InputPacket, RingType, share
from ppca.protocol.inputs import blocks, receive
from ppca.runtime.control import encode

JOB = job()
PUBLIC = [key.public for key in SERVER_KEYS]


def sent(count: int, shape: tuple[int, ...] = (5, 3)) -> tuple[list[list[Object]], Object]:
    """Envelopes by server, and the contribution."""
    made: list[list[Object]] = [[], [], [], []]
    envelopes = Envelopes(IDENTITIES["north"], JOB.id, PUBLIC, lambda item: made[item.header.about["to"]].append(item))
    for number in range(count):
        envelopes.add("rows", [share(np.full(shape, float(number)))], tags=None, number=number)
    envelopes.add("packets", [share(np.ones(2)), share(np.zeros(3))])
    last = envelopes.finish()
    assert envelopes.bytes_sent == sum(len(item.data) for each in made for item in each)
    return made, last


def plain(items: list[Object], seat: int) -> list[bytes]:
    return list(opened(items, SERVER_KEYS[seat], seat))


def test_every_server_gets_its_packets_and_the_digests_fit() -> None:
    made, last = sent(3)
    said = last.json()
    assert said["chunks"] == [[item.digest for item in each] for each in made]
    for seat in range(4):
        found = list(messages(plain(made[seat], seat)))
        assert [kind for kind, _ in found] == ["blind", "rows", "rows", "rows", "packets"]
        assert [fields.get("number") for _, fields in found] == [None, 0, 1, 2, None]
        digests = summands_at(seat, found)
        row, column = divmod(seat, 2)
        names = [f"R{row}", f"C{column}", *(["R0-C0"] if row == column else [])]
        assert digests == {name: said["summands"][name] for name in names}
    assert len(set(said["summands"].values())) == 5


def test_mates_have_what_they_have_in_common() -> None:
    made, _ = sent(2)
    found = [summands_at(seat, messages(plain(made[seat], seat))) for seat in range(4)]
    assert found[0]["R0"] == found[1]["R0"]
    assert found[0]["C0"] == found[2]["C0"]
    assert found[0]["R0"] != found[2]["R1"]


def test_a_server_cannot_check_a_guess_of_the_numbers() -> None:
    """Server 0 computes the summand R1 of server 2 from a right guess. The random elements are all that it lacks."""
    made, last = sent(0)
    mine, theirs = (list(messages(plain(made[server], server))) for server in (0, 2))
    guess = [ring.encode(values, 40, 2)[0] for values in (np.ones(2), np.zeros(3))]

    def row_1(packet: InputPacket, values: Any) -> InputPacket:
        rest = ring.sub(values, receive(packet, 0, 0)[0])
        return InputPacket(packet.shape, packet.dtype, rest.tobytes(), packet.column)

    inputs = "packets", {"packets": list(map(row_1, mine[1][1]["packets"], guess))}
    zero = "blind", {"packets": [row_1(mine[0][1]["packets"][0], np.zeros((2, 2), np.uint64))]}
    signed = last.json()["summands"]["R1"]
    assert summands_at(2, [theirs[0], inputs])["R1"] == signed
    assert summands_at(2, [zero, inputs])["R1"] != signed
    assert summands_at(2, [inputs])["R1"] != signed


def test_random_elements_are_new_in_every_contribution() -> None:
    values = set()
    for _ in range(3):
        made, _ = sent(0)
        first = [next(iter(messages(plain(made[server], server))))[1]["packets"][0] for server in (0, 3)]
        values.add(ring.add(receive(first[0], 0, 0)[0], receive(first[1], 1, 1)[0]).tobytes())
    assert len(values) == 3


def test_a_stream_over_several_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_BYTES", 1000)
    made, _ = sent(20)
    assert min(len(each) for each in made) > 2
    for seat in range(4):
        chunks = plain(made[seat], seat)
        assert {len(chunk) for chunk in chunks[:-1]} == {1000}
        assert len(list(messages(chunks))) == 22


def test_envelopes_in_another_place_do_not_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_BYTES", 1000)
    made, _ = sent(20)
    first, second, *_ = made[1]
    for wrong in ([second, first], [second], [first, first]):
        with pytest.raises(ObjectRefused):
            plain(wrong, 1)
    with pytest.raises(ObjectRefused):
        list(opened(made[1], SERVER_KEYS[1], 3))
    with pytest.raises(ObjectRefused):
        list(opened(made[1], SERVER_KEYS[3], 1))
    theft = Object.make(IDENTITIES["south"], "envelope", JOB.id, first.payload, to=1, chunk=0)
    with pytest.raises(ObjectRefused):
        plain([theft], 1)
    elsewhere = Object.make(IDENTITIES["north"], "envelope", "0" * 64, first.payload, to=1, chunk=0)
    with pytest.raises(ObjectRefused):
        plain([elsewhere], 1)


STREAM = b"".join(plain(sent(2)[0][3], 3))


@pytest.mark.parametrize("size", sorted({*range(0, len(STREAM), 13), 1, 2, 3, 4, 5, len(STREAM) - 1} - {0}))
def test_a_stream_cut_anywhere_breaks_off(size: int) -> None:
    """Between two messages only the number of bytes tells; then the digests of the contribution do not fit."""
    whole = list(messages([STREAM]))
    ends = {len(b"".join(encode(whole[0][0], **whole[0][1]))), len(b"".join(encode(whole[1][0], **whole[1][1])))}
    edges = {max(ends), sum(ends) if len(ends) == 2 else 2 * max(ends)}
    if size in edges:
        assert summands_at(3, messages([STREAM[:size]])) != summands_at(3, whole)
        return
    with pytest.raises(ObjectRefused, match="contribute again"):
        list(messages([STREAM[:size]]))


@given(cuts=st.lists(st.integers(0, len(STREAM)), max_size=6))
def test_where_pieces_end_does_not_matter(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    chunks = [STREAM[a:b] for a, b in itertools.pairwise(edges)]
    assert summands_at(3, messages(chunks)) == summands_at(3, messages([STREAM]))


@given(place=st.integers(0, len(STREAM) - 1), new=st.binary(min_size=1, max_size=6))
def test_a_damaged_stream_is_refused_by_name_if_it_is_noticed(place: int, new: bytes) -> None:
    data = STREAM[:place] + new + STREAM[place + len(new) :]
    with contextlib.suppress(ObjectRefused):
        list(messages([data]))


@pytest.mark.parametrize(
    "made",
    [
        encode("run", packets=[share(1.0)[0]]),
        encode("packets", packets=[]),
        encode("packets", packets=[1]),
        encode("packets", packets="no"),
        encode("packets", other=1),
        encode("rows", packets={"0": share(1.0)[0]}),
    ],
)
def test_messages_that_do_not_belong_there(made: list[bytes]) -> None:
    with pytest.raises(ObjectRefused):
        list(messages([b"".join(made)]))


def test_what_is_announced_takes_no_memory() -> None:
    """A few bytes that announce gigabytes: refused, or read as far as there is anything."""
    import json
    import struct

    body: Any = {"kind": "packets", "body": {"packets": []}, "sizes": [1 << 33]}
    text = json.dumps(body).encode()
    tracemalloc.start()
    try:
        with pytest.raises(ObjectRefused):
            list(messages([struct.pack("<I", len(text)) + text], longest=1 << 30))
        assert tracemalloc.get_traced_memory()[1] < 1 << 24
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_BYTES", 1 << 16)
    kept: list[int] = []
    envelopes = Envelopes(IDENTITIES["north"], JOB.id, PUBLIC, lambda item: kept.append(len(item.data)))
    block = share(np.zeros((64, 64)))
    tracemalloc.start()
    try:
        for _ in range(3):
            envelopes.add("rows", [block])
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(60):
            envelopes.add("rows", [block])
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert sum(kept) > 60 * 4 * 64 * 64 * 16
    assert peak < 4 << 20, "four open chunks, and the one that is sealed"


def test_one_message_and_nothing_else() -> None:
    data = b"".join(encode("record", public={"a": 1}))
    assert message_of(data, "record") == {"public": {"a": 1}}
    for wrong in (b"", data[:-1], data + b"\0", data + data, b"x" * 50, b"".join(encode("result", public={}))):
        with pytest.raises(ObjectRefused, match="not a valid record"):
            message_of(wrong, "record")


def test_owners_send_different_bytes_for_the_same_numbers() -> None:
    """Masks are fresh: equal data of two owners, or of two visits, look different at every server."""
    found = [contribution(JOB, owner)[-1].json()["summands"] for owner in (*OWNERS, OWNERS[0])]
    for name in ("R0", "R1", "C0", "C1"):
        assert len({each[name] for each in found}) == len(found)


@pytest.mark.parametrize("server", range(4))
@pytest.mark.parametrize(("bits", "shape"), [(64, (5, 7)), (128, (11,)), (64, (1,)), (128, (4, 4))])
def test_blocks_of_shares_are_the_shares(server: int, bits: int, shape: tuple[int, ...]) -> None:
    packet = share(np.ones(shape), RingType(bits, 10, 20))[server]
    found = [np.concatenate(parts) for parts in zip(*blocks(packet, *divmod(server, 2), 6), strict=True)]
    expected = receive(packet, *divmod(server, 2)).reshape(2, -1, bits // 64)
    assert all(np.array_equal(one, other) for one, other in zip(found, expected, strict=True))


def test_digests_of_keys_for_large_shapes_take_little_memory() -> None:
    """A key of 16 bytes stood for 256 MiB of shares, and their digest took twice as many bytes."""
    packet = InputPacket((1 << 24,), RingType(64, 10, 20), b"r" * 16, b"c" * 16)
    tracemalloc.start()
    summands_at(0, [("packets", {"packets": [packet]})])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * 8 * module.BLOCK_WORDS
