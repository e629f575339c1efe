"""Connecting: servers start in any order; strangers are turned away and disturb no one; refusals are clear."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from harness.four_servers import SERVERS, TIMEOUT, Meetings, Servers, exchange, run, succeed
from harness.pinned import Members
from ppca.transport import (
    CertificateError,
    FrameError,
    Mesh,
    PeerError,
    PeerTimeout,
    TransportError,
    connect,
    connect_mesh,
    free_ports,
)
from ppca.transport.frames import DATA, HELLO, pack_header
from ppca.transport.greeting import read_hello, send_hello
from ppca.transport.ports import FREE_PORT_RANGE


def close(meshes: list[Any]) -> None:
    for mesh in meshes:
        if isinstance(mesh, Mesh):
            mesh.close()


def ended(seat: int, *refusing: int) -> Callable[[Meetings], bool]:
    """Whether this server has its answer, and the others have turned somebody away."""

    def until(meetings: Meetings) -> bool:
        return meetings[seat].over.is_set() and all(meetings[other].refused for other in refusing)

    return until


def talk(meshes: list[Mesh]) -> None:
    def body(mesh: Mesh) -> None:
        peers = [seat for seat in SERVERS if seat != mesh.seat]
        received = exchange(mesh, {peer: [bytes([mesh.seat])] for peer in peers}, dict.fromkeys(peers, 1))
        assert {peer: payload[0] for peer, payload in received.items()} == {peer: peer for peer in peers}

    succeed(meshes, body)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)])
def test_servers_start_in_any_order(order: tuple[int, ...]) -> None:
    addresses = {seat: ("127.0.0.1", port) for seat, port in enumerate(free_ports(4))}

    def join(seat: Any) -> Mesh:
        time.sleep(0.1 * order.index(seat))
        listener = socket.create_server(addresses[seat]) if seat != 3 else None
        mesh = connect_mesh(seat, listener, addresses, session=b"s", timeout=TIMEOUT)
        if listener is not None:
            listener.close()
        return mesh

    meshes = run(list(SERVERS), join)  # type: ignore[arg-type]
    talk(meshes)
    close(meshes)


STRANGERS = {
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "garbage": bytes(range(256)),
    "one byte": b"P",
    "nothing": b"",
    "data frame": pack_header(DATA, 3, 0, 10) + bytes(10),
    "huge hello": pack_header(HELLO, 3, 0, 1 << 50),
    "empty hello": pack_header(HELLO, 3, 0, 0),
    "hello of a lower seat": pack_header(HELLO, 0, 0, 5) + b"\0test",
    "hello of no seat": pack_header(HELLO, 9, 0, 5) + b"\0test",
    "hello to another seat": pack_header(HELLO, 3, 0, 5) + b"\2test",
    "hello of another session": pack_header(HELLO, 3, 0, 6) + b"\0other",
}


@pytest.mark.parametrize("secure", [False, True])
def test_strangers_do_not_disturb(
    grid: Servers, members: Members, caplog: pytest.LogCaptureFixture, secure: bool
) -> None:
    """Before the peers come, every kind of stranger connects to seat 0; some hang up, some stay and say no more."""
    strangers = []
    for words in STRANGERS.values():
        for hang_up in (True, False):
            sock = socket.create_connection(grid.addresses[0])
            sock.sendall(words)
            if hang_up:
                sock.close()
            else:
                strangers.append(sock)
    with caplog.at_level(logging.WARNING, "ppca.transport"):
        meshes = grid.connect(own=members.own() if secure else None)
    talk(meshes)
    close(meshes)
    for sock in strangers:
        sock.close()
    assert "server 0 turned away 127.0.0.1:" in caplog.text


@pytest.mark.parametrize("secure", [False, True])
def test_silent_connections_cannot_keep_peers_out(
    grid: Servers, members: Members, monkeypatch: pytest.MonkeyPatch, secure: bool
) -> None:
    """As many as the queue of the listener holds, twice what may greet at once: peers come in long before those give up."""
    silent = [socket.create_connection(grid.addresses[0]) for _ in range(60)]
    for sock in silent[::2]:
        sock.sendall(b"P")  # slow, not silent
    monkeypatch.setattr(connect, "GREETING_SECONDS", 3 * TIMEOUT)
    meshes = grid.connect(own=members.own() if secure else None)
    talk(meshes)
    close(meshes)
    for sock in silent:
        sock.close()


def test_a_wrong_session_is_clear_on_both_sides(grid: Servers) -> None:
    results = grid.connect(until=ended(3, 0), own={3: {"session": b"yesterday"}})
    assert isinstance(results[3], PeerError)
    assert "different sessions" in str(results[3])
    assert isinstance(results[0], TransportError)
    assert "different sessions" in str(results[0])
    assert "yesterday" not in str(results[0])


def test_a_missing_server_is_named(grid: Servers) -> None:
    grid.listeners[1].close()
    results = grid.connect(
        seats=(0, 2, 3),
        until=lambda found: all(1 in found[seat].causes and len(found[seat].met) == 2 for seat in (2, 3)),
    )
    assert isinstance(results[0], (PeerTimeout, PeerError))
    for seat in (2, 3):
        assert isinstance(results[seat], PeerTimeout)
        assert results[seat].peer == 1
        assert "no connection with server 1" in str(results[seat])
        assert "Connection refused" in str(results[seat])


def test_a_peer_that_hangs_up_before_all_are_connected_ends_the_meeting(
    grid: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process has ended. The others waited for their timeout, a minute by default.

    Server 0 gives up first, perhaps, and then hangs up on server 2, which must have noticed the end of server 1 before.
    """
    monkeypatch.setattr(connect, "REDIAL_SECONDS", 1.0)

    def end_of_server_1(found: Meetings) -> bool:
        """Once the three have met, the time of seat 1 is up, and not that of the others."""
        if found[0].met >= {1, 2} and found[1].met >= {0, 2} and found[2].met >= {0, 1}:
            found[1].deadline = 0.0
            with suppress(OSError):
                found[1].wakeup_writer.send(b"!")
        return False

    results = grid.connect(seats=(0, 1, 2), until=end_of_server_1)
    assert isinstance(results[1], PeerTimeout)
    for seat in (0, 2):
        assert isinstance(results[seat], PeerError)
        assert results[seat].peer == 1
        assert "server 1 hung up before all servers were connected" in str(results[seat])


