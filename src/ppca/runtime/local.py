"""Four server processes on this machine, for trying things, tests, demos and benchmarks.

Whatever happens (an exception in a server, a killed server, Ctrl-C), all four processes are gone when the ``with`` block is
left; when this process is killed, they end by themselves.
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
"""Seconds until a connection of this machine with itself is there."""

START_TIMEOUT = 60.0
"""Seconds the servers may take to start and to find each other."""

ENDING = 0.5
"""Seconds the servers may take to end by themselves; then they are killed."""

SEND_BUFFER = 4 << 20
"""Bytes on their way to a server: uploads then take few turns."""

SEAT_VARIABLE = "PPCA_SERVER_SEAT"
"""Set in the environment of servers. A program's file that starts servers when it is loaded is refused by it."""


def check_loopback() -> None:
    """Raise `ServersFailed` if this machine cannot connect to itself, before servers wait for each other in vain."""
    try:
        with socket.create_server((LOOPBACK, 0)) as listener:
            socket.create_connection(listener.getsockname(), LOOPBACK_SECONDS).close()
    except OSError as error:
        raise ServersFailed(
            f"local servers cannot connect to each other at {LOOPBACK}: {error.strerror or error}. The loopback interface is "
            "down or blocked. Start it: ip link set lo up"
        ) from None


