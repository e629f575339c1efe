"""The door of a seat: one listening socket as long as the server runs; every connection gets the leaf and the pins of its time.

asyncio's servers keep the context with which they were made, and a server that is closed loses connections it has just accepted.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress

log = logging.getLogger("ppca.server")
BACKLOG = 128
HANDSHAKE_SECONDS = 10.0
PAUSE = 1.0
"""Seconds until the next try when the machine has no room for another connection."""


class Door:
    """Lets connections in.

    Parameters
    ----------
    protocol : makes what serves one connection.
    context : of the connections that come from now on; may be replaced at any time.
    """

    def __init__(self, protocol: Callable[[], asyncio.BaseProtocol], context: ssl.SSLContext) -> None:
        self.context = context
        self._protocol = protocol
        self._listening: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._entering: set[asyncio.Task[None]] = set()

    async def open(self, host: str, port: int) -> None:
        """At every address of the host; OSError if one is taken."""
        places = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        for family, _, _, _, place in dict.fromkeys(places):
            sock = socket.create_server(place[:2], family=family, backlog=BACKLOG)
            sock.setblocking(False)
            self._listening.append(sock)
            self._accepting.append(asyncio.create_task(self._accept(sock)))

    async def close(self) -> None:
        tasks = [*self._accepting, *self._entering]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for sock in self._listening:
            sock.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, _ = await loop.sock_accept(listening)
            except OSError as error:
                log.error("a connection is not accepted", extra={"why": str(error)})
                await asyncio.sleep(PAUSE)
                continue
            entering = asyncio.create_task(self._enter(sock))
            self._entering.add(entering)
            entering.add_done_callback(self._entering.discard)

    async def _enter(self, sock: socket.socket) -> None:
        """The handshake; who fails it is no member, or has left."""
        try:
            with suppress(OSError, asyncio.TimeoutError):
                await asyncio.get_running_loop().connect_accepted_socket(
                    self._protocol, sock, ssl=self.context, ssl_handshake_timeout=HANDSHAKE_SECONDS
                )
        except asyncio.CancelledError:
            sock.close()
            raise
