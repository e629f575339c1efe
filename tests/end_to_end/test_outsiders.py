"""Whoever should not get in, one after the other, at four servers that are processes with a job under way.

Nothing is answered, nothing counts, the servers stay up and small, and the job ends with the right result. What a program opens
without an approval is tried in tests/server/test_attempt.py: no file of a job can ask for it.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from benchmarks.field import Field
from benchmarks.jobs import fit_job
from ppca.federation.identity import Identity
from ppca.federation.objects import MAX_BYTES, Object, sha256
from ppca.federation.proposal import ProposedJob
from ppca.member import MemberClient
from ppca.member.connections import ServerClient
from ppca.member.contributing import contribute
from ppca.member.fetching import Evidence
from ppca.transport import Leaf, issue_leaf
from ppca.transport.pinned import PinnedTls, _load_leaf
from ppca.transport.routes import preamble, route_of

pytestmark = pytest.mark.processes
OWNERS = ("north", "south", "west")
COLUMNS = ["a", "b", "c"]
PATIENCE = 240.0
TABLES = {owner: np.random.default_rng(i).standard_normal((30, 3)) for i, owner in enumerate(OWNERS)}
STRANGER = Identity("stranger", Ed25519PrivateKey.generate())
HELLO = b"GET /v1/hello HTTP/1.1\r\nHost: server\r\n\r\n"
GROWTH = 100 << 20
"""Bytes that a server may grow by, whatever it is sent: less than twice the largest object."""


class Besieged:
    """Four servers, a job that one owner has approved, and everyone that wants in."""

    def __init__(self, folder: Path) -> None:
        self.field = Field(folder, (*OWNERS, "gone"), ("analyst", "visitor"))
        self.field.start()
        self.field.write_membership(2, left_out=("gone",))
        await_that(lambda: all(self.answer_to("south", seat)["revision"] == 2 for seat in range(4)))
        self.job = self.draft("besieged")
        self.field.member("analyst").submit(self.job)
        self.field.member("north").approve(self.job)
        self.approval = next(
            item for item in self.field.member("north").objects(self.job).of("approval") if item.author == "north"
        )
        self.before = [self.memory(seat) for seat in range(4)]

    def draft(self, name: str, components: int = 2) -> ProposedJob:
        membership = self.field.member("analyst").membership
        return fit_job(membership, name, OWNERS, COLUMNS, {"analyst": ["model"]}, components=components)

    def memory(self, seat: int) -> int:
        process = self.field.processes[seat]
        assert process is not None
        return int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def client(self, name: str, seat: int = 0) -> ServerClient:
        """A member, or who was one, as its own software reaches a server."""
        membership, identity = self.field.member("north").membership, self.field.identities[name]
        tls = PinnedTls(issue_leaf(name, identity.key), membership.keys | {name: identity.public}, membership.operators)
        return ServerClient(membership, seat, lambda: tls)

    def answer_to(self, name: str, seat: int) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.client(name, seat).request("GET", "/v1/hello")[1])
        return found

    def put(self, name: str, data: bytes, digest: str | None = None) -> tuple[int, str]:
        status, said = self.client(name).request("PUT", f"/v1/objects/{digest or sha256(data)}", data)
        return status, said.decode()

    def say(self, leaf: Leaf | None, request: bytes, *, port: int = 0, patience: float = 5.0) -> bytes:
        """Anything, over TLS with any certificate or none; what is answered."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if leaf is not None:
            _load_leaf(context, leaf)
        found = b""
        with contextlib.suppress(OSError):
            address = ("127.0.0.1", self.field.ports[0][port])
            with socket.create_connection(address, PATIENCE) as sock, context.wrap_socket(sock) as tls:
                tls.settimeout(patience)
                tls.sendall(request)
                while data := tls.recv(1 << 16):
                    found += data
                    if b"\r\n\r\n" in found:
                        break
        return found


