"""A seat's door over real TLS: who gets in, what each may see, and what badly made requests do to it: nothing."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from harness.federation import (
    IDENTITIES,
    OWNERS,
    RECEIVER,
    Loop,
    contribution,
    free_port,
    job,
    make,
    office,
    put_roster,
    roster,
    served,
    story,
)
from ppca.federation.errors import NotReached
from ppca.federation.objects import MOST_BYTES, Object, sha256
from ppca.federation.roster import Roster
from ppca.member.seats import SeatClient
from ppca.seat import api as module
from ppca.seat.api import Api
from ppca.seat.office import Office
from ppca.seat.uploads import PER_MEMBER, Uploads
from ppca.transport import Leaf, issue_leaf
from ppca.transport.pinned import PinnedTls


@pytest.fixture(scope="module")
def loop() -> Iterator[Loop]:
    running = Loop()
    yield running
    running.close()


class Seat:
    """One seat that serves, and clients of it."""

    def __init__(self, folder: Path, loop: Loop, **tables: Any) -> None:
        self.folder, self.loop = folder, loop
        self.port = free_port()
        self.roster = roster(ports=[self.port, 1, 2, 3])
        self.office: Office = office(folder, self.roster, **tables)
        self.job = job(self.roster)
        self.story = story(self.job)

    def client(self, name: str, leaf: Leaf | None = None, federation: Roster | None = None) -> SeatClient:
        known = federation or self.roster
        identity = IDENTITIES[name]
        tls = PinnedTls(leaf or issue_leaf(name, identity.key), known.keys, known.operators)
        return SeatClient(known, 0, lambda: tls)

    def tell(self, *items: Object) -> None:
        for item in items:
            self.office.admit(item, item.header.author)

    def raw(self, name: str | None, leaf: Leaf | None = None) -> ssl.SSLSocket:
        """A connection on which anything can be said. name: None for no certificate."""
        if name is None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        else:
            tls = PinnedTls(
                leaf or issue_leaf(name, IDENTITIES[name].key), self.roster.keys | {name: IDENTITIES[name].public}
            )
            context = tls.context(dialing=True)
        sock = socket.create_connection(("127.0.0.1", self.port), 5)
        return context.wrap_socket(sock)


@pytest.fixture
def seat(tmp_path: Path, loop: Loop) -> Iterator[Seat]:
    made = Seat(tmp_path / "seat", loop)
    with served(made.office, loop):
        yield made


def asked(sock: ssl.SSLSocket, request: bytes) -> bytes:
    """What is answered until the other end hangs up or nothing comes any more."""
    sock.settimeout(3)
    found = b""
    try:
        sock.sendall(request)
        while data := sock.recv(1 << 16):
            found += data
            if b"\r\n\r\n" in found and b"chunked" not in found:
                break
    except (TimeoutError, ssl.SSLError, OSError):
        pass
    return found


HELLO = b"GET /v1/hello HTTP/1.1\r\nHost: x\r\n\r\n"


# -- who gets in -----------------------------------------------------------------------------------------------------


def test_a_member_is_greeted(seat: Seat) -> None:
    status, data = seat.client("north").request("GET", "/v1/hello")
    assert status == 200
    found = json.loads(data)
    assert (found["you"], found["member"], found["digest"]) == ("north", "alpha", seat.roster.digest)


def test_without_a_certificate_nobody_is_answered(seat: Seat) -> None:
    assert asked(seat.raw(None), HELLO) == b""


def test_an_outsiders_key_is_not_answered(seat: Seat) -> None:
    assert asked(seat.raw("nobody"), HELLO) == b""


def test_a_members_name_with_another_key_is_not_answered(seat: Seat) -> None:
    leaf = issue_leaf("north", IDENTITIES["nobody"].key)
    tls = PinnedTls(leaf, {"alpha": IDENTITIES["alpha"].public, "north": IDENTITIES["nobody"].public})
    sock = tls.context(dialing=True).wrap_socket(socket.create_connection(("127.0.0.1", seat.port), 5))
    assert asked(sock, HELLO) == b""


def test_plain_http_is_not_answered(seat: Seat) -> None:
    with socket.create_connection(("127.0.0.1", seat.port), 5) as sock:
        sock.settimeout(3)
        sock.sendall(HELLO)
        with contextlib.suppress(OSError):
            assert b"200" not in sock.recv(1000)


def test_an_expired_leaf_is_refused(seat: Seat) -> None:
    old = issue_leaf("north", IDENTITIES["north"].key, start=datetime.now(UTC) - timedelta(days=3))
    with pytest.raises(NotReached, match="issue a new one"):
        seat.client("north", old).request("GET", "/v1/hello")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    from ppca.transport.pinned import _load_leaf

    _load_leaf(context, old)
    sock = context.wrap_socket(socket.create_connection(("127.0.0.1", seat.port), 5))
    assert asked(sock, HELLO) == b""


def test_a_leaf_that_expires_on_a_standing_connection(seat: Seat) -> None:
    client = seat.client("north", issue_leaf("north", IDENTITIES["north"].key, timedelta(seconds=3)))
    assert client.request("GET", "/v1/hello")[0] == 200
    connection = client._connection
    time.sleep(3.1)
    assert connection is not None
    connection.request("GET", "/v1/hello")
    answer = connection.getresponse()
    assert answer.status == 403
    assert "too old" in json.loads(answer.read())["error"]


def renewed(seat: Seat, new: Roster) -> None:
    put_roster(seat.folder, new)
    assert seat.office.renew()
    seat.office.renew_tls()


def test_a_removed_member_is_out_on_the_same_connection(seat: Seat) -> None:
    client = seat.client("north")
    assert client.request("GET", "/v1/hello")[0] == 200
    renewed(seat, roster(2, left_out=("north",), ports=[seat.port, 1, 2, 3]))
    status, data = client.request("GET", "/v1/hello")
    assert status == 403
    assert "north" in json.loads(data)["error"]
    assert seat.client("south").request("GET", "/v1/hello")[0] == 200


def test_a_new_key_puts_out_who_has_the_old_one(seat: Seat) -> None:
    """A stolen key is of no use from the moment on that another one is pinned, not even on connections that stand."""
    client = seat.client("north")
    assert client.request("GET", "/v1/hello")[0] == 200
    from ppca.federation.identity import key_text

    members = tuple(
        m.model_dump() | ({"key": key_text(IDENTITIES["nobody"].public)} if m.name == "north" else {})
        for m in seat.roster.file.member
    )
    renewed(seat, roster(2, member=members, ports=[seat.port, 1, 2, 3]))
    assert client.request("GET", "/v1/hello")[0] == 403


def test_a_stream_of_news_ends_with_the_membership(seat: Seat) -> None:
    client = seat.client("north")
    stream = client.events()
    seat.tell(seat.story[0])
    assert next(stream)[0] == "object"
    renewed(seat, roster(2, left_out=("north",), ports=[seat.port, 1, 2, 3]))
    seat.office.show(seat.job.id, "half", 0.5, 1)
    assert [kind for kind, _ in stream if kind in ("object", "progress")] == []


def test_an_older_or_unsigned_federation_changes_nothing(seat: Seat) -> None:
    ports = [seat.port, 1, 2, 3]
    renewed(seat, roster(3, ports=ports))
    for worse in (
        roster(2, ports=ports),
        roster(3, ports=ports, left_out=("west",)),
        Roster(roster(4, ports=ports).data, {}),
    ):
        put_roster(seat.folder, worse)
        assert not seat.office.renew()
        assert seat.office.roster.revision == 3


# -- what each may see -----------------------------------------------------------------------------------------------


def test_who_has_no_part_in_a_job_sees_nothing_of_it(seat: Seat) -> None:
    seat.tell(*seat.story)
    outside, inside = seat.client("visitor"), seat.client("north")
    for item in seat.story:
        path = f"/v1/objects/{item.digest}"
        assert outside.request("GET", path)[0] == outside.request("HEAD", path)[0] == 404
        assert inside.request("HEAD", path)[0] == 200
    assert inside.request("GET", f"/v1/objects/{seat.story[0].digest}") == (200, seat.story[0].data)
    assert outside.request("GET", f"/v1/jobs/{seat.job.id}/objects")[0] == 404
    assert json.loads(outside.request("GET", "/v1/jobs")[1]) == []
    assert len(json.loads(inside.request("GET", "/v1/jobs")[1])) == 1
    told = outside.events()
    assert next(told)[0] == "place", "it learns how many objects there are, and nothing of them"


def test_owners_do_not_read_each_others_jobs(seat: Seat) -> None:
    other = job(seat.roster, "other", owners=("spare", "visitor", "west"), receivers={"spare": ["model"]})
    item = make("spare", "job", other, other.data)
    seat.tell(item, seat.story[0])
    north = seat.client("north")
    assert north.request("GET", f"/v1/objects/{item.digest}")[0] == 404
    assert [each["id"] for each in json.loads(north.request("GET", "/v1/jobs")[1])] == [seat.job.id]
    assert len(json.loads(seat.client("west").request("GET", "/v1/jobs")[1])) == 2


@pytest.mark.parametrize("path", ["/v1/inventory", "/v1/restore/{job}/north", "/v1/restore-model/{job}"])
def test_what_only_seats_get(path: str, seat: Seat) -> None:
    seat.tell(*seat.story)
    for name in (*OWNERS, RECEIVER, "visitor"):
        status, data = seat.client(name).request("GET", path.format(job=seat.job.id))
        assert status == 409
        assert "only seats" in json.loads(data)["error"]


def test_shares_are_not_restored_to_the_diagonal(seat: Seat) -> None:
    seat.tell(*seat.story)
    status, data = seat.client("delta").request("GET", f"/v1/restore/{seat.job.id}/north")
    assert status == 409
    assert "no shares in common" in json.loads(data)["error"]


def test_headers_come_with_the_bytes_that_decide(seat: Seat) -> None:
    seat.tell(*seat.story)
    found = json.loads(seat.client("north").request("GET", f"/v1/jobs/{seat.job.id}/objects")[1])["objects"]
    assert {each["kind"] for each in found if "data" not in each} == {"envelope"}
    last = found[-1]["seq"]
    more = json.loads(seat.client("north").request("GET", f"/v1/jobs/{seat.job.id}/objects?after={last}")[1])
    assert more["objects"] == []


# -- putting ---------------------------------------------------------------------------------------------------------


def put(client: SeatClient, item: Object, digest: str | None = None) -> tuple[int, str]:
    status, data = client.request("PUT", f"/v1/objects/{digest or item.digest}", item.data)
    return status, json.loads(data)["error"] if status > 299 else ""


def test_put_and_put_again(seat: Seat) -> None:
    client = seat.client(RECEIVER)
    assert put(client, seat.story[0]) == (201, "")
    assert put(client, seat.story[0]) == (200, "")


def test_after_erasure_an_object_is_gone_and_not_wanted_again(seat: Seat) -> None:
    sent = contribution(seat.job, "north")
    seat.tell(*seat.story[:9], *sent)
    seat.office.mailbox.drop(seat.job.id, ["envelope"])
    client = seat.client("north")
    path = f"/v1/objects/{sent[0].digest}"
    assert client.request("HEAD", path)[0] == 410
    assert client.request("GET", path)[0] == 410
    assert put(client, sent[0]) == (200, "")
    assert client.request("GET", path)[0] == 410


@pytest.mark.parametrize("digest", ["x", "0" * 63, "0" * 65, "A" * 64, "..%2f..%2fetc", "%00" * 10, "0" * 63 + "%0a"])
def test_names_that_are_no_digests(digest: str, seat: Seat) -> None:
    client = seat.client("north")
    assert client.request("PUT", f"/v1/objects/{digest}", b"x")[0] in (400, 404)
    assert client.request("GET", f"/v1/objects/{digest}")[0] == 404
    assert client.request("GET", f"/v1/jobs/{digest}/objects")[0] == 404


def test_content_that_has_another_digest(seat: Seat) -> None:
    status, why = put(seat.client(RECEIVER), seat.story[0], "0" * 64)
    assert status == 400
    assert "send it again" in why
    assert seat.office.mailbox.jobs() == []


def test_refusals_say_why(seat: Seat) -> None:
    status, why = put(seat.client("north"), seat.story[0])
    assert status == 409
    assert "members bring their own" in why
    status, why = put(seat.client("north"), make("north", "approval", seat.job))
    assert status == 503
    assert "submit it first" in why
    junk = b"no object at all"
    status, data = seat.client("north").request("PUT", f"/v1/objects/{sha256(junk)}", junk)
    assert (status, "no object" in json.loads(data)["error"]) == (409, True)


def test_a_body_that_is_too_long(seat: Seat) -> None:
    big = MOST_BYTES + 1
    head = f"PUT /v1/objects/{'0' * 64} HTTP/1.1\r\nHost: x\r\nContent-Length: {big}\r\n\r\n".encode()
    assert b" 413 " in asked(seat.raw("north"), head)
    chunk = b"40000\r\n" + bytes(0x40000) + b"\r\n"
    head = f"PUT /v1/objects/{'0' * 64} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    assert b" 413 " in asked(seat.raw("north"), head + chunk * (big // 0x40000 + 2) + b"0\r\n\r\n")


def test_compressed_bodies_are_not_unpacked(seat: Seat) -> None:
    import gzip

    body = gzip.compress(bytes(1 << 22))
    head = f"PUT /v1/objects/{sha256(body)} HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: {len(body)}\r\n\r\n"
    assert b" 409 " in asked(seat.raw("north"), head.encode() + body), "the bytes as they came are no object"


def test_slow_bodies_end_and_keep_nobody_out(tmp_path: Path, loop: Loop) -> None:
    seat = Seat(tmp_path / "slow", loop)

    def impatient(api: Api) -> None:
        api._uploads = Uploads(tmp_path, seconds=2)

    with served(seat.office, loop, impatient):
        head = f"PUT /v1/objects/{'0' * 64} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nsome".encode()
        slow = [seat.raw("north") for _ in range(PER_MEMBER)]
        for sock in slow:
            sock.sendall(head)
        time.sleep(0.5)
        one_more = seat.raw("north")
        assert b" 429 " in asked(one_more, head)
        assert put(seat.client(RECEIVER), seat.story[0]) == (201, ""), "others are served"
        for sock in slow:
            sock.settimeout(5)
            assert b" 408 " in sock.recv(1000)
        assert b" 400 " in asked(seat.raw("north"), head.replace(b"1000", b"4")), "it may send again"


def test_half_a_body_leaves_nothing(seat: Seat) -> None:
    item = seat.story[0]
    sock = seat.raw(RECEIVER)
    sock.sendall(
        f"PUT /v1/objects/{item.digest} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(item.data)}\r\n\r\n".encode()
    )
    sock.sendall(item.data[:-1])
    sock.close()
    time.sleep(0.3)
    assert seat.office.mailbox.jobs() == []
    assert put(seat.client(RECEIVER), item) == (201, "")


def test_a_full_disk_is_told(seat: Seat, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> bool:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(seat.office.mailbox, "put", full)
    status, why = put(seat.client(RECEIVER), seat.story[0])
    assert (status, "try again later" in why) == (507, True)


# -- manners ---------------------------------------------------------------------------------------------------------


def test_too_many_requests_of_one_member(tmp_path: Path, loop: Loop) -> None:
    seat = Seat(tmp_path / "rate", loop, policy={"requests_per_second": 2.0})
    with served(seat.office, loop):
        client = seat.client("north")
        statuses = [client.request("GET", "/v1/hello")[0] for _ in range(30)]
        assert statuses[:20] == [200] * 20
        assert 429 in statuses[20:]
        assert seat.client("south").request("GET", "/v1/hello")[0] == 200, "others are served"
        beta = seat.client("beta")
        assert {beta.request("GET", "/v1/hello")[0] for _ in range(40)} == {200}, "seats are not counted"


def test_too_many_streams_of_one_member(seat: Seat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STREAMS", 2)
    seat.tell(seat.story[0])
    streams = [seat.client("north").events() for _ in range(2)]
    assert [next(each)[0] for each in streams] == ["object", "object"]
    assert seat.client("north").request("GET", "/v1/events")[0] == 429
    other = seat.client("south").events()
    assert next(other)[0] == "object"


@pytest.mark.parametrize("after", ["-1", "x", "1e3", "9" * 40, "%00", "1%0a", "٣", ""])
def test_places_that_are_none(after: str, seat: Seat) -> None:
    seat.tell(seat.story[0])
    from urllib.parse import quote

    place = after if "%" in after else quote(after)
    for path in (f"/v1/events?after={place}", f"/v1/jobs/{seat.job.id}/objects?after={place}"):
        assert seat.client("north").request("GET", path)[0] == 400


@pytest.mark.parametrize(
    "request_line",
    [
        b"GET /v1/../../etc/passwd HTTP/1.1",
        b"GET /v1/objects/../../records.db HTTP/1.1",
        b"DELETE /v1/jobs HTTP/1.1",
        b"POST /v1/objects/" + b"0" * 64 + b" HTTP/1.1",
        b"PATCH / HTTP/1.1",
        b"BREW /v1/hello HTTP/1.1",
        b"GET http://elsewhere/v1/hello HTTP/1.1",
        b"GET /v1/hello HTTP/9.9",
        b"GET",
        b"\x16\x03\x01",
        b"GET /" + b"a" * 20000 + b" HTTP/1.1",
        b"CONNECT alpha:443 HTTP/1.1",
        b"OPTIONS * HTTP/1.1",
    ],
)
def test_requests_that_are_none(request_line: bytes, seat: Seat) -> None:
    answer = asked(seat.raw("north"), request_line + b"\r\nHost: x\r\n\r\n")
    assert b" 500 " not in answer[:20]
    assert b"root:" not in answer
    assert b"SQLite" not in answer
    assert seat.client("north").request("GET", "/v1/hello")[0] == 200


def test_idle_connections_are_hung_up_on(tmp_path: Path, loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE", 1.2)
    from aiohttp import web

    seat = Seat(tmp_path / "idle", loop)
    kept: list[Api] = []
    tasks: list[Any] = []
    with served(seat.office, loop, kept.append):

        async def sweep() -> None:
            import gc

            (server,) = [each for each in gc.get_objects() if isinstance(each, web.Server) and each.connections]
            tasks.append(loop.loop.create_task(kept[0].sweep(server)))

        silent, half = seat.raw("north"), seat.raw("north")
        half.sendall(b"GET /v1/hel")
        stream = seat.client("north").events()
        seat.tell(seat.story[0])
        assert next(stream)[0] == "object"
        loop.run(sweep())
        for sock in (silent, half):
            sock.settimeout(5)
            assert sock.recv(100) == b""
        seat.tell(seat.story[1])
        assert [next(stream)[0] for _ in range(3)] == ["place", "object", "place"], "in use, not idle"


def test_an_identity_of_another_is_not_believed(seat: Seat) -> None:
    """A member with a right key cannot be another one, whatever its leaf says."""
    with pytest.raises(NotReached, match="is not the one pinned for 'south'"):
        seat.client("south", issue_leaf("south", IDENTITIES["north"].key)).request("GET", "/v1/hello")
