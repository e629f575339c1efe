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
from ..jobs.operator import DASK, DaskCluster, Operator, check_apart
from ..jobs.pools import Workers, check_workers
from ..jobs.spec import JobSpec
from ..protocol import InconsistentShares, InputPacket
from ..transport import throwaway_keys
from .conversation import GRACE, Heard, ServerProcess, converse
from .cores import available, cores_of, threads_for
from .failure import STOPPED, USABLE, ServersFailed, explain
from .job_runs import run_job
from .outcome import Outcome
from .programs import Program, ProgramError, Ran, name_of
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
    developer: run programs from files and modules that the client names, i.e. any code; otherwise only the programs of
    `ppca.jobs` in `OFFERED`.
    workers: worker processes of every server for second moments of columns, or "dask": its cluster; 0: the server
    itself.
    dask: four different Dask clusters, by server, for workers="dask". The environment variables of `operator` are
    ignored, because the user of local servers is the operator of all four.
    """

    tls: bool = False
    timeout: float = 60.0
    threads: int = field(default_factory=lambda: threads_for(4))
    state: Path | None = None
    developer: bool = False
    dask: Sequence[DaskCluster] | None = None
    workers: Workers = 0

    def __post_init__(self) -> None:
        if not (self.timeout > 0 and math.isfinite(self.timeout)):
            raise ValueError(f"timeout must be a positive number of seconds, got {self.timeout!r}")
        if self.threads < 1:
            raise ValueError(f"threads must be at least 1, got {self.threads!r}")
        check_workers(self.workers)
        if self.dask is not None:
            check_apart(self.dask)
        self._servers: list[ServerProcess] = []
        self._busy = threading.Lock()
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
        listening = self._hear("listening", patience=START_TIMEOUT, waiting=True, what=what)
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
        self._hear("connected", patience=START_TIMEOUT, waiting=True, what="the servers did not connect")

    def reached_at(self, ports: list[int]) -> list[int]:
        """Return the loopback ports at which the others reach each server: its own. Measurements override it to insert
        slow links."""
        return ports

    def _launch(self, server: int, control: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-m", "ppca.runtime.server", "--server", str(server)]
        command += ["--client", str(os.getpid()), "--control", str(control), "--threads", str(self.threads)]
        command += ["--cores", ",".join(map(str, sorted(cores_of(server, available(), self.threads))))]
        if self.state is not None:
            command += ["--state", str(server_folder(Path(self.state).resolve(), server))]
        if self.developer:
            command += ["--developer"]
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
        return run_job(self, job, chunks, progress, self.workers)

    def erase(self, model: str) -> None:
        """See `Servers.erase`."""
        self.run("ppca.jobs.kept:erase", [], {"model": model})

    def run(
        self,
        program: Program | str,
        inputs: Sequence[list[InputPacket]],
        public: Mapping[str, Any],
        progress: Progress | None = None,
    ) -> Outcome:
        """Run a program on the packets (by server) of its secret inputs and on its public parameters.

        The servers continue after a program that failed. If one of them has ended, all four are stopped.
        """
        if not self._servers:
            raise ServersFailed("the servers are not running: use them in a 'with' block, or call start()")
        if self._used_by == threading.get_ident():
            raise ServersFailed("the servers are busy with the run that called this: they run one program at a time")
        with self._busy:  # another thread waits until the servers are free
            if not self._servers:
                raise ServersFailed("the servers were stopped while this run waited for them")
            self._used_by = threading.get_ident()
            try:
                self._say_run(name_of(program), inputs, public)
                self._prepare()
                with self._stopped_on_error():
                    heard = converse(self._servers, "done", patience=self.timeout + GRACE, progress=progress)
                return self._outcome(heard)
            finally:
                self._used_by = None

    def _say_run(self, name: str, inputs: Sequence[list[InputPacket]], public: Mapping[str, Any]) -> None:
        """Queue each server's part of the call. If this raises, nothing is queued."""
        try:
            for server in self._servers:
                mine = [packets[server.number] for packets in inputs]
                server.say("run", program=name, packets=mine, public=dict(public))
        except BaseException:
            for server in self._servers:
                server.outgoing.clear()
            raise

    def _prepare(self) -> None:
        """Let the servers load the program. If one refuses, none starts and the servers can be used again."""
        with self._stopped_on_error():
            heard = self._hear("ready", patience=self.timeout + GRACE)
        for server in self._servers:
            server.say("drop" if heard.refusals else "go")
            server.send()
        if heard.refusals:
            refusal = heard.refusals[min(heard.refusals)]
            raise ProgramError(f"{refusal['error']}\n{refusal['trace']}".rstrip())

    def _outcome(self, heard: Heard) -> Outcome:
        """Return the outcome of a run. If it failed and all servers still run, connect them again."""
        if heard.failures:
            here = all(failure.reported for failure in heard.failures)
            raise ServersFailed(
                explain(heard.failures, heard.answers, self._reconnected() if here else self._stopped())
            )
        runs = [Ran(**heard.answers[number]) for number in range(4)]
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
                heard = converse(keeping, "committed", patience=self.timeout + GRACE, waiting=True)
            if heard.failures:
                raise ServersFailed(explain(heard.failures, outlook=self._stopped()))

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

    def _hear(self, wanted: str, *, what: str = "", **how: Any) -> Heard:
        """Return the answers of all four servers. If one failed, stop all and raise."""
        heard = converse(self._servers, wanted, **how)
        if heard.failures:
            text = explain(heard.failures, outlook=self._stopped())
            raise ServersFailed(f"{what}: {text}" if what else text)
        return heard

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
