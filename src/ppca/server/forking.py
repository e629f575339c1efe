"""Start the worker process of each attempt as a fork of one process that has loaded all programs.

A new interpreter takes about 0.2 s of processor time to load NumPy, TLS and the programs; a fork takes some
milliseconds. The fork server is started with the first attempt and lives as long as the server. It holds no secrets:
the work of an attempt, with its keys and shares, goes over the control channel to the worker only. It runs one thread,
so a fork is safe. A worker keeps its own control channel and drops every other descriptor of the fork server.

    server -> fork server    number, threads and memory (JSON), with three descriptors: control, passed, status
    fork server -> server    on status: the number of the worker's process; its exit code once it has ended
    server -> fork server    on status: anything: kill the worker

If the server ends, the fork server ends, and its workers with it. If the fork server is killed, its workers end, their
attempts fail, and the next attempt starts a new one.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
from typing import Any, NoReturn

from .. import jobs
from ..runtime import worker
from ..runtime.process import harden

STARTING = 120.0
"""Seconds in which the fork server must have started a worker. It loads all programs before the first one."""

ENDING = 2.0
"""Seconds that the fork server may take to end by itself; then it is killed."""

_REQUEST_BYTES = 4096
_DESCRIPTORS = 3


class WorkerProcess:
    """A process that the fork server has started, with the methods of `subprocess.Popen` that are needed here."""

    def __init__(self, status: socket.socket) -> None:
        """Wait for the process to start. Raises OSError if it does not."""
        status.settimeout(STARTING)
        said = status.recv(_REQUEST_BYTES).decode()
        if not said.isdigit():
            raise OSError(said or "the process that starts workers has ended")
        self.pid = int(said)
        self._status = status
        self._lock = threading.Lock()
        self._code: int | None = None

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while the process runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process. Raises subprocess.TimeoutExpired after `timeout` seconds."""
        with self._lock:
            if self._code is None:
                poll = select.poll()  # select() refuses descriptors above 1023
                poll.register(self._status, select.POLLIN)
                if not poll.poll(None if timeout is None else 1000 * timeout):
                    raise subprocess.TimeoutExpired("worker", timeout or 0.0)
                try:
                    said = self._status.recv(_REQUEST_BYTES)
                except ConnectionResetError:  # a kill came too late to be read; what was said before still stands
                    said = self._status.recv(_REQUEST_BYTES)
                self._code = int(said) if said else -signal.SIGKILL  # it ends with the process that started it
            return self._code

    def kill(self) -> None:
        """Kill the process; does nothing if it has ended."""
        with contextlib.suppress(OSError):
            self._status.send(b"kill")

    def close(self) -> None:
        """Forget the process; call it once the process has ended."""
        self._status.close()


class ForkServer:
    """Start workers; from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._requests: socket.socket | None = None

    def start(self, control: int, passed: int, **about: Any) -> WorkerProcess:
        """Start a worker with these descriptors. Raises OSError if that is not possible.

        about : server, threads and memory of `worker.attempt`.
        """
        for last in (False, True):
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            requests = None
            try:
                with theirs, self._lock:
                    requests = self._running()
                    socket.send_fds(requests, [json.dumps(about).encode()], [control, passed, theirs.fileno()])
                return WorkerProcess(ours)
            except OSError:
                ours.close()
                self._end(requests)
                if last:
                    raise
        raise AssertionError

    def _running(self) -> socket.socket:
        if self._requests is None or self._process is None or self._process.poll() is not None:
            self._drop()
            self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                command = [sys.executable, "-P", "-m", "ppca.server.forking", "--requests", str(theirs.fileno())]
                self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                    [*command, "--parent", str(os.getpid())],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=2,
                    start_new_session=True,  # a signal to the daemon's group reaches the daemon, which ends its workers
                    env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
                )
        return self._requests

    def _end(self, requests: socket.socket | None) -> None:
        """End the process behind this channel, unless another one has taken its place."""
        with self._lock:
            if requests is self._requests:
                self._drop()

    def _drop(self) -> None:
        if self._requests is not None:
            self._requests.close()
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(ENDING)
            self._process.kill()
            self._process.wait()
        self._process = self._requests = None

    def close(self) -> None:
        """End the process and all workers that it has started."""
        with self._lock:
            self._drop()


class _Forks:
    """The fork server's own side."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._workers: dict[int, socket.socket] = {}
        self._ended, bell = socket.socketpair()
        self._bell = bell
        for end in (self._ended, bell):
            end.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(bell.fileno())
        self._selector = selectors.PollSelector()
        self._selector.register(requests, selectors.EVENT_READ)
        self._selector.register(self._ended, selectors.EVENT_READ)

    def serve(self) -> None:
        """Start workers until the server closes the channel."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._requests:
                    if not self._start():
                        return
                elif key.fileobj is self._ended:
                    self._ended.recv(_REQUEST_BYTES)
                    self._reap()
                elif key.data in self._workers:  # it has not been reaped, so the number is still its own
                    os.kill(key.data, signal.SIGKILL)
                    if not self._workers[key.data].recv(_REQUEST_BYTES):  # the server has dropped it
                        self._selector.unregister(key.fileobj)

    def _start(self) -> bool:
        """Fork a worker. False if the server has closed the channel."""
        data, descriptors, _, _ = socket.recv_fds(self._requests, _REQUEST_BYTES, _DESCRIPTORS)
        if not data:
            return False
        control, passed, status = (socket.socket(fileno=descriptor) for descriptor in descriptors)
        with control, passed:
            try:
                pid = os.fork()
            except OSError as error:
                status.send(f"cannot fork: {error.strerror}".encode())
                status.close()
                return True
            if not pid:
                self._become_worker(control, passed, status, json.loads(data))
        status.send(str(pid).encode())
        self._workers[pid] = status
        self._selector.register(status, selectors.EVENT_READ, pid)
        return True

    def _reap(self) -> None:
        while self._workers:
            pid, code = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            status = self._workers.pop(pid)
            with contextlib.suppress(KeyError):
                self._selector.unregister(status)
            with contextlib.suppress(OSError):  # the server has dropped it
                status.send(str(os.waitstatus_to_exitcode(code)).encode())
            status.close()

    def _become_worker(
        self, control: socket.socket, passed: socket.socket, status: socket.socket, about: dict[str, Any]
    ) -> NoReturn:
        """The life of the forked process."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._selector.close()
            for sock in (self._requests, self._ended, self._bell, status, *self._workers.values()):
                sock.close()
            code = worker.attempt(control, passed, os.getppid(), **about)
        finally:
            sys.stderr.flush()
            os._exit(code)  # not through the stack of the fork server


def main() -> None:
    parser = argparse.ArgumentParser(description="starts the processes of attempts for the server of a federation")
    parser.add_argument("--requests", type=int, required=True, help="file descriptor that brings requests")
    parser.add_argument("--parent", type=int, required=True, help="process number of the server")
    arguments = parser.parse_args()
    harden(arguments.parent, leash=False)  # the channel is the leash: a leash would follow one thread of the server
    for module in pkgutil.iter_modules(jobs.__path__):
        importlib.import_module(f"{jobs.__name__}.{module.name}")
    gc.collect()
    gc.freeze()  # pages that no collection writes to stay shared with the workers
    _Forks(socket.socket(fileno=arguments.requests)).serve()


if __name__ == "__main__":
    main()
