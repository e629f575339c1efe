"""The four servers as a member reaches them: requests over TLS with pinned keys, to the first server that answers."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from ..federation.errors import NotReached, ObjectRefused
from ..federation.event_lines import MAX_LINE, SILENT, EventLines
from ..federation.identity import Identity
from ..federation.membership import SERVERS, Membership, address
from ..federation.objects import MAX_BYTES, Header, Object, sha256
from ..federation.proposal import ProposedJob
from ..federation.text import plain
from ..jobs.checks import is_digest
from ..transport import CertificateError
from ..transport.deadline import cut_after
from ..transport.pinned import PinnedTls, issue_leaf
from .shelf import Shelf

T = TypeVar("T")
CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 120.0
SILENCE = 45.0
AGAIN = 30.0
"""Seconds for which a server that did not answer is asked last."""

RENEWAL = timedelta(hours=1)
TRIES = 3
MAX_ANSWER = 64 << 20
REQUEST_SECONDS = 600.0
"""Seconds until a request and its answer are complete, however often the server sends a byte."""

LIST_SECONDS = 60.0
LIST_BYTES = 256 << 20
"""Time and bytes that one server may take to list the objects of one job."""

ENOUGH = 3
"""Servers whose lists suffice, so that one that failed lately need not be asked again."""

MAX_SAID = 1000
"""Characters of what a server says about a failure."""

LOST = (OSError, http.client.HTTPException, ssl.SSLError)


class ServerClient:
    """One server: one connection, made when it is needed and again when it is lost."""

    def __init__(self, membership: Membership, number: int, tls: Callable[[], PinnedTls]) -> None:
        self._server = membership.servers[number]
        self._tls = tls
        self._connection: http.client.HTTPSConnection | None = None

    @property
    def number(self) -> int:
        return self._server.number

    @property
    def name(self) -> str:
        return f"server {self._server.number} ({self._server.member}, {self._server.api})"

    def _connected(self) -> http.client.HTTPSConnection:
        if self._connection is None:
            host, port = address(self._server.api)
            tls = self._tls()
            context = tls.context(dialing=True)
            connection = http.client.HTTPSConnection(host, port, timeout=CONNECT_SECONDS, context=context)
            connection.connect()
            try:
                sock: Any = connection.sock
                found = tls.member_of(sock.getpeercert() or {})
                if found != self._server.member:
                    raise CertificateError(f"{self.name}: there is {found} in its place; check the addresses")
                sock.settimeout(ANSWER_SECONDS)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def request(
        self, method: str, path: str, body: bytes | None = None, *, seconds: float = REQUEST_SECONDS
    ) -> tuple[int, bytes]:
        """Return the status and the answer of the server. NotReached if it does not answer within `seconds`."""
        for fresh in (False, True):
            if self._connection is None and not fresh:
                continue
            try:
                connection = self._connected()
                with cut_after(connection.sock, seconds):
                    connection.request(method, path, body, {"Content-Type": "application/octet-stream"} if body else {})
                    response = connection.getresponse()
                    data = response.read(MAX_ANSWER + 1)
                if len(data) > MAX_ANSWER:
                    self.close()
                    raise NotReached(f"{self.name} answers with more than {MAX_ANSWER:,} bytes")
                return response.status, data
            except (*LOST, CertificateError) as error:
                self.close()
                if fresh:
                    raise NotReached(f"{self.name}: {_cause(error)}") from None
        raise NotReached(f"{self.name} was not reached")

    def events(self, after: int = 0) -> Iterator[tuple[str, Any]]:
        """(kind, content) of news as they come: "object", "place", "progress", and "silence" while there are none."""
        self.close()
        try:
            connection = self._connected()
            connection.request("GET", f"/v1/events?after={after}")
            response = connection.getresponse()
            if response.status != 200:
                raise NotReached(f"{self.name} answered {response.status}: {_said(response.read(10_000))}")
            connection.sock.settimeout(SILENCE)
            yield from _events(response)
        except (*LOST, CertificateError) as error:
            raise NotReached(f"{self.name}: {_cause(error)}") from None
        finally:
            self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _events(response: http.client.HTTPResponse) -> Iterator[tuple[str, Any]]:
    lines = EventLines()
    while line := response.readline(MAX_LINE):
        if (event := lines.event(line)) is None:
            continue
        kind, text = event
        try:
            content = None if kind == SILENT else json.loads(text)
        except (ValueError, RecursionError):
            raise NotReached("invalid event stream from a server") from None
        yield kind, content


def _cause(error: Exception) -> str:
    if isinstance(error, socket.gaierror):
        return "its name is not known; check the address in federation.toml"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or ""):
        return f"it refused this member ({error.reason}): it may have another revision of the federation, or the clock is wrong"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not that of the pinned key ({error.verify_message})"
    return plain(str(getattr(error, "strerror", None) or error or type(error).__name__)[:MAX_SAID])


def _said(data: bytes) -> str:
    """Return why a server refuses something, as text that can be printed."""
    try:
        return plain(str(json.loads(data)["error"])[:MAX_SAID])
    except (ValueError, KeyError, TypeError, RecursionError):
        return "no reason given"


class ServerConnections:
    """All four servers. What any of them can answer is asked of the first that does."""

    def __init__(self, membership: Membership, identity: Identity) -> None:
        self.membership = membership
        self._identity = identity
        self._leaf = issue_leaf(identity.name, identity.key)
        self.clients = {number: ServerClient(membership, number, self._tls) for number in SERVERS}
        self._failed: dict[int, float] = {}
        self._shelves: dict[tuple[int, str], Shelf] = {}

    def _tls(self) -> PinnedTls:
        """With a leaf that is valid for some time: a member may stay for days."""
        if self._leaf.expires < datetime.now(UTC) + RENEWAL:
            self._leaf = issue_leaf(self._identity.name, self._identity.key)
        return PinnedTls(self._leaf, self.membership.keys, self.membership.operators)

    def _order(self, first: int | None) -> list[int]:
        """ServerConnections in the order in which they are asked: those that failed lately come last."""
        now = time.monotonic()
        order = sorted(SERVERS, key=lambda server: (now - self._failed.get(server, -AGAIN) < AGAIN, server))
        return order if first is None else [first, *(server for server in order if server != first)]

    def ask(self, what: Callable[[ServerClient], T], first: int | None = None) -> T:
        """The answer of the first server that is reached."""
        faults = []
        for _ in range(TRIES):
            for server in self._order(first):
                try:
                    return what(self.clients[server])
                except NotReached as error:
                    self._failed[server] = time.monotonic()
                    faults.append(str(error))
            time.sleep(0.5)
        reasons = "; ".join(dict.fromkeys(faults))
        raise NotReached(
            f"could not reach a server that can do this now: {reasons}. Run `ppca doctor` to find the cause."
        )

    def put(self, item: Object, to: int | None = None) -> None:
        """Leave an object with a server: the one it is for, or another, which passes it on. Safe to repeat."""
        self.ask(lambda client: _send(client, item), to)

    def put_everywhere(self, item: Object) -> None:
        """Leave an object with every server that is reached, so that no server alone can hold it back.

        Raises ObjectRefused if no server takes it.
        """
        refused: list[ObjectRefused] = []

        def send(client: ServerClient) -> bool:
            try:
                _send(client, item)
            except ObjectRefused as error:
                refused.append(error)
                return False
            return True

        if not any(self._from_all(send)):
            raise refused[0]

    def get(self, header: Header) -> Object:
        """The object of a header from any server that has it: signed by its author's pinned key, and what the header
        says."""
        digest = header.digest
        for number in SERVERS:
            shelf = self._shelves.get((number, header.job))
            if shelf is not None and digest in shelf.items and shelf.headers.get(digest) == header:
                return shelf.items[digest]

        def load(client: ServerClient) -> Object:
            status, data = client.request("GET", f"/v1/objects/{digest}")
            if status != 200 or len(data) > MAX_BYTES or sha256(data) != digest:
                raise NotReached(f"{client.name} does not have object {digest[:12]}")
            return Object.parse(data)

        item = self.ask(load)
        item.check_author(self.membership.signers)
        if item.header != header:
            raise ObjectRefused(
                f"a server says something else of object {digest[:12]} than {item.header.author} signed"
            )
        return item

    def headers(self, job: str) -> list[Header]:
        """Return the headers of a job's objects, those first that most servers list.

        All servers are asked. The state of a job follows from objects whose signatures were checked here. Headers of
        other kinds (`group`, `result`, `audit`) are a server's word until `get` has the object; different headers of
        one object are all here.
        """
        found: dict[str, Header] = {}
        listed: Counter[str] = Counter()
        former: set[str] = set()
        for shelf in self._from_all(lambda client: self._shelf(client, job)):
            former |= shelf.former
            for header in shelf.headers.values():
                key = json.dumps(header.as_dict(), sort_keys=True)
                found[key] = header
                listed[key] += 1
        if not (former and self._is_present(job, found.values())):
            former = set()
        order = sorted(found, key=lambda key: -listed[key])
        return [found[key] for key in order if found[key].digest not in former]

    def _is_present(self, job: str, headers: Iterable[Header]) -> bool:
        """Return whether a job is for the present revision. Objects that former keys signed then do not count."""
        files = (self.get(header).payload for header in headers if header.kind == "job")
        data = next((data for data in files if sha256(data) == job), None)
        return data is None or ProposedJob(data).proposal.federation == self.membership.digest

    def _shelf(self, client: ServerClient, job: str) -> Shelf:
        """Return what a server has of a job. Earlier lists are cached."""
        shelf = self._shelves.setdefault((client.number, job), Shelf())
        deadline = time.monotonic() + LIST_SECONDS
        while (left := deadline - time.monotonic()) > 0 and shelf.bytes < LIST_BYTES:
            status, data = client.request("GET", f"/v1/jobs/{job}/objects?after={shelf.place}", seconds=left)
            shelf.bytes += len(data)
            if status == 404:
                return shelf
            if status != 200:
                raise NotReached(f"{client.name}: {_said(data)}")
            if not shelf.take(_decoded(data, dict, client), job, self.membership):
                return shelf
        raise NotReached(
            f"{client.name} lists more objects of job {job[:12]} than are read ({LIST_BYTES:,} bytes, "
            f"{LIST_SECONDS:g} seconds)"
        )

    def jobs(self) -> list[dict[str, Any]]:
        """The jobs that this member has a part in, as servers describe them; those first that most servers list.

        Each has id, name, place in the queue and progress. They are a server's word: an id may stand for no job.
        """
        found: dict[str, dict[str, Any]] = {}
        listed: Counter[str] = Counter()
        for jobs in self._from_all(_jobs_at):
            for job in jobs:
                found.setdefault(job["id"], job)
            listed.update({job["id"] for job in jobs})
        return [found[job] for job in sorted(found, key=lambda job: -listed[job])]

    def _from_all(self, what: Callable[[ServerClient], T]) -> list[T]:
        """The answers of all servers that are reached, at least one. One that failed lately is not asked if the others
        answer."""
        found: list[T] = []
        faults: list[str] = []
        now = time.monotonic()
        for server in self._order(None):
            if len(found) >= ENOUGH and now - self._failed.get(server, -AGAIN) < AGAIN:
                break
            try:
                found.append(what(self.clients[server]))
            except NotReached as error:
                self._failed[server] = time.monotonic()
                faults.append(str(error))
        if not found:
            raise NotReached(f"could not reach any server: {'; '.join(faults)}. Run `ppca doctor` to find the cause.")
        return found

    def hello(self, server: int) -> dict[str, Any]:
        status, data = self.clients[server].request("GET", "/v1/hello")
        if status != 200:
            raise NotReached(f"{self.clients[server].name}: {_said(data)}")
        found: dict[str, Any] = _decoded(data, dict, self.clients[server])
        return found

    def close(self) -> None:
        for client in self.clients.values():
            client.close()


def _send(client: ServerClient, item: Object) -> None:
    """Leave an object with one server."""
    status, _ = client.request("HEAD", f"/v1/objects/{item.digest}")
    if status in (200, 410):  # it is there, or was there and has served its purpose
        return
    status, answer = client.request("PUT", f"/v1/objects/{item.digest}", item.data)
    if status in (429, 503, 507):
        raise NotReached(f"{client.name}: {_said(answer)}")
    if status not in (200, 201):
        raise ObjectRefused(f"{client.name} refused the {item.header.kind}: {_said(answer)}")


def _jobs_at(client: ServerClient) -> list[dict[str, Any]]:
    status, data = client.request("GET", "/v1/jobs", seconds=LIST_SECONDS)
    if status != 200:
        raise NotReached(f"{client.name}: {_said(data)}")
    found = _decoded(data, list, client)
    return [_job_line(each) for each in found if isinstance(each, dict) and is_digest(each.get("id"))]


def _job_line(told: dict[str, Any]) -> dict[str, Any]:
    """Check the used fields of a server's description of a job."""
    name, place = told.get("name"), told.get("place")
    return {
        "id": told["id"],
        "name": name if isinstance(name, str) else "",
        "place": place if type(place) is int else None,
        "progress": progress_of(told.get("progress")),
    }


def progress_of(told: Any) -> dict[str, Any] | None:
    """The progress of a running job, as a server tells it: a short text, a fraction and the number of rounds."""
    if not isinstance(told, dict):
        return None
    fraction, rounds = told.get("fraction"), told.get("rounds")
    return {
        "text": plain(str(told.get("text"))[:200]),
        "fraction": min(1.0, max(0.0, fraction)) if isinstance(fraction, float) else None,
        "rounds": rounds if type(rounds) is int else 0,
    }


def _decoded(data: bytes, kind: type, client: ServerClient) -> Any:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, kind):
        raise NotReached(f"{client.name} answers something else than was asked for")
    return found
