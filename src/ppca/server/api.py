"""HTTP API of a server for members: objects, jobs and events. TLS authenticates the member; objects are signed.

    GET  /v1/hello                          name, federation, build and clock of this server
    HEAD, GET, PUT /v1/objects/<digest>     one object; PUT is safe to repeat
    GET  /v1/jobs                           jobs of the asking member: name, place in the queue, progress
    GET  /v1/jobs/<id>/objects?after=<seq>  the headers of a job's objects after that place; of those that decide its
                                            state all bytes, so that members can check the signatures themselves
    GET  /v1/events?after=<seq>             server-sent events: headers of new objects after that place, and progress

For a server that was lost there are /v1/inventory and /v1/restore, for `ppca doctor` what `probes` offers. Members see
the objects of jobs they have a part in; servers see all.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from ..federation.build import build
from ..federation.errors import FederationError, NotNow
from ..federation.membership import SERVERS
from ..federation.objects import DECIDING, Object, sha256
from ..federation.proposal import ProposedJob
from ..jobs.checks import is_digest
from ..runtime.control import encode
from ..transport import CertificateError
from .event_streams import MEMBER, EventStreams, place_in, refusal
from .job_runner import JobRunner
from .mates import HalfLost, check_position, half_model, split_for
from .probes import Probes
from .server_state import ServerState
from .uploads import BodyRefused, ObjectUploads

log = logging.getLogger("ppca.api")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
EVENTS = "/v1/events"
MAX_ANSWER = 1 << 20
"""Bytes of objects in one list, beyond which the rest is left for the next request."""

ANSWERS = 16
"""Requests of one member that are answered at the same time. Event streams have their own limit."""

ANSWER_SECONDS = 600.0
"""In which a member must have read an answer; of shares that a server gets back, every part of it."""

CHUNK = 1 << 16
"""Bytes of an object that are in memory while it is sent."""

IDLE = 60.0
"""Seconds that a connection may stand without a request."""

BURST = 10.0
"""Seconds' worth of requests that a member may make at once."""


