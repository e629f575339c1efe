"""The federation's part of `ppca bench fuzz`: objects, files, streams, evidence, and requests to a running server."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import hashlib
import json
import logging
import shutil
import socket
import ssl
import tempfile
import threading
import tomllib
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from aiohttp import http_exceptions, web
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from benchmarks.jobs import fit_job, use_job
from benchmarks.malformed import Target
from ppca.federation import toml
from ppca.federation.envelopes import Envelopes, blind, messages, summands_at
from ppca.federation.errors import FederationError
from ppca.federation.expected import checked
from ppca.federation.identity import KEY_FILE, Identity, key_text
from ppca.federation.membership import Membership, MembershipFile, read_signatures, render, statement, write_signatures
from ppca.federation.objects import KINDS, Object
from ppca.federation.proposal import ProposedJob, proposal_of
from ppca.federation.sealing import SealingKey
from ppca.federation.serverfile import Policy, ServerFile, ServerSettings, render_server
from ppca.member.fetching import Evidence
from ppca.owner.rows import share_sums, sums_of
from ppca.owner.tables.opening import open_table
from ppca.protocol import FIXED, InputRefused, share
from ppca.runtime.control import encode
from ppca.runtime.files import write_whole
from ppca.server.admission import Admission
from ppca.server.api import Api
from ppca.server.checking import Taken
from ppca.server.mailbox import Mailbox, write_file
from ppca.server.server_state import ServerState
from ppca.server.staging import record_bytes, record_of
from ppca.transport import free_ports
from ppca.transport.pinned import PinnedTls, issue_leaf

OPERATORS, OWNERS, RECEIVER = ("alpha", "beta", "gamma", "delta"), ("north", "south", "west"), "analyst"
NAMES = (*OPERATORS, *OWNERS, RECEIVER)
KEYS = {name: Ed25519PrivateKey.from_private_bytes(hashlib.sha256(name.encode()).digest()) for name in NAMES}
IDENTITIES = {name: Identity(name, key) for name, key in KEYS.items()}
SEALING = [SealingKey(hashlib.sha256(name.encode()).digest()) for name in OPERATORS]
logging.getLogger("ppca.mailbox").setLevel(logging.CRITICAL)  # it says of every database that it is damaged
GLANCE = 0.01
"""Seconds for which an answer of the server is waited for; what it does meanwhile is seen in its log."""


def membership(port: int = 7443) -> Membership:
    servers = [
        {"number": server, "member": name, "key": key_text(IDENTITIES[name].public)}
        | {"api": f"127.0.0.1:{port}", "mesh": "127.0.0.1:7444"}
        for server, name in enumerate(OPERATORS)
    ]
    roles = {**dict.fromkeys(OWNERS, ("owner",)), RECEIVER: ("receiver",)}
    members = [{"name": name, "key": key_text(IDENTITIES[name].public), "roles": roles[name]} for name in roles]
    content = {"name": "fuzzed", "revision": 1, "server": tuple(servers), "member": tuple(members)}
    data = render(toml.validated(MembershipFile, content, "the federation"))
    return Membership(data, {name: IDENTITIES[name].sign(statement(data)) for name in OPERATORS})


MEMBERSHIP = membership()


@functools.cache
def jobs(of: Membership = MEMBERSHIP) -> list[ProposedJob]:
    by_owner = {owner: [f"{owner}1", f"{owner}2"] for owner in OWNERS}
    return [
        fit_job(of, "rows", OWNERS, ["a", "b", "c"], {RECEIVER: ["model"]}, rows_at_least=9),
        fit_job(of, "columns", OWNERS, by_owner, {RECEIVER: ["components"]}, align={"alignment": "psi"}),
        use_job(of, "infer", ["north"], ["a", "b"], {RECEIVER: ["flags"]}, (1, 2), threshold=2.0),
    ]


@functools.cache
def story(of: ProposedJob) -> list[Object]:
    """The objects of a job that goes well, in an order in which they can happen."""

    def make(author: str, kind: str, payload: bytes = b"", **about: Any) -> Object:
        return Object.make(IDENTITIES[author], kind, of.id, payload, **about)

    told = [make(RECEIVER, "job", of.data)]
    told += [make(name, "offer", SEALING[server].public, server=server) for server, name in enumerate(OPERATORS)]
    told += [make(RECEIVER, "offer", SEALING[0].public, receiver=RECEIVER)]
    told += [make(owner, "approval") for owner in OWNERS]
    last: dict[str, Object] = {}
    for owner in OWNERS:
        envelopes = Envelopes(IDENTITIES[owner], of.id, [key.public for key in SEALING], told.append)
        envelopes.add("packets", [share(np.ones(2))])
        last[owner] = envelopes.finish()
        told.append(last[owner])
        told += [make(name, "receipt", owner=owner, contribution=last[owner].digest) for name in OPERATORS]
    told.append(make("alpha", "start", attempt=1))
    account: dict[str, Any] = {"audit": "a", "rounds": 1, "sent": [0] * 4, "received": [0] * 4}
    ended: dict[str, Any] = {"attempt": 1, "outcome": "finished", "final": False, "why": ""}
    told += [make(name, "ended", **ended, **account) for name in OPERATORS]
    for server, name in enumerate(OPERATORS):
        result = make(name, "result", b"sealed", receiver=RECEIVER, attempt=1, chunk=0)
        said = {"server": server, "audit": [], "results": {RECEIVER: [result.digest]}}
        said |= {"contributions": {owner: item.digest for owner, item in last.items()}}
        told += [result, make(name, "audit", json.dumps(said).encode(), attempt=1)]
    return [*told, make("alpha", "erased", what="job")]


# -- parsers
# -------------------------------------------------------------------------------------------------------------


def decoded(content: bytes) -> dict[str, Any]:
    """The object that a JSON text is; what is none does not reach the code that is tried."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise FederationError("no object")
    return found


