"""Replication: a seat follows the news of the other three and fetches what it lacks. Who reaches one seat reaches all.

Envelopes go to the seat they are addressed to; everything else, which is small or sealed for a receiver, to all.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from typing import Any

import aiohttp

from ..federation.errors import FederationError
from ..federation.objects import MOST_BYTES, Object, sha256
from ..federation.roster import SEATS, address
from ..transport import CertificateError
from .office import Office

log = logging.getLogger("ppca.replication")
PAUSES = (0.2, 0.5, 1, 2, 5, 10, 20)
SILENCE = 45.0
"""Seconds without a word of a peer, which sends a heartbeat every fifteen, after which it is dialed anew."""

MOST_LINE = 1 << 17


class Followers:
    """One task for every other seat. `links` tells how each of them is."""

    def __init__(self, office: Office) -> None:
        self.office = office
        self.links: dict[int, dict[str, Any]] = {
            seat: {"up": False, "why": "not tried yet"} for seat in SEATS if seat != office.seat
        }

    async def follow(self, seat: int) -> None:
        """Follows one seat for ever."""
        tries = 0
        while True:
            try:
                await self._follow(seat)
                tries = 0
            except (aiohttp.ClientError, OSError, TimeoutError, FederationError, CertificateError, ValueError) as error:
                if self.links[seat]["up"]:
                    tries = 0
                why = f"{type(error).__name__}: {error}"[:300]
                self.links[seat] = {"up": False, "why": why}
                log.warning("seat not reached", extra={"peer": seat, "why": why})
            await asyncio.sleep(PAUSES[min(tries, len(PAUSES) - 1)])
            tries += 1

    async def _follow(self, seat: int) -> None:
        peer = self.office.roster.seats[seat]
        host, port = address(peer.api)
        base = f"https://{f'[{host}]' if ':' in host else host}:{port}"
        context = self.office.tls.context(dialing=True)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=SILENCE)
        connector = aiohttp.TCPConnector(ssl=context)
        async with aiohttp.ClientSession(base, connector=connector, timeout=timeout) as session:
            async with session.get("/v1/hello") as response:
                self._check(response, peer.member)
                hello = await _json(response)
            place = self._place(seat, str(hello.get("instance")))
            async with session.get("/v1/events", params={"after": str(place)}) as response:
                self._check(response, peer.member)
                if response.status != 200:
                    raise FederationError(f"seat {seat} answered {response.status}")
                self.links[seat] = {
                    "up": True,
                    "why": "",
                    "revision": hello.get("revision"),
                    "build": hello.get("build"),
                    "round_trip": await _round_trip(session),
                }
                await self._listen(seat, session, response)

    def _check(self, response: aiohttp.ClientResponse, member: str) -> None:
        """The other end must be the member whose seat this is."""
        transport = response.connection.transport if response.connection else None
        certificate = transport.get_extra_info("peercert") if transport is not None else None
        if certificate is not None and self.office.tls.member_of(certificate) != member:
            raise FederationError(f"there is {self.office.tls.member_of(certificate)} in place of {member}")

    def _place(self, seat: int, instance: str) -> int:
        """How far this seat was followed; from the beginning if its mailbox is a new one."""
        known, _, place = (self.office.mailbox.note(f"followed {seat}") or "").partition(" ")
        self._instance = getattr(self, "_instance", {}) | {seat: instance}
        return int(place) if known == instance and place else 0

    async def _listen(self, seat: int, session: aiohttp.ClientSession, response: aiohttp.ClientResponse) -> None:
        kind = ""
        while line := await response.content.readline():
            if len(line) > MOST_LINE:
                raise FederationError(f"seat {seat} sends lines that are too long")
            text = line.decode().rstrip("\n")
            if text.startswith("event: "):
                kind = text.removeprefix("event: ")
            elif text.startswith("data: "):
                data = text.removeprefix("data: ")
                if kind == "object":
                    await self._take(seat, session, json.loads(data))
                elif kind == "place":
                    self.office.mailbox.note(f"followed {seat}", f"{self._instance[seat]} {int(data)}")
            elif text.startswith(":"):
                self.links[seat]["round_trip"] = await _round_trip(session)
        raise FederationError(f"seat {seat} ended the conversation")

    async def _take(self, seat: int, session: aiohttp.ClientSession, fields: dict[str, Any]) -> None:
        digest = str(fields.get("digest"))
        about = fields.get("about")
        to = about.get("to") if isinstance(about, dict) else None
        if self.office.mailbox.knows(digest) or (fields.get("kind") == "envelope" and to != self.office.seat):
            return
        async with session.get(f"/v1/objects/{digest}") as response:
            if response.status in (404, 410):
                return
            data = await _body(response)
        try:
            if sha256(data) != digest:
                raise FederationError("its content does not have its digest")
            await asyncio.to_thread(self.office.admit, Object.parse(data), self.office.roster.operators[seat])
        except FederationError as error:
            log.warning("object not taken", extra={"peer": seat, "digest": digest, "why": str(error)})


async def _round_trip(session: aiohttp.ClientSession) -> float:
    """Seconds of a small question on a connection that stands."""
    taken = 0.0
    for _ in range(2):  # the first one may have to connect
        asked = time.perf_counter()
        async with session.get("/v1/hello") as response:
            await _body(response)
        taken = time.perf_counter() - asked
    return taken


async def _body(response: aiohttp.ClientResponse) -> bytes:
    if response.status != 200 or (response.content_length or 0) > MOST_BYTES:
        raise FederationError(f"a seat answered {response.status} with {response.content_length} bytes")
    data = bytearray()
    async for chunk in response.content.iter_chunked(1 << 18):
        data += chunk
        if len(data) > MOST_BYTES:
            raise FederationError("a seat sends an object that is too long")
    return bytes(data)


async def _json(response: aiohttp.ClientResponse) -> dict[str, Any]:
    found = json.loads(await _body(response))
    if not isinstance(found, dict):
        raise FederationError("a seat answered something else than was asked for")
    return found
