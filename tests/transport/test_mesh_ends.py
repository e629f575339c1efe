"""Ends: a peer that aborts, closes, dies or stays silent is a clear error on every other server, in time."""

from __future__ import annotations

import pickle
import socket
import threading
import time

import numpy as np
import pytest

from harness.four_servers import TIMEOUT, MakeMeshes, Rogue, Servers, exchange, run
from ppca.transport import FrameError, Mesh, PeerError, PeerTimeout, TransportError, TruncatedFrameError
from ppca.transport.frames import CLOSE, DATA, HEADER_SIZE, MAX_REASON, abort_frame, pack_header
from ppca.transport.link import TcpLink
from ppca.transport.tcp import SocketMesh

PROMPT = TIMEOUT / 2  # seconds: less than the timeout, and enough on a loaded machine


def wait_for_mates(mesh: Mesh) -> None:
    row, column = mesh.seat ^ 1, mesh.seat ^ 2
    exchange(mesh, {row: [b"12345678"], column: [b"12345678"]}, {row: 8, column: 8})


def test_an_abort_reaches_all_others_with_its_reason(meshes: list[Mesh]) -> None:
    """Also the server that expects nothing from the aborting one: seats 0 and 3 are not mates."""
    all_are_in_step_1 = threading.Barrier(4)

    def body(mesh: Mesh) -> float:
        wait_for_mates(mesh)
        all_are_in_step_1.wait(TIMEOUT)
        started = time.perf_counter()
        if mesh.seat == 3:
            time.sleep(0.1)
            mesh.abort("the disk of this server is full")
            return 0.0
        with pytest.raises(PeerError, match=r"^server 3 aborted.*: the disk of this server is full$") as caught:
            exchange(mesh, {}, {mesh.seat ^ 1 if mesh.seat != 2 else 0: 8})
        assert (caught.value.seat, caught.value.peer, caught.value.step) == (mesh.seat, 3, 1)
        return time.perf_counter() - started

    results = run(meshes, body)
    assert all(isinstance(result, float) and result < PROMPT for result in results), results


def test_an_abort_is_seen_behind_an_early_frame(meshes: list[Mesh]) -> None:
    def body(mesh: Mesh) -> None:
        if mesh.seat == 1:
            exchange(mesh, {}, {})
            exchange(mesh, {0: [bytes(100_000)]}, {})
            mesh.abort("enough")
        elif mesh.seat == 0:
            exchange(mesh, {}, {2: 4})

    results = run(meshes, body)
    assert isinstance(results[0], PeerError)
    assert "server 1 aborted" in str(results[0])
    assert "enough" in str(results[0])


def test_a_long_or_odd_reason_is_cut_and_cleaned(meshes: list[Mesh]) -> None:
    meshes[1].abort("line\nbreak \x1b[31m" + "é" * MAX_REASON)
    with pytest.raises(PeerError) as caught:
        exchange(meshes[0], {}, {1: 8})
    assert "line break" in str(caught.value)
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < MAX_REASON + 100


def test_the_reason_is_told_when_sending_fails(meshes: list[Mesh]) -> None:
    meshes[1].abort("no more")
    time.sleep(0.05)

    def send_on() -> None:  # the kernel takes the first bytes, the peer's answer makes later ones fail
        for _ in range(10):
            exchange(meshes[0], {1: [b"hello"]}, {})

    with pytest.raises(PeerError, match="no more"):
        send_on()


def test_expecting_from_a_closed_peer_is_an_error_at_once(meshes: list[Mesh]) -> None:
    meshes[2].close()
    started = time.perf_counter()
    with pytest.raises(
        PeerError, match=r"server 2 has ended its program and closed, server 0 still needs it in step 0"
    ):
        exchange(meshes[0], {}, {2: 8})
    assert time.perf_counter() - started < PROMPT


def test_a_closed_peer_does_not_disturb_rounds_without_it(meshes: list[Mesh]) -> None:
    meshes[3].close()

    def body(mesh: Mesh) -> int:
        for _ in range(20):
            if mesh.seat == 0:
                time.sleep(0.002)
            exchange(mesh, {mesh.seat ^ 1: [b"x"]}, {mesh.seat ^ 1: 1})
        return mesh.step

    assert run(meshes, body, seats=(0, 1))[:2] == [20, 20]


def test_a_timeout_names_peer_and_step(make_meshes: MakeMeshes) -> None:
    meshes = make_meshes()
    run(meshes, wait_for_mates)
    meshes[0].timeout = 0.3
    started = time.perf_counter()
    error = run(meshes, lambda mesh: exchange(mesh, {}, {2: 16}), seats=(0,))[0]
    assert isinstance(error, PeerTimeout)
    assert (error.seat, error.peer, error.step) == (0, 2, 1)
    assert str(error).startswith("server 0 waited 0.3 s in step 1 for a frame from server 2; check that")
    assert 0.29 < time.perf_counter() - started < PROMPT


