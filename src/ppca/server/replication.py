"""Replication: a server follows the events of the other three and takes what it lacks. An object at one server reaches
all.

Envelopes go to the server they are addressed to; everything else, which is small or sealed for a receiver, to all.
Small objects of the followed server itself come with their announcement (`event_streams.EAGER_BYTES`); all others are
fetched.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import json
import logging
import math
import time
from collections.abc import Callable
from typing import Any

import aiohttp

from ..federation.errors import FederationError, NotNow
from ..federation.event_lines import MAX_LINE, SILENT, EventLines
from ..federation.membership import SERVERS, address
from ..federation.objects import MAX_BYTES, Object, sha256
from ..jobs.checks import is_digest
from .server_state import ServerState

log = logging.getLogger("ppca.replication")
PAUSES = (0.2, 0.5, 1, 2, 5, 10, 20)
SILENCE = 45.0
"""Seconds without a word of a peer, which sends a heartbeat every fifteen, after which it is dialed anew."""

STOOD = 10.0
"""Seconds after which a link counts as good: if it ends then, it is dialed again without a pause to speak of."""

RETRY = 60.0
"""Seconds after which what could not be taken is tried again."""

NOTED = 1.0
"""Seconds between two notes of how far a server was followed. After a restart it is followed from the last note."""

MEND = 5.0
"""Seconds between two searches for content that the disk has lost."""
Get = Callable[..., Any]
"""Function that asks one particular server."""


class Followers:
    """One task for every other server. `links` tells how each of them is."""

    def __init__(self, server_state: ServerState) -> None:
        self.server_state = server_state
        self.links: dict[int, dict[str, Any]] = {
            server: {"up": False, "why": "not tried yet"} for server in SERVERS if server != server_state.server
        }
        self._marks: dict[int, str] = {}
        self._put_off: dict[int, float] = {}
        self._noted: dict[int, float] = {}

    async def follow(self, server: int) -> None:
        """Follow one server until cancelled."""
        tries = 0
        while True:
            began = time.monotonic()
            try:
                await self._follow(server)
            except Exception as error:  # whatever a peer does, this server goes on, and asks it again later
                why = f"{type(error).__name__}: {error}"[:300]
                self.links[server] = {"up": False, "why": why}
                log.warning("server not reached", extra={"peer": server, "reason": why})
            tries = 0 if time.monotonic() - began > STOOD else tries
            await asyncio.sleep(PAUSES[min(tries, len(PAUSES) - 1)])
            tries += 1

    async def _follow(self, server: int) -> None:
        peer = self.server_state.membership.servers[server]
        host, port = address(peer.api)
        base = f"https://{f'[{host}]' if ':' in host else host}:{port}"
        context, name = self.server_state.tls.dialing_to(peer.member)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=SILENCE)
        session = aiohttp.ClientSession(
            base, connector=aiohttp.TCPConnector(ssl=context), timeout=timeout, auto_decompress=False
        )
        async with session:
            get = functools.partial(session.get, server_hostname=name, allow_redirects=False)
            async with get("/v1/hello") as response:
                hello = await _json(response)
            self.server_state.clock.heard(server, hello.get("time"))
            if type(places := hello.get("jobs_at_once")) is int and places > 0:
                self.server_state.places[server] = places
            place = self._place(server, str(hello.get("instance"))[:64])
            async with get("/v1/events", params={"after": str(place)}) as response:
                if response.status != 200:
                    raise FederationError(f"server {server} answered {response.status}")
                self.links[server] = {
                    "up": True,
                    "why": "",
                    "revision": hello.get("revision"),
                    "build": hello.get("build"),
                    "round_trip": await self._round_trip(server, get),
                }
                await self._listen(server, get, response)

    def _place(self, server: int, instance: str) -> int:
        """Return the last place read from a server; 0 if its mailbox or the federation has changed."""
        self._marks[server] = f"{instance}/{self.server_state.membership.digest}"
        self._put_off.pop(server, None)
        known, _, place = (self.server_state.mailbox.note(f"followed {server}") or "").rpartition(" ")
        return int(place) if known == self._marks[server] and place.isdigit() else 0

    def _note_place(self, server: int, place: int) -> None:
        """Note how far this server was followed: not beyond an object that must be tried again, and not too often.

        A note waits for the disk, and nothing depends on the last one: what is announced twice is taken once.
        """
        if server not in self._put_off:
            if time.monotonic() < self._noted.get(server, -math.inf) + NOTED:
                return
            self._noted[server] = time.monotonic()
            with contextlib.suppress(OSError):  # the disk is full: it is followed from an earlier place the next time
                self.server_state.mailbox.note(f"followed {server}", f"{self._marks[server]} {place}")
        elif time.monotonic() > self._put_off[server] + RETRY:
            raise FederationError("some objects could not be taken; they are tried again")

    async def _listen(self, server: int, get: Get, response: aiohttp.ClientResponse) -> None:
        lines, mended, place = EventLines(), -math.inf, 0
        while line := await response.content.readline():
            if self._marks[server].rpartition("/")[2] != self.server_state.membership.digest:
                raise FederationError("the federation has a new revision")
            if time.monotonic() > mended + MEND:
                await self._mend(server, get)
                mended = time.monotonic()
            if len(line) > MAX_LINE:
                raise FederationError(f"server {server} sends lines that are too long")
            kind, data = lines.event(line) or ("", "")
            if kind == "object":
                await self._take(server, get, json.loads(data))
            elif kind == "place":
                self._note_place(server, place := int(data))
            elif kind == SILENT:
                self.links[server]["round_trip"] = await self._round_trip(server, get)
                if place or server in self._put_off:
                    self._note_place(server, place)
        raise FederationError(f"server {server} ended the conversation")

    async def _take(self, server: int, get: Get, fields: Any) -> None:
        """An object that another server has announced, if it is wanted here."""
        if not isinstance(fields, dict) or not isinstance(fields.get("about"), dict) or not is_digest(fields["digest"]):
            raise FederationError(f"server {server} announces something else than objects")
        digest, to = fields["digest"], fields["about"].get("to")
        if self.server_state.mailbox.knows(digest) or (
            fields.get("kind") == "envelope" and to != self.server_state.server
        ):
            return
        try:
            self.server_state.admission.check_quota(str(fields.get("author")), int(fields.get("size", 0)))
            if isinstance(data := fields.get("data"), str):
                await self._admit(server, digest, base64.b64decode(data, validate=True))
            else:
                await self._fetch(server, get, digest)
        except FederationError as error:
            log.warning("object not taken", extra={"peer": server, "digest": digest, "reason": str(error)})
            if isinstance(error, NotNow):
                self._put_off.setdefault(server, time.monotonic())

    async def _fetch(self, server: int, get: Get, digest: str) -> None:
        async with get(f"/v1/objects/{digest}") as response:
            if response.status in (404, 410):
                return
            data = await _body(response)
        await self._admit(server, digest, data)

    async def _admit(self, server: int, digest: str, data: bytes) -> None:
        """Take in what a server sent as the object with this digest."""
        if sha256(data) != digest:
            raise FederationError("its content does not have its digest")
        try:
            await asyncio.to_thread(
                self.server_state.admit, Object.parse(data), self.server_state.membership.operators[server]
            )
        except OSError as error:  # to dial again at once would not help, and use up the streams of the peer
            raise NotNow(f"it cannot be stored: {error}") from None

    async def _round_trip(self, server: int, get: Get) -> float:
        """Return the seconds of one round trip on an open connection. The answer includes the other server's clock."""
        taken = 0.0
        for _ in range(2):  # the first one may have to connect
            asked = time.perf_counter()
            async with get("/v1/hello") as response:
                hello = await _json(response)
            taken = time.perf_counter() - asked
        self.server_state.clock.heard(server, hello.get("time"))
        return taken

    async def _mend(self, server: int, get: Get) -> None:
        """Take content that the disk has lost from another server, if that has it."""
        for digest in self.server_state.mailbox.lost():
            try:
                await self._fetch(server, get, digest)
            except FederationError as error:  # one that cannot be had does not keep the others away
                log.warning("object not mended", extra={"peer": server, "digest": digest, "reason": str(error)})


async def _body(response: aiohttp.ClientResponse) -> bytes:
    if response.status != 200 or (response.content_length or 0) > MAX_BYTES:
        raise FederationError(f"a server answered {response.status} with {response.content_length} bytes")
    data = bytearray()
    async for chunk in response.content.iter_chunked(1 << 18):
        data += chunk
        if len(data) > MAX_BYTES:
            raise FederationError("a server sends an object that is too long")
    return bytes(data)


async def _json(response: aiohttp.ClientResponse) -> dict[str, Any]:
    found = json.loads(await _body(response))
    if not isinstance(found, dict):
        raise FederationError("a server answered something else than was asked for")
    return found
