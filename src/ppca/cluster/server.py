"""One computation server of a local cluster: a process that waits for programs and runs them with its three peers.

Started by `LocalCluster` with one end of a control channel. It listens on loopback, tells the client its port,
connects to its peers, and then answers `run` messages. When the client goes away (also when it is killed), the server
ends at once.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import queue
import socket
import sys
import threading
import time
import traceback
from typing import Any

from ..native import kernels
from ..transport import Mesh, TransportError
from ..transport.connect import connect_mesh
from ..transport.tls import TlsSettings
from .codec import CodecError
from .control import Channel, ChannelClosed
from .programs import execute, load

PROGRESS_EVERY = 0.05


def _watch(channel: Channel, inbox: queue.Queue[tuple[str, dict[str, Any]]]) -> None:
    """Reads the control channel in the background, so that a vanished client is noticed even in the middle of a run."""
    while True:
        try:
            inbox.put(channel.receive())
        except (ChannelClosed, CodecError):
            os._exit(3)


class Server:
    """The life of one seat: connect, then run programs until told to stop."""

    def __init__(self, seat: int, channel: Channel) -> None:
        self.seat = seat
        self.channel = channel
        self.inbox: queue.Queue[tuple[str, dict[str, Any]]] = queue.Queue()
        self.mesh: Mesh | None = None
        self._last_progress = 0.0

    def serve(self) -> None:
        threading.Thread(target=_watch, args=(self.channel, self.inbox), daemon=True).start()
        listener = socket.create_server(("127.0.0.1", 0), backlog=16)
        self.channel.send("listening", port=listener.getsockname()[1])
        kind, fields = self.inbox.get()
        if kind != "connect":
            raise CodecError(f"expected 'connect', got {kind!r}")
        session = bytes.fromhex(fields["session"])
        addresses = {int(seat): (str(host), int(port)) for seat, (host, port) in fields["addresses"].items()}
        tls = TlsSettings(**fields["tls"]) if fields["tls"] else None
        timeout = float(fields["timeout"])
        self.mesh = connect_mesh(self.seat, listener, addresses, tls=tls, session=session, timeout=timeout)
        self.channel.send("connected")
        job = 0
        while True:
            kind, fields = self.inbox.get()
            if kind == "stop":
                self.mesh.close()
                return
            job += 1
            if not self._run(fields, session + job.to_bytes(8, "little")):
                return

    def _run(self, fields: dict[str, Any], session: bytes) -> bool:
        """One program; False when the links are lost and this server must end."""
        assert self.mesh is not None
        before = self.mesh.stats
        self.mesh.stats = type(before)()
        try:
            program = load(fields["program"])
            ran = execute(self.mesh, session, program, fields["packets"], fields["public"], self._progress)
            self.channel.send("done", value=ran.value, seconds=ran.seconds, stats=ran.stats, audit=ran.audit)
            return True
        except Exception as error:
            step = self.mesh.step
            from_peer = isinstance(error, TransportError)
            reason = str(error) if from_peer else f"{type(error).__name__} in the program"
            self.mesh.abort(reason)
            with contextlib.suppress(ChannelClosed):
                self.channel.send(
                    "failed",
                    error=f"{type(error).__name__}: {error}",
                    trace="" if from_peer else "".join(traceback.format_exception(error)),
                    step=step,
                    from_peer=from_peer,
                )
            return False

    def _progress(self, text: str, fraction: float | None) -> None:
        now = time.monotonic()
        if self.seat == 0 and (now - self._last_progress > PROGRESS_EVERY or fraction == 1.0):
            assert self.mesh is not None
            self._last_progress = now
            self.channel.send("progress", text=text, fraction=fraction, rounds=self.mesh.step)


def main() -> None:
    parser = argparse.ArgumentParser(description="a computation server of a local PPCA cluster")
    parser.add_argument("--seat", type=int, required=True)
    parser.add_argument("--control", type=int, required=True, help="file descriptor of the control channel")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    kernels.set_threads(arguments.threads)
    channel = Channel(socket.socket(fileno=arguments.control))
    try:
        Server(arguments.seat, channel).serve()
    except (TransportError, OSError) as error:
        with contextlib.suppress(ChannelClosed):
            channel.send("failed", error=str(error), trace="", step=0, from_peer=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
