"""One test body as four servers, servers over loopback, and peers that say anything: what the tests here build on."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any
from unittest.mock import patch

from harness.waiting import PATIENCE
from ppca.transport import Mesh, connect, connect_mesh, open_listener
from ppca.transport.link import Link, TcpLink
from ppca.transport.tcp import SocketMesh

SERVERS = range(4)
MakeMeshes = Callable[..., list[Mesh]]
TIMEOUT = PATIENCE  # a server that waits that long has not noticed what happened


def run(meshes: list[Mesh], body: Callable[[Mesh], Any], seats: Any = SERVERS) -> list[Any]:
    """Run ``body(mesh)`` in one thread per server; returns by server what it returned, or the exception it raised."""

    def guarded(mesh: Mesh) -> Any:
        try:
            return body(mesh)
        except Exception as error:
            return error

    pool = ThreadPoolExecutor(4)
    futures = {seat: pool.submit(guarded, meshes[seat]) for seat in seats}
    pool.shutdown(wait=False)
    _, hung = wait(futures.values(), 2 * PATIENCE)
    assert not hung, "a server hangs"
    return [futures[seat].result() if seat in futures else None for seat in SERVERS]


def succeed(meshes: list[Mesh], body: Callable[[Mesh], Any]) -> list[Any]:
    """As ``run``, but an exception in any server fails the test."""
    results = run(meshes, body)
    failures = {seat: repr(result) for seat, result in enumerate(results) if isinstance(result, Exception)}
    assert not failures
    return results


def exchange(mesh: Mesh, outgoing: dict[int, list[Any]], incoming: dict[int, int]) -> dict[int, Any]:
    """One round by frames: peer -> buffers of the frame to it, peer -> size of the frame from it; peer -> payload."""
    sends = [(peer, buffer) for peer, buffers in outgoing.items() for buffer in (buffers or [b""])]
    return dict(zip(incoming, mesh.exchange(sends, list(incoming.items())), strict=True))


class Meeting(connect._Connector):
    """A meeting that lets a test see whom it has met."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.met: set[int] = set()

    def _report(self, link: Link) -> None:
        super()._report(link)
        self.met.add(link.peer)


Meetings = dict[int, Meeting]


class Servers:
    """Connects four servers over loopback, each in its own thread; each may get its own settings."""

    def __init__(self) -> None:
        self.listeners = [open_listener() for _ in SERVERS]
        self.addresses = {seat: listener.getsockname()[:2] for seat, listener in enumerate(self.listeners)}

    def connect(
        self,
        seats: Any = SERVERS,
        *,
        own: dict[int, dict[str, Any]] | None = None,
        until: Callable[[Meetings], Any] | None = None,
        **settings: Any,
    ) -> list[Any]:
        """By server a mesh or an error. Once `until` is true of their meetings, the time of all servers is up."""
        settings = {"session": b"test", "timeout": TIMEOUT, **settings}
        meetings: Meetings = {}

        def meet(seat: int, *rest: Any) -> Meeting:
            meetings[seat] = meeting = Meeting(seat, *rest)
            return meeting

        def join(seat: int) -> Mesh:
            return connect_mesh(seat, self.listeners[seat], self.addresses, **{**settings, **(own or {}).get(seat, {})})

        if until is not None:
            threading.Thread(target=end_time, args=(meetings, len(seats), until), daemon=True).start()
        with patch.object(connect, "_Connector", meet):
            return run(list(SERVERS), join, seats)  # type: ignore[arg-type]

    def close(self) -> None:
        for listener in self.listeners:
            listener.close()


def end_time(meetings: Meetings, number: int, until: Callable[[Meetings], Any]) -> None:
    """Let every server run into its timeout as soon as `until` is true."""
    give_up = time.monotonic() + TIMEOUT
    while (len(meetings) < number or not until(meetings)) and time.monotonic() < give_up:
        time.sleep(0.01)
    for meeting in meetings.values():
        while not (meeting.reports.empty() or meeting.over.is_set()):  # what it has been told still counts
            time.sleep(0.01)
        meeting.deadline = 0.0
        with suppress(OSError):  # its server has finished
            meeting.wakeup_writer.send(b"!")


class Rogue:
    """Server 0's mesh over raw sockets whose other ends the test holds: ``peers[server]`` can say anything."""

    def __init__(self, timeout: float = TIMEOUT) -> None:
        pairs = {peer: socket.socketpair() for peer in SERVERS if peer}
        self.mesh = SocketMesh(0, [TcpLink(ours, 0, peer) for peer, (ours, _) in pairs.items()], timeout=timeout)
        self.peers = {peer: theirs for peer, (_, theirs) in pairs.items()}

    def close(self) -> None:
        self.mesh.close()
        for sock in self.peers.values():
            sock.close()
