"""Putting objects at a server's admission over real TLS, and what badly made requests do to it: nothing."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.federation import IDENTITIES, RECEIVER, Loop, contribution, make, served
from harness.one_server import OneServer, asked
from harness.waiting import PATIENCE, until
from ppca.federation.errors import NotReached
from ppca.federation.objects import MAX_BYTES, Object, sha256
from ppca.member.connections import ServerClient
from ppca.server import api as module
from ppca.server.api import Api
from ppca.server.uploads import PER_MEMBER
from ppca.transport import issue_leaf

# -- putting ---------------------------------------------------------------------------------------------------------


def put(client: ServerClient, item: Object, digest: str | None = None) -> tuple[int, str]:
    status, data = client.request("PUT", f"/v1/objects/{digest or item.digest}", item.data)
    return status, json.loads(data)["error"] if status > 299 else ""


def test_put_and_put_again(seat: OneServer) -> None:
    client = seat.client(RECEIVER)
    assert put(client, seat.story[0]) == (201, "")
    assert put(client, seat.story[0]) == (200, "")


def test_after_erasure_an_object_is_gone_and_not_wanted_again(seat: OneServer) -> None:
    sent = contribution(seat.job, "north")
    seat.tell(*seat.story[:9], *sent)
    seat.server_state.mailbox.drop(seat.job.id, ["envelope"])
    client = seat.client("north")
    path = f"/v1/objects/{sent[0].digest}"
    assert client.request("HEAD", path)[0] == 410
    assert client.request("GET", path)[0] == 410
    assert put(client, sent[0]) == (200, "")
    assert client.request("GET", path)[0] == 410


@pytest.mark.parametrize("digest", ["x", "0" * 63, "0" * 65, "A" * 64, "..%2f..%2fetc", "%00" * 10, "0" * 63 + "%0a"])
def test_names_that_are_no_digests(digest: str, seat: OneServer) -> None:
    client = seat.client("north")
    assert client.request("PUT", f"/v1/objects/{digest}", b"x")[0] in (400, 404)
    assert client.request("GET", f"/v1/objects/{digest}")[0] == 404
    assert client.request("GET", f"/v1/jobs/{digest}/objects")[0] == 404


def test_content_that_has_another_digest(seat: OneServer) -> None:
    status, why = put(seat.client(RECEIVER), seat.story[0], "0" * 64)
    assert status == 400
    assert "send it again" in why
    assert seat.server_state.mailbox.jobs() == []


def test_refusals_say_why(seat: OneServer) -> None:
    status, why = put(seat.client("north"), seat.story[0])
    assert status == 409
    assert "A member may send its own objects only" in why
    status, why = put(seat.client("north"), make("north", "approval", seat.job))
    assert status == 503
    assert "Submit it first" in why
    junk = b"no object at all"
    status, data = seat.client("north").request("PUT", f"/v1/objects/{sha256(junk)}", junk)
    assert (status, "not a signed object" in json.loads(data)["error"]) == (409, True)


def test_a_body_that_is_too_long(seat: OneServer) -> None:
    big = MAX_BYTES + 1
    head = f"PUT /v1/objects/{'0' * 64} HTTP/1.1\r\nHost: x\r\nContent-Length: {big}\r\n\r\n".encode()
    assert b" 413 " in asked(seat.raw("north"), head)
    chunk = b"40000\r\n" + bytes(0x40000) + b"\r\n"
    head = f"PUT /v1/objects/{'0' * 64} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    assert b" 413 " in asked(seat.raw("north"), head + chunk * (big // 0x40000 + 2) + b"0\r\n\r\n")


def test_compressed_bodies_are_not_unpacked(seat: OneServer) -> None:
    import gzip

    body = gzip.compress(bytes(1 << 22))
    head = f"PUT /v1/objects/{sha256(body)} HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: {len(body)}\r\n\r\n"
    assert b" 409 " in asked(seat.raw("north"), head.encode() + body), "the bytes as they came are no object"


def test_slow_bodies_end_and_keep_nobody_out(tmp_path: Path, loop: Loop) -> None:
    seat = OneServer(tmp_path / "slow", loop)
    head = f"PUT /v1/objects/{'0' * 64} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nsome".encode()

    def begin() -> list[ssl.SSLSocket]:
        slow = [seat.raw("north") for _ in range(PER_MEMBER)]
        for sock in slow:
            sock.sendall(head)
        return slow

    with served(seat.server_state, loop) as api:
        slow = begin()
        until(lambda: api._uploads._of["north"] == PER_MEMBER)
        assert b" 429 " in asked(seat.raw("north"), head)
        assert put(seat.client(RECEIVER), seat.story[0]) == (201, ""), "others are served"
        for sock in slow:
            sock.close()
        until(lambda: not api._uploads._of["north"])
        api._uploads._seconds = 0.2
        for sock in begin():
            assert b" 408 " in sock.recv(1000)
        api._uploads._seconds = PATIENCE
        assert b" 400 " in asked(seat.raw("north"), head.replace(b"1000", b"4")), "it may send again"


def test_half_a_body_leaves_nothing(seat: OneServer) -> None:
    item = seat.story[0]
    sock = seat.raw(RECEIVER)
    sock.sendall(
        f"PUT /v1/objects/{item.digest} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(item.data)}\r\n\r\n".encode()
    )
    sock.sendall(item.data[:-1])
    sock.close()
    time.sleep(0.3)
    assert seat.server_state.mailbox.jobs() == []
    assert put(seat.client(RECEIVER), item) == (201, "")


def test_a_full_disk_is_told(seat: OneServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> bool:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(seat.server_state.mailbox, "put", full)
    status, why = put(seat.client(RECEIVER), seat.story[0])
    assert (status, "try again later" in why) == (507, True)


# -- manners ---------------------------------------------------------------------------------------------------------


def test_too_many_requests_of_one_member(tmp_path: Path, loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: 0.0))
    seat = OneServer(tmp_path / "rate", loop, policy={"requests_per_second": 2.0})
    with served(seat.server_state, loop):
        client = seat.client("north")
        statuses = [client.request("GET", "/v1/hello")[0] for _ in range(30)]
        assert statuses == [200] * 20 + [429] * 10
        assert seat.client("south").request("GET", "/v1/hello")[0] == 200, "others are served"
        beta = seat.client("beta")
        assert {beta.request("GET", "/v1/hello")[0] for _ in range(40)} == {200}, "servers are not counted"


def test_too_many_streams_of_one_member(seat: OneServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ppca.server.event_streams.MAX_STREAMS", 2)
    seat.tell(seat.story[0])
    streams = [seat.client("north").events() for _ in range(2)]
    assert [next(each)[0] for each in streams] == ["object", "object"]
    assert seat.client("north").request("GET", "/v1/events")[0] == 429
    other = seat.client("south").events()
    assert next(other)[0] == "object"


def test_a_member_that_sees_nothing_of_many_objects_does_not_stop_the_server(
    seat: OneServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its stream of news passed over all objects in one go: with very many of them no one else was served meanwhile."""
    seat.tell(*seat.story)
    monkeypatch.setattr("ppca.server.event_streams.OBJECTS_PER_WRITE", 1)
    turns, reads = 0, list[int]()
    real = seat.server_state.mailbox.since

    def since(*arguments: Any) -> Any:
        reads.append(turns)
        return real(*arguments)

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(seat.server_state.mailbox, "since", since)
    busy = asyncio.run_coroutine_threadsafe(other(), seat.loop.loop)
    stream = seat.client("visitor").events()
    assert next(stream) == ("place", 1)
    until(lambda: len(reads) > len(seat.story), "the stream does not pass over all objects")
    busy.cancel()
    found = reads[: len(seat.story)]
    assert sorted(set(found)) == found, "somebody else had a turn between two reads"