class Api:
    """Handlers of one server."""

    def __init__(self, server_state: ServerState, job_runner: JobRunner) -> None:
        self.server_state = server_state
        self.job_runner = job_runner
        self._rates: dict[str, tuple[float, float]] = {}
        self._event_streams = EventStreams(server_state, self._member, self._may_see)
        self._serving: Counter[Any] = Counter()
        self._answers: Counter[str] = Counter()
        self._seen: dict[Any, float] = {}
        self._uploads = ObjectUploads(server_state.settings.store)
        self._giving = {server: asyncio.Lock() for server in SERVERS}

    def application(self) -> web.Application:
        app = web.Application(middlewares=[self._who, self._orderly])
        app.add_routes(
            [
                web.get("/v1/hello", self.hello),
                web.get("/v1/objects/{digest}", self.get_object),  # and HEAD
                web.put("/v1/objects/{digest}", self.put_object),
                web.get("/v1/jobs", self.jobs),
                web.get("/v1/jobs/{job}/objects", self.objects),
                web.get(EVENTS, self._event_streams.events),
                web.get("/v1/inventory", self.inventory),
                web.get("/v1/restore/{job}/{owner}", self.restore),
                web.get("/v1/restore-model/{job}", self.restore_model),
                *Probes(self.server_state, lambda request: request[MEMBER]).routes(),
            ]
        )
        app.on_shutdown.append(self._event_streams.close)
        return app

    # -- every request -----------------------------------------------------------------------------------------------

    @web.middleware
    async def _who(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Serve a request only if its sender is a member now, with the key pinned now, also on earlier connections."""
        try:
            request[MEMBER] = self._member(request)
        except CertificateError as error:
            return refusal(403, str(error))
        if self.server_state.membership.server_of(request[MEMBER]) is None and not self._in_time(request[MEMBER]):
            return refusal(429, "too many requests; wait a few seconds")
        stream = request.path == EVENTS
        if self._answers[request[MEMBER]] >= ANSWERS and not stream:
            return refusal(429, f"{ANSWERS} requests of {request[MEMBER]} are being answered already; read the answers")
        self._serving[request.protocol] += 1
        self._answers[request[MEMBER]] += not stream
        try:
            response = await handler(request)
            if not stream:
                await self._send(request, response)
            return response
        finally:
            self._serving[request.protocol] -= 1
            self._answers[request[MEMBER]] -= not stream
            self._seen[request.protocol] = time.monotonic()

    async def _send(self, request: web.Request, response: web.StreamResponse) -> None:
        """Write an answer: until it is written, the request counts as one that is served."""
        with suppress(ConnectionError):
            async with _read_in_time(request):
                await response.prepare(request)
                await response.write_eof()

    def _member(self, request: web.Request) -> str:
        """Return the authenticated member of a request."""
        tls = None if request.transport is None else request.transport.get_extra_info("ssl_object")
        if tls is None:
            raise CertificateError("no client certificate: connect with TLS and the certificate of a member")
        member = self.server_state.tls.member_of(tls.getpeercert() or {})
        if member not in self.server_state.membership.keys or not self.server_state.tls.is_current(
            tls.getpeercert(True), member
        ):
            raise CertificateError(
                f"{member} was removed from the federation, has another key now, or its certificate has expired"
            )
        return member

    async def sweep(self, server: web.Server) -> None:
        """Close idle connections, until cancelled: each one uses a file descriptor of this process."""
        since: dict[Any, float] = {}
        while True:
            await asyncio.sleep(IDLE / 12)
            now = time.monotonic()
            idle = [each for each in server.connections if not self._serving[each]]
            since = {each: max(since.get(each, now), self._seen.get(each, 0.0)) for each in idle}
            self._serving = Counter({each: count for each, count in self._serving.items() if count})
            self._seen = {each: self._seen[each] for each in server.connections if each in self._seen}
            for each in idle:
                if now - since[each] > IDLE:
                    transport = each.transport
                    each.force_close()
                    if transport is not None:
                        transport.abort()  # a closed one would wait until what is written was read

    def _in_time(self, member: str) -> bool:
        """A bucket of requests for every member, filled at the rate of the policy."""
        rate = self.server_state.settings.file.policy.requests_per_second
        left, at = self._rates.get(member, (rate * BURST, time.monotonic()))
        now = time.monotonic()
        left = min(rate * BURST, left + (now - at) * rate)
        self._rates[member] = (left - 1 if left >= 1 else left, now)
        return left >= 1

    @web.middleware
    async def _orderly(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except BodyRefused as error:
            return refusal(error.status, str(error))
        except NotNow as error:
            return refusal(503, str(error))
        except FederationError as error:
            return refusal(409, str(error))
        except ConnectionError:
            return refusal(400, "the connection was lost")  # the answer will not be read
        except OSError as error:
            log.error("disk", extra={"reason": error.strerror})
            return refusal(507, f"this server cannot store anything now ({error.strerror}); try again later")

    def _may_see(self, member: str, job: str) -> bool:
        """Return whether a member has a part in a job."""
        if self.server_state.membership.server_of(member) is not None:
            return True
        try:
            return member in self.server_state.admission.members(job)
        except FederationError:
            return False

    # -- handlers ----------------------------------------------------------------------------------------------------

    async def hello(self, request: web.Request) -> web.Response:
        membership = self.server_state.membership
        return web.json_response(
            {
                "federation": membership.name,
                "revision": membership.revision,
                "digest": membership.digest,
                "build": build(),
                "server": self.server_state.server,
                "member": self.server_state.identity.name,
                "you": request[MEMBER],
                "time": datetime.now(UTC).isoformat(),
                "instance": self.server_state.instance,
                "jobs_at_once": self.server_state.settings.file.policy.jobs_at_once,
            }
        )

    async def get_object(self, request: web.Request) -> web.StreamResponse:
        digest = request.match_info["digest"]
        header = self.server_state.mailbox.header(digest) if is_digest(digest) else None
        if header is None or not self._may_see(request[MEMBER], header.job):
            return refusal(404, "there is no such object here")
        if request.method == "HEAD":
            return web.Response() if self.server_state.mailbox.has(digest) else web.Response(status=410)
        path = await asyncio.to_thread(self.server_state.mailbox.whole, digest)
        if path is None:
            return refusal(410, "the content of this object is gone")
        response = web.StreamResponse(headers={"Content-Type": "application/octet-stream"})
        response.content_length = header.size
        async with _read_in_time(request):
            with path.open("rb") as file:
                await response.prepare(request)
                while chunk := file.read(CHUNK):
                    await response.write(chunk)
            await response.write_eof()
        return response

    async def put_object(self, request: web.Request) -> web.Response:
        digest = request.match_info["digest"]
        if not is_digest(digest):
            return refusal(400, "an object is named by its SHA-256, 64 hexadecimal digits")
        new = await self._uploads.take(
            request, member := request[MEMBER], lambda data: self._admit(data, digest, member)
        )
        return web.Response(status=201 if new else 200)

    def _admit(self, data: bytes, digest: str, member: str) -> bool:
        if sha256(data) != digest:
            raise BodyRefused(400, "the content does not have the digest of its name; send it again")
        return self.server_state.admit(Object.parse(data), member)

    async def jobs(self, request: web.Request) -> web.Response:
        return web.json_response(await asyncio.to_thread(self._jobs_of, request[MEMBER]))

    def _jobs_of(self, member: str) -> list[dict[str, Any]]:
        """List, for each job, the facts that a member cannot compute from its objects. Does not read job files."""
        state = self.server_state
        return [
            {
                "id": job,
                "name": state.admission.name(job),
                "place": state.queue.get(job),
                "progress": state.progress.get(job),
            }
            for job in state.admission.jobs()[0]
            if self._may_see(member, job)
        ]

    async def objects(self, request: web.Request) -> web.Response:
        job = request.match_info["job"]
        if not is_digest(job) or not self._may_see(request[MEMBER], job):
            return refusal(404, "job not found here, or you are not a member of it")
        after = place_in(request)
        return web.json_response(await asyncio.to_thread(self._objects_of, job, after))

    def _objects_of(self, job: str, after: int) -> dict[str, Any]:
        """Objects after a place, as many as fit into one answer."""
        found: list[dict[str, Any]] = []
        total = 0
        for seq, header in self.server_state.mailbox.since(after, job=job):
            item = self.server_state.mailbox.get(header.digest) if header.kind in DECIDING else None
            total += 0 if item is None else len(item.data)
            data = {} if item is None else {"data": base64.b64encode(item.data).decode()}
            found.append({"seq": seq, **header.as_dict(), **data})
            if total > MAX_ANSWER:
                break
        return {"instance": self.server_state.instance, "objects": found}

    # -- for a server that was lost ------------------------------------------------------------------------------------

    def _asking_server(self, request: web.Request) -> int:
        server = self.server_state.membership.server_of(request[MEMBER])
        if server is None:
            raise FederationError("only servers ask for that")
        return server

    def _check_position(self, request: web.Request, job: ProposedJob) -> None:
        """Refuse shares of a job if the asking server, or this one, had another position when they were made."""
        asking, server_state = self._asking_server(request), self.server_state
        for operator, server in ((request[MEMBER], asking), (server_state.identity.name, server_state.server)):
            check_position(
                server_state.mailbox.objects(job.id), server_state.membership, job.proposal.federation, operator, server
            )

    async def inventory(self, request: web.Request) -> web.Response:
        """The digests of all objects here, in the order of arrival."""
        self._asking_server(request)
        digests, place = [], 0
        while found := self.server_state.mailbox.since(place):
            digests += [header.digest for _, header in found]
            place = found[-1][0]
        return web.Response(body=b"".join(encode("inventory", digests=digests)))

    async def restore(self, request: web.Request) -> web.StreamResponse:
        """To a mate that was lost: the summands of an owner's shares that it had in common with this server.

        One at a time for each server that asks: a message of an owner is in memory as a whole.
        """
        async with self._giving[self._asking_server(request)]:
            return await self._give_back(request)

    async def _give_back(self, request: web.Request) -> web.StreamResponse:
        split = split_for(self._asking_server(request), self.server_state.server)
        known = self.server_state.admission.job(request.match_info["job"])
        self._check_position(request, known)
        if request.match_info["owner"] not in known.proposal.owners:
            return refusal(404, "there is no such owner")
        try:
            stream = await asyncio.to_thread(
                self.job_runner.shares.give_back, known, request.match_info["owner"], split
            )
            part = await asyncio.to_thread(next, stream, b"")  # what cannot be opened is an answer, not a broken stream
        except HalfLost as error:
            return refusal(410, str(error))
        log.warning("shares restored to a mate", extra={"job": known.id, "member": request[MEMBER]})
        response = web.StreamResponse()
        await response.prepare(request)
        while part:
            async with _read_in_time(request):
                await response.write(part)
            part = await asyncio.to_thread(next, stream, b"")
        return response

    async def restore_model(self, request: web.Request) -> web.Response:
        """The same of a kept model."""
        split = split_for(self._asking_server(request), self.server_state.server)
        known = self.server_state.admission.job(request.match_info["job"])
        self._check_position(request, known)
        record = self.job_runner.staging.model(known.id)
        if record is None:
            return refusal(404, "no such model is kept here")
        log.warning("a model restored to a mate", extra={"job": known.id, "member": request[MEMBER]})
        return web.Response(body=half_model(record, split))


@asynccontextmanager
async def _read_in_time(request: web.Request) -> AsyncIterator[None]:
    """End the connection of a member that does not read an answer."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            yield
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError("the answer was not read in time") from None
