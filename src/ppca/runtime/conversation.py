"""The client's side of the control channels: talk to all four servers at the same time.

No operation blocks on one server: messages are sent and received as the sockets allow. A server that does not read
(stopped), does not answer (dead) or sends an invalid message counts as failed, and the client continues with the
others.
"""

from __future__ import annotations

import contextlib
import selectors
import signal
import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from .codec import CodecError
from .control import ChannelClosed, Message, MessageReader, encode
from .failure import SILENT, Failure

GRACE = 1.0
"""Seconds to wait for reports of the other servers after one has failed. They learn of it at once, see `Mesh.abort`."""


FIELDS = {
    "listening": ("port",),
    "refused": ("error", "trace"),
    "progress": ("text", "fraction", "rounds"),
    "done": ("result", "seconds", "stats", "audit"),
    "failed": ("error", "trace", "step", "rank"),
}
"""Required fields of a server's messages, by kind."""


class Process(Protocol):
    """Part of the interface of `subprocess.Popen` that is used here."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...


class ServerProcess:
    """One server from the client's side: its process and the control channel to it."""

    def __init__(self, number: int, process: Process, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.number = number
        self.process = process
        self.connection = connection
        self.outgoing: deque[memoryview] = deque()
        self._reader = MessageReader()

    def say(self, kind: str, **fields: Any) -> None:
        """Queue a message; `converse` sends it."""
        self.outgoing += [memoryview(part) for part in encode(kind, **fields)]

    def send(self) -> None:
        """Send as many queued bytes as the socket accepts without blocking."""
        try:
            while self.outgoing:
                sent = self.connection.send(self.outgoing[0])
                self.outgoing[0] = self.outgoing[0][sent:]
                if not self.outgoing[0]:
                    self.outgoing.popleft()
        except BlockingIOError:
            pass
        except OSError:  # the server has ended; its earlier messages can still be read
            self.outgoing.clear()

    def receive(self) -> Message | None:
        """Return the next message if it is complete, otherwise None."""
        with contextlib.suppress(BlockingIOError):
            return self._reader.read(self.connection)
        return None

    def lost(self) -> str:
        """Return why the channel of a server closed: exit code, signal, or still running."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(GRACE)
        code = self.process.poll()
        if code is None:
            return f"process {self.process.pid} closed its control channel but still runs"
        if code >= 0:
            return f"the process ended with exit code {code}; its output is on the client's standard error"
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        hint = " (by a user, or by the system if memory ran out)" if -code == signal.SIGKILL else ""
        return f"the process was killed by {name}{hint}"


@dataclass
class ServerAnswers:
    """Answers of the servers. `failures` are in order of arrival."""

    answers: dict[int, dict[str, Any]] = field(default_factory=dict)
    refusals: dict[int, dict[str, Any]] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)

    @property
    def servers(self) -> set[int]:
        return {*self.answers, *self.refusals, *(failure.server for failure in self.failures)}


def converse(
    servers: Sequence[ServerProcess],
    wanted: str,
    *,
    patience: float,
    waiting: bool = False,
    progress: Callable[[str, float | None, int], None] | None = None,
) -> ServerAnswers:
    """Send queued messages and receive one answer of every server: of the kind `wanted`, a refusal, or a failure.

    Servers run the same program, so they answer at about the same time: once one has answered (or from the start, if
    `waiting`), the others may be silent for `patience` seconds. Once one has failed, GRACE counts instead.
    """
    received = ServerAnswers()
    with selectors.DefaultSelector() as selector:
        for server in servers:
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if server.outgoing else 0)
            selector.register(server.connection, events, server)
        deadline = time.monotonic() + patience if waiting else None
        while selector.get_map():
            ready = selector.select(None if deadline is None else max(0.0, deadline - time.monotonic()))
            if not ready and deadline is not None and time.monotonic() >= deadline:
                received.failures += [
                    _silent(key.data, patience, bool(received.failures)) for key in selector.get_map().values()
                ]
                break
            failed_before = bool(received.failures)
            for key, events in ready:
                server = key.data
                if events & selectors.EVENT_WRITE:
                    server.send()
                    if not server.outgoing:
                        selector.modify(server.connection, selectors.EVENT_READ, server)
                if events & selectors.EVENT_READ and _receive_from(server, wanted, received, progress):
                    selector.unregister(server.connection)
            if received.failures and not failed_before:
                deadline = time.monotonic() + GRACE
            elif not received.failures and (deadline is not None or received.servers):
                deadline = time.monotonic() + patience
    return received


def _receive_from(
    server: ServerProcess, wanted: str, received: ServerAnswers, progress: Callable[..., None] | None
) -> bool:
    """Read from one server; return True when its answer is complete."""
    try:
        message = server.receive()
    except ChannelClosed:
        lost = server.lost()
        received.failures.append(Failure(server.number, lost, cause=lost))
        return True
    except CodecError as error:
        received.failures.append(Failure(server.number, f"it sent an invalid message on its control channel: {error}"))
        return True
    if message is None:
        return False
    kind, fields = message
    lacking = [name for name in FIELDS.get(kind, ()) if name not in fields]
    if lacking:
        received.failures.append(Failure(server.number, f"it sent {kind!r} without {' and '.join(lacking)}"))
    elif kind == "progress":
        if progress is not None:
            progress(fields["text"], fields["fraction"], fields["rounds"])
        return False
    elif kind == wanted:
        received.answers[server.number] = fields
    elif kind == "refused":
        received.refusals[server.number] = fields
    elif kind == "failed":
        received.failures.append(_failure_from(server.number, fields))
    else:
        received.failures.append(Failure(server.number, f"it answered {kind!r} instead of {wanted!r}"))
    return True


def _failure_from(server: int, fields: dict[str, Any]) -> Failure:
    try:
        return Failure.from_fields(server, fields)
    except (TypeError, ValueError, OverflowError):
        return Failure(server, "it sent an invalid report of its failure")


def _silent(server: ServerProcess, patience: float, after_failure: bool) -> Failure:
    waited = GRACE if after_failure else patience
    return Failure(
        server.number,
        f"no report within {waited:g} s from process {server.process.pid}: it is stopped, or still computes on its own",
        rank=SILENT,
    )
