"""Empty TLS records on the mesh: a round and a meeting end in time, and the connection is dropped."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from harness.empty_records import EmptyRecords
from harness.four_servers import Servers, exchange
from harness.pinned import Members
from harness.waiting import PATIENCE
from ppca.transport import Mesh, TransportError
from ppca.transport.link import TcpLink, TlsLink
from ppca.transport.tcp import SocketMesh

ROUND = 1.0
"""Timeout of a round in seconds."""


@pytest.fixture
def linked(tmp_path: Path) -> Iterator[tuple[Mesh, EmptyRecords]]:
    """Server 0 with a TLS link to server 3, and server 3 that can send empty records."""
    members = Members()
    here, there = socket.socketpair()
    dialing = members.tls("west").context(dialing=True)
    dialing.keylog_filename = str(tmp_path / "keys")
    listening = members.tls("north").context(dialing=False)
    with ThreadPoolExecutor(2) as pool:
        mine = pool.submit(listening.wrap_socket, here, server_side=True)
        theirs = pool.submit(dialing.wrap_socket, there)
        ours, rogue = mine.result(), theirs.result()
    rogue.settimeout(PATIENCE)
    pairs = [socket.socketpair() for _ in (1, 2)]
    links = [TcpLink(pair[0], 0, peer) for peer, pair in enumerate(pairs, 1)]
    mesh = SocketMesh(0, [*links, TlsLink(ours, 0, 3)], timeout=ROUND)
    empty = EmptyRecords(rogue, tmp_path / "keys")
    yield mesh, empty
    mesh.close()
    empty.close()
    rogue.close()
    for _, other in pairs:
        other.close()


@pytest.mark.parametrize("pause", [0.0, 0.05, None], ids=["as fast as possible", "20 a second", "nothing"])
def test_a_round_ends_in_time_and_names_the_server(linked: tuple[Mesh, EmptyRecords], pause: float | None) -> None:
    mesh, empty = linked
    over = threading.Event()

    def send() -> None:
        while pause is not None and not over.is_set() and empty.send():
            sleep(pause)

    sender = threading.Thread(target=send)
    sender.start()
    began = monotonic()
    try:
        with pytest.raises(TransportError) as caught:
            exchange(mesh, {}, {3: 8})
    finally:
        over.set()
    assert caught.value.peer == 3
    assert monotonic() - began < ROUND + PATIENCE / 2
    mesh.abort("the round failed")
    sender.join(PATIENCE)
    assert not sender.is_alive()


def test_members_with_empty_records_keep_no_servers_apart(tmp_path: Path) -> None:
    """A member that is no operator completes the handshake with each server that waits for its peers."""
    members, grid, over = Members(), Servers(), threading.Event()
    members.keys["visitor"] = Ed25519PrivateKey.generate()
    members.pins["visitor"] = members.keys["visitor"].public_key().public_bytes_raw()
    sent: list[int] = []

    def visit(number: int) -> None:
        keylog = tmp_path / f"keys {number}"
        context = members.tls("visitor").context(dialing=True)
        context.keylog_filename = str(keylog)
        with (
            suppress(OSError),
            socket.create_connection(grid.addresses[number % 4], PATIENCE) as sock,
            context.wrap_socket(sock) as tls,
        ):
            empty = EmptyRecords(tls, keylog)
            count = 0
            while not over.is_set() and empty.send():
                count += 1
            sent.append(count)
            empty.close()

    visitors = [threading.Thread(target=visit, args=(number,), daemon=True) for number in range(8)]
    for visitor in visitors:
        visitor.start()
    try:
        meshes = grid.connect(own=members.own())
        assert all(isinstance(mesh, Mesh) for mesh in meshes), meshes
    finally:
        over.set()
        grid.close()
    for mesh in meshes:
        mesh.close()
    for visitor in visitors:
        visitor.join(PATIENCE)
        assert not visitor.is_alive()
    assert sent
