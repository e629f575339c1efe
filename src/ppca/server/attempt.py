"""One attempt of one job as the server's daemon sees it: a process that gets its work and is gone when `run`
returns."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock, Timer
from typing import Any

from ..runtime.codec import CodecError
from ..runtime.conversation import GRACE, ServerProcess, converse
from ..runtime.execute import Ran
from ..runtime.failure import SUSPECT, Failure
from ..runtime.messages import fields_of
from ..runtime.servers import Progress
from ..runtime.store import flat, record_of
from ..transport.routes import route_of
from .forking import ForkServer, WorkerProcess
from .router import Router
from .work import AttemptFailed, AttemptInput, Done

ENDING = 2.0
"""Seconds that a worker may take to end by itself; then it is killed."""

TAKING = 600.0
"""Seconds that a worker may take for one record or chunk: it stores it, nothing else."""

_STOPPED = "this server stopped the attempt"


class Attempt:
    """Runs `work` once. `run` blocks; `kill` ends it from any other thread."""

    def __init__(self, work: AttemptInput, router: Router, forks: ForkServer, progress: Progress | None = None) -> None:
        self.work = work
        self.router = router
        self.forks = forks
        self.progress = progress
        self._route = route_of(work.session)
        self._lock = Lock()
        self._process: WorkerProcess | None = None
        self._killed = ""
        self.begun = False
        """True once this server's worker was connected to all others."""

    def run(self, prepared: Callable[[], None] = lambda: None) -> Done:
        """Run the program. Raises AttemptFailed, and whatever making a chunk raises; no process is left.

        `prepared` is called once the worker has the job and its inputs; the attempt begins when it returns.

        It ends after `work.attempt_timeout` seconds: peers that answer every round in time cannot delay it
        indefinitely.
        """
        with self._limited(self.work.attempt_timeout, "[work] attempt_timeout"):
            return self._run(prepared)

    @contextmanager
    def _limited(self, seconds: float, setting: str) -> Iterator[None]:
        """Kill the worker if the block takes longer."""
        timer = Timer(seconds, self.kill, [f"the attempt took longer than {seconds:g} s ({setting})"])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _run(self, prepared: Callable[[], None]) -> Done:
        passing, passed = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with passing, self._worker(passed) as worker:
            self._hand_over(worker)
            prepared()
            self.router.register(self._route, passing)
            try:
                worker.say("connect", **self.work.links())
                self._hear(worker, "connected", patience=self.work.start_timeout + GRACE)
                self.begun = True
            finally:
                self.router.unregister(self._route)
            with self._limited(self.work.run_timeout, "the limit for a job of this size"):
                worker.say("go")
                return self._done(self._hear(worker, "done", patience=None))

    def kill(self, why: str = _STOPPED) -> None:
        """End the attempt at once, also before it has begun. Does nothing if it is over. why: of the AttemptFailed."""
        with self._lock:
            self._killed = self._killed or why
            if self._process is not None:
                self._process.kill()

    def _hand_over(self, worker: ServerProcess) -> None:
        """Tell the worker its job, a chunk at a time, and have it prepare."""
        work = self.work
        self._ask(worker, "job", job=work.job, workers=work.workers)
        for name, record in work.kept.items():
            self._ask(worker, "kept", name=name, record=flat(record))
        for part in work.chunks:
            self._ask(worker, "chunk", **fields_of(part))
        worker.say("prepare")
        self._hear(worker, "ready", patience=TAKING)

    def _ask(self, worker: ServerProcess, kind: str, **fields: Any) -> None:
        try:
            worker.say(kind, **fields)
        except CodecError as error:
            raise self._failed(Failure(self.work.server, str(error), final=True)) from None
        self._hear(worker, "taken", patience=TAKING)

    def _hear(self, worker: ServerProcess, wanted: str, *, patience: float | None) -> dict[str, Any]:
        """The worker's answer; without patience it may take any time, since its rounds have a timeout of their own."""
        heard = converse(
            [worker], wanted, patience=patience or GRACE, waiting=patience is not None, progress=self.progress
        )
        server = self.work.server
        for refusal in heard.refusals.values():
            error, trace = str(refusal["error"]), str(refusal["trace"])
            raise self._failed(Failure(server, error, trace, final=True, cause="ProgramError"))
        for failure in heard.failures:
            raise self._failed(failure)
        return heard.answers[server]

    def _failed(self, failure: Failure) -> AttemptFailed:
        return AttemptFailed(Failure(self.work.server, self._killed, rank=SUSPECT) if self._killed else failure)

    def _done(self, answer: dict[str, Any]) -> Done:
        try:
            kept = {
                name: None if record is None else record_of(**record) for name, record in answer.pop("kept").items()
            }
            done = Done(Ran(**answer), kept)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._failed(Failure(self.work.server, f"its worker returned an invalid result: {error}")) from None
        if isinstance(done.ran.result, dict) and "refused" in done.ran.result:  # by what all four servers see alike
            raise self._failed(Failure(self.work.server, str(done.ran.result["refused"]), final=True))
        return done

    @contextmanager
    def _worker(self, passed: socket.socket) -> Iterator[ServerProcess]:
        """A process of this attempt, which is gone afterwards. Nothing secret is in its arguments or its
        environment."""
        control, theirs = socket.socketpair()
        try:
            with passed, theirs, self._lock:
                if self._killed:
                    raise AttemptFailed(Failure(self.work.server, self._killed, rank=SUSPECT))
                process = self._process = self._start(theirs.fileno(), passed.fileno())
            try:
                yield ServerProcess(self.work.server, process, control)
            finally:
                control.close()  # the worker sees it and ends by itself
                with suppress(subprocess.TimeoutExpired):
                    process.wait(ENDING)
                process.kill()
                process.wait()
                process.close()
        finally:
            control.close()

    def _start(self, control: int, passed: int) -> WorkerProcess:
        work = self.work
        try:
            return self.forks.start(control, passed, server=work.server, threads=work.threads, memory=work.input_bytes)
        except OSError as error:
            raise AttemptFailed(Failure(work.server, f"cannot start a worker process: {error}")) from error