def test_a_peer_that_does_not_read_is_a_timeout(rogue: Rogue) -> None:
    rogue.mesh.timeout = 0.2
    with pytest.raises(PeerTimeout, match=r"for server 1 to read") as caught:
        exchange(rogue.mesh, {1: [np.zeros(8 << 20, np.uint8)]}, {})
    assert caught.value.peer == 1


class EmptyRecords(TcpLink):
    """A link as TLS sees a peer that sends records without content: readable at any time, and never a byte of the frame."""

    def __init__(self, sock: socket.socket, seat: int, peer: int) -> None:
        super().__init__(sock, seat, peer)
        self.patient = False

        def nothing(*_: object) -> int:
            time.sleep(0.001)
            raise BlockingIOError

        self.recv_into = nothing  # type: ignore[method-assign]


def test_a_peer_that_keeps_its_socket_readable_cannot_hold_a_round() -> None:
    links = {peer: socket.socketpair() for peer in (1, 2, 3)}
    made = [(EmptyRecords if peer == 1 else TcpLink)(ours, 0, peer) for peer, (ours, _) in links.items()]
    mesh = SocketMesh(0, made, timeout=0.3)
    mesh._wire.close()  # the native call is for plain TCP only
    links[1][1].sendall(b"x")
    outcome: list[object] = []

    def wait() -> None:
        try:
            outcome.append(exchange(mesh, {}, {1: 8000}))
        except TransportError as error:
            outcome.append(error)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    thread.join(TIMEOUT)
    assert isinstance(next(iter(outcome), "it still waits"), PeerTimeout)
    assert "for a frame from server 1" in str(outcome[0])
    for pair in links.values():
        for sock in pair:
            sock.close()


def test_different_programs_are_told_apart(make_meshes: MakeMeshes) -> None:
    meshes = make_meshes()
    run(meshes, lambda mesh: exchange(mesh, {}, {}) if mesh.seat else None)
    exchange(meshes[1], {0: [b"12345678"]}, {})
    with pytest.raises(FrameError, match=r"server 0 got a frame of step 1 from server 1 while in step 0: rounds were"):
        exchange(meshes[0], {}, {1: 8})
    exchange(meshes[3], {2: [b"123456789"]}, {})
    with pytest.raises(FrameError, match=r"got a frame of 9 bytes from server 3 in step 1 and expected 8"):
        exchange(meshes[2], {}, {3: 8})


def test_leaving_with_an_error_aborts_without_telling_data(meshes: list[Mesh]) -> None:
    with pytest.raises(ValueError, match="secret"), meshes[0]:
        raise ValueError("secret 42")
    with pytest.raises(PeerError) as caught:
        exchange(meshes[1], {}, {0: 1})
    assert "ValueError in the program" in str(caught.value)
    assert "42" not in str(caught.value)


def test_leaving_without_an_error_closes(meshes: list[Mesh]) -> None:
    with meshes[0] as mesh:
        exchange(mesh, {1: [b"last words"]}, {})
    assert bytes(exchange(meshes[1], {}, {0: 10})[0]) == b"last words"
    with pytest.raises(PeerError, match="has ended its program"):
        exchange(meshes[1], {}, {0: 1})


@pytest.mark.parametrize("stop", ["close", "reset"])
def test_a_death_is_noticed_by_the_three_others(grid: Servers, stop: str) -> None:
    """Seat 3's process vanishes without a farewell; seat 0 expects nothing from it and notices too."""
    meshes = grid.connect()
    all_are_in_step_1 = threading.Barrier(4)

    def body(mesh: Mesh) -> None:
        wait_for_mates(mesh)
        all_are_in_step_1.wait(TIMEOUT)
        if mesh.seat == 3:
            time.sleep(0.1)
            for link in mesh._links.values():
                if stop == "reset":
                    link.sock.setsockopt(1, 13, b"\x01\0\0\0\0\0\0\0")  # SO_LINGER 0: close sends a reset
                link.sock.close()
            return
        exchange(mesh, {}, {1: 8} if mesh.seat == 0 else {3: 8} if mesh.seat == 1 else {0: 8})

    started = time.perf_counter()
    results = run(meshes, body)
    assert time.perf_counter() - started < PROMPT
    for seat in (0, 1, 2):
        assert isinstance(results[seat], PeerError), results
        assert (results[seat].seat, results[seat].peer, results[seat].step) == (seat, 3, 1)
        assert "lost server 3 in step 1" in str(results[seat])
    for mesh in meshes:
        mesh.close()


def test_a_death_in_the_middle_of_a_frame(rogue: Rogue) -> None:
    rogue.peers[1].sendall(pack_header(DATA, 1, 0, 100) + bytes(30))
    rogue.peers[1].close()
    with pytest.raises(TruncatedFrameError, match="ended after 54 of 124 bytes") as caught:
        exchange(rogue.mesh, {}, {1: 100})
    assert isinstance(caught.value, PeerError)
    assert isinstance(caught.value, FrameError)