@pytest.mark.parametrize("after", ["-1", "x", "1e3", "9" * 40, "%00", "1%0a", "٣", ""])
def test_places_that_are_none(after: str, seat: OneServer) -> None:
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
def test_requests_that_are_none(request_line: bytes, seat: OneServer) -> None:
    answer = asked(seat.raw("north"), request_line + b"\r\nHost: x\r\n\r\n")
    assert b" 500 " not in answer[:20]
    assert b"root:" not in answer
    assert b"SQLite" not in answer
    assert seat.client("north").request("GET", "/v1/hello")[0] == 200


def test_idle_connections_are_hung_up_on(tmp_path: Path, loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE", 0.3)
    from aiohttp import web

    seat = OneServer(tmp_path / "idle", loop)
    kept: list[Api] = []
    tasks: list[Any] = []
    with served(seat.server_state, loop, kept.append):

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
            assert sock.recv(100) == b""
        seat.tell(seat.story[1])
        assert [next(stream)[0] for _ in range(3)] == ["place", "object", "place"], "in use, not idle"


def connections(of: OneServer) -> list[Any]:
    """The connections of the only server that has any."""
    import gc

    from aiohttp import web

    (server,) = [each for each in gc.get_objects() if isinstance(each, web.Server) and each.connections]
    return list(server.connections)


@pytest.mark.release
def test_answers_that_a_member_does_not_read_take_little_memory(
    tmp_path: Path, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Objects of 16 MiB, and lists of objects: at most some are under way, in small parts, and not forever."""
    limits: list[asyncio.Timeout] = []
    limit = asyncio.timeout

    def noted(seconds: float | None) -> asyncio.Timeout:
        made = limit(seconds)
        limits.extend([made] if seconds == module.ANSWER_SECONDS else [])
        return made

    async def end_of_time() -> None:
        for each in limits:
            with suppress(RuntimeError):  # an answer that was read
                each.reschedule(asyncio.get_running_loop().time())

    monkeypatch.setattr(asyncio, "timeout", noted)
    monkeypatch.setattr(module, "ANSWER_SECONDS", 10 * PATIENCE)
    monkeypatch.setattr(module, "ANSWERS", 5)
    seat = OneServer(tmp_path / "unread", loop)
    large = make("north", "envelope", seat.job, bytes(16 << 20), to=0, chunk=0)
    kept: list[Api] = []
    with served(seat.server_state, loop, kept.append):
        seat.tell(*seat.story[:9], large)
        unread = []
        for _ in range(5):
            unread.append(seat.raw("north"))
            unread[-1].sendall(b"GET /v1/objects/%s HTTP/1.1\r\nHost: x\r\n\r\n" % large.digest.encode())
            assert unread[-1].recv(1000).startswith(b"HTTP/1.1 200")
        waiting = [each.transport.get_write_buffer_size() for each in connections(seat)]
        assert sum(waiting) < 5 << 20, "not five times 16 MiB"
        status, data = seat.client("north").request("GET", "/v1/hello")
        assert (status, b"are being answered already" in data) == (429, True)
        assert seat.client("south").request("GET", "/v1/hello")[0] == 200, "others are served"
        loop.run(end_of_time())
        until(lambda: not kept[0]._answers["north"], "they are not ended")
        for sock in unread:
            left = 16 << 20
            with suppress(OSError):
                while data := sock.recv(1 << 20):
                    left -= len(data)
            assert left > 1 << 20, "the connection was ended"
        status, data = seat.client("north").request("GET", f"/v1/objects/{large.digest}")
        assert (status, sha256(data)) == (200, large.digest)


def test_a_damaged_object_is_not_sent(seat: OneServer) -> None:
    seat.tell(*seat.story[:9])
    item = seat.story[1]
    path = seat.server_state.mailbox.path(item.digest)
    path.write_bytes(item.data[:-1] + b"x")
    assert seat.client("north").request("GET", f"/v1/objects/{item.digest}")[0] == 410
    assert item.digest in seat.server_state.mailbox.lost()


def test_a_connection_that_is_in_use_is_not_idle(tmp_path: Path, loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(module, "IDLE", 0.12)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    seat = OneServer(tmp_path / "busy", loop)
    kept: list[Api] = []
    with served(seat.server_state, loop, kept.append):
        sock = seat.raw("north")

        def ask() -> bool:
            sock.sendall(b"GET /v1/hello HTTP/1.1\r\nHost: x\r\n\r\n")
            return sock.recv(1000).startswith(b"HTTP/1.1 200")

        assert ask()
        (server,) = {each._manager for each in connections(seat)}

        async def sweep() -> Any:
            return loop.loop.create_task(kept[0].sweep(server))

        task = loop.run(sweep())
        time.sleep(0.1)
        for now[0] in (0.1, 0.2, 0.3):
            assert ask()
            time.sleep(0.1)  # some looks
        loop.loop.call_soon_threadsafe(task.cancel)


def test_an_identity_of_another_is_not_believed(seat: OneServer) -> None:
    """A member with a right key cannot be another one, whatever its leaf says."""
    with pytest.raises(NotReached, match="is not the one pinned for 'south'"):
        seat.client("south", issue_leaf("south", IDENTITIES["north"].key)).request("GET", "/v1/hello")
