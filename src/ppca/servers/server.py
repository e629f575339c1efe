"""One computation server: a process that waits for programs and runs them with its three peers.

Started by `LocalServers` with one end of a control channel (see `control` for the conversation). It listens on loopback,
tells the client its port, connects to its peers, and then runs programs. A program that fails ends the run: the servers get new
links and wait for the next one. When the client goes away, even when it is
killed in the middle of a run, the server ends at once.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import queue
import select
import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..native import kernels
from ..transport import Mesh, TlsSettings, connect_mesh, open_listener, seat_name
from .codec import CodecError
from .control import Channel, ChannelClosed, Message
from .failure import Failure, trace_of
from .operator import Operator
from .programs import Program, ProgramError, asked_for, check_arguments, check_inputs, execute, load
from .store import Staged, Store

PROGRESS_EVERY = 0.05
PARENT_EVERY = 1.0

KEPT_MEMORY = 256 << 20
"""Bytes of freed memory that a server keeps for its next arrays."""


def watch(seat: int, client: int, channel: Channel, inbox: queue.Queue[Message]) -> None:
    """Reads the control channel in the background, so that a vanished client is noticed even in the middle of a run.

    The channel stays open while any process holds the client's end, also a child that the client forked; so now and then
    it is checked that the client still is this server's parent.
    """
    try:
        while True:
            if not select.select([channel], [], [], PARENT_EVERY)[0]:
                if os.getppid() != client:
                    break
                continue
            message = channel.read()
            if message is not None:
                inbox.put(message)
    except ChannelClosed:
        pass
    except BaseException as error:  # without this thread the server might outlive its client
        _report(channel, Failure.of(seat, None, error))
    os._exit(0)


class Server:
    """The life of one seat: connect, then run programs until the client closes the channel."""

    def __init__(
        self,
        seat: int,
        channel: Channel,
        inbox: queue.Queue[Message],
        store: Store,
        operator: Operator,
        developer: bool = False,
    ) -> None:
        self.seat = seat
        self.store = store
        self.operator = operator
        self.developer = developer
        self.tables: dict[str, Any] = {}
        self.channel = channel
        self.inbox = inbox
        self.mesh: Mesh | None = None
        self._first_step = 0
        self._last_progress = 0.0

    def _next(self, *kinds: str) -> Message:
        kind, fields = self.inbox.get()
        if kind not in kinds:
            raise CodecError(f"the client sent {kind!r} where {' or '.join(map(repr, kinds))} was expected")
        return kind, fields

    def serve(self) -> None:
        while True:
            session = self._connect()
            self._run_programs(session)

    def _connect(self) -> bytes:
        """Finds the peers; returns the name of the session."""
        with open_listener() as listener:
            self.channel.send("listening", port=listener.getsockname()[1])
            _, fields = self._next("connect")
            session = bytes.fromhex(fields["session"])
            self.mesh = connect_mesh(
                self.seat,
                listener,
                {int(seat): (str(host), int(port)) for seat, (host, port) in fields["addresses"].items()},
                tls=TlsSettings(**fields["tls"]) if fields["tls"] else None,
                session=session,
                timeout=float(fields["start_timeout"]),
                exchange_timeout=float(fields["timeout"]),
            )
        self.channel.send("connected")
        return session

    def _run_programs(self, session: bytes) -> None:
        """Runs what the client asks for until it asks for new links: a program that fails ends its run, not the server."""
        assert self.mesh is not None
        kinds, job = ["run", "reconnect"], 0
        while True:
            kind, fields = self._next(*kinds)
            if kind == "reconnect":
                self.mesh.close()
                return
            program = self._prepare(fields)
            kind, _ = self._next("go", "drop")
            if kind == "go" and program is not None:
                job += 1
                staged = Staged(self.store)
                try:
                    self._run(self.mesh, session + job.to_bytes(8, "little"), program, fields, staged)
                except (Exception, SystemExit) as error:
                    staged.drop()
                    self.fail(error)
                    kinds = ["reconnect"]  # links on which a round broke off are of no use
                    continue
                if staged.changed and not self._settled(staged):
                    return

    def _settled(self, staged: Staged) -> bool:
        """Keeps what a program wants to keep once the client has heard all four servers; False if it wants new links."""
        kind, _ = self._next("commit", "drop", "reconnect")
        if kind == "commit":
            staged.commit()
            self.channel.send("committed")
        else:
            staged.drop()
        if kind == "reconnect":
            assert self.mesh is not None
            self.mesh.close()
        return kind != "reconnect"

    def _prepare(self, fields: dict[str, Any]) -> Program | None:
        """Loads a program and checks that it takes the inputs; tells the client. Nothing is made of the inputs before."""
        name, packets, public = asked_for(fields)
        try:
            check_inputs(packets, *divmod(self.seat, 2), self.operator.input_bytes)
            with _labelled(self.seat):
                program = load(name, self.developer)
            check_arguments(program, name, len(packets), public)
        except ProgramError as error:
            trace = "" if error.__cause__ is None else trace_of(error.__cause__)
            self.channel.send("refused", error=str(error), trace=trace)
            return None
        self.channel.send("ready")
        return program

    def _run(self, mesh: Mesh, session: bytes, program: Program, fields: dict[str, Any], store: Staged) -> None:
        self._first_step, self._last_progress = mesh.step, 0.0
        mesh.stats.reset()
        with _labelled(self.seat):
            ran = execute(
                mesh, session, program, fields["packets"], fields["public"], self._progress, store, self.tables
            )
        ran.keeps = store.changed
        self.channel.send("done", **vars(ran))

    def _progress(self, text: str, fraction: float | None) -> None:
        now = time.monotonic()
        if self.seat == 0 and (now - self._last_progress > PROGRESS_EVERY or fraction == 1.0):
            assert self.mesh is not None
            self._last_progress = now
            self.channel.send("progress", text=text, fraction=fraction, rounds=self.mesh.step - self._first_step)

    def fail(self, error: BaseException) -> None:
        """Tells the peers, then the client. The links are of no use any more."""
        failure = Failure.of(self.seat, None if self.mesh is None else self.mesh.step, error)
        if self.mesh is not None:
            self.mesh.abort(failure.reason)
        _report(self.channel, failure)


@contextlib.contextmanager
def _labelled(seat: int) -> Iterator[None]:
    """What is printed inside comes out on standard error, line by line and marked with the seat."""
    lines = _Lines(f"{seat_name(seat)}: ")
    with contextlib.redirect_stdout(lines):
        yield
    lines.end()


class _Lines(io.TextIOBase):
    def __init__(self, label: str) -> None:
        self._label = label
        self._line = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, self._line = (self._line + text).split("\n")
        if lines:
            sys.stderr.write("".join(f"{self._label}{line}\n" for line in lines))
            sys.stderr.flush()
        return len(text)

    def end(self) -> None:
        if self._line:
            self.write("\n")


def _report(channel: Channel, failure: Failure) -> None:
    with contextlib.suppress(ChannelClosed):
        channel.send("failed", **asdict(failure))


def main() -> None:
    parser = argparse.ArgumentParser(description="a computation server of PPCA on this machine")
    parser.add_argument("--seat", type=int, required=True)
    parser.add_argument("--client", type=int, required=True, help="process number of the client")
    parser.add_argument("--control", type=int, required=True, help="file descriptor of the control channel")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--state", type=Path, help="folder for the shares that this server keeps")
    parser.add_argument("--developer", action="store_true", help="run any program that the client names")
    parser.add_argument("--cores", help="numbers of the cores to run on, with commas")
    arguments = parser.parse_args()
    if arguments.cores:
        os.sched_setaffinity(0, {int(core) for core in arguments.cores.split(",")})
    kernels.set_threads(arguments.threads)
    kernels.keep_memory(KEPT_MEMORY)
    operator = Operator.of()
    channel = Channel(socket.socket(fileno=arguments.control), 2 * operator.input_bytes)  # inputs and public arrays
    inbox: queue.Queue[Message] = queue.Queue()
    watching = (arguments.seat, arguments.client, channel, inbox)
    threading.Thread(target=watch, args=watching, daemon=True).start()
    server = Server(arguments.seat, channel, inbox, Store(arguments.state), operator, arguments.developer)
    try:
        server.serve()
    except BaseException as error:  # also SystemExit of a program: the client must hear of it
        server.fail(error)
        sys.exit(1)


if __name__ == "__main__":
    main()
