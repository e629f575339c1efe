"""Frames: everything but the one expected frame is refused, by a typed error that names seat, peer and step."""

from __future__ import annotations

import threading
import time
import tracemalloc

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from harness.four_servers import Rogue, exchange
from ppca.transport import FrameError, PeerError
from ppca.transport.frames import CLOSE, DATA, HEADER, HELLO, MAGIC, VERSION, pack_header

SIZE = 64
GOOD = (MAGIC, VERSION, DATA, 1, 0, 0, 0, SIZE)


def changed(**fields: object) -> bytes:
    names = ("magic", "version", "kind", "sender", "flags", "reserved", "step", "length")
    values = dict(zip(names, GOOD, strict=True)) | fields
    return HEADER.pack(*values.values())


CASES = {
    "alien": (changed(magic=b"GE"), "got an alien frame .* magic"),
    "version": (changed(version=9), "format version is 9, this server uses 1"),
    "kind": (changed(kind=77), "kind 77 is unknown"),
    "sender": (changed(sender=2), r"claims to come from server 2"),
    "unknown sender": (changed(sender=200), "claims to come from unknown server 200"),
    "reserved": (changed(reserved=1), "reserved bytes are not zero"),
    "flags": (changed(flags=1), "reserved bytes are not zero"),
    "repeated or reordered": (changed(step=0), "frame of step 0 .* while in step 1: rounds were repeated or reordered"),
    "skipped": (
        changed(step=41),
        r"server 0 got a frame of step 41 from server 1 while in step 1: rounds were skip",
    ),
    "second hello": (changed(kind=HELLO, step=1), "second HELLO"),
    "short": (changed(step=1, length=63), "frame of 63 bytes .* expected 64"),
    "long": (changed(step=1, length=65), "frame of 65 bytes .* expected 64"),
    "huge": (changed(step=1, length=2**64 - 1), "frame of 18446744073709551615 bytes .* expected 64"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_malformed_frame_is_refused(rogue: Rogue, case: str) -> None:
    header, message = CASES[case]
    rogue.peers[1].sendall(pack_header(DATA, 1, 0, SIZE) + bytes(SIZE))
    exchange(rogue.mesh, {}, {1: SIZE})
    rogue.peers[1].sendall(header + b"payload!" * 8)
    with pytest.raises(FrameError, match=message) as caught:
        exchange(rogue.mesh, {}, {1: SIZE})
    assert (caught.value.seat, caught.value.peer, caught.value.step) == (0, 1, 1)
    assert "server 0" in str(caught.value)
    assert "server 1" in str(caught.value)
    assert "payload!" not in str(caught.value)


def test_a_close_instead_of_data(rogue: Rogue) -> None:
    rogue.peers[1].sendall(pack_header(CLOSE, 1, 0, 0))
    with pytest.raises(PeerError, match="has ended its program"):
        exchange(rogue.mesh, {}, {1: SIZE})


def test_a_huge_length_allocates_nothing(rogue: Rogue) -> None:
    rogue.peers[1].sendall(changed(length=1 << 40))
    tracemalloc.start()
    with pytest.raises(FrameError):
        exchange(rogue.mesh, {}, {1: 4096})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize("pieces", [1, 5, 23, 24, 25, 100])
def test_a_frame_in_pieces_is_put_together(rogue: Rogue, pieces: int) -> None:
    payload = bytes(range(256)) * 80
    frame = pack_header(DATA, 1, 0, len(payload)) + payload

    def drip() -> None:
        for at in range(0, 3 * pieces, pieces):
            rogue.peers[1].sendall(frame[at : at + pieces])
            time.sleep(0.015)
        rogue.peers[1].sendall(frame[3 * pieces :])

    threading.Thread(target=drip).start()
    assert exchange(rogue.mesh, {}, {1: len(payload)})[1] == payload


headers = st.builds(
    HEADER.pack,
    st.sampled_from([MAGIC, b"GE", b"\0\0"]),
    st.sampled_from([VERSION, 0, 255]),
    st.integers(0, 5),
    st.integers(0, 4),
    st.sampled_from([0, 0, 1]),
    st.sampled_from([0, 0, 513]),
    st.sampled_from([0, 1, 2**64 - 1]),
    st.sampled_from([0, SIZE, SIZE + 1, 2**40, 2**64 - 1]),
)
noise = st.one_of(
    st.binary(max_size=100), st.builds(bytes.__add__, headers, st.binary(max_size=200)), st.lists(headers).map(b"".join)
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(noise=noise, size=st.sampled_from([0, SIZE, 20_000]), expected=st.sampled_from([1, 2]))
@example(noise=pack_header(CLOSE, 1, 0, 0), size=0, expected=2)
def test_noise_never_hangs_and_is_always_a_typed_error(noise: bytes, size: int, expected: int) -> None:
    """Seat 1 sends noise and dies. Seat 0 waits for it, or for seat 2, which then sends and lives."""
    rogue = Rogue()
    try:
        rogue.peers[1].sendall(noise)
        rogue.peers[1].close()
        if expected == 2:
            rogue.peers[2].sendall(pack_header(DATA, 2, 0, size) + bytes(size))
        try:
            received = exchange(rogue.mesh, {}, {expected: size})
        except (FrameError, PeerError) as error:
            assert (error.seat, error.peer) == (0, 1)  # noqa: PT017 - a correct frame may also come out of the noise
        else:
            assert len(received[expected]) == size
    finally:
        rogue.close()