def feed_object(content: bytes, number: int, folder: Path) -> None:
    Object.parse(content).check_author(MEMBERSHIP.signers)


def object_seeds() -> list[bytes]:
    return [item.data for item in story(jobs()[0])]


def feed_admission(content: bytes, number: int, folder: Path) -> None:
    """An object that is signed as it should be, whatever it says."""
    fields = decoded(content)
    if number % 7 == 6 and number > 1000:
        fields["kind"] = sorted(KINDS)[number % len(KINDS)]
    author = fields.get("author")
    identity = IDENTITIES[author] if isinstance(author, str) and author in IDENTITIES else IDENTITIES["north"]
    text = json.dumps({key: fields.get(key) for key in ("kind", "author", "job", "about")}, sort_keys=True).encode()
    try:
        payload = base64.b64decode(fields.get("payload") or "", validate=True)
    except (ValueError, TypeError):
        payload = b"x"
    signed = b"ppca-object-1\n%d\n%s\n%s" % (len(text), text, payload)
    item = Object.parse(signed + identity.sign(signed))
    _door(str(folder)).admit(item, OPERATORS[number % 4] if number % 3 else item.header.author)


@functools.lru_cache(maxsize=1)
def _door(folder: str) -> Admission:
    """A mailbox that holds the beginning of a job."""
    place = Path(folder) / "mailbox"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    admission = Admission(Mailbox(place), lambda: MEMBERSHIP, Policy(jobs_per_member=2), 1 << 24)
    for item in story(jobs()[0])[:9]:
        admission.admit(item, item.header.author)
    return admission


def admission_seeds() -> list[bytes]:
    found = []
    for item in story(jobs()[0]):
        header = {key: getattr(item.header, key) for key in ("kind", "author", "job", "about")}
        found.append(json.dumps({**header, "payload": base64.b64encode(item.payload).decode()}).encode())
    return found


def feed_membership(content: bytes, number: int, folder: Path) -> None:
    Membership(content, MEMBERSHIP.signatures).faults()


