"""A local cluster: four server processes on loopback, for trying things, tests, demos and benchmarks.

    with LocalCluster() as cluster:
        result = cluster.run("my_module:program", x, y, threshold=3)

Positional arguments are the client's secrets: they are shared here and only shares reach the servers. Keyword
arguments are public. The program's revealed results are put together here. Whatever happens (an exception in a
server, a killed server, Ctrl-C), all four processes are gone when the ``with`` block is left.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from numpy.typing import ArrayLike

from ..protocol import InputPacket, share
from ..transport import seat_name
from .control import Channel, ChannelClosed
from .outcome import RunReport, combine
from .programs import Program, name_of

Progress = Callable[[str, float | None, int], None]

START_TIMEOUT = 60.0
GRACE = 2.0


class ClusterError(RuntimeError):
    """A run failed; the message says which seat, in which step, and why. The cluster is stopped."""


@dataclass
class _Server:
    seat: int
    process: subprocess.Popen[bytes]
    channel: Channel
    socket: socket.socket


@dataclass
class LocalCluster:
    """Four servers on this machine.

    tls: mutual TLS between the servers with throw-away certificates (as in production), else plain TCP on loopback.
    timeout: seconds one communication round may take.
    threads: threads of each server's kernels.
    """

    tls: bool = False
    timeout: float = 60.0
    threads: int = field(default_factory=lambda: max(1, min(2, (os.cpu_count() or 1) // 4)))
    report: RunReport | None = None

    def __post_init__(self) -> None:
        self._servers: list[_Server] = []
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._finalizer: Any = None

    # -- life ------------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        if self._servers:
            return self
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def _start(self) -> None:
        for seat in range(4):
            ours, theirs = socket.socketpair()
            command = [sys.executable, "-m", "ppca.cluster.server", "--seat", str(seat)]
            command += ["--control", str(theirs.fileno()), "--threads", str(self.threads)]
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                command,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C reaches the client only, which then stops the servers in order
                env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            )
            theirs.close()
            ours.settimeout(START_TIMEOUT)
            self._servers.append(_Server(seat, process, Channel(ours), ours))
        processes = [server.process for server in self._servers]
        self._finalizer = weakref.finalize(self, _kill, processes)
        ports = {server.seat: self._expect(server, "listening")["port"] for server in self._servers}
        addresses = {str(seat): ["127.0.0.1", port] for seat, port in ports.items()}
        session = secrets.token_bytes(16).hex()
        credentials = self._certificates() if self.tls else [None] * 4
        for server in self._servers:
            server.channel.send(
                "connect", session=session, addresses=addresses, tls=credentials[server.seat], timeout=self.timeout
            )
        for server in self._servers:
            self._expect(server, "connected")
            server.socket.settimeout(None)

    def _certificates(self) -> list[dict[str, str] | None]:
        from ..transport.certificates import create_certificates
        from ..transport.tls import seat_dns_name

        self._directory = tempfile.TemporaryDirectory(prefix="ppca-certificates-")
        directory = Path(self._directory.name)
        create_certificates(directory, [seat_dns_name(seat) for seat in range(4)])
        return [
            {
                "authority": str(directory / "authority.pem"),
                "certificate": str(directory / f"{seat_dns_name(seat)}.pem"),
                "key": str(directory / f"{seat_dns_name(seat)}.key"),
            }
            for seat in range(4)
        ]

    def _expect(self, server: _Server, wanted: str) -> dict[str, Any]:
        try:
            kind, fields = server.channel.receive()
        except ChannelClosed:
            raise ClusterError(f"{seat_name(server.seat)} did not start: {self._death(server)}") from None
        if kind == "failed":
            raise ClusterError(f"{seat_name(server.seat)} did not start: {fields['error']}")
        if kind != wanted:
            raise ClusterError(f"{seat_name(server.seat)} sent {kind!r} where {wanted!r} was expected")
        return fields

    def stop(self) -> None:
        """Ends all servers: asks first, kills after a short grace. Safe to call at any time, more than once."""
        for server in self._servers:
            with contextlib.suppress(ChannelClosed, OSError):
                server.channel.send("stop")
        deadline = time.monotonic() + GRACE
        for server in self._servers:
            server.channel.close()  # a server that is busy sees this and ends by itself
        for server in self._servers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.process.wait(max(0.0, deadline - time.monotonic()))
        _kill([server.process for server in self._servers])
        self._servers = []
        if self._finalizer is not None:
            self._finalizer.detach()
            self._finalizer = None
        if self._directory is not None:
            self._directory.cleanup()
            self._directory = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    @property
    def pids(self) -> list[int]:
        """Process numbers by seat."""
        return [server.process.pid for server in self._servers]

    # -- work ------------------------------------------------------------------------------------------------------

    def run(self, program: Program | str, *secret: ArrayLike, progress: Progress | None = None, **public: Any) -> Any:
        """Runs a program on the four servers and returns what it opened or revealed to the client.

        `secret` arrays are shared before they leave this process (packets from `ppca.share` are taken as they are).
        The account of the run (rounds, bytes, seconds, audit) is kept in `self.report`.
        """
        if not self._servers:
            raise ClusterError("the cluster is not running: use it in a 'with' block, or call start()")
        name = name_of(program)
        packets: list[Any] = [
            value if _is_packets(value) else share(value, name=f"input {i}") for i, value in enumerate(secret)
        ]
        try:
            for server in self._servers:
                mine = [packet[server.seat] for packet in packets]
                server.channel.send("run", program=name, packets=mine, public=public)
            answers = self._collect(progress)
        except ChannelClosed:
            self._fail({})
            raise AssertionError("unreachable") from None
        except BaseException:
            self.stop()
            raise
        value, self.report = combine(answers)
        return value

    def _collect(self, progress: Progress | None) -> list[dict[str, Any]]:
        answers: dict[int, dict[str, Any]] = {}
        failures: dict[int, dict[str, Any]] = {}
        with selectors.DefaultSelector() as selector:
            for server in self._servers:
                selector.register(server.socket, selectors.EVENT_READ, server)
            deadline: float | None = None
            while len(answers) + len(failures) < 4:
                wait = None if deadline is None else max(0.0, deadline - time.monotonic())
                events = selector.select(wait)
                if not events and deadline is not None:
                    break
                for key, _ in events:
                    server = key.data
                    try:
                        kind, fields = server.channel.receive()
                    except ChannelClosed:
                        server.process.wait(GRACE)
                        kind = "failed"
                        fields = {"error": self._death(server), "trace": "", "step": None, "from_peer": False}
                    if kind == "progress":
                        if progress is not None:
                            progress(fields["text"], fields["fraction"], fields["rounds"])
                    elif kind == "done":
                        answers[server.seat] = fields
                    else:
                        failures[server.seat] = fields
                        selector.unregister(key.fileobj)
                        deadline = time.monotonic() + self.timeout + GRACE
        if failures:
            self._fail(failures)
        return [answers[seat] for seat in range(4)]

    def _fail(self, failures: dict[int, dict[str, Any]]) -> None:
        """Raises the error that explains the others: a dead process or an exception in a program, before lost links."""
        if not failures:
            failures = {
                server.seat: {"error": self._death(server), "trace": "", "step": None, "from_peer": False}
                for server in self._servers
                if server.process.poll() is not None
            }
        self.stop()
        own = {seat: failure for seat, failure in failures.items() if not failure["from_peer"]}
        seat, first = min((own or failures).items())
        others = [f for other, f in failures.items() if other != seat and f["from_peer"] and f["step"] is not None]
        step = first["step"] if first["step"] is not None else max((f["step"] for f in others), default=None)
        where = f" in step {step}" if step is not None else ""
        lines = [f"{seat_name(seat)} failed{where}: {first['error']}"]
        lines += [f"  {seat_name(s)}: {f['error']}" for s, f in sorted(failures.items()) if s != seat]
        if first["trace"]:
            lines.append(first["trace"].rstrip())
        lines.append("All servers were stopped; start a new cluster to run again.")
        raise ClusterError("\n".join(lines))

    @staticmethod
    def _death(server: _Server) -> str:
        code = server.process.poll()
        if code is None:
            return "it closed its control channel"
        if code < 0:
            return f"the process was killed by {signal.Signals(-code).name}"
        return f"the process ended with exit code {code}"


def _is_packets(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 4 and all(isinstance(item, InputPacket) for item in value)


def _kill(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        if process.poll() is None:
            process.kill()
    for process in processes:
        process.wait()
