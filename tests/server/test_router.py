"""The mesh port: every connection reaches the run it names, strangers reach no one and keep no one out."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from harness.four_servers import exchange, run, succeed
from harness.pinned import OPERATOR_OF, Members
from harness.waiting import PATIENCE
from ppca.server import router as module
from ppca.server.router import MAX_WAITING, Router
from ppca.transport import Mesh, connect_mesh, open_listener
from ppca.transport.routes import MAGIC, PassedListener, pass_socket, preamble, read_preamble, route_of

ROUTE = route_of(b"session")


class Worker:
    """What a run's process has: a listener that gets its connections passed."""

    def __init__(self, router: Router, route: bytes = ROUTE) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener, self.passing = PassedListener(theirs), ours
        self.listener.settimeout(PATIENCE)
        router.register(route, ours)

    def close(self) -> None:
        self.listener.close()
        self.passing.close()


@pytest.fixture
def router(monkeypatch: pytest.MonkeyPatch) -> Iterator[Router]:
    """A router that closes no connection because of its age, unless a test shortens the limits."""
    monkeypatch.setattr(module, "PREAMBLE_SECONDS", 2 * PATIENCE)
    monkeypatch.setattr(module, "WAITING_SECONDS", 2 * PATIENCE)
    with Router(socket.create_server(("127.0.0.1", 0), backlog=1024)) as running:  # all connections of a flood fit
        yield running


def dial(router: Router, words: bytes) -> socket.socket:
    sock = socket.create_connection(router.address, timeout=PATIENCE)
    sock.sendall(words)
    return sock


def talks(there: socket.socket, here: socket.socket) -> bool:
    there.settimeout(PATIENCE)
    here.sendall(b"x")
    heard = there.recv(10)
    there.sendall(heard)
    return here.recv(10) == b"x" == heard


def test_a_preamble_is_read_as_it_was_written() -> None:
    words = preamble(3, ROUTE)
    assert len(words) == 38
    assert read_preamble(words) == (3, ROUTE)


@pytest.mark.parametrize("words", [b"", MAGIC, b"\0" * 38, MAGIC + b"\x02\x03" + ROUTE, MAGIC + b"\x01\x04" + ROUTE])
def test_anything_else_is_no_preamble(words: bytes) -> None:
    assert read_preamble(words) is None


def test_a_connection_reaches_the_run_it_names(router: Router) -> None:
    first, second = Worker(router), Worker(router, route_of(b"other"))
    for worker, route in ((second, route_of(b"other")), (first, ROUTE)):
        here = dial(router, preamble(3, route))
        there, origin = worker.listener.accept()
        assert origin == (here.getsockname()[0], str(here.getsockname()[1]))
        assert not os.get_inheritable(there.fileno())
        assert talks(there, here)
        here.close()
        assert there.recv(1) == b""  # the router kept no copy
        there.close()
    first.close()
    second.close()


def test_what_follows_the_preamble_is_left_for_the_run(router: Router) -> None:
    worker = Worker(router)
    here = dial(router, preamble(3, ROUTE) + b"and more")
    there, _ = worker.listener.accept()
    assert there.recv(100) == b"and more"
    for sock in (here, there):
        sock.close()
    worker.close()


def test_a_preamble_may_come_in_pieces(router: Router) -> None:
    worker = Worker(router)
    here = socket.create_connection(router.address, timeout=PATIENCE)
    for start in range(0, 38, 7):
        here.sendall(preamble(3, ROUTE)[start : start + 7])
        time.sleep(0.01)
    there, _ = worker.listener.accept()
    assert talks(there, here)
    for sock in (here, there):
        sock.close()
    worker.close()


def test_a_peer_may_be_faster_than_we_are(router: Router) -> None:
    here = dial(router, preamble(3, ROUTE))
    time.sleep(0.2)
    worker = Worker(router)
    there, _ = worker.listener.accept()
    assert talks(there, here)
    for sock in (here, there):
        sock.close()
    worker.close()


def closed(sock: socket.socket, within: float) -> bool:
    sock.settimeout(within)
    try:
        return sock.recv(1) == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False


@pytest.mark.parametrize("words", [b"", b"GET / HTTP/1.1\r\n", preamble(3, route_of(b"nobody's"))])
def test_who_names_no_run_is_closed_in_time(router: Router, monkeypatch: pytest.MonkeyPatch, words: bytes) -> None:
    monkeypatch.setattr(module, "PREAMBLE_SECONDS", 0.3)
    monkeypatch.setattr(module, "WAITING_SECONDS", 0.3)
    started = time.monotonic()
    sock = dial(router, words)
    assert closed(sock, PATIENCE)
    assert time.monotonic() - started > 0.2
    sock.close()


def test_garbage_is_closed_at_once(router: Router) -> None:
    sock = dial(router, b"GET / HTTP/1.1\r\nHost: localhost.localdomain\r\n\r\n")
    assert closed(sock, PATIENCE)
    sock.close()