def feed_job(content: bytes, number: int, folder: Path) -> None:
    ProposedJob(content)


def feed_job_tables(content: bytes, number: int, folder: Path) -> None:
    """A job whose tables hold wrong values where right ones were."""
    fields = decoded(content)
    for key in ("expires", "not_before"):
        with contextlib.suppress(ValueError, TypeError):
            fields[key] = datetime.fromisoformat(fields[key]) if key in fields else None
    fields = {key: value for key, value in fields.items() if value is not None}
    proposal_of(fields, "the job")


def job_table_seeds() -> list[bytes]:
    return [json.dumps(tomllib.loads(each.data.decode()), default=str).encode() for each in jobs()]


def feed_server(content: bytes, number: int, folder: Path) -> None:
    toml.parse(ServerFile, content, "server.toml")


def server_seeds() -> list[bytes]:
    content = {"server": 0, "federation": "federation.toml", "identity": KEY_FILE, "store": {"path": "store"}}
    return [render_server(toml.validated(ServerFile, content, "the server"))]


def feed_signatures(content: bytes, number: int, folder: Path) -> None:
    (folder / "federation.sigs").write_bytes(content)
    Membership(MEMBERSHIP.data, read_signatures(folder / "federation.sigs")).faults()


def signature_seeds() -> list[bytes]:
    with tempfile.TemporaryDirectory() as name:
        write_signatures(Path(name) / "federation.sigs", MEMBERSHIP.signatures)
        return [(Path(name) / "federation.sigs").read_bytes()]


def feed_envelope(content: bytes, number: int, folder: Path) -> None:
    size, memory = 1 + number % 997, 1 << 22
    found = messages((content[at : at + size] for at in range(0, len(content), size)), memory)
    summands_at(number % 4, Taken(memory).count(found))


def envelope_seeds() -> list[bytes]:
    """One per server, in their order: sums and rows by turns."""
    sums, rows, tags = (share(np.ones(3)), share(np.eye(2))), share(np.ones((4, 3))), np.arange(8, dtype=np.uint64)
    return [
        b"".join(
            encode("rows", packets=[rows[server]], tags=tags)
            if server % 2
            else encode("packets", packets=[four[server] for four in sums])
        )
        for server in range(4)
    ]


@functools.lru_cache(maxsize=1)
def contribution_job() -> ProposedJob:
    return fit_job(MEMBERSHIP, "sums", OWNERS, ["a", "b", "c"], {RECEIVER: ["model"]})


def feed_contribution(content: bytes, number: int, folder: Path) -> None:
    """Return what an owner has sealed to a server, as the process that opens contributions takes it."""
    server = number % 4
    found = checked(contribution_job().spec.data, "north", server, messages([content], 1 << 22))
    summands_at(server, Taken(1 << 22).count(found))


def contribution_seeds() -> list[bytes]:
    """The sums of an owner, one stream per server."""
    sums, first = share_sums(sums_of(open_table(np.arange(24.0).reshape(8, 3) % 7)), len(OWNERS)), blind()
    found = []
    for server in range(4):
        messages = encode("blind", packets=[first[server]]), encode("packets", packets=[four[server] for four in sums])
        found.append(b"".join(part for message in messages for part in message))
    return found


def feed_store(content: bytes, number: int, folder: Path) -> None:
    """A damaged database of a server: the objects are there all the same."""
    place, items = folder / "store", story(jobs()[0])[:6]
    for item in items:
        path = place / "objects" / item.digest[:2] / item.digest
        if not path.exists():
            write_file(path, item.data)
    for path in place.glob("records.db*"):
        path.unlink()
    (place / "records.db").write_bytes(content)
    box = Mailbox(place)
    try:
        assert {header.digest for header in box.headers(jobs()[0].id)} == {item.digest for item in items}
        assert all(box.get(item.digest) == item for item in items)
    finally:
        box.close()