def await_that(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.fixture(scope="module")
def seats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Besieged]:
    made = Besieged(tmp_path_factory.mktemp("besieged"))
    try:
        yield made
    finally:
        made.field.stop()


def leaf_of(seats: Besieged, case: str) -> Leaf | None:
    north, visitor = seats.field.identities["north"].key, seats.field.identities["visitor"].key
    return {
        "no key": lambda: None,
        "a key that nobody pinned": lambda: issue_leaf("stranger", STRANGER.key),
        "a member's name, another key": lambda: issue_leaf("north", STRANGER.key),
        "another member's name": lambda: issue_leaf("north", visitor),
        "an operator's name": lambda: issue_leaf("alpha", visitor),
        "a leaf that has expired": lambda: issue_leaf("north", north, start=datetime.now(UTC) - timedelta(days=3)),
        "a leaf of tomorrow": lambda: issue_leaf("north", north, start=datetime.now(UTC) + timedelta(days=1)),
        "a member that was removed": lambda: issue_leaf("gone", seats.field.identities["gone"].key),
    }[case]()


@pytest.mark.parametrize(
    "case",
    [
        "no key",
        "a key that nobody pinned",
        "a member's name, another key",
        "another member's name",
        "an operator's name",
        "a leaf that has expired",
        "a leaf of tomorrow",
        "a member that was removed",
    ],
)
def test_who_is_not_answered(case: str, seats: Besieged) -> None:
    assert b"200 OK" in seats.say(issue_leaf("north", seats.field.identities["north"].key), HELLO, patience=30)
    answer = seats.say(leaf_of(seats, case), HELLO)
    assert b"200" not in answer
    assert b"digest" not in answer


WRONG_ROLES = [
    ("analyst", "approval", {}),
    ("visitor", "approval", {}),
    ("north", "start", {"attempt": 1}),
    ("analyst", "ended", {"attempt": 1, "outcome": "failed", "final": True, "why": "so"}),
    ("visitor", "cancel", {}),
    ("analyst", "receipt", {"owner": "north", "contribution": "0" * 64}),
    ("north", "erased", {"what": "job"}),
]


@pytest.mark.parametrize(("who", "kind", "about"), WRONG_ROLES)
def test_a_member_in_a_role_it_has_not(who: str, kind: str, about: dict[str, object], seats: Besieged) -> None:
    made = Object.make(seats.field.identities[who], kind, seats.job.id, b"", **about)
    status, said = seats.put(who, made.data)
    assert (status, "error" in said) == (409, True)


@pytest.mark.parametrize("path", ["/v1/inventory", "/v1/restore/{job}/north", "/v1/restore-model/{job}"])
def test_what_only_servers_ask_for(path: str, seats: Besieged) -> None:
    assert seats.client("analyst").request("GET", path.format(job=seats.job.id))[0] == 409


def test_who_has_no_part_in_the_job_sees_nothing_of_it(seats: Besieged) -> None:
    assert seats.client("visitor").request("GET", f"/v1/jobs/{seats.job.id}/objects")[0] == 404
    assert seats.client("visitor").request("GET", f"/v1/objects/{seats.approval.digest}")[0] == 404
    assert json.loads(seats.client("visitor").request("GET", "/v1/jobs")[1]) == []


def test_approvals_that_were_altered_or_replayed(seats: Besieged) -> None:
    """For another job, by somebody else, or under another name: an approval is one word of one owner about one file."""
    other = seats.draft("besieged", components=1)
    seats.field.member("analyst").submit(other)
    data = seats.field.member("north").servers.get(seats.approval).data
    altered = data.replace(seats.job.id.encode(), other.id.encode())
    assert altered != data
    assert seats.put("north", altered)[0] == 409
    assert seats.put("south", data.replace(b'"north"', b'"south"'))[0] == 409
    assert seats.put("analyst", altered)[0] == 409
    assert seats.put("north", data, sha256(altered))[0] == 400
    assert seats.put("north", data)[0] == 200  # again does no harm: it is there already
    waiting = {(item.actor, item.what) for item in seats.field.member("analyst").job_state(other).waiting}
    assert {(owner, "approve (ppca approve)") for owner in OWNERS} <= waiting


