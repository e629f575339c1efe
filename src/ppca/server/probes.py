"""Measurements for `ppca doctor`: transfer test bytes, keep a connection silent, and dial back.

    GET, POST /v1/echo?bytes=<n>&wait=<s>   n bytes of zeros after s seconds; a body is read and thrown away
    GET  /v1/reach                          for servers: whether this server reaches the two ports of the asking one

Sizes and times are limited. At most MAX_AT_ONCE transfers run at once, and a member has at most one silent connection.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from aiohttp import web

from ..federation.errors import FederationError
from ..federation.membership import address
from .server_state import ServerState

MAX_ECHO = 8 << 20
"""Maximum number of bytes in each direction."""

MAX_WAIT = 600
"""Maximum seconds of silence, and timeout of a transfer in seconds."""

MAX_AT_ONCE = 4
"""Maximum number of transfers at once, over all members."""

REACH_SECONDS = 5.0
"""Timeout of a connection to the asking server, in seconds."""

CHUNK = bytes(1 << 16)


class Probes:
    """Handlers of one server. `who` returns the member of a request."""

    def __init__(self, server_state: ServerState, who: Callable[[web.Request], str]) -> None:
        self.server_state = server_state
        self._who = who
        self._measuring = asyncio.Semaphore(MAX_AT_ONCE)
        self._silent: set[str] = set()

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/v1/echo", self.echo),
            web.post("/v1/echo", self.echo),
            web.get("/v1/reach", self.reach),
        ]

    async def echo(self, request: web.Request) -> web.StreamResponse:
        size, wait = _number(request, "bytes", MAX_ECHO), _number(request, "wait", MAX_WAIT)
        if (request.content_length or 0) > MAX_ECHO:
            raise FederationError(f"a measurement has at most {MAX_ECHO:,} bytes")
        if wait:
            await self._stay_silent(self._who(request), wait)
        if not size and not request.can_read_body:
            return web.Response()
        if self._measuring.locked():
            raise FederationError("others measure now; try again in a few seconds")
        async with self._measuring, asyncio.timeout(MAX_WAIT):
            return await self._exchange(request, size)

    async def _stay_silent(self, member: str, seconds: int) -> None:
        if member in self._silent:
            raise FederationError(f"{member} already has a silent connection to this server. Wait until it ends.")
        self._silent.add(member)
        try:
            await asyncio.sleep(seconds)
        finally:
            self._silent.discard(member)

    async def _exchange(self, request: web.Request, size: int) -> web.StreamResponse:
        taken = 0
        async for part in request.content.iter_chunked(len(CHUNK)):
            taken += len(part)
            if taken > MAX_ECHO:
                raise FederationError(f"a measurement has at most {MAX_ECHO:,} bytes")
        response = web.StreamResponse(headers={"Content-Length": str(size)})
        await response.prepare(request)
        for start in range(0, size, len(CHUNK)):
            await response.write(CHUNK[: size - start])
        return response

    async def reach(self, request: web.Request) -> web.Response:
        server = self.server_state.membership.server_of(self._who(request))
        if server is None:
            raise FederationError("only servers are dialed back: other members do not listen on a port")
        peer = self.server_state.membership.servers[server]
        return web.json_response({"api": await _dialed(peer.api), "mesh": await _dialed(peer.mesh)})


def _number(request: web.Request, name: str, most: int) -> int:
    text = request.query.get(name, "0")
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) <= most):
        raise FederationError(f"{name} is a whole number, at most {most}")
    return int(text)


async def _dialed(place: str) -> dict[str, Any]:
    """Return whether a TCP connection to `place` (host:port) succeeds, with its seconds or the cause of the failure.
    The connection is closed at once.
    """
    started = time.monotonic()
    try:
        async with asyncio.timeout(REACH_SECONDS):
            _, writer = await asyncio.open_connection(*address(place))
    except (OSError, TimeoutError) as error:
        return {"up": False, "why": (getattr(error, "strerror", None) or "no answer in time")[:200]}
    seconds = time.monotonic() - started
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return {"up": True, "seconds": seconds}