@dataclass(eq=False)
class LocalServers:
    """Four servers on this machine.

    tls: mutual TLS between the servers with throw-away keys (as in a federation), else plain TCP on loopback.
    timeout: seconds one communication round may take.
    threads: threads of each server's kernels; by default a quarter of the cores, as four servers share them (see `cores`).
    state: folder in which the servers keep shares between runs (one sub-folder per server), or None: in memory only.
    developer: whether the servers run programs of files and modules that the client names, which is any code; else those of
    `ppca.jobs` that are offered.
    workers: worker processes of every server for second moments of columns, or "dask": its cluster; 0: the server itself.
    dask: Dask clusters by server, four different ones, for workers="dask". Whoever starts local servers is the operator
    of all four, so the variables of one server's cluster (`operator`) do not reach them.
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
        if SEAT_VARIABLE in os.environ:
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
        for seat in range(4):
            ours, theirs = socket.socketpair()
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
            with theirs:
                processes.append(self._launch(seat, theirs.fileno()))
            self._servers.append(ServerProcess(seat, processes[-1], ours))
        self._connect("the servers did not start")

    def _connect(self, what: str) -> None:
        """Lets the servers, which are about to listen, find each other."""
        listening = self._hear("listening", patience=START_TIMEOUT, waiting=True, what=what)
        ports = self.reached_at([listening.answers[seat]["port"] for seat in range(4)])
        addresses = {str(seat): [LOOPBACK, ports[seat]] for seat in range(4)}
        session = secrets.token_bytes(16).hex()
        sides = throwaway_keys({seat: f"seat-{seat}" for seat in range(4)}) if self.tls else None
        for server in self._servers:
            server.say(
                "connect",
                session=session,
                addresses=addresses,
                tls=None if sides is None else sides[server.seat].as_data(),
                timeout=self.timeout,
                start_timeout=START_TIMEOUT,
            )
        self._hear("connected", patience=START_TIMEOUT, waiting=True, what="the servers did not connect")

    def reached_at(self, ports: list[int]) -> list[int]:
        """The ports of loopback at which the others reach each server: its own. Measurements put slow links between."""
        return ports

    def _launch(self, seat: int, control: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-m", "ppca.runtime.server", "--seat", str(seat)]
        command += ["--client", str(os.getpid()), "--control", str(control), "--threads", str(self.threads)]
        command += ["--cores", ",".join(map(str, sorted(cores_of(seat, available(), self.threads))))]
        if self.state is not None:
            command += ["--state", str(seat_folder(Path(self.state).resolve(), seat))]
        if self.developer:
            command += ["--developer"]
        places = [place or os.getcwd() for place in sys.path if isinstance(place, str)]
        environment = {
            SEAT_VARIABLE: str(seat),
            "PYTHONPATH": os.pathsep.join(places),  # servers find the modules that the client finds
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        environment |= dict.fromkeys(DASK.values(), "") if self.dask is None else self.dask[seat].environment()
        Operator.of(os.environ | environment)  # what is wrong there is said here, not by four processes
        try:
            return subprocess.Popen(  # noqa: S603 - our own interpreter and module
                command,
                pass_fds=[control],
                stdin=subprocess.DEVNULL,
                stdout=2,  # the client's standard output carries its results only
                start_new_session=True,  # Ctrl-C reaches the client only, which then stops the servers in order
                env=os.environ | environment,
            )
        except OSError as error:
            raise ServersFailed(f"cannot start a server process: {error}") from error

    def stop(self) -> None:
        """Ends all servers. Safe to call at any time, more than once."""
        for server in self._servers:
            server.connection.close()  # the server sees it and ends by itself
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
        """Process numbers by server."""
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

        After a program that failed the servers run on; if one of them is gone, all four are stopped.
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
        """Queues each server's part, or raises with nothing queued."""
        try:
            for server in self._servers:
                mine = [packets[server.seat] for packets in inputs]
                server.say("run", program=name, packets=mine, public=dict(public))
        except BaseException:
            for server in self._servers:
                server.outgoing.clear()
            raise

    def _prepare(self) -> None:
        """Lets the servers load the program. All are ready, or none starts and the servers can be used again."""
        with self._stopped_on_error():
            heard = self._hear("ready", patience=self.timeout + GRACE)
        for server in self._servers:
            server.say("drop" if heard.refusals else "go")
            server.send()
        if heard.refusals:
            refusal = heard.refusals[min(heard.refusals)]
            raise ProgramError(f"{refusal['error']}\n{refusal['trace']}".rstrip())

    def _outcome(self, heard: Heard) -> Outcome:
        """What came of a run. If it failed and all servers are still there, they get new links."""
        if heard.failures:
            here = all(failure.reported for failure in heard.failures)
            raise ServersFailed(
                explain(heard.failures, heard.answers, self._reconnected() if here else self._stopped())
            )
        runs = [Ran(**heard.answers[seat]) for seat in range(4)]
        keeping = [server for server, ran in zip(self._servers, runs, strict=True) if ran.keeps]
        try:
            outcome = Outcome.of(runs)
        except ServersFailed as error:  # the servers are out of step: no further run would succeed on these links
            raise ServersFailed(f"{error} {self._reconnected()}") from None
        except InconsistentShares:
            self._settle(keeping, "drop")
            raise
        self._settle(keeping, "commit")
        return outcome

    def _settle(self, keeping: Sequence[ServerProcess], word: str) -> None:
        """Tells the servers whose program wants to keep something whether it counts: all four have finished, or none keeps."""
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
        """Gives the servers new links after a failed run; says what became of them."""
        for server in self._servers:
            server.say("reconnect")
        try:
            with self._stopped_on_error():
                self._connect("the servers did not connect again")
        except ServersFailed:
            return STOPPED
        return USABLE

    def _hear(self, wanted: str, *, what: str = "", **how: Any) -> Heard:
        """What all four servers answer; a failure of any is raised, after all were stopped."""
        heard = converse(self._servers, wanted, **how)
        if heard.failures:
            text = explain(heard.failures, outlook=self._stopped())
            raise ServersFailed(f"{what}: {text}" if what else text)
        return heard

    @contextlib.contextmanager
    def _stopped_on_error(self) -> Iterator[None]:
        """Ctrl-C, or an exception in the caller's progress function, leaves the servers in the middle of something."""
        try:
            yield
        except BaseException:
            self.stop()
            raise


def seat_folder(state: Path, seat: int) -> Path:
    """Where a local server keeps its shares: one folder per server, as four operators would have four machines."""
    return state / f"seat-{seat}"


def _kill(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        if process.poll() is None:
            process.kill()
    for process in processes:
        process.wait()
