"""Which masks are used: every address of a stream once, by both holders of its key."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.lockstep import run
from harness.privacy import SECRET, everything, fixed
from ppca.native import kernels
from ppca.protocol import (
    MaskReuseError,
)
from ppca.protocol.party import KEY_BYTES, Stream


def test_a_stream_address_is_used_once() -> None:
    stream = Stream("test", bytes(KEY_BYTES))
    stream.claim(1, 0)
    stream.claim(1, 1)
    stream.claim(2, 0)
    with pytest.raises(MaskReuseError, match="operation 1, purpose 1 was drawn before"):
        stream.claim(1, 1)
    stream.draw((3,), 2, 7, 4)
    with pytest.raises(MaskReuseError):
        stream.draw((3,), 2, 7, 4)
    with pytest.raises(ValueError, match=r"3 bytes\. A key has 16 bytes"):
        Stream("short", b"abc")


def test_masks_are_never_reused_in_a_whole_program(monkeypatch: pytest.MonkeyPatch) -> None:
    claims: list[tuple[int, int, int, int]] = []
    drawn: list[tuple[int, int, int]] = []
    original = Stream.claim

    def recording(stream: Stream, op: int, purpose: int) -> None:
        claims.append((id(stream), id(stream.key), op, purpose))
        original(stream, op, purpose)

    monkeypatch.setattr(Stream, "claim", recording)

    class Kernels:
        """The native module, noting every address that is really drawn from."""

        def __getattr__(self, name: str) -> Any:
            function = getattr(kernels, name)
            if name == "prg":
                return lambda out, key, op, purpose: (
                    drawn.append((id(key), op, purpose)),
                    function(out, key, op, purpose),
                )
            if name == "mask2":
                return lambda a, b, t, one, op, s, two, r: (
                    drawn.extend([(id(one), op, 0), (id(two), op, 1)]), function(a, b, t, one, op, s, two, r)
                )  # fmt: skip
            if name == "mul_mask2":
                return lambda a, b, x, y, one, op, s, two, r: (
                    drawn.extend([(id(one), op, 0), (id(two), op, 1)]), function(a, b, x, y, one, op, s, two, r)
                )  # fmt: skip
            if name == "deal_masks":
                return lambda a, s, o, r, key, op, bits: (
                    drawn.extend([(id(key), op, 0), (id(key), op, 1)]), function(a, s, o, r, key, op, bits)
                )  # fmt: skip
            if name == "bits_out":
                return lambda d, b, o, c, seat, row, column, op: (
                    drawn.extend([(id(row), op, 0), (id(column), op, 1)]), function(d, b, o, c, seat, row, column, op)
                )  # fmt: skip
            if name == "mask_bits":
                return lambda a, b, s, o, key, op: (drawn.append((id(key), op, 2)), function(a, b, s, o, key, op))
            if name == "reshare_out":
                return lambda d, at, m, p, key, op, column: (
                    drawn.append((id(key), op, 0)), function(d, at, m, p, key, op, column)
                )  # fmt: skip
            return function

    for module in ("party", "multiply", "gates", "reshare", "signs"):
        monkeypatch.setattr(f"ppca.protocol.{module}.kernels", Kernels())
    run(everything, np.array([1.0, 2.0, 3.0, 4.0]), np.array([4.0, 0.5, 3.0, 9.0]))
    assert len(claims) > 200
    assert len(set(claims)) == len(claims)  # per stream object, i.e. per server and key
    # Whatever is drawn was claimed, once: nothing goes around the guard.
    assert sorted(drawn) == sorted((key, op, purpose) for _, key, op, purpose in claims)


def test_mates_draw_the_same_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    # Masks cancel because the two holders of a key use it at the same addresses. A key's second use by the SAME server would
    # be a reuse; the first use by its mate is the protocol.
    claims: dict[int, set[tuple[int, int]]] = {}
    original = Stream.claim

    def recording(stream: Stream, op: int, purpose: int) -> None:
        claims.setdefault(id(stream), set()).add((op, purpose))
        original(stream, op, purpose)

    monkeypatch.setattr(Stream, "claim", recording)
    parties: dict[int, Any] = {}

    async def program(x: Any, y: Any) -> Any:
        parties[x.party.seat] = x.party
        return await everything(x, y)

    run(program, np.array([1.0, 2.0, 3.0, 4.0]), np.array([4.0, 0.5, 3.0, 9.0]))
    for one, two in ((0, 1), (2, 3)):
        assert claims[id(parties[one].row_stream)] == claims[id(parties[two].row_stream)]
    for one, two in ((0, 2), (1, 3)):
        assert claims[id(parties[one].column_stream)] == claims[id(parties[two].column_stream)]


@pytest.mark.parametrize(
    "operation", [lambda x: x * x, lambda x: x < 1, lambda x: x.shuffle(), lambda x: x.truncate(3)]
)
def test_a_counter_that_is_reset_is_caught(operation: Any) -> None:
    async def program(x: Any) -> None:
        await operation(x)
        x.party._ops = 0
        await operation(x)

    with pytest.raises(MaskReuseError, match="was drawn before"):
        run(program, np.array([SECRET]))


def test_two_sessions_have_different_masks() -> None:
    async def program(x: Any) -> None:
        await (x * x)

    recorded: list[list[bytes]] = []
    for _ in range(2):
        messages: list[bytes] = []
        run(program, fixed(), tap=lambda s, r, message, log=messages: log.append(message.tobytes()))
        recorded.append(messages)
    assert not set(recorded[0]) & set(recorded[1])
