"""The API port of a server: one listening socket while the server runs; each connection gets the current certificate
and pins.

asyncio's servers keep the context with which they were made, and a server that is closed loses connections it has just
accepted.

Until its TLS handshake is complete, a connection belongs to a stranger. At most MAX_HANDSHAKES such connections exist
at a time, MAX_PER_ADDRESS from one address; beyond that the oldest one of the address that has most is closed. A
connection that sends nothing costs a descriptor and no TLS state. After the handshake a member may have MAX_PER_MEMBER
connections; further ones are closed at once, so that a member can shut out only itself.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from ..transport import CertificateError
from .connection_limits import ConnectionLimits

log = logging.getLogger("ppca.server")
BACKLOG = 128
HANDSHAKE_SECONDS = 10.0
MAX_HANDSHAKES = 200
"""Connections before the end of their handshake."""

MAX_PER_ADDRESS = 100
"""Maximum connections before the end of their handshake from one address."""

MAX_PER_MEMBER = 64
"""Connections of one member after the handshake: each of its clients needs a few. Idle ones are closed after a minute
(`api`)."""

PAUSE = 1.0
"""Seconds until the next attempt to accept if the machine cannot open another connection."""


class ApiPort:
    """Accept connections.

    Parameters
    ----------
    protocol : makes what serves one connection.
    context : of the connections that come from now on; may be replaced at any time.
    member : names the other end by its certificate (`PinnedTls.member_of`); CertificateError if it is not a member's.
    """

    def __init__(
        self,
        protocol: Callable[[], asyncio.BaseProtocol],
        context: ssl.SSLContext,
        member: Callable[[Mapping[str, Any]], str],
    ) -> None:
        self.context = context
        self._protocol = protocol
        self._member = member
        self._inside: dict[str, list[asyncio.BaseTransport]] = {}
        self._listening: list[socket.socket] = []
        self.accepting: list[asyncio.Task[None]] = []
        self._entering: ConnectionLimits[asyncio.Task[None]] = ConnectionLimits(MAX_HANDSHAKES, MAX_PER_ADDRESS)

    async def open(self, host: str, port: int) -> None:
        """At every address of the host; OSError if one is taken."""
        places = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        for family, _, _, _, place in dict.fromkeys(places):
            sock = socket.create_server(place[:2], family=family, backlog=BACKLOG)
            sock.setblocking(False)
            self._listening.append(sock)
            self.accepting.append(asyncio.create_task(self._accept(sock)))

    async def close(self) -> None:
        tasks = [*self.accepting, *self._entering]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for sock in self._listening:
            sock.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, origin = await loop.sock_accept(listening)
            except OSError as error:
                log.error("a connection is not accepted", extra={"reason": str(error)})
                await asyncio.sleep(PAUSE)
                continue
            entering = asyncio.create_task(self._enter(sock))
            for former in self._entering.add(entering, origin[0]):
                former.cancel()
            entering.add_done_callback(self._entering.remove)

    async def _enter(self, sock: socket.socket) -> None:
        """Complete the handshake. A connection that fails it is not that of a member."""
        try:
            with suppress(OSError, asyncio.TimeoutError):
                async with asyncio.timeout(HANDSHAKE_SECONDS):
                    await _readable(sock)
                transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
                    self._protocol, sock, ssl=self.context, ssl_handshake_timeout=HANDSHAKE_SECONDS
                )
                self._let_in(transport)
                return
            sock.close()
        except asyncio.CancelledError:
            sock.close()
            raise

    def _let_in(self, transport: asyncio.Transport) -> None:
        """Count a connection of a member; close it if the member has too many."""
        try:
            member = self._member(transport.get_extra_info("peercert") or {})
        except CertificateError:
            transport.abort()
            return
        inside = [each for each in self._inside.get(member, ()) if not each.is_closing()]
        if len(inside) < MAX_PER_MEMBER:
            inside.append(transport)
        else:
            log.warning("too many connections of a member", extra={"member": member})
            transport.abort()
        self._inside[member] = inside


async def _readable(sock: socket.socket) -> None:
    """Wait for the first byte, so that a silent connection does not use TLS buffers of half a megabyte."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sock, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(sock)
