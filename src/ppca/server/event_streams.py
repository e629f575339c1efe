"""Event streams for members and servers: headers of new objects, and the progress of jobs."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from typing import Any, NoReturn

from aiohttp import web

from ..federation.objects import Header
from ..transport import CertificateError
from .server_state import ServerState, header_line
from .uploads import BodyRefused

MEMBER = web.RequestKey("member", str)
HEARTBEAT = 15.0
MAX_STREAMS = 16
"""Maximum number of event streams that one member may have open."""

EAGER_BYTES = 8 << 10
"""Maximum bytes of an object of this server that is sent to other servers inside its event, to save a request."""

OBJECTS_PER_WRITE = 100
"""Maximum number of object headers in one write."""


class EventStreams:
    """Event streams of one server.

    check: raises CertificateError if the sender of a request is not a member any more. may_see: whether a member has a
    part in a job.
    """

    def __init__(
        self,
        server_state: ServerState,
        check: Callable[[web.Request], Any],
        may_see: Callable[[str, str], bool],
    ) -> None:
        self.server_state = server_state
        self._check = check
        self._may_see = may_see
        self._streams: Counter[str] = Counter()
        self._listening: set[asyncio.Task[Any] | None] = set()

    async def close(self, app: web.Application) -> None:
        """End all streams, which never end by themselves."""
        for task in self._listening:
            if task is not None:
                task.cancel()

    async def events(self, request: web.Request) -> web.StreamResponse:
        member, place = request[MEMBER], place_in(request)
        if self._streams[member] >= MAX_STREAMS:
            return refusal(429, f"{member} listens {MAX_STREAMS} times already")
        self._streams[member] += 1
        task = asyncio.current_task()
        self._listening.add(task)
        try:
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
            await response.prepare(request)
            await self._send_events(request, response, place)
        except (CertificateError, ConnectionError):
            return response  # no member any more, or it is gone: the stream ends
        finally:
            self._listening.discard(task)
            self._streams[member] -= 1

    async def _send_events(self, request: web.Request, response: web.StreamResponse, place: int) -> NoReturn:
        member = request[MEMBER]
        with self.server_state.events() as queue:
            while True:
                self._check(request)
                place = await self._send_objects(response, member, place)
                try:
                    async with asyncio.timeout(HEARTBEAT):
                        event = await queue.get()
                except TimeoutError:
                    await response.write(b": still here\n\n")
                    continue
                self._check(request)
                progress = event.get("progress")
                if progress is not None and self._may_see(member, progress["job"]):
                    await response.write(b"event: progress\ndata: " + json.dumps(progress).encode() + b"\n\n")

    async def _send_objects(self, response: web.StreamResponse, member: str, place: int) -> int:
        to_server = self.server_state.membership.server_of(member) is not None
        while found := self.server_state.mailbox.since(place, OBJECTS_PER_WRITE):
            lines = [
                header_line(seq, header, self._own_data(header) if to_server else None)
                for seq, header in found
                if self._may_see(member, header.job)
            ]
            place = found[-1][0]
            text = "".join(f"event: object\ndata: {line}\n\n" for line in lines) + f"event: place\ndata: {place}\n\n"
            await response.write(text.encode())
            await asyncio.sleep(0)  # yield to other tasks: none of very many objects may be visible to this member
        return place

    def _own_data(self, header: Header) -> bytes | None:
        """The bytes of a small object of this server."""
        if header.author != self.server_state.identity.name or header.size > EAGER_BYTES:
            return None
        item = self.server_state.mailbox.get(header.digest)
        return None if item is None else item.data


def place_in(request: web.Request) -> int:
    after = request.query.get("after", "0")
    if not (after.isascii() and after.isdigit() and len(after) < 16):
        raise BodyRefused(400, "after is a place in the order of arrival: a whole number")
    return int(after)


def refusal(status: int, why: str) -> web.Response:
    return web.json_response({"error": why}, status=status)
