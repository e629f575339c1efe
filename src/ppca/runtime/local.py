"""Four server processes on this machine, for experiments, tests, demos and benchmarks.

All four processes have ended when the ``with`` block ends, also after an exception in a server, a killed server or
Ctrl-C. If this process is killed, they end by themselves.
"""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ..jobs.chunks import Chunk
from ..jobs.loading import as_data
from ..jobs.operator import DASK, DaskCluster, Operator, check_apart
from ..jobs.pools import Workers, check_workers
from ..jobs.spec import JobSpec
from ..protocol import InconsistentShares, InputPacket
from ..transport import throwaway_keys
from .conversation import GRACE, ServerAnswers, ServerProcess, converse
from .cores import available, cores_of, threads_for
from .execute import Ran
from .failure import STOPPED, USABLE, ServersFailed, explain
from .messages import fields_of
from .outcome import Outcome
from .programs import Program, ProgramError, name_of
from .servers import Progress

LOOPBACK = "127.0.0.1"
LOOPBACK_SECONDS = 5.0
"""Timeout in seconds of a test connection of this machine with itself."""

START_TIMEOUT = 60.0
"""Timeout in seconds for the servers to start and to connect to each other."""

ENDING = 0.5
"""Seconds that the servers get to end by themselves before they are killed."""

SEND_BUFFER = 4 << 20
"""Size in bytes of the socket's send buffer to a server, so that an upload needs few calls."""

SERVER_VARIABLE = "PPCA_SERVER_NUMBER"
"""Environment variable of server processes. It detects a program's file that starts servers when it is loaded."""


def check_loopback() -> None:
    """Raise `ServersFailed` if this machine cannot connect to itself, before servers wait for each other in vain."""
    try:
        with socket.create_server((LOOPBACK, 0)) as listener:
            socket.create_connection(listener.getsockname(), LOOPBACK_SECONDS).close()
    except OSError as error:
        raise ServersFailed(
            f"local servers cannot connect to each other at {LOOPBACK}: {error.strerror or error}. The loopback "
            f"interface is down or blocked. Start it with: ip link set lo up"
        ) from None