def test_a_peer_that_dials_again_is_not_taken_for_gone(grid: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dialer whose first connection was cut is connected once."""
    cut, dial = threading.Event(), connect._Connector.dial

    def dial_after_cut(self: connect._Connector, peer: int, address: tuple[str, int]) -> None:
        if (self.seat, peer) == (1, 0):
            cut.wait(TIMEOUT)
        dial(self, peer, address)

    monkeypatch.setattr(connect._Connector, "dial", dial_after_cut)
    results: list[Any] = []
    meeting = threading.Thread(target=lambda: results.extend(grid.connect()))
    with socket.create_connection(grid.addresses[0]) as sock:
        send_hello(sock, 1, 0, b"test")
        meeting.start()
        read_hello(sock, 1, 0, b"test", time.monotonic() + TIMEOUT)
    cut.set()
    meeting.join()
    talk(results)
    close(results)


def test_an_attempt_cut_short_does_not_hide_why_the_one_before_failed() -> None:
    meeting = connect._Connector(3, b"s", None, 1.0)
    meeting._note(1, ("host", 7), ConnectionError("no TLS there"))
    meeting._note(1, ("host", 7), TimeoutError("timed out"))
    meeting._note(2, ("host", 8), TimeoutError("timed out"))
    meeting.end()
    assert "(server 1: host:7: no TLS there; then timed out; server 2: host:8: timed out)" in str(
        meeting._timed_out([1, 2])
    )


def test_swapped_addresses_are_clear(grid: Servers) -> None:
    grid.addresses[0], grid.addresses[1] = grid.addresses[1], grid.addresses[0]
    results = grid.connect(until=ended(3))
    assert isinstance(results[3], (PeerError, FrameError))
    assert "check the addresses" in str(results[3])


def test_one_server_of_another_session_fails_the_meeting_of_all(grid: Servers) -> None:
    """Seat 2 ends with the first refusal, so maybe before seat 3 or one of the others has heard of it."""
    results = grid.connect(
        until=lambda found: found[2].over.is_set() and found[0].refused + found[1].refused,
        own={2: {"session": b"other"}},
    )
    assert all(isinstance(result, TransportError) for result in results)
    assert "different sessions" in str(results[2])
    assert "different sessions" in str(results[0]) + str(results[1])


@pytest.mark.parametrize(
    ("seat", "listener", "changes", "message"),
    [
        (0, None, {}, r"server 0 needs a listener"),
        (3, None, {"session": b""}, "1 to 64 bytes"),
        (3, None, {"timeout": 0}, "timeout positive"),
        (7, None, {}, "seat must be one of"),
        (3, None, {}, r"needs the address of server 0 and server 1 and server 2"),
    ],
)
def test_wrong_arguments(seat: int, listener: None, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        connect_mesh(seat, listener, {}, **{"session": b"s", "timeout": 1.0, **changes})


# Certificates


def test_a_certificate_of_another_server_is_rejected(grid: Servers, members: Members) -> None:
    own = members.own()
    own[3] = own[2]
    results = grid.connect(until=ended(3), own=own)
    assert all(isinstance(result, TransportError) for result in results)
    assert isinstance(results[3], (PeerError, CertificateError))
    assert "expected 'west' on server 3, but the other end is 'east'" in str(results[3])


def test_a_listener_with_the_certificate_of_another_server_is_rejected(grid: Servers, members: Members) -> None:
    own = members.own()
    own[0] = own[2]
    results = grid.connect(until=ended(1), own=own)
    assert isinstance(results[1], CertificateError)
    assert "expected 'north' on server 0, but the other end is 'east'" in str(results[1])


def test_a_plain_server_among_tls_servers(grid: Servers, members: Members) -> None:
    own = members.own()
    own[3] = {}

    def told(meetings: Meetings) -> bool:
        return meetings[3].over.is_set() or len(meetings[3].causes) == 3

    results = grid.connect(until=told, own=own)
    assert isinstance(results[3], TransportError)
    assert "TLS" in str(results[3]) or "alien" in str(results[3])
    assert isinstance(results[0], TransportError)
    own = {3: members.own()[3]}
    results = grid.connect(until=lambda found: len(found[3].causes) == 3, own=own)
    assert isinstance(results[3], PeerTimeout)
    assert "no TLS there" in str(results[3])


def test_old_tls_versions_are_refused(grid: Servers, members: Members) -> None:
    results: list[Any] = []
    thread = threading.Thread(
        target=lambda: results.extend(grid.connect(seats=(0,), own=members.own(), until=lambda found: found[0].refused))
    )
    thread.start()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with socket.create_connection(grid.addresses[0], timeout=TIMEOUT) as sock, pytest.raises(ssl.SSLError):
        context.wrap_socket(sock)
    thread.join()
    assert isinstance(results[0], PeerTimeout)


def test_free_ports_are_different_and_below_those_of_outgoing_connections() -> None:
    found = free_ports(40)
    assert len(set(found)) == 40
    assert all(port in FREE_PORT_RANGE for port in found)
    with socket.create_server(("127.0.0.1", found[0])):
        assert all(found[0] not in free_ports(3) for _ in range(20))
