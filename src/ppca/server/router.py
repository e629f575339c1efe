"""The mesh port of a server: one thread accepts connections and passes each to the process of the run that it names.

A connection must send its preamble (`transport.routes`) within seconds. If its run is not there yet, it waits a few
seconds: a peer may be faster than this server. Then it is closed, and the peer dials again. If too many connections
wait, the oldest ones of the address that has most are closed.

Whatever one connection does, the thread goes on: an exception closes that connection and is logged. If the thread ends
nevertheless, `alive` is False and the exception reaches `threading.excepthook`, which ends the server (`daemon`).
"""

from __future__ import annotations

import logging
import selectors
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock, Thread
from time import monotonic, sleep
from typing import Any, Self

from ..transport.routes import PREAMBLE_BYTES, pass_socket, read_preamble
from .connection_limits import ConnectionLimits

PREAMBLE_SECONDS = 5.0
"""Timeout in seconds for a connection to send its preamble."""

WAITING_SECONDS = 5.0
"""Seconds for which a connection waits for a run that has not started."""

MAX_WAITING = 128
"""Connections that have not been passed on."""

MAX_PER_ADDRESS = 64
"""Maximum number of waiting connections from one address."""

_PAUSE = 0.1  # seconds until the next attempt if the system is out of descriptors

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class _Visitor:
    """A connection that has not been assigned to a run yet: its preamble so far, and its deadline."""

    sock: socket.socket
    origin: tuple[Any, ...]
    deadline: float
    said: bytes = b""
    route: bytes | None = None


class Router:
    """Owns the listening socket of the mesh port. `register` and `unregister` may be called from any thread."""

    def __init__(self, listener: socket.socket) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._workers: dict[bytes, socket.socket] = {}
        self._lock = Lock()  # of the workers; visitors are the thread's own
        self._visitors: ConnectionLimits[_Visitor] = ConnectionLimits(MAX_WAITING, MAX_PER_ADDRESS)
        self._ear, self._bell = socket.socketpair()
        self._ear.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        self._selector.register(self._ear, selectors.EVENT_READ)
        self._over = False
        self._thread = Thread(target=self._serve, name="ppca-router", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Return whether the thread runs."""
        return self._thread.is_alive()

    @property
    def address(self) -> tuple[str, int]:
        host, port, *_ = self._listener.getsockname()
        return host, port

    def register(self, route: bytes, worker: socket.socket) -> None:
        """From now on connections of this route go to the process at the other end of `worker` (SOCK_SEQPACKET)."""
        worker.setblocking(False)
        with self._lock:
            if route in self._workers:
                raise ValueError("this run is registered already: every attempt needs a session of its own")
            self._workers[route] = worker
        self._bell.send(b"!")

    def unregister(self, route: bytes) -> None:
        """Remove a route, if it exists. Its later connections are closed."""
        with self._lock:
            self._workers.pop(route, None)

    def close(self) -> None:
        """Give up the port and all connections that were not handed on."""
        self._over = True
        with suppress(OSError):  # the thread has ended before
            self._bell.send(b"!")
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # The thread

    def _serve(self) -> None:
        try:
            while not self._over:
                for key, _ in self._selector.select(self._patience()):
                    if key.fileobj is self._listener:
                        self._accept()
                    elif key.fileobj is self._ear:
                        self._ear.recv(4096)
                        for visitor in self._visitors:
                            if visitor.route is not None:
                                self._guarded(self._hand_on, visitor)
                    elif key.data in self._visitors:  # not closed meanwhile to free a place
                        self._guarded(self._listen_to, key.data)
                now = monotonic()
                for visitor in self._visitors:
                    if visitor.deadline <= now:
                        early = visitor.route is None
                        self._dismiss(
                            visitor, "sent no preamble before the timeout" if early else "belongs to no run here"
                        )
        finally:
            for visitor in self._visitors:
                self._dismiss(visitor, None)
            for sock in (self._listener, self._ear, self._bell):
                sock.close()
            self._selector.close()

    def _guarded(self, action: Callable[[_Visitor], None], visitor: _Visitor) -> None:
        """Do something for a connection; close it if that fails."""
        try:
            action(visitor)
        except Exception:
            _log.exception("a connection on the mesh port failed")
            self._dismiss(visitor, None)

    def _patience(self) -> float | None:
        nearest = min((visitor.deadline for visitor in self._visitors), default=None)
        return None if nearest is None else max(0.0, nearest - monotonic())

    def _accept(self) -> None:
        try:
            sock, origin = self._listener.accept()
        except (BlockingIOError, ConnectionError):  # gone again before it was accepted
            return
        except OSError as error:  # no descriptors left: close some of those that wait
            _log.warning("the mesh port cannot accept: %s", error)
            for oldest in [*self._visitors][: MAX_WAITING // 4]:
                self._dismiss(oldest, "was closed to free a place")
            sleep(_PAUSE)
            return
        sock.setblocking(False)
        visitor = _Visitor(sock, origin, monotonic() + PREAMBLE_SECONDS)
        for former in self._visitors.add(visitor, origin[0]):
            self._close(former, "was closed to free a place")
        self._selector.register(sock, selectors.EVENT_READ, visitor)

    def _listen_to(self, visitor: _Visitor) -> None:
        """Read no further than the preamble: what follows is for the process of the run."""
        try:
            said = visitor.sock.recv(PREAMBLE_BYTES - len(visitor.said))
        except BlockingIOError:
            return
        except OSError:
            said = b""
        visitor.said += said
        if not said:
            self._dismiss(visitor, "hung up")
        elif len(visitor.said) == PREAMBLE_BYTES:
            found = read_preamble(visitor.said)
            if found is None:
                self._dismiss(visitor, "said something else than a preamble")
                return
            self._selector.unregister(visitor.sock)
            visitor.route, visitor.deadline = found[1], monotonic() + WAITING_SECONDS
            self._hand_on(visitor)

    def _hand_on(self, visitor: _Visitor) -> None:
        assert visitor.route is not None
        with self._lock:
            worker = self._workers.get(visitor.route)
            if worker is None:
                return
            try:
                pass_socket(worker, visitor.sock, visitor.origin)
                cause = None
            except OSError as error:  # its process has ended, or takes no more
                cause = f"could not be handed on: {error}"
        self._dismiss(visitor, cause)

    def _dismiss(self, visitor: _Visitor, cause: str | None) -> None:
        """Close our copy of a connection. `cause`: why the connection ends with it; None if it was passed on."""
        if self._visitors.remove(visitor):
            self._close(visitor, cause)

    def _close(self, visitor: _Visitor, cause: str | None) -> None:
        with suppress(KeyError, ValueError):
            self._selector.unregister(visitor.sock)
        visitor.sock.close()
        if cause is not None:
            _log.info("a connection from %s on the mesh port %s", visitor.origin[0], cause)
