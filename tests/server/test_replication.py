"""Servers follow each other: what one has, all get; what one lost comes back; no one stands in for a peer, or stops a server."""

from __future__ import annotations

import asyncio
import base64
import errno
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.federation import Loop, job, make, membership, put_membership, served, server_state, story
from harness.waiting import PATIENCE, until
from ppca.federation.errors import FileRefused
from ppca.federation.membership import Membership
from ppca.server import replication as module
from ppca.server.mailbox import LOST
from ppca.server.replication import Followers
from ppca.server.server_state import ServerState
from ppca.transport import free_ports


@pytest.fixture
def loop() -> Iterator[Loop]:
    running = Loop()
    yield running
    running.close()


class ServerStates:
    """Some servers in this process; `follow` starts that one follows another."""

    def __init__(self, folder: Path, loop: Loop, count: int = 3, **tables: Any) -> None:
        self.loop = loop
        ports = free_ports(4)
        self.ports = ports
        self.membership = membership(ports=ports)
        self.folders = [folder / str(seat) for seat in range(count)]
        self.server_states = [
            server_state(self.folders[seat], self.membership, seat, **tables) for seat in range(count)
        ]
        self.followers = [Followers(each) for each in self.server_states]
        self.job = job(self.membership)
        self.story = story(self.job)

    def follow(self, who: int, whom: int) -> Any:
        return asyncio.run_coroutine_threadsafe(self.followers[who].follow(whom), self.loop.loop)

    def renew(self, new: Membership, *seats: int) -> None:
        for seat in seats:
            put_membership(self.folders[seat], new)
            assert self.server_states[seat].renew()
            self.server_states[seat].renew_tls()


@pytest.fixture
def three(tmp_path: Path, loop: Loop, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerStates]:
    monkeypatch.setattr(module, "PAUSES", (0.1,))
    monkeypatch.setattr(module, "RETRY", 0.5)
    monkeypatch.setattr(module, "MEND", 0.1)
    monkeypatch.setattr("ppca.server.event_streams.HEARTBEAT", 0.3)
    made = ServerStates(tmp_path, loop)
    with served(made.server_states[0], loop), served(made.server_states[1], loop), served(made.server_states[2], loop):
        yield made


def digests(of: ServerState, job: str) -> set[str]:
    return {header.digest for header in of.mailbox.headers(job)}


def tell(of: ServerState, *items: Any) -> None:
    for item in items:
        of.admit(item, item.header.author)


def test_what_one_has_all_get(three: ServerStates) -> None:
    """Through a third server too: server 2 follows server 1 only. Envelopes go to their server."""
    for who, whom in ((1, 0), (2, 1), (0, 1)):
        three.follow(who, whom)
    tell(three.server_states[0], *three.story)
    wanted = {item.digest for item in three.story if item.header.kind != "envelope"}
    mine = {item.digest for item in three.story if item.header.about.get("to") == 1}
    until(lambda: digests(three.server_states[1], three.job.id) == wanted | mine)
    until(lambda: digests(three.server_states[2], three.job.id) == wanted)
    assert {server_state.admission.job_state(three.job.id).stage for server_state in three.server_states} == {"done"}


def test_a_server_that_was_away_goes_on_where_it_was(three: ServerStates) -> None:
    following = three.follow(1, 0)
    tell(three.server_states[0], *three.story[:5])
    until(lambda: len(digests(three.server_states[1], three.job.id)) == 5)
    until(lambda: (three.server_states[1].mailbox.note("followed 0") or "").endswith(" 5"))
    following.cancel()
    tell(three.server_states[0], *three.story[5:9])
    three.follow(1, 0)
    until(lambda: len(digests(three.server_states[1], three.job.id)) == 9)