def test_a_job_that_was_altered_after_its_approval(seats: Besieged) -> None:
    """A job with another parameter is another job, which no one has approved. It is not accepted under the approved digest."""
    data = seats.job.data.replace(b"components = 2", b"components = 1")
    assert data != seats.job.data
    altered = ProposedJob(data)
    assert altered.id != seats.job.id
    made = Object.make(seats.field.identities["analyst"], "job", seats.job.id, data)
    assert seats.put("analyst", made.data)[0] == 409
    owner = seats.field.member("north")
    owner.submit(altered)
    assert ("north", "approve (ppca approve)") in {(item.actor, item.what) for item in owner.job_state(altered).waiting}


NORTH = {
    "a body that is too long": b"PUT /v1/objects/%s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
    % (b"0" * 64, MAX_BYTES + 1),
    "a body without an end": b"PUT /v1/objects/%s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFF\r\n"
    % (b"0" * 64),
    "a head without an end": b"GET /v1/hello HTTP/1.1\r\nHost: x\r\nX: " + b"x" * (1 << 22),
    "a path without an end": b"GET /" + b"x" * (1 << 22),
    "a path out of the folder": b"GET /v1/objects/../../keys HTTP/1.1\r\nHost: x\r\n\r\n",
    "no request at all": os.urandom(1 << 16),
}


@pytest.mark.parametrize("case", NORTH)
def test_requests_of_a_member_that_are_too_long_or_none(case: str, seats: Besieged) -> None:
    answer = seats.say(issue_leaf("north", seats.field.identities["north"].key), NORTH[case], patience=1)
    assert b" 200 " not in answer.split(b"\r\n")[0]
    assert b"500" not in answer.split(b"\r\n")[0]


@pytest.mark.parametrize("frame", [b"", b"\xff" * 64, os.urandom(1 << 20)], ids=["silence", "huge lengths", "noise"])
def test_frames_on_the_mesh_port(frame: bytes, seats: Besieged) -> None:
    """With and without the words that lead to a run; no one gets as far as a frame without a server's key."""
    for words in (b"", preamble(1, route_of(b"no such run")), preamble(1, b"\0" * 32)):
        with socket.create_connection(("127.0.0.1", seats.field.ports[0][1]), PATIENCE) as sock:
            sock.settimeout(0.3)
            with contextlib.suppress(OSError):
                sock.sendall(words + frame)
                assert sock.recv(100) == b""
    assert seats.say(issue_leaf("north", seats.field.identities["north"].key), HELLO, port=1) == b""


def test_the_servers_are_up_and_small_and_the_job_ends_well(seats: Besieged, tmp_path: Path) -> None:
    await_that(lambda: [seats.field.health(seat) for seat in range(4)] == [3, 3, 3, 3])
    assert max(seats.memory(seat) - before for seat, before in enumerate(seats.before)) < GROWTH
    for owner in OWNERS[1:]:
        seats.field.member(owner).approve(seats.job)
    for owner, table in TABLES.items():
        path = tmp_path / f"{owner}.csv"
        np.savetxt(path, table, delimiter=",", header=",".join(COLUMNS), comments="", fmt="%.17g")
        contribute(seats.field.member(owner), seats.job, path)
    analyst: MemberClient = seats.field.member("analyst")
    *_, (job_state, _) = analyst.watch(seats.job, PATIENCE)
    assert job_state.done, job_state
    evidence = Evidence.gather(analyst, seats.job)
    evidence.check()
    truth = np.linalg.eigvalsh(np.cov(np.concatenate(list(TABLES.values())).T))[::-1]
    assert np.abs(evidence.result().model.explained_variance - truth[:2]).max() < 1e-8 * truth[0]