def test_strangers_cannot_keep_a_peer_out(router: Router) -> None:
    worker = Worker(router)
    silent = [dial(router, preamble(3, os.urandom(32)) if i % 2 else b"") for i in range(MAX_WAITING + 20)]
    here = dial(router, preamble(3, ROUTE))
    there, _ = worker.listener.accept()
    assert talks(there, here)
    assert closed(silent[0], PATIENCE)  # the oldest had to go, the newest may stay
    assert not closed(silent[-1], 0.1)
    for sock in (here, there, *silent):
        sock.close()
    worker.close()


def test_a_run_that_has_ended_gets_nothing(router: Router) -> None:
    worker = Worker(router)
    worker.listener.close()
    sock = dial(router, preamble(3, ROUTE))
    assert closed(sock, PATIENCE)
    sock.close()
    router.unregister(ROUTE)
    router.unregister(ROUTE)
    worker.close()
    again = Worker(router)
    with pytest.raises(ValueError, match="every attempt needs a session of its own"):
        Worker(router)
    here = dial(router, preamble(3, ROUTE))
    there, _ = again.listener.accept()
    assert talks(there, here)
    for sock in (here, there):
        sock.close()
    again.close()


def test_a_run_that_takes_nothing_holds_up_nobody(router: Router) -> None:
    """More connections than the kernel keeps for a process that does not accept: they are closed, others get through."""
    lazy, worker = Worker(router), Worker(router, route_of(b"other"))
    flood = [dial(router, preamble(3, ROUTE)) for _ in range(400)]
    here = dial(router, preamble(3, route_of(b"other")))
    there, _ = worker.listener.accept()
    assert talks(there, here)
    for sock in (here, there, *flood):
        sock.close()
    lazy.close()
    worker.close()


def test_closing_gives_up_port_and_connections() -> None:
    running = Router(open_listener())
    address = running.address
    sock = dial(running, b"P")
    time.sleep(0.1)
    running.close()
    assert closed(sock, PATIENCE)
    sock.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=PATIENCE)


def test_a_passed_listener_tells_when_nobody_passes() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    a, b = socket.socketpair()
    pass_socket(ours, a, ("host", 1))
    for sock in (a, ours):
        sock.close()
    listener = PassedListener(theirs)
    there, origin = listener.accept()
    assert origin == ("host", "1")
    assert talks(there, b)
    with pytest.raises(ConnectionError, match="no process passes"):
        listener.accept()
    for sock in (there, b):
        sock.close()
    listener.close()


def test_two_runs_over_the_same_ports() -> None:
    """Eight servers, two to a port: each run has its own links, over TLS."""
    members, sessions = Members(), [b"first", b"second"]
    routers = [Router(open_listener()) for _ in OPERATOR_OF]
    addresses = {seat: router.address for seat, router in enumerate(routers)}

    def join(server_and_session: Any) -> Mesh:
        seat, session = server_and_session
        worker = Worker(routers[seat], route_of(session))
        try:
            return connect_mesh(
                seat,
                worker.listener,
                addresses,
                tls=members.tls(OPERATOR_OF[seat]),
                session=session,
                route=route_of(session),
                timeout=PATIENCE,
            )
        finally:
            routers[seat].unregister(route_of(session))
            worker.close()

    def say(session: bytes) -> Any:
        def body(mesh: Mesh) -> None:
            peers = [seat for seat in OPERATOR_OF if seat != mesh.seat]
            received = exchange(mesh, {peer: [session] for peer in peers}, dict.fromkeys(peers, len(session)))
            assert all(bytes(payload) == session for payload in received.values())
            mesh.close()

        return body

    meshes = {session: run([(seat, session) for seat in OPERATOR_OF], join) for session in sessions}  # type: ignore[misc]
    for session in sessions:
        succeed(meshes[session], say(session))
    for router in routers:
        router.close()


def test_the_thread_survives_a_flood_of_connections_that_end_as_they_are_closed(router: Router) -> None:
    """160 connections that send, and are closed to make room in the same moment: events of closed ones are left over."""
    worker = Worker(router)
    for _ in range(3):
        flood = [socket.create_connection(router.address, timeout=PATIENCE) for _ in range(160)]
        for sock in flood:
            with contextlib.suppress(OSError):
                sock.sendall(b"x")
                sock.close()
    time.sleep(0.2)
    assert router._thread.is_alive()
    assert router.alive
    here = dial(router, preamble(3, ROUTE))
    there, _ = worker.listener.accept()
    assert talks(there, here)
    for sock in (here, there):
        sock.close()
    worker.close()


def test_a_connection_that_fails_ends_nobody_else(router: Router, monkeypatch: pytest.MonkeyPatch) -> None:
    worker, real = Worker(router), module.read_preamble

    def broken(data: bytes) -> Any:
        if data.endswith(b"\0"):
            raise RuntimeError("not foreseen")
        return real(data)

    monkeypatch.setattr(module, "read_preamble", broken)
    bad = dial(router, MAGIC + bytes(34))
    assert closed(bad, PATIENCE)
    here = dial(router, preamble(3, ROUTE))
    there, _ = worker.listener.accept()
    assert talks(there, here)
    for sock in (bad, here, there):
        sock.close()
    worker.close()