def test_a_death_while_sending(rogue: Rogue) -> None:
    rogue.peers[2].close()
    with pytest.raises(PeerError, match=r"lost server 2 in step 0: sending failed"):
        exchange(rogue.mesh, {2: [b"x"]}, {})


@pytest.mark.parametrize("size", [0, 5, 100, 100_000])
def test_an_abort_instead_of_a_frame_of_any_size(rogue: Rogue, size: int) -> None:
    rogue.peers[1].sendall(abort_frame(1, 0, "stopped by its operator"))
    with pytest.raises(PeerError, match="stopped by its operator"):
        exchange(rogue.mesh, {}, {1: size})


def test_frames_before_a_close_are_still_read(rogue: Rogue) -> None:
    payload = bytes(range(256)) * 100
    frames = b"".join(pack_header(DATA, 1, step, len(payload)) + payload for step in (1, 2))
    rogue.peers[1].sendall(frames + pack_header(CLOSE, 1, 3, 0))
    rogue.peers[1].close()
    rogue.peers[2].sendall(pack_header(DATA, 2, 0, 1))
    time.sleep(0.01)

    def release() -> None:
        time.sleep(0.1)
        rogue.peers[2].sendall(b"x")

    threading.Thread(target=release).start()
    exchange(rogue.mesh, {}, {2: 1})
    for _ in (1, 2):
        assert exchange(rogue.mesh, {}, {1: len(payload)})[1] == payload
    with pytest.raises(PeerError, match="has ended its program and closed"):
        exchange(rogue.mesh, {}, {1: 1})


def test_errors_survive_pickling() -> None:
    error = pickle.loads(pickle.dumps(PeerTimeout("text", 1, 2, 3)))
    assert (type(error), str(error), error.seat, error.peer, error.step) == (PeerTimeout, "text", 1, 2, 3)
    assert isinstance(error, TransportError)


def narrow_pair() -> tuple[socket.socket, socket.socket]:
    """The two ends of a TCP connection whose buffers hold little."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        ours = socket.socket()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        ours.connect(listener.getsockname())
        theirs, _ = listener.accept()
    return ours, theirs


def room_of(pair: tuple[socket.socket, socket.socket]) -> int:
    """Bytes that the buffers of an unread connection take in one go, as a frame would be offered."""
    taken = pair[0].send(bytes(1 << 20), socket.MSG_DONTWAIT)
    for sock in pair:
        sock.close()
    return taken


@pytest.mark.parametrize("missing", [1, 10, 60, 120, 1000])
def test_an_abort_never_lands_within_a_half_sent_frame(missing: int) -> None:
    # Seat 1 is dead and the buffers of seat 2 are full, found in one round: seat 2 must not take the farewell for payload.
    size = room_of(narrow_pair()) - HEADER_SIZE + missing
    links = {1: socket.socketpair(), 2: narrow_pair(), 3: socket.socketpair()}
    mesh = SocketMesh(0, [TcpLink(ours, 0, peer) for peer, (ours, _) in links.items()], timeout=2)
    links[1][1].close()
    with pytest.raises(TransportError):
        exchange(mesh, {1: [b"y"], 2: [bytes([17]) * size]}, {1: 4, 2: 4})
    spare = [socket.socketpair() for _ in range(2)]
    others = [TcpLink(links[2][1], 2, 0), *(TcpLink(a, 2, q) for (a, _), q in zip(spare, (1, 3), strict=True))]
    receiver = SocketMesh(2, others, timeout=1)
    outcome: list[object] = []

    def receive() -> None:
        try:
            outcome.append(bytes(exchange(receiver, {}, {0: size})[0]))
        except TransportError as error:
            outcome.append(error)

    thread = threading.Thread(target=receive)
    thread.start()
    time.sleep(0.05)  # now there is room again
    mesh.abort("server 0 lost server 1 in step 0: sending failed (Broken pipe); see the log of that server " * 3)
    thread.join()
    assert isinstance(outcome[0], TransportError) or outcome[0] == bytes([17]) * size
    receiver.close()
    for pair in (*links.values(), *spare):
        for sock in pair:
            sock.close()


def test_the_time_of_a_slow_round_is_counted(rogue: Rogue) -> None:
    def answer() -> None:
        rogue.peers[1].recv(1)  # the round has begun
        time.sleep(0.25)
        rogue.peers[1].sendall(pack_header(DATA, 1, 0, 8) + bytes(8))

    thread = threading.Thread(target=answer)
    start = time.perf_counter()
    thread.start()
    exchange(rogue.mesh, {1: [b"x"]}, {1: 8})
    elapsed = time.perf_counter() - start
    thread.join()
    assert 0.2 < rogue.mesh.stats.current.seconds <= elapsed


def test_the_message_that_cannot_be_sent_is_named(rogue: Rogue) -> None:
    with pytest.raises(ValueError, match=r"to server 2 in step 0: only C-contiguous"):
        rogue.mesh.exchange([(1, b"fine"), (2, np.zeros((4, 4))[:, 1])], [])
