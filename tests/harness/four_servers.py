"""One test body as four servers, servers over loopback, and peers that say anything: what the tests here build on."""

from __future__ import annotations

import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from ppca.transport import Mesh, TlsSettings, connect_mesh, open_listener
from ppca.transport.link import TcpLink
from ppca.transport.tcp import SocketMesh

SEATS = range(4)
MakeMeshes = Callable[..., list[Mesh]]
PATIENCE = 20.0  # seconds until a test body counts as hung


def run(meshes: list[Mesh], body: Callable[[Mesh], Any], seats: Any = SEATS) -> list[Any]:
    """Run ``body(mesh)`` in one thread per seat; returns by seat what it returned, or the exception it raised."""

    def guarded(mesh: Mesh) -> Any:
        try:
            return body(mesh)
        except Exception as error:
            return error

    pool = ThreadPoolExecutor(4)
    futures = {seat: pool.submit(guarded, meshes[seat]) for seat in seats}
    pool.shutdown(wait=False)
    _, hung = wait(futures.values(), PATIENCE)
    assert not hung, "a server hangs"
    return [futures[seat].result() if seat in futures else None for seat in SEATS]


def succeed(meshes: list[Mesh], body: Callable[[Mesh], Any]) -> list[Any]:
    """As ``run``, but an exception in any seat fails the test."""
    results = run(meshes, body)
    failures = {seat: repr(result) for seat, result in enumerate(results) if isinstance(result, Exception)}
    assert not failures
    return results


def exchange(mesh: Mesh, outgoing: dict[int, list[Any]], incoming: dict[int, int]) -> dict[int, Any]:
    """One round by frames: peer -> buffers of the frame to it, peer -> size of the frame from it; peer -> payload."""
    sends = [(peer, buffer) for peer, buffers in outgoing.items() for buffer in (buffers or [b""])]
    return dict(zip(incoming, mesh.exchange(sends, list(incoming.items())), strict=True))


class Servers:
    """Connects four servers over loopback, each in its own thread; each may get its own settings."""

    def __init__(self) -> None:
        self.listeners = [open_listener() for _ in SEATS]
        self.addresses = {seat: listener.getsockname()[:2] for seat, listener in enumerate(self.listeners)}

    def connect(
        self, seats: Any = SEATS, *, own: dict[int, dict[str, Any]] | None = None, **settings: Any
    ) -> list[Any]:
        settings = {"session": b"test", "timeout": 5.0, **settings}

        def join(seat: int) -> Mesh:
            return connect_mesh(seat, self.listeners[seat], self.addresses, **{**settings, **(own or {}).get(seat, {})})

        return run(list(SEATS), join, seats)  # type: ignore[arg-type]

    def close(self) -> None:
        for listener in self.listeners:
            listener.close()


def tls_settings(directory: Path, seat: int) -> TlsSettings:
    name = f"seat-{seat}.ppca"
    return TlsSettings(
        authority=directory / "authority.pem", certificate=directory / f"{name}.pem", key=directory / f"{name}.key"
    )


def own_tls(directory: Path) -> dict[int, dict[str, Any]]:
    return {seat: {"tls": tls_settings(directory, seat)} for seat in SEATS}


class Rogue:
    """Seat 0's mesh over raw sockets whose other ends the test holds: ``peers[seat]`` can say anything."""

    def __init__(self, timeout: float = 5.0) -> None:
        pairs = {peer: socket.socketpair() for peer in SEATS if peer}
        self.mesh = SocketMesh(0, [TcpLink(ours, 0, peer) for peer, (ours, _) in pairs.items()], timeout=timeout)
        self.peers = {peer: theirs for peer, (_, theirs) in pairs.items()}

    def close(self) -> None:
        self.mesh.close()
        for sock in self.peers.values():
            sock.close()