def test_small_objects_of_a_server_come_with_their_announcement(
    three: ServerStates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server asks for the objects of members only."""
    asked: list[str] = []
    fetch = Followers._fetch

    async def counted(self: Followers, seat: int, get: Any, digest: str) -> None:
        asked.append(digest)
        await fetch(self, seat, get, digest)

    monkeypatch.setattr(Followers, "_fetch", counted)
    three.follow(1, 0)
    tell(three.server_states[0], *three.story[:2])
    assert [item.header.author for item in three.story[:2]] == ["analyst", "alpha"]
    until(lambda: len(digests(three.server_states[1], three.job.id)) == 2)
    assert asked == [three.story[0].digest]


def test_wrong_content_with_an_announcement_is_not_taken(three: ServerStates) -> None:
    tell(three.server_states[1], three.story[0])
    item, other = three.story[1], three.story[2]
    fields = {**item.header.as_dict(), "data": base64.b64encode(other.data).decode()}
    taking = three.followers[1]._take(0, None, fields)  # type: ignore[arg-type]
    asyncio.run_coroutine_threadsafe(taking, three.loop.loop).result(PATIENCE)
    assert len(digests(three.server_states[1], three.job.id)) == 1


def test_places_are_noted_now_and_then(three: ServerStates, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each note waits for the disk."""
    monkeypatch.setattr(module, "NOTED", 600.0)
    notes: list[str] = []
    box = three.server_states[1].mailbox
    note = box.note
    monkeypatch.setattr(box, "note", lambda name, value=None: (value and notes.append(name)) or note(name, value))
    three.follow(1, 0)
    for item in three.story[:9]:
        tell(three.server_states[0], item)
        until(lambda item=item: box.has(item.digest))  # type: ignore[misc]
    assert notes.count("followed 0") == 1


def test_lost_content_comes_back_from_a_peer(three: ServerStates) -> None:
    three.follow(1, 0)
    tell(three.server_states[0], *three.story[:9])
    box = three.server_states[1].mailbox
    until(lambda: len(digests(three.server_states[1], three.job.id)) == 9)
    item = three.story[6]
    box._path(item.digest).write_bytes(b"damaged")
    assert box.get(item.digest) is None
    until(lambda: box.get(item.digest) == item)


def test_what_had_no_room_is_taken_later(tmp_path: Path, three: ServerStates, monkeypatch: pytest.MonkeyPatch) -> None:
    box, at_most = three.server_states[1].mailbox, three.server_states[1].admission._at_most
    three.server_states[1].admission._at_most = 1500
    three.follow(1, 0)
    tell(three.server_states[0], *three.story[:9])
    until(lambda: len(box.headers(three.job.id)) >= 1)
    time.sleep(0.3)
    assert len(box.headers(three.job.id)) < 9
    three.server_states[1].admission._at_most = at_most
    until(lambda: len(box.headers(three.job.id)) == 9)


def test_a_server_with_a_late_federation_gets_its_jobs_when_it_has_the_new_one(three: ServerStates) -> None:
    """A job of revision 2 is refused by a server that still has revision 1; afterwards it is not forgotten."""
    second = membership(2, ports=three.ports)
    three.renew(second, 0)
    of = job(second)
    three.follow(1, 0)
    tell(three.server_states[0], *story(of)[:9])
    box = three.server_states[1].mailbox
    time.sleep(0.5)
    assert box.headers(of.id) == []
    three.renew(second, 1)
    until(lambda: len(box.headers(of.id)) == 9)


def test_another_member_cannot_stand_in_for_a_server(three: ServerStates, tmp_path: Path, loop: Loop) -> None:
    """The address of server 3 leads to server 2, which has a right certificate, of its own name only."""
    line = three.membership.file.server
    moved = tuple(each.model_dump() | ({"api": line[2].api} if each.number == 3 else {}) for each in line)
    wrong = membership(2, ports=three.ports, server=moved)
    three.renew(wrong, 1)
    three.follow(1, 3)
    tell(three.server_states[2], *three.story[:9])
    until(lambda: "certificate" in three.followers[1].links[3]["why"].lower())
    assert "gamma.ppca" in three.followers[1].links[3]["why"] or "delta.ppca" in three.followers[1].links[3]["why"]
    time.sleep(0.3)
    assert three.server_states[1].mailbox.headers(three.job.id) == []


@pytest.mark.parametrize(
    "lines",
    [
        b"event: object\ndata: [\n\n",
        b"event: object\ndata: 7\n\n",
        b"event: object\ndata: {}\n\n",
        b'event: object\ndata: {"digest": "../../x", "about": {}}\n\n',
        b'event: object\ndata: {"digest": ["x"], "about": {}}\n\n',
        b"event: place\ndata: x\n\n",
        b"event: place\ndata: " + b"9" * 5000 + b"\n\n",
        b"\xff\xfe\n\n",
        b"data: " + b"x" * 300_000 + b"\n\n",
        b"",
    ],
)
def test_a_peer_that_talks_nonsense_does_not_stop_a_server(
    lines: bytes, three: ServerStates, monkeypatch: pytest.MonkeyPatch
) -> None:
    from aiohttp import web

    async def nonsense(self: Any, request: web.Request, response: web.StreamResponse, place: int) -> None:
        await response.write(lines)
        raise ConnectionError

    with monkeypatch.context() as patch:
        patch.setattr("ppca.server.event_streams.EventStreams._send_events", nonsense)
        following = three.follow(1, 0)
        until(lambda: three.followers[1].links[0]["why"] not in ("", "not tried yet"))
        assert not following.done()
    tell(three.server_states[0], *three.story[:3])
    until(lambda: len(digests(three.server_states[1], three.job.id)) == 3, "nothing is taken afterwards")


def test_a_peer_cannot_bring_what_its_author_did_not_write(three: ServerStates) -> None:
    """Server 0 holds objects that its members never sent (its own admission is out of order): the others refuse them."""
    tell(three.server_states[0], three.story[0])
    box = three.server_states[0].mailbox
    bad = [make("visitor", "approval", three.job), make("beta", "start", three.job, attempt=1)]
    bad += [make("alpha", "ended", three.job, attempt=[1]), make("alpha", "result", three.job, receiver=[1])]
    for item in bad:
        box.put(item)
    good = make("north", "approval", three.job)
    tell(three.server_states[0], good)
    three.follow(1, 0)
    until(lambda: good.digest in digests(three.server_states[1], three.job.id))
    assert digests(three.server_states[1], three.job.id) == {three.story[0].digest, good.digest}


def test_content_with_another_digest_is_not_taken(three: ServerStates, monkeypatch: pytest.MonkeyPatch) -> None:
    tell(three.server_states[0], three.story[0])
    box, other = three.server_states[0].mailbox, three.folders[0] / "other"
    other.write_bytes(three.story[1].data)
    real = box.get
    monkeypatch.setattr(box, "get", lambda digest: real(digest) and three.story[1])
    monkeypatch.setattr(box, "whole", lambda digest: other)
    three.follow(1, 0)
    time.sleep(0.5)
    assert three.server_states[1].mailbox.headers(three.job.id) == []
    assert three.server_states[1].mailbox.state(three.story[0].digest) not in (LOST, 1)


# -- the server_state itself ---------------------------------------------------------------------------------------------------


def test_a_server_does_not_start_with_an_older_federation(tmp_path: Path) -> None:
    server_state(tmp_path, membership(5)).mailbox.close()
    server_state(tmp_path, membership(5)).mailbox.close()
    for worse in (membership(4), membership(5, left_out=("west",))):
        with pytest.raises(FileRefused, match="only grows"):
            server_state(tmp_path, worse)
    server_state(tmp_path, membership(6)).mailbox.close()


def test_a_server_does_not_start_as_another_one(tmp_path: Path) -> None:
    from harness.federation import write_files, write_identity
    from ppca.federation.serverfile import ServerSettings

    folder = write_files(tmp_path, membership(), 0)
    write_identity(folder, "beta")
    with pytest.raises(FileRefused, match="does not have server 0"):
        ServerState(ServerSettings.load(folder))
    write_identity(folder, "nobody")
    with pytest.raises(FileRefused, match="is not a member of"):
        ServerState(ServerSettings.load(folder))
    put_membership(folder, Membership(membership().data, {}))
    with pytest.raises(FileRefused, match="not signed by"):
        ServerState(ServerSettings.load(folder))


def test_a_full_disk_does_not_make_a_server_dial_its_peers_in_a_loop(
    three: ServerStates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dialed again every 0.2 s, until its peers answered 429: it had used up its streams there."""
    box, dialed = three.server_states[1].mailbox, 0
    real = three.followers[1]._follow

    def full(item: Any) -> bool:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def counted(seat: int) -> None:
        nonlocal dialed
        dialed += 1
        await real(seat)

    monkeypatch.setattr(three.followers[1], "_follow", counted)
    monkeypatch.setattr(module, "RETRY", 1.0)
    with monkeypatch.context() as patch:
        patch.setattr(box, "put", full)
        patch.setattr(box, "note", lambda name, value=None: full(None) if value is not None else None)
        three.follow(1, 0)
        began = time.monotonic()
        tell(three.server_states[0], *three.story[:9])
        until(lambda: three.followers[1].links[0]["up"])
        time.sleep(1.0)
        assert dialed <= 2 + (time.monotonic() - began) / module.RETRY
    until(lambda: len(box.headers(three.job.id)) == 9, "nothing is taken when there is room again")
