"""The control channel and its codec: every value comes back, in whatever pieces; nonsense is an error, never a hang."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any, cast

import numpy as np
import pytest

from ppca.protocol import Sealed, share
from ppca.runtime.codec import CodecError, PerServer, pack, unpack
from ppca.runtime.control import Channel, ChannelClosed, Message, MessageReader, encode
from ppca.runtime.conversation import ServerProcess, converse


def through(stream: bytes, piece: int) -> Message:
    """Reads a message that arrives in pieces of the given size."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        reader = MessageReader()
        for start in range(0, len(stream), piece):
            theirs.sendall(stream[start : start + piece])
            ours.setblocking(False)
            while True:
                try:
                    message = reader.read(ours)
                except BlockingIOError:
                    break
                if message is not None:
                    return message
    raise AssertionError("incomplete")


@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
def test_values_come_back_whatever_the_pieces(piece: int) -> None:
    packet = share(np.ones((3, 2)))[3]
    fields: dict[str, Any] = {
        "packet": packet,
        "key": share([1])[0],
        "sealed": Sealed("client", (0, 2), packet.dtype, b""),
        "nested": {"a": [1, 2.5, None, True, "text", ["deep"]]},
        "own": PerServer([1, 2]),
        "empty": np.empty((0, 3), np.int32),
        "array": np.arange(12.0).reshape(3, 4)[:, ::2],
    }
    kind, result = through(b"".join(encode("kind", **fields)), piece)
    assert kind == "kind"
    np.testing.assert_array_equal(result["array"], fields["array"])
    assert result["array"].flags.writeable
    assert result["empty"].shape == (0, 3)
    for name in ("packet", "key", "sealed", "nested", "own"):
        assert result[name] == fields[name]


def framed(message: Any) -> bytes:
    text = message if isinstance(message, bytes) else json.dumps(message).encode()
    return struct.pack("<I", len(text)) + text


def packet_of(shape: list[int]) -> dict[str, Any]:
    return {"$": "packet", "shape": shape, "ring": [128, 40, 30], "row": 0, "column": 1}


@pytest.mark.parametrize(
    "stream",
    [
        struct.pack("<I", 1 << 31),
        framed(b"\xff\xfe"),
        framed(b"[" * 100_000),
        framed([]),
        framed({"kind": "run", "body": {}}),
        framed({"kind": "run", "body": [], "sizes": []}),
        framed({"kind": 1, "body": {}, "sizes": []}),
        framed({"kind": "run", "body": {}, "sizes": ["many"]}),
        framed({"kind": "run", "body": {}, "sizes": [-1]}),
        framed({"kind": "run", "body": {}, "sizes": [1 << 60]}),
        framed({"kind": "run", "body": {"a": {"$": "unknown", "shape": []}}, "sizes": []}),
        framed({"kind": "run", "body": {"a": {"$": "array", "shape": [1], "type": "O", "at": 0}}, "sizes": [0]}),
        framed({"kind": "run", "body": {"a": {"$": "array", "shape": [1], "type": "<f8", "at": -1}}, "sizes": [0]}),
        framed({"kind": "run", "body": {"a": {"$": "array", "shape": [9], "type": "<f8", "at": 0}}, "sizes": [0]}),
        framed({"kind": "run", "body": {"a": {"$": "packet", "shape": [1], "ring": [1]}}, "sizes": []}),
        framed(b'{"kind": "run", "sizes": [], "body": {"a": ' + b"[" * 400 + b"]" * 400 + b"}}"),
        framed(b'{"kind": "run", "sizes": [], "body": ' + b'{"a": ' * 400 + b"1" + b"}" * 401),
        framed({"kind": "run", "body": {"a": {"$": {"b": 1}, "shape": []}}, "sizes": []}),
        framed(
            {"kind": "run", "body": {"a": {"$": "array", "shape": [10**400], "type": "<f8", "at": 0}}, "sizes": [0]}
        ),
        framed(
            {"kind": "run", "body": {"a": {"$": "array", "shape": [1 << 40], "type": "<U0", "at": 0}}, "sizes": [0]}
        ),
        framed({"kind": "run", "body": {"a": {"$": "array", "shape": [1], "type": "i4,i4", "at": 0}}, "sizes": [0]}),
        framed({"kind": "run", "body": {"a": {"$": "array", "shape": [True], "type": "|i1", "at": 0}}, "sizes": [0]}),
        framed({"kind": "run", "body": {"a": packet_of([-1, -1])}, "sizes": [0, 0]}),
        framed({"kind": "run", "body": {"a": packet_of([1 << 40, 1 << 40])}, "sizes": [0, 0]}),
        framed({"kind": "run", "body": {"a": packet_of([1] * 100)}, "sizes": [0, 0]}),
        framed({"kind": "run", "body": {}, "sizes": [1 << 33, 1 << 33, 1]}),
        framed({"kind": "run", "body": {}, "sizes": [0] * 100_000}),
        framed({"kind": "run", "body": {}, "sizes": {"0": 1}}),
    ],
)
def test_malformed_messages_are_errors(stream: bytes) -> None:
    with pytest.raises(CodecError):
        through(stream, 1 << 16)


def test_the_readers_limit_counts_before_anything_arrives() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(framed({"kind": "run", "body": {}, "sizes": [600, 401]}))
        channel = Channel(ours, longest=1000)
        with pytest.raises(CodecError, match="more than 1,000 bytes"):
            list(iter(channel.read, "never"))


def test_what_lies_too_deep_is_refused() -> None:
    deep: Any = []
    deep.append(deep)
    with pytest.raises(CodecError, match="deeper than 64 levels"):
        pack(deep, [])


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        ("progress", {"text": "x"}, "it sent 'progress' without fraction and rounds"),
        ("failed", {"error": "x"}, "it sent 'failed' without trace and step and rank"),
        ("failed", {"error": "x", "trace": "", "step": "many", "rank": 0}, "an invalid report of its failure"),
        ("failed", {"error": "x", "trace": "", "step": 1, "rank": float("inf")}, "an invalid report of its failure"),
        ("done", {"result": 1}, "it sent 'done' without seconds and stats and audit"),
        ("what", {}, "it answered 'what' instead of 'done'"),
    ],
)
def test_answers_of_the_wrong_form_are_failures(kind: str, fields: dict[str, Any], message: str) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"".join(encode(kind, **fields)))
        heard = converse([ServerProcess(2, cast(Any, None), ours)], "done", patience=5.0, waiting=True)
    (failure,) = heard.failures
    assert (failure.server, failure.reported) == (2, False)
    assert message in failure.error


def test_an_end_in_the_middle_of_a_message() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            theirs.sendall(b"".join(encode("kind", a=1))[:9])
        channel = Channel(ours)
        with pytest.raises(ChannelClosed):
            list(iter(channel.read, "never"))
        with pytest.raises(ChannelClosed):
            channel.send("kind")


@pytest.mark.parametrize(
    "value", [{1: 2}, {"$": 1}, object(), {"a": [b"bytes"]}, np.array([None]), 1j, np.zeros(2, "f4,i4")]
)
def test_what_cannot_travel_is_refused(value: Any) -> None:
    with pytest.raises(CodecError):
        pack(value, [])


def test_codec_messages_do_not_show_values() -> None:
    with pytest.raises(CodecError) as caught:
        pack({"a": [b"secret bytes"]}, [])
    assert "secret" not in str(caught.value)
    with pytest.raises(CodecError) as caught:
        unpack({"$": "array", "shape": [3], "type": "<f8", "at": 0}, [b"secret bytes"])
    assert "secret" not in str(caught.value)
