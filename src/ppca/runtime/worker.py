"""One computation server: the process that takes jobs from its parent and computes with its three peers.

    parent -> worker    connect           session, addresses, keys and time limits of the links
                        job               a job as plain data, and where its local products are computed
                        kept              a record that the job may recall (federation)
                        chunk             part of what an owner sends
                        prepare           that was all
                        go                run; needs `connect` and `prepare`
                        drop              forget the job, or what it wants to keep
                        commit            keep what it wants to keep: all four servers have finished
                        erase             forget a kept model
                        reconnect         new links, after a failed run
                        run               instead of `job`: a program by name, for developers
    worker -> parent    listening, connected, taken, ready or refused, progress, done, committed, erased, failed

The parent of a local worker is the client. It runs many jobs on the same links; kept records stay with the worker.
The parent of a worker of a federation is the daemon of one operator. It runs one attempt, on connections that come
from the mesh port, and gets the records to keep. Both workers end with their parent, even in the middle of a run.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import queue
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from ..jobs.forms import compute, digest_of
from ..jobs.kept import SUMS
from ..jobs.loading import job_of
from ..jobs.operator import Operator
from ..jobs.registry import openings
from ..jobs.spec import JobSpec
from ..jobs.uploads import JobUploads, check_packets
from ..native import kernels
from ..protocol import Party, SecretArray
from ..protocol.party import DIGEST_BYTES
from ..transport import Mesh, PinnedTls, connect_mesh, open_listener
from ..transport.routes import PassedListener, route_of
from .codec import CodecError
from .control import Channel, Message
from .execute import Task, execute
from .failure import Failure, trace_of
from .messages import part_of
from .process import KEPT_MEMORY, ProgressReporter, harden, labelled, report, watch
from .programs import asked_for, check_arguments, load
from .store import Staged, Store, flat, record_of

_UNREAD = 4
"""Messages of a federation's parent that are read ahead: chunks are large, and it sends one at a time anyway."""

MIN_MESSAGE = 1 << 28
"""Bytes that a message to a worker of a federation may have however little its inputs may take."""

_ALWAYS = ("connect", "job", "chunk", "prepare", "go", "drop")
LOCAL, FEDERATION, DEVELOPER = (
    (*_ALWAYS, "erase", "reconnect"),
    (*_ALWAYS, "kept"),
    (*_ALWAYS, "erase", "reconnect", "run"),
)
"""Messages that a worker takes. Kept records never pass through the client of local servers."""


