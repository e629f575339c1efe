"""The process of one attempt: it gets its work over a control channel, meets its three peers, runs one program and
ends.

    parent -> worker    work       session, addresses, leaf and pins, program, packets, public parameters
                        kept       a record that the program may recall
                        piece      rows for the table of the job
                        prepare    that was all; load the program
                        go         connect and run
    worker -> parent    taken      after work, and after every record and piece
                        ready or refused (after prepare), connected, progress, done with the records to keep
                        failed     at any time

Connections come from the mesh port of the server, over a second socket. The worker ends with its parent.
"""

from __future__ import annotations

import queue
import socket
import threading
from typing import Any

from ..jobs.errors import Refusal
from ..jobs.uploads import Uploads
from ..native import kernels
from ..runtime.codec import CodecError
from ..runtime.control import Channel, Message
from ..runtime.failure import Failure, trace_of
from ..runtime.process import KEPT_MEMORY, Teller, harden, labelled, report, watch
from ..runtime.programs import Program, ProgramError, asked_for, execute, prepare
from ..runtime.store import Staged, Store, flat, record_of
from ..transport import Mesh, PinnedTls, connect_mesh
from ..transport.routes import PassedListener, route_of
from .work import TABLE

_UNREAD = 4  # messages read ahead: pieces are large, and the parent sends one at a time anyway


class Worker:
    """The life of one attempt at one server."""

    def __init__(self, server: int, channel: Channel, inbox: queue.Queue[Message], passed: PassedListener) -> None:
        self.server = server
        self.channel = channel
        self.inbox = inbox
        self.passed = passed
        self.mesh: Mesh | None = None
        self.uploads = Uploads()
        self.store = Store()

    def serve(self) -> None:
        _, work = self._next("work")
        self._take_the_rest()
        if self.uploads.rows:
            work["public"] = {**work["public"], "table": TABLE}
        program = self._prepare(work)
        if program is not None:
            self._next("go")
            self.mesh = self._connect(work)
            self.channel.send("connected")
            self._run(self.mesh, program, work)

    def _next(self, *kinds: str) -> Message:
        kind, fields = self.inbox.get()
        if kind not in kinds:
            raise CodecError(f"the server sent {kind!r} where {' or '.join(map(repr, kinds))} was expected")
        return kind, fields

    def _take_the_rest(self) -> None:
        """Kept records and pieces, each acknowledged, so that no more than one is on its way."""
        while True:
            self.channel.send("taken")
            kind, fields = self._next("kept", "piece", "prepare")
            if kind == "kept":
                self.store[fields["name"]] = record_of(**fields["record"])
            elif kind == "piece":
                self.uploads.append(fields["owner"], fields["packet"], fields["tags"], self.server, fields["order"])
            else:
                return

    def _prepare(self, work: dict[str, Any]) -> Program | None:
        try:
            with labelled(self.server):
                program = prepare(*asked_for(work), self.server, int(work["input_bytes"]))
        except ProgramError as error:
            trace = "" if error.__cause__ is None else trace_of(error.__cause__)
            self.channel.send("refused", error=str(error), trace=trace)
            return None
        self.channel.send("ready")
        return program

    def _connect(self, work: dict[str, Any]) -> Mesh:
        session = bytes.fromhex(work["session"])
        return connect_mesh(
            self.server,
            self.passed,
            {int(server): (str(host), int(port)) for server, (host, port) in work["addresses"].items()},
            tls=PinnedTls.of(work["tls"]),
            session=session,
            route=route_of(session),
            timeout=float(work["start_timeout"]),
            exchange_timeout=float(work["timeout"]),
        )

    def _run(self, mesh: Mesh, program: Program, work: dict[str, Any]) -> None:
        teller, staged = Teller(self.channel), Staged(self.store)
        teller.begin(mesh)
        session = bytes.fromhex(work["session"])
        tables = {TABLE: self.uploads} if self.uploads.rows else {}
        with labelled(self.server):
            ran = execute(
                mesh, session, program, work["packets"], work["public"], teller, staged, tables, work["openings"]
            )
        if isinstance(ran.result, dict) and "refused" in ran.result:
            raise Refusal(str(ran.result["refused"]))
        kept = {name: None if record is None else flat(record) for name, record in staged.changes.items()}
        ran.keeps = staged.changed
        mesh.close()  # before the parent hears of the end and ends this process: peers must see that it was no accident
        self.channel.send("done", **vars(ran), kept=kept)

    def fail(self, error: BaseException) -> None:
        """Tell the peers, then the server."""
        failure = Failure.of(self.server, None if self.mesh is None else self.mesh.step, error)
        if self.mesh is not None:
            self.mesh.abort(failure.reason)
        report(self.channel, failure)


def main(control: socket.socket, passed: socket.socket, parent: int, *, server: int, threads: int, longest: int) -> int:
    """Run one attempt in this process; return its exit code.

    control: the control channel. passed: brings connections of the mesh port. parent: number of the process that
    started this one. longest: bytes of one message.
    """
    harden(parent)
    kernels.set_threads(threads)
    kernels.keep_memory(KEPT_MEMORY)
    channel = Channel(control, longest)
    inbox: queue.Queue[Message] = queue.Queue(_UNREAD)
    threading.Thread(target=watch, args=(server, parent, channel, inbox), daemon=True).start()
    worker = Worker(server, channel, inbox, PassedListener(passed))
    try:
        worker.serve()
    except BaseException as error:  # also SystemExit of a program: the server must hear of it
        worker.fail(error)
        return 1
    return 0
