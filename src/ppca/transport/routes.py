"""Routes: one mesh port serves several runs at the same time.

Before TLS a dialer sends 38 bytes that name its run. The owner of the port passes the connection to the process of that
run:

    magic (4 bytes)   version (1)   seat of the dialer (1)   route (32): SHA-256 of the session

A preamble proves nothing. It selects the process that greets the connection; that process checks certificate, seat and
session.
"""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Sequence
from typing import Any, Protocol

from .errors import SERVERS

MAGIC = b"PPCR"
VERSION = 1
ROUTE_BYTES = 32
PREAMBLE_BYTES = len(MAGIC) + 2 + ROUTE_BYTES
_ORIGIN_BYTES = 256


class Listener(Protocol):
    """Source of connections for `connect_mesh`: a listening socket, or a `PassedListener`."""

    def fileno(self) -> int: ...

    def settimeout(self, value: float | None, /) -> None: ...

    def accept(self) -> tuple[socket.socket, Any]: ...


def route_of(session: bytes) -> bytes:
    """Return the route of a session."""
    return hashlib.sha256(session).digest()


def preamble(seat: int, route: bytes) -> bytes:
    """Return the preamble of a dialer."""
    if seat not in SERVERS or len(route) != ROUTE_BYTES:
        raise ValueError(
            f"invalid preamble: it needs a seat of {SERVERS} and a route of {ROUTE_BYTES} bytes (`route_of`)."
        )
    return MAGIC + bytes([VERSION, seat]) + route


def read_preamble(data: bytes) -> tuple[int, bytes] | None:
    """Return seat and route, or None for anything that is not a preamble of this version."""
    if len(data) != PREAMBLE_BYTES or data[:5] != MAGIC + bytes([VERSION]) or data[5] not in SERVERS:
        return None
    return data[5], data[6:]


def pass_socket(to: socket.socket, sock: socket.socket, origin: Sequence[Any]) -> None:
    """Pass a connection to the process behind `to`, which has a `PassedListener`. The caller closes its own copy."""
    socket.send_fds(to, [f"{origin[0]} {origin[1]}".encode()[:_ORIGIN_BYTES]], [sock.fileno()])


class PassedListener:
    """A listener for connections that another process accepted: one end of a pair of SOCK_SEQPACKET sockets."""

    def __init__(self, source: socket.socket) -> None:
        self._source = source

    def fileno(self) -> int:
        return self._source.fileno()

    def settimeout(self, value: float | None, /) -> None:
        self._source.settimeout(value)

    def accept(self) -> tuple[socket.socket, tuple[str, str]]:
        """Return the next connection and its origin. Raises ConnectionError if the other process has ended."""
        text, descriptors, _, _ = socket.recv_fds(self._source, _ORIGIN_BYTES, 1)
        if not descriptors:
            raise ConnectionError("no process passes connections any more")
        host, _, port = text.decode(errors="replace").partition(" ")
        sock = socket.socket(fileno=descriptors[0])
        sock.set_inheritable(False)
        return sock, (host, port)

    def close(self) -> None:
        self._source.close()