class Worker:
    """The life of one server. passed: where connections come from in a federation; None: local, with a port of its
    own."""

    def __init__(
        self,
        server: int,
        channel: Channel,
        inbox: queue.Queue[Message],
        kinds: tuple[str, ...] = LOCAL,
        *,
        memory: int,
        store: Store | None = None,
        passed: PassedListener | None = None,
    ) -> None:
        self.server = server
        self.channel = channel
        self.inbox = inbox
        self.kinds = kinds
        self.memory = memory
        self.store = Store() if store is None else store
        self.passed = passed
        self.mesh: Mesh | None = None
        self._listener: socket.socket | None = None
        self._session = b""
        self._runs = 0
        self._job: JobSpec | None = None
        self._uploads = JobUploads(server, memory)
        self._task: Task | None = None
        self._broken = False
        self._ended = False
        self._progress_reporter = ProgressReporter(channel)

    def serve(self) -> None:
        """Do what the parent says until it closes the channel; in a federation until the attempt has ended."""
        self._listen()
        while not self._ended:
            kind, fields = self.inbox.get()
            if kind not in self.kinds or (self._broken and kind != "reconnect"):
                raise CodecError(f"this server takes no message {kind!r} now")
            getattr(self, f"on_{kind}")(**fields)

    # -- links -------------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        if self.passed is None:
            self._listener = open_listener()
            self.channel.send("listening", port=self._listener.getsockname()[1])

    def on_connect(
        self, session: str, addresses: dict[str, Any], tls: Any, timeout: float, start_timeout: float
    ) -> None:
        """Find the peers."""
        self._session, self._runs = bytes.fromhex(session), 0
        self.mesh = connect_mesh(
            self.server,
            self.passed or self._listener,
            {int(server): (str(host), int(port)) for server, (host, port) in addresses.items()},
            tls=PinnedTls.of(tls) if tls else None,
            session=self._session,
            route=None if self.passed is None else route_of(self._session),
            timeout=float(start_timeout),
            exchange_timeout=float(timeout),
        )
        if self._listener is not None:
            self._listener.close()
        self.channel.send("connected")

    def on_reconnect(self) -> None:
        self._forget()
        if self.mesh is not None:
            self.mesh.close()
        self.mesh, self._broken = None, False
        self._listen()

    # -- what to run -------------------------------------------------------------------------------------------------

    def on_job(self, job: dict[str, Any], workers: Any = 0) -> None:
        self._forget()
        with self._refusing() as taken:
            self._job = job_of(job)
            self._uploads.workers = workers
            taken()

    def on_kept(self, name: str, record: dict[str, Any]) -> None:
        self.store[name] = record_of(**record)
        self.channel.send("taken")

    def on_chunk(self, **fields: Any) -> None:
        with self._refusing() as taken:
            self._uploads.add(part_of(fields))
            taken()

    def on_prepare(self) -> None:
        """Fix what is run: it does not change after the servers have compared its digest."""
        job, uploads = self._job, self._uploads
        if job is None:
            raise CodecError("this server was told no job to prepare")
        rules = [line.rule() for line in openings(job)]
        self._task = Task(digest_of(job, uploads), lambda party: compute(party, job, uploads), rules)
        self.channel.send("ready")

    def on_run(self, **fields: Any) -> None:
        """Prepare a program of a developer. Nothing is made of its inputs before it is known that it takes them."""
        self._forget()
        name, packets, public = asked_for(fields)
        with self._refusing("ready") as ready, labelled(self.server):
            check_packets(packets, self.server, self.memory)
            program = load(name)
            check_arguments(program, name, len(packets), public)
            ready()

            def body(party: Party) -> Any:
                return program(party, *[SecretArray.from_packet(party, packet) for packet in packets], **public)

            text = f"{program.__module__}:{program.__qualname__} {[packet.shape for packet in packets]}"
            self._task = Task(hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES).digest(), body)

    @contextmanager
    def _refusing(self, answer: str = "taken") -> Iterator[Any]:
        """Answer a message, or say why this server refuses it. The servers' links are not touched."""
        try:
            yield lambda: self.channel.send(answer)
        except ValueError as error:  # refusals, wrong inputs and programs
            trace = "" if error.__cause__ is None else trace_of(error.__cause__)
            self._forget()
            self.channel.send("refused", error=str(error), trace=trace)

    def on_drop(self) -> None:
        """Forget the job. A client also says it to servers that have refused the job themselves."""
        self._forget()

    def _forget(self) -> None:
        self._uploads.close()
        self._job, self._task, self._uploads = None, None, JobUploads(self.server, self.memory)

    # -- a run -------------------------------------------------------------------------------------------------------

    def on_go(self) -> None:
        """Run what was prepared. A run that fails ends for all four servers, and their links are of no use any more."""
        task = self._task
        if task is None or self.mesh is None:
            raise CodecError("this server was told to go before it had a job and links")
        self._runs += 1
        staged = Staged(self.store)
        try:
            self._execute(self.mesh, task, staged)
        except (Exception, SystemExit) as error:
            if self.passed is not None:
                raise
            staged.drop()
            self.fail(error)
            self._broken = True
        else:
            self._settle(staged)
        finally:
            self._forget()

    def _execute(self, mesh: Mesh, task: Task, staged: Staged) -> None:
        mesh.stats.reset()
        self._progress_reporter.begin(mesh)
        with labelled(self.server):
            ran = execute(mesh, self._session + self._runs.to_bytes(8, "little"), task, self._tell, staged)
        ran.keeps = staged.changed
        if self.passed is None:
            self.channel.send("done", **vars(ran))
            return
        kept = {name: None if record is None else flat(record) for name, record in staged.changes.items()}
        mesh.close()  # before the parent hears of the end and ends this process: peers must see that it was no accident
        self.channel.send("done", **vars(ran), kept=kept)

    def _tell(self, text: str, fraction: float | None) -> None:
        if self.passed is not None or self.server == 0:  # the other local servers would say the same to the same client
            self._progress_reporter(text, fraction)

    def _settle(self, staged: Staged) -> None:
        """Keep what the job wants to keep once the parent has heard all four servers. In a federation, the parent keeps
        it."""
        if self.passed is not None:
            self._ended = True
            return
        if not staged.changed:
            return
        kind, _ = self.inbox.get()
        if kind == "commit":
            staged.commit()
            self.channel.send("committed")
            return
        staged.drop()
        if kind == "reconnect":
            self.on_reconnect()
        elif kind != "drop":
            raise CodecError(f"the client sent {kind!r}, but commit, drop or reconnect was expected")

    def on_erase(self, model: str) -> None:
        """Forget a kept model and its sums."""
        for name in (model, model + SUMS):
            if name in self.store:
                del self.store[name]
        self.channel.send("erased")

    def fail(self, error: BaseException) -> None:
        """Tell the peers, then the parent."""
        failure = Failure.of(self.server, None if self.mesh is None else self.mesh.step, error)
        if self.mesh is not None:
            self.mesh.abort(failure.reason)
        report(self.channel, failure)