def store_seeds() -> list[bytes]:
    with tempfile.TemporaryDirectory() as name:
        box = Mailbox(Path(name))
        for item in story(jobs()[0])[:6]:
            box.put(item)
        box.note("instance", "fuzz")
        box.close()
        return [(Path(name) / "records.db").read_bytes()]


def feed_record(content: bytes, number: int, folder: Path) -> None:
    record_of(content)


def record_seeds() -> list[bytes]:
    return [record_bytes({"public": {"rows": 3}, "mean": (np.ones((2, 3, 2), np.uint64), FIXED)})]


# -- evidence
# ------------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1)
def _evidence(folder: str) -> list[Path]:
    """The files of a folder of evidence."""
    place, of = Path(folder) / "evidence", jobs()[0]
    shutil.rmtree(place, ignore_errors=True)
    (place / "objects").mkdir(parents=True)
    write_whole(place / "federation.toml", MEMBERSHIP.data)
    write_signatures(place / "federation.sigs", MEMBERSHIP.signatures)
    write_whole(place / "job.toml", of.data)
    write_whole(place / "receiver", f"{RECEIVER}\n".encode())
    write_whole(place / "result.key", SEALING[0].to_bytes())
    items = [item for item in story(of) if item.header.kind not in ("envelope", "erased")]
    for item in items:
        write_whole(place / "objects" / item.digest[:16], item.data)
    write_whole(place / "contents", "".join(f"{digest}\n" for digest in sorted(i.digest for i in items)).encode())
    return sorted(path for path in place.rglob("*") if path.is_file())


def feed_evidence(content: bytes, number: int, folder: Path) -> None:
    """One file of the folder is replaced, and put back."""
    paths = _evidence(str(folder))
    path = paths[number % len(paths)]
    before = path.read_bytes()
    path.write_bytes(content)
    try:
        Evidence.load(folder / "evidence").check()
    finally:
        path.write_bytes(before)


def evidence_seeds() -> list[bytes]:
    with tempfile.TemporaryDirectory() as name:
        return [path.read_bytes() for path in _evidence.__wrapped__(name)]


# -- requests to a server


