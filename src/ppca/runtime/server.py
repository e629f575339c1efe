"""One local computation server: a process that waits for programs and runs them with its three peers.

`LocalServers` starts it with one end of a control channel (see `control` for the messages). It listens on loopback,
sends its port to the client, connects to its peers, and then runs programs. A program that fails ends the run: the
servers connect again and wait for the next one. The server ends at once when the client ends, even if the client is
killed during a run.
"""

from __future__ import annotations

import argparse
import os
import queue
import socket
import sys
import threading
from pathlib import Path
from typing import Any

from ..jobs.operator import Operator
from ..native import kernels
from ..transport import Mesh, PinnedTls, connect_mesh, open_listener
from .codec import CodecError
from .control import Channel, Message
from .failure import Failure, trace_of
from .process import KEPT_MEMORY, Teller, labelled, report, watch
from .programs import Program, ProgramError, asked_for, execute, prepare, rules_of
from .store import Staged, Store


class Server:
    """One server: connect, then run programs until the client closes the channel."""

    def __init__(
        self,
        server: int,
        channel: Channel,
        inbox: queue.Queue[Message],
        store: Store,
        operator: Operator,
        developer: bool = False,
    ) -> None:
        self.server = server
        self.store = store
        self.operator = operator
        self.developer = developer
        self.tables: dict[str, Any] = {}
        self.channel = channel
        self.inbox = inbox
        self.mesh: Mesh | None = None
        self._teller = Teller(channel)

    def _next(self, *kinds: str) -> Message:
        kind, fields = self.inbox.get()
        if kind not in kinds:
            raise CodecError(f"the client sent {kind!r} instead of {' or '.join(map(repr, kinds))}")
        return kind, fields

    def serve(self) -> None:
        while True:
            session = self._connect()
            self._run_programs(session)

    def _connect(self) -> bytes:
        """Connect to the peers; return the name of the session."""
        with open_listener() as listener:
            self.channel.send("listening", port=listener.getsockname()[1])
            _, fields = self._next("connect")
            session = bytes.fromhex(fields["session"])
            self.mesh = connect_mesh(
                self.server,
                listener,
                {int(server): (str(host), int(port)) for server, (host, port) in fields["addresses"].items()},
                tls=PinnedTls.of(fields["tls"]) if fields["tls"] else None,
                session=session,
                timeout=float(fields["start_timeout"]),
                exchange_timeout=float(fields["timeout"]),
            )
        self.channel.send("connected")
        return session

    def _run_programs(self, session: bytes) -> None:
        """Run programs until the client asks for new links. A program that fails ends its run, not the server."""
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
                    kinds = ["reconnect"]  # links on which a round failed cannot be used again
                    continue
                if staged.changed and not self._settled(staged):
                    return

    def _settled(self, staged: Staged) -> bool:
        """Commit the records of a program when the client says that all four finished; return False if it asks for new
        links."""
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
        """Load a program, check that it accepts the inputs, and tell the client. The inputs are not used before."""
        name, packets, public = asked_for(fields)
        try:
            with labelled(self.server):
                program = prepare(name, packets, public, self.server, self.operator.input_bytes, self.developer)
        except ProgramError as error:
            trace = "" if error.__cause__ is None else trace_of(error.__cause__)
            self.channel.send("refused", error=str(error), trace=trace)
            return None
        self.channel.send("ready")
        return program

    def _run(self, mesh: Mesh, session: bytes, program: Program, fields: dict[str, Any], store: Staged) -> None:
        mesh.stats.reset()
        self._teller.begin(mesh)
        with labelled(self.server):
            rules = rules_of(program, fields["public"])
            ran = execute(
                mesh, session, program, fields["packets"], fields["public"], self._progress, store, self.tables, rules
            )
        ran.keeps = store.changed
        self.channel.send("done", **vars(ran))

    def _progress(self, text: str, fraction: float | None) -> None:
        if self.server == 0:  # the others would report the same
            self._teller(text, fraction)

    def fail(self, error: BaseException) -> None:
        """Report a failure to the peers, then to the client. The links cannot be used afterwards."""
        failure = Failure.of(self.server, None if self.mesh is None else self.mesh.step, error)
        if self.mesh is not None:
            self.mesh.abort(failure.reason)
        report(self.channel, failure)


def main() -> None:
    parser = argparse.ArgumentParser(description="Run one local computation server of PPCA.")
    parser.add_argument("--server", type=int, required=True)
    parser.add_argument("--client", type=int, required=True, help="process number of the client")
    parser.add_argument("--control", type=int, required=True, help="file descriptor of the control channel")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--state", type=Path, help="folder for the shares that this server keeps")
    parser.add_argument("--developer", action="store_true", help="run any program that the client names")
    parser.add_argument("--cores", help="numbers of the cores to run on, separated by commas")
    arguments = parser.parse_args()
    if arguments.cores:
        os.sched_setaffinity(0, {int(core) for core in arguments.cores.split(",")})
    kernels.set_threads(arguments.threads)
    kernels.keep_memory(KEPT_MEMORY)
    operator = Operator.of()
    channel = Channel(socket.socket(fileno=arguments.control), 2 * operator.input_bytes)  # inputs and public arrays
    inbox: queue.Queue[Message] = queue.Queue()
    watching = (arguments.server, arguments.client, channel, inbox)
    threading.Thread(target=watch, args=watching, daemon=True).start()
    server = Server(arguments.server, channel, inbox, Store(arguments.state), operator, arguments.developer)
    try:
        server.serve()
    except BaseException as error:  # including SystemExit of a program: the client must be told
        server.fail(error)
        sys.exit(1)


if __name__ == "__main__":
    main()