def serve(worker: Worker, parent: int, modules: Sequence[str] = ()) -> int:
    """Let a worker live in this process, which ends with its parent; return the exit code.

    modules: imported first, such as those that register analyses from outside the package (developer servers).
    """
    watching = (worker.server, parent, worker.channel, worker.inbox)
    threading.Thread(target=watch, args=watching, daemon=True).start()
    try:
        for module in modules:
            with labelled(worker.server):
                import_module(module)
        worker.serve()
    except BaseException as error:  # also SystemExit of a program: the parent must hear of it
        worker.fail(error)
        return 1
    return 0


def attempt(
    control: socket.socket, passed: socket.socket, parent: int, *, server: int, threads: int, memory: int
) -> int:
    """Run one attempt of a federation in this process; return its exit code.

    control: the control channel. passed: brings connections of the mesh port. parent: number of the process that
    started this one. memory: bytes that inputs may take; a message may have twice as many, as chunks and kept records
    are larger.
    """
    harden(parent)
    kernels.set_threads(threads)
    kernels.keep_memory(KEPT_MEMORY)
    channel = Channel(control, max(2 * memory, MIN_MESSAGE))
    inbox: queue.Queue[Message] = queue.Queue(_UNREAD)
    return serve(Worker(server, channel, inbox, FEDERATION, memory=memory, passed=PassedListener(passed)), parent)


def arguments_of(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the arguments of a server of `LocalServers`. given: the arguments; None: those of this process."""
    parser = argparse.ArgumentParser(description="a computation server of PPCA on this machine")
    parser.add_argument("--server", type=int, required=True)
    parser.add_argument("--client", type=int, required=True, help="process number of the client")
    parser.add_argument("--control", type=int, required=True, help="file descriptor of the control channel")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--state", type=Path, help="folder for the shares that this server keeps")
    parser.add_argument("--developer", action="store_true", help="run any program that the client names")
    parser.add_argument("--module", action="append", default=[], help="import this module; needs --developer")
    parser.add_argument("--cores", help="numbers of the cores to run on, with commas")
    arguments = parser.parse_args(given)
    if arguments.module and not arguments.developer:
        parser.error("--module needs --developer: other servers import no modules that a client names")
    return arguments


def main() -> None:
    """Run a server of `LocalServers`."""
    arguments = arguments_of()
    if arguments.cores:
        os.sched_setaffinity(0, {int(core) for core in arguments.cores.split(",")})
    if not arguments.developer:
        harden(arguments.client, leash=False)  # the channel is the leash: a leash would follow one thread of the client
    kernels.set_threads(arguments.threads)
    kernels.keep_memory(KEPT_MEMORY)
    operator = Operator.of()
    channel = Channel(socket.socket(fileno=arguments.control), 2 * operator.input_bytes)  # inputs and public arrays
    kinds = DEVELOPER if arguments.developer else LOCAL
    store, memory = Store(arguments.state), operator.input_bytes
    worker = Worker(arguments.server, channel, queue.Queue(), kinds, memory=memory, store=store)
    sys.exit(serve(worker, arguments.client, arguments.module))


if __name__ == "__main__":
    main()