class Faults(logging.Handler):
    """Requests that the server could not answer properly. A request that is not HTTP is not its fault."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        kind = record.exc_info[0] if record.exc_info else None
        if kind is not None and not issubclass(kind, http_exceptions.HttpProcessingError):
            self.found.append(f"{kind.__name__}: {record.getMessage()}")


class ApiServer:
    """A server with a job, served with real TLS by a thread of this process."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ppca-fuzz-server-"))
        self.port = free_ports(1)[0]
        self.membership = membership(self.port)
        self._write_files()
        self.server_state = ServerState(ServerSettings.load(self.folder))
        self.job = jobs(self.membership)[0]
        self.items = story(self.job)
        for item in self.items[:9]:
            self.server_state.admit(item, item.header.author)
        self.faults = Faults()
        logger = logging.getLogger("aiohttp.server")
        logger.addHandler(self.faults)
        logger.propagate = False
        tls = PinnedTls(issue_leaf("north", KEYS["north"]), self.membership.keys, self.membership.operators)
        self._context = tls.context(dialing=True)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        asyncio.run_coroutine_threadsafe(self._serve(), self._loop).result(30)

    def _write_files(self) -> None:
        pem = KEYS["alpha"].private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        write_whole(self.folder / KEY_FILE, b"ppca identity of alpha\n" + pem, 0o600)
        write_whole(self.folder / "federation.toml", self.membership.data)
        write_signatures(self.folder / "federation.sigs", self.membership.signatures)
        fast = b"\n[policy]\nrequests_per_second = 1000000.0\n"
        plain = b'server = 0\nfederation = "federation.toml"\nidentity = "identity.key"\n[store]\npath = "store"\n'
        write_whole(self.folder / "server.toml", plain + fast)

    async def _serve(self) -> None:
        self.server_state.attend(self._loop)
        runner = web.AppRunner(Api(self.server_state, None).application(), access_log=None, auto_decompress=False)  # type: ignore[arg-type]
        await runner.setup()
        assert runner.server is not None
        context = self.server_state.tls.context(dialing=False)
        self._server = await self._loop.create_server(runner.server, "127.0.0.1", self.port, ssl=context)

    def say(self, content: bytes, seconds: float = GLANCE) -> bytes:
        """Say anything on a new connection; what was answered within some time."""
        with socket.create_connection(("127.0.0.1", self.port), 10) as sock, self._context.wrap_socket(sock) as tls:
            try:
                tls.sendall(content)
                tls.settimeout(seconds)
                return tls.recv(1 << 16)
            except (TimeoutError, ssl.SSLError, ConnectionError):
                return b""

    def requests(self) -> list[bytes]:
        """Good requests."""
        item, late = self.items[0], self.items[9]
        put = b"PUT /v1/objects/%s HTTP/1.1\r\nHost: server\r\nContent-Length: %d\r\n\r\n"
        job = self.job.id.encode()
        heads = [b"hello", b"jobs", b"jobs/" + job + b"/objects?after=3", b"objects/" + item.digest.encode()]
        heads += [b"events?after=2", b"inventory", b"restore/" + job + b"/north", b"restore-model/" + job]
        found = [b"GET /v1/%s HTTP/1.1\r\nHost: server\r\nAccept: */*\r\n\r\n" % head for head in heads]
        found.append(b"HEAD /v1/objects/%s HTTP/1.1\r\nHost: server\r\n\r\n" % item.digest.encode())
        found.append(put % (late.digest.encode(), len(late.data)) + late.data)
        chunked = put.replace(b"Content-Length: %d", b"Transfer-Encoding: chunked")
        body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(late.data), late.data)
        return [*found, chunked % late.digest.encode() + body]


@functools.lru_cache(maxsize=1)
def api_server() -> ApiServer:
    return ApiServer()


def feed_api(content: bytes, number: int, folder: Path) -> None:
    """A request, or something like it; every hundredth time the server must still greet."""
    server = api_server()
    answer = server.say(content)
    if answer.startswith(b"HTTP/1.1 500"):
        raise RuntimeError(answer[:100].decode(errors="replace"))
    if server.faults.found:
        raise RuntimeError(f"the server failed: {server.faults.found.pop()}")
    if number % 100 == 0 and b" 200 OK" not in server.say(b"GET /v1/hello HTTP/1.1\r\nHost: server\r\n\r\n", 10.0):
        raise RuntimeError("the server does not answer any more")


REFUSED = (FederationError,)
TARGETS = {
    "objects": Target(object_seeds, feed_object, REFUSED, 9),
    "signed objects": Target(admission_seeds, feed_admission, REFUSED, 5, structured=True),
    "federation files": Target(lambda: [MEMBERSHIP.data], feed_membership, REFUSED, 6),
    "job files": Target(lambda: [each.data for each in jobs()], feed_job, REFUSED, 8),
    "jobs": Target(job_table_seeds, feed_job_tables, REFUSED, 6, structured=True),
    "server files": Target(server_seeds, feed_server, REFUSED, 4),
    "signatures": Target(signature_seeds, feed_signatures, REFUSED, 4, structured=True),
    "envelopes": Target(
        envelope_seeds, feed_envelope, (*REFUSED, InputRefused), 3, structured=True
    ),  # without `checked`
    "contributions": Target(contribution_seeds, feed_contribution, REFUSED, 3, structured=True),
    "databases of servers": Target(store_seeds, feed_store, (), 1),
    "records": Target(record_seeds, feed_record, REFUSED, 3, structured=True),
    "evidence": Target(evidence_seeds, feed_evidence, REFUSED, 2),
    "requests to a server": Target(lambda: api_server().requests(), feed_api, (), 4),
}
"""The number beside each is its part of all inputs, in hundredths."""