@dataclass(eq=False)
class LocalServers:
    """Four server processes on this machine.

    tls: mutual TLS between the servers with throw-away keys (as in a federation); otherwise plain TCP on loopback.
    timeout: timeout of one communication round in seconds.
    threads: threads of each server's kernels; by default a quarter of the cores (see `cores`).
    state: folder in which the servers keep shares between runs (one sub-folder per server), or None: in memory only.
    developer: whether the servers run programs of files and modules that the client names, which is any code; else jobs
    only.
    modules: modules that the servers import at start, such as one that registers an analysis from outside the package.
    Developer servers only.
    workers: worker processes of every server for second moments of columns, or "dask": its cluster; 0: the server
    itself.
    dask: Dask clusters by server, four different ones, for workers="dask". The user of local servers is the operator
    of all four, so the variables of one server's cluster (`operator`) do not reach them.
    """

    tls: bool = False
    timeout: float = 60.0
    threads: int = field(default_factory=lambda: threads_for(4))
    state: Path | None = None
    developer: bool = False
    modules: Sequence[str] = ()
    dask: Sequence[DaskCluster] | None = None
    workers: Workers = 0

    def __post_init__(self) -> None:
        if not (self.timeout > 0 and math.isfinite(self.timeout)):
            raise ValueError(f"timeout must be a positive number of seconds, got {self.timeout!r}")
        if self.threads < 1:
            raise ValueError(f"threads must be at least 1, got {self.threads!r}")
        check_workers(self.workers)
        if self.modules and not self.developer:
            raise ValueError(f"modules={self.modules!r}: only developer servers import them; also set developer=True")
        if self.dask is not None:
            check_apart(self.dask)
        self._servers: list[ServerProcess] = []
        self._lock = threading.Lock()
        self._used_by: int | None = None
        self._finalizer: Any = None

    # -- life ------------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        if self._servers:
            return self
        if SERVER_VARIABLE in os.environ:
            raise ServersFailed(
                "a server cannot start servers: in the program's file, put the lines that start them under "
                "if __name__ == '__main__':"
            )
        check_loopback()
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def _start(self) -> None:
        processes: list[subprocess.Popen[bytes]] = []
        self._finalizer = weakref.finalize(self, _kill, processes)
        for number in range(4):
            ours, theirs = socket.socketpair()
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
            with theirs:
                processes.append(self._launch(number, theirs.fileno()))
            self._servers.append(ServerProcess(number, processes[-1], ours))
        self._connect("the servers did not start")

    def _connect(self, what: str) -> None:
        """Connect the servers to each other; they are about to listen."""
        listening = self._await_answers("listening", patience=START_TIMEOUT, waiting=True, what=what)
        ports = self.reached_at([listening.answers[number]["port"] for number in range(4)])
        addresses = {str(number): [LOOPBACK, ports[number]] for number in range(4)}
        session = secrets.token_bytes(16).hex()
        sides = throwaway_keys({number: f"server-{number}" for number in range(4)}) if self.tls else None
        for server in self._servers:
            server.say(
                "connect",
                session=session,
                addresses=addresses,
                tls=None if sides is None else sides[server.number].as_data(),
                timeout=self.timeout,
                start_timeout=START_TIMEOUT,
            )
        self._await_answers("connected", patience=START_TIMEOUT, waiting=True, what="the servers did not connect")

    def reached_at(self, ports: list[int]) -> list[int]:
        """Return the loopback ports at which the others reach each server: its own. Measurements override it to insert
        slow links."""
        return ports

    def _launch(self, server: int, control: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-m", "ppca.runtime.worker", "--server", str(server)]
        command += ["--client", str(os.getpid()), "--control", str(control), "--threads", str(self.threads)]
        command += ["--cores", ",".join(map(str, sorted(cores_of(server, available(), self.threads))))]
        if self.state is not None:
            command += ["--state", str(server_folder(Path(self.state).resolve(), server))]
        if self.developer:
            command += ["--developer"]
        command += [f"--module={module}" for module in self.modules]
        places = [place or os.getcwd() for place in sys.path if isinstance(place, str)]
        environment = {
            SERVER_VARIABLE: str(server),
            "PYTHONPATH": os.pathsep.join(places),  # servers can import the modules that the client can import
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        environment |= dict.fromkeys(DASK.values(), "") if self.dask is None else self.dask[server].environment()
        Operator.of(os.environ | environment)  # errors in these settings are raised here, not by four processes
        try:
            return subprocess.Popen(  # noqa: S603 - our own interpreter and module
                command,
                pass_fds=[control],
                stdin=subprocess.DEVNULL,
                stdout=2,  # the client's standard output is for its results only
                start_new_session=True,  # Ctrl-C reaches the client only, which then stops the servers in order
                env=os.environ | environment,
            )
        except OSError as error:
            raise ServersFailed(f"cannot start a server process: {error}") from error

    def stop(self) -> None:
        """End all servers. Can be called at any time and repeatedly."""
        for server in self._servers:
            server.connection.close()  # the server notices it and ends by itself
        deadline = time.monotonic() + ENDING
        for server in self._servers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.process.wait(max(0.0, deadline - time.monotonic()))
        if self._finalizer is not None:
            self._finalizer()
        self._servers = []

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Running servers cannot be copied; copies of an estimator share them."""
        return self

    @property
    def running(self) -> bool:
        return bool(self._servers)

    @property
    def pids(self) -> list[int]:
        """Process ids by server."""
        return [server.process.pid for server in self._servers]

    # -- work ------------------------------------------------------------------------------------------------------

    @property
    def member(self) -> None:
        """See `Servers.member`."""

    def run_job(self, job: JobSpec, chunks: Iterable[Chunk], progress: Progress | None = None) -> Outcome:
        """See `Servers.run_job`."""
        with self._turn():
            self._ask("job", [{"job": as_data(job), "workers": self.workers}] * 4)
            try:
                for chunk in chunks:
                    self._ask("chunk", [fields_of(chunk.part(server)) for server in range(4)])
            except BaseException:
                for server in self._servers:  # none, if one of them is gone
                    server.say("drop")
                    server.send()
                raise
            self._ask("prepare", [{}] * 4, "ready")
            return self._go(progress)

    def erase(self, model: str) -> None:
        """See `Servers.erase`."""
        with self._turn():
            self._ask("erase", [{"model": model}] * 4, "erased")

    def run(
        self,
        program: Program | str,
        inputs: Sequence[list[InputPacket]],
        public: Mapping[str, Any],
        progress: Progress | None = None,
    ) -> Outcome:
        """Run a program on the packets (by server) of its secret inputs and on its public parameters: developer servers
        only.

        The servers continue after a program that failed. If one of them has ended, all four are stopped.
        """
        if not self.developer:
            raise ProgramError(
                "these servers run jobs only. Programs of your own run on servers that were started for developing: ppca.Job() "
                "without servers, or LocalServers(developer=True)."
            )
        with self._turn():
            name, given = name_of(program), dict(public)
            parts = [[packets[server] for packets in inputs] for server in range(4)]
            self._ask("run", [{"program": name, "packets": mine, "public": given} for mine in parts], "ready")
            return self._go(progress)

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """The servers are this thread's: another one waits until they are free."""
        if not self._servers:
            raise ServersFailed("the servers are not running: use them in a 'with' block, or call start()")
        if self._used_by == threading.get_ident():
            raise ServersFailed("the servers are busy with the run that called this: they run one program at a time")
        with self._lock:
            if not self._servers:
                raise ServersFailed("the servers were stopped while this run waited for them")
            self._used_by = threading.get_ident()
            try:
                yield
            finally:
                self._used_by = None

    def _ask(self, kind: str, fields: Sequence[Mapping[str, Any]], wanted: str = "taken") -> None:
        """Send a message to each server, with its fields, and hear all four. If one refuses, none goes on.

        Raises `ProgramError` for a refusal: the servers can be used again.
        """
        try:
            for server, mine in zip(self._servers, fields, strict=True):
                server.say(kind, **mine)
        except BaseException:  # what cannot travel: nothing is sent
            for server in self._servers:
                server.outgoing.clear()
            raise
        with self._stopped_on_error():
            received = converse(self._servers, wanted, patience=self.timeout + GRACE)
        if received.failures:
            raise self._failed(received)
        if received.refusals:
            for server in self._servers:
                server.say("drop")
                server.send()
            refusal = received.refusals[min(received.refusals)]
            raise ProgramError(f"{refusal['error']}\n{refusal['trace']}".rstrip())

    def _go(self, progress: Progress | None) -> Outcome:
        """Run what all four have prepared."""
        for server in self._servers:
            server.say("go")
        with self._stopped_on_error():
            received = converse(self._servers, "done", patience=self.timeout + GRACE, progress=progress)
        return self._outcome(received)

    def _failed(self, received: ServerAnswers) -> ServersFailed:
        """The error of a run that failed. If all servers are still there, they get new links."""
        here = all(failure.reported for failure in received.failures)
        return ServersFailed(
            explain(received.failures, received.answers, self._reconnected() if here else self._stopped())
        )

    def _outcome(self, received: ServerAnswers) -> Outcome:
        """Return the outcome of a run. If it failed and all servers still run, connect them again."""
        if received.failures:
            raise self._failed(received)
        runs = [Ran(**received.answers[server]) for server in range(4)]
        keeping = [server for server, ran in zip(self._servers, runs, strict=True) if ran.keeps]
        try:
            outcome = Outcome.of(runs)
        except ServersFailed as error:  # the servers are out of step: another run on these links would fail
            raise ServersFailed(f"{error} {self._reconnected()}") from None
        except InconsistentShares:
            self._settle(keeping, "drop")
            raise
        self._settle(keeping, "commit")
        return outcome

    def _settle(self, keeping: Sequence[ServerProcess], word: str) -> None:
        """Tell the servers whose program stores records to commit them if all four have finished, otherwise to drop
        them."""
        for server in keeping:
            server.say(word)
            server.send()
        if word == "commit" and keeping:
            with self._stopped_on_error():
                received = converse(keeping, "committed", patience=self.timeout + GRACE, waiting=True)
            if received.failures:
                raise ServersFailed(explain(received.failures, outlook=self._stopped()))

    def _stopped(self) -> str:
        self.stop()
        return STOPPED

    def _reconnected(self) -> str:
        """Connect the servers again after a failed run; return a sentence on their state."""
        for server in self._servers:
            server.say("reconnect")
        try:
            with self._stopped_on_error():
                self._connect("the servers did not connect again")
        except ServersFailed:
            return STOPPED
        return USABLE

    def _await_answers(self, wanted: str, *, what: str = "", **how: Any) -> ServerAnswers:
        """Return the answers of all four servers. If one failed, stop all and raise."""
        received = converse(self._servers, wanted, **how)
        if received.failures:
            text = explain(received.failures, outlook=self._stopped())
            raise ServersFailed(f"{what}: {text}" if what else text)
        return received

    @contextlib.contextmanager
    def _stopped_on_error(self) -> Iterator[None]:
        """Stop the servers after Ctrl-C or an exception in the caller's progress function, which interrupts their
        work."""
        try:
            yield
        except BaseException:
            self.stop()
            raise


def server_folder(state: Path, server: int) -> Path:
    """Return the folder in which a local server keeps its shares. Each server has its own."""
    return state / f"server-{server}"


def _kill(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        if process.poll() is None:
            process.kill()
    for process in processes:
        process.wait()
