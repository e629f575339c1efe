"""A member and its four servers: the next one is asked when one fails, and no server is believed what others have not signed."""

from __future__ import annotations

import asyncio
import base64
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from benchmarks.jobs import fit_job
from harness.federation import (
    IDENTITIES,
    OPERATORS,
    RECEIVER,
    SERVER_KEYS,
    Loop,
    contribution,
    ended,
    job,
    make,
    membership,
    served,
    server_state,
    story,
)
from harness.waiting import PATIENCE
from ppca.federation.errors import FederationError, FileRefused, NotReached, ObjectRefused
from ppca.federation.identity import Identity, key_text
from ppca.federation.objects import Object
from ppca.federation.sealing import SealingKey
from ppca.member import MemberClient
from ppca.member import connections as module
from ppca.member.connections import ServerClient, ServerConnections
from ppca.member.contributing import contribute
from ppca.member.fetching import Evidence
from ppca.server.api import Api
from ppca.transport import free_ports


@pytest.fixture(scope="module")
def loop() -> Iterator[Loop]:
    running = Loop()
    yield running
    running.close()


class Four:
    """Four servers that serve and do nothing else, and members."""

    def __init__(self, folder: Path, loop: Loop, revision: int = 1, **more: Any) -> None:
        self.folder, self.loop = folder, loop
        self.membership = membership(revision, ports=free_ports(4), **more)
        self.server_states = [server_state(folder / name, self.membership, seat) for seat, name in enumerate(OPERATORS)]
        self.stacks = [ExitStack() for _ in OPERATORS]
        self.apis: list[Api] = [
            stack.enter_context(served(each, loop)) for stack, each in zip(self.stacks, self.server_states, strict=True)
        ]
        self.job = job(self.membership)
        self.story = story(self.job)

    def down(self, *seats: int) -> None:
        for seat in seats:
            self.stacks[seat].close()

    def close(self) -> None:
        self.down(*range(4))

    def tell(self, *items: Object, seats: tuple[int, ...] = (0, 1, 2, 3)) -> None:
        for item in items:
            for seat in seats:
                self.server_states[seat].admit(item, OPERATORS[seat])

    def member(self, name: str) -> MemberClient:
        return MemberClient(self.membership, IDENTITIES[name], self.folder / f"state-{name}")


@pytest.fixture
def four(tmp_path: Path, loop: Loop, monkeypatch: pytest.MonkeyPatch) -> Iterator[Four]:
    monkeypatch.setattr(module, "CONNECT_SECONDS", PATIENCE)
    made = Four(tmp_path, loop)
    yield made
    made.close()


# -- failing over ----------------------------------------------------------------------------------------------------


def test_the_next_server_is_asked(four: Four) -> None:
    four.down(0, 1, 3)
    member = four.member(RECEIVER)
    member.submit(four.job)
    assert four.server_states[2].mailbox.jobs() == [four.job.id]
    assert member.description(four.job.id).id == four.job.id
    assert member.servers._order(None)[0] == 2 or member.servers._order(None)[-1] in (0, 1, 3)


def test_an_envelope_goes_to_its_server_or_to_another(four: Four) -> None:
    four.tell(*four.story[:9])
    sent = [item for item in contribution(four.job, "north") if item.header.kind == "envelope"]
    seats = ServerConnections(four.membership, IDENTITIES["north"])
    seats.put(sent[2], 2)
    assert [each.mailbox.has(sent[2].digest) for each in four.server_states] == [False, False, True, False]
    four.down(3)
    seats.put(sent[3], 3)
    assert [each.mailbox.has(sent[3].digest) for each in four.server_states] == [True, False, False, False]


def test_no_server_at_all(four: Four, monkeypatch: pytest.MonkeyPatch) -> None:
    four.close()
    monkeypatch.setattr(module, "TRIES", 1)
    member = four.member(RECEIVER)
    for verb in (lambda: member.submit(four.job), lambda: member.objects(four.job), lambda: member.servers.jobs()):
        with pytest.raises(NotReached, match="ppca doctor"):
            verb()


def test_a_lost_connection_is_made_again(four: Four) -> None:
    client = ServerConnections(four.membership, IDENTITIES["north"]).clients[0]
    assert client.request("GET", "/v1/hello")[0] == 200
    assert client._connection is not None
    client._connection.sock.close()
    assert client.request("GET", "/v1/hello")[0] == 200


def test_another_member_at_a_servers_address_is_not_believed(four: Four) -> None:
    lines = four.membership.file.server
    swapped = tuple(each.model_dump() | ({"api": lines[1].api} if each.number == 0 else {}) for each in lines)
    wrong = membership(2, server=swapped)
    client = ServerConnections(wrong, IDENTITIES["north"]).clients[0]
    with pytest.raises(NotReached, match="there is beta in its place"):
        client.request("GET", "/v1/hello")


# -- lies ------------------------------------------------------------------------------------------------------------


def lies(four: Four, seat: int, change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that answers something else of a job's objects."""
    real = four.apis[seat]._objects_of

    def told(job: str, after: int) -> dict[str, Any]:
        answer = real(job, after)
        change(answer, after)
        return answer

    monkeypatch.setattr(four.apis[seat], "_objects_of", told)


def listed(item: Object, seq: int, **other: Any) -> dict[str, Any]:
    return {"seq": seq, **item.header.as_dict(), "data": base64.b64encode(item.data).decode(), **other}


def test_a_server_cannot_put_its_own_key_in_place_of_anothers(four: Four, monkeypatch: pytest.MonkeyPatch) -> None:
    """With it, one server would read two servers' shares, which are the data."""
    told = [item for item in four.story[:9] if (item.header.kind, item.header.author) != ("offer", "beta")]
    four.tell(*told)
    mine = SealingKey()
    forged = make("alpha", "offer", four.job, mine.public, server=1)
    four.server_states[0].mailbox.put(forged)

    def as_if(answer: dict[str, Any], after: int) -> None:
        if after == 0:
            answer["objects"].append(listed(forged, 1000, author="beta"))
            answer["objects"].append({**listed(forged, 1001, author="beta"), "data": None})

    lies(four, 0, as_if, monkeypatch)
    with pytest.raises(FederationError, match=r"server 1 \(beta\) offers no key"):
        four.member("north").server_keys(four.job)
    four.tell(*four.story[:9])
    assert four.member("north").server_keys(four.job)[1:] == [key.public for key in SERVER_KEYS[1:]]


def test_an_offer_that_is_signed_with_a_former_key_does_not_count(tmp_path: Path, loop: Loop) -> None:
    """The key of gamma was stolen and replaced. The thief and one lying server would else get the shares of server 2."""
    thief = Identity("gamma", IDENTITIES["nobody"].key)
    four = Four(tmp_path, loop, 2, former=({"name": "gamma", "key": key_text(thief.public)},))
    try:
        four.tell(*four.story[:9])
        forged = Object.make(thief, "offer", four.job.id, SealingKey().public, server=2, again=99)
        four.server_states[0].mailbox.put(forged)
        member = four.member("north")
        assert member.server_keys(four.job) == [key.public for key in SERVER_KEYS]
        assert forged.digest not in {header.digest for header in member.servers.headers(four.job.id)}
    finally:
        four.close()


def test_a_member_with_an_old_file_does_not_approve_a_job_of_a_newer_revision(four: Four) -> None:
    """Its file may hold a key that was stolen and replaced since."""
    newer = job(membership(2))
    for use in (four.member("north").approve, four.member("north").check_may_contribute):
        with pytest.raises(
            FederationError, match="a revision of the federation that you have not used; your file has revision 1"
        ):
            use(newer)


def swallowing(monkeypatch: pytest.MonkeyPatch, *seats: int) -> None:
    """These servers say that they have every object, and drop it."""
    request = ServerClient.request

    def swallow(client: ServerClient, method: str, path: str, *more: Any, **named: Any) -> Any:
        if client.number in seats and method in ("HEAD", "PUT"):
            return 201 if method == "PUT" else 200, b""
        return request(client, method, path, *more, **named)

    monkeypatch.setattr(ServerClient, "request", swallow)


@pytest.mark.parametrize("kind", ["cancel", "refusal", "approval", "contribution"])
def test_one_server_cannot_swallow_what_a_member_says(four: Four, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Server 0 says that it has the object and drops it. The member is heard all the same."""
    four.tell(*four.story[: 9 if kind != "approval" else 6])
    swallowing(monkeypatch, 0)
    north = four.member("north")
    if kind == "cancel":
        north.cancel(four.job)
    elif kind == "refusal":
        north.refuse(four.job, "no")
    elif kind == "approval":
        north.approve(four.job)
    else:
        contribute(north, four.job, table(four.folder))
    for server in four.server_states[1:]:
        assert [header.author for header in server.mailbox.objects(four.job.id).of(kind)] == ["north"]


def test_an_owner_signs_one_contribution_whatever_servers_list(four: Four, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that held back the first of two could show both: the job then ended by the name of the owner."""
    four.tell(*four.story[:9])
    north, data = four.member("north"), table(four.folder)
    with monkeypatch.context() as patch:
        swallowing(patch, 0, 1, 2, 3)
        contribute(north, four.job, data)
    first = north.state.contribution(four.job.id)
    assert first is not None
    for member in (north, four.member("north")):
        with pytest.raises(FederationError, match="has contributed to 'first' already"):
            contribute(member, four.job, data)
    for server in four.server_states:
        assert [header.digest for header in server.mailbox.objects(four.job.id).of("contribution")] == [first.digest]


def test_a_header_that_is_not_what_was_signed(four: Four) -> None:
    four.tell(*four.story[:9])
    seats = ServerConnections(four.membership, IDENTITIES["north"])
    import dataclasses

    offer = four.story[1]
    assert seats.get(offer.header) == offer
    for change in ({"author": "beta"}, {"kind": "audit"}, {"about": {"server": 1}}, {"job": "0" * 64}):
        with pytest.raises(ObjectRefused, match="says something else"):
            seats.get(dataclasses.replace(offer.header, **change))


def test_a_server_cannot_say_that_others_finished_refused_or_approved(
    four: Four, monkeypatch: pytest.MonkeyPatch
) -> None:
    four.tell(*four.story[:1])
    fakes = [ended(four.job, name) for name in OPERATORS]
    fakes += [make("north", "refusal", four.job, why="no"), make("south", "approval", four.job)]

    def forged(item: Object) -> bytes:
        return item.data[:-64] + bytes(64)

    def as_if(answer: dict[str, Any], after: int) -> None:
        if after == 0:
            for number, item in enumerate(fakes):
                data = base64.b64encode(forged(item)).decode()
                answer["objects"].append(listed(item, 1000 + number, data=data))

    lies(four, 0, as_if, monkeypatch)
    found = four.member("north").job_state(four.job)
    assert found.stage == "proposed"
    assert {item.actor for item in found.waiting} >= {"north", "south", "west"}


def test_one_server_that_hides_something_hides_nothing(four: Four, monkeypatch: pytest.MonkeyPatch) -> None:
    four.tell(*four.story)
    lies(four, 0, lambda answer, after: answer["objects"].clear(), monkeypatch)
    assert four.member("north").job_state(four.job).stage == "done"


@pytest.mark.parametrize(
    "answer",
    [b"", b"[]", b"7", b"{", b"null", b'{"objects": 7}', b'{"objects": [7]}', b'{"objects": [{"seq": "x"}]}',
     b'{"objects": [{"seq": -1}]}', b"[" * 50000, b"\xff", b'{"objects": [{"seq": 1}, {"seq": 1}]}'],
)  # fmt: skip
def test_a_server_that_answers_nonsense_is_passed_over(
    answer: bytes, four: Four, monkeypatch: pytest.MonkeyPatch
) -> None:
    four.tell(*four.story)
    real = ServerClient.request

    def request(
        self: ServerClient, method: str, path: str, body: bytes | None = None, **more: Any
    ) -> tuple[int, bytes]:
        return (200, answer) if self.number == 0 and path != "/v1/hello" else real(self, method, path, body, **more)

    monkeypatch.setattr(ServerClient, "request", request)
    member = four.member("north")
    assert member.job_state(four.job).stage == "done"
    assert [each["id"] for each in member.servers.jobs()] == [four.job.id]
    assert member.description(four.job.id).id == four.job.id


def lists_jobs(four: Four, seat: int, lines: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that lists these jobs instead of its own."""
    monkeypatch.setattr(four.apis[seat], "_jobs_of", lambda member: lines)


@pytest.mark.parametrize(
    "lines",
    [
        [{"id": "0" * 64}],
        [{"id": "0" * 64, "name": ["first"], "stage": 7, "place": "x", "progress": [1]}],
        [{"id": f"{i:064x}", "name": "first"} for i in range(2000)],
        [7, None, {}, {"id": 7}],
    ],
)
def test_invented_jobs_on_a_servers_list_stop_no_command(
    lines: list[Any], four: Four, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One entry without a name ended every command of every member with a KeyError, also cancel and refuse."""
    four.tell(*four.story[:9])
    lists_jobs(four, 0, lines, monkeypatch)
    member = four.member("north")
    assert member.find("first").id == member.find(four.job.id).id == member.find(four.job.id[:12]).id == four.job.id
    assert [known.id for known, _ in member.jobs()] == [four.job.id]
    member.cancel(member.find("first"))


def test_progress_that_a_server_invents_is_shown_as_plain_text(four: Four, monkeypatch: pytest.MonkeyPatch) -> None:
    four.tell(*four.story)
    for told in ({}, {"text": ["x"], "fraction": "all", "rounds": None}, {"text": "\x1b[2J" + "x" * 1000, "rounds": 3}):
        lists_jobs(four, 0, [{"id": four.job.id, "name": "first", "progress": told}], monkeypatch)
        found = four.member("north")._progress(four.job)
        assert found is not None
        assert "\x1b" not in found["text"]
        assert len(found["text"]) <= 200


def invented(four: Four, kind: str, digest: str, seq: int, author: str = "delta", **about: Any) -> dict[str, Any]:
    return {"seq": seq, "kind": kind, "author": author, "job": four.job.id, "about": about, "digest": digest, "size": 1}


@pytest.mark.parametrize("change", ["endless", "instances"])
def test_a_list_without_an_end_does_not_stop_a_member(change: str, four: Four, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client read such a list forever, and kept all of it."""
    four.tell(*four.story)
    pages = [0]

    def told(job: str, after: int) -> dict[str, Any]:
        pages[0] += 1
        lines = [
            invented(four, "audit", f"{pages[0]:032x}{i:032x}", after + 1 + i, attempt=1, server=i) for i in range(500)
        ]
        return {"instance": str(pages[0]) if change == "instances" else "x", "objects": lines}

    monkeypatch.setattr(four.apis[3], "_objects_of", told)
    monkeypatch.setattr(module, "LIST_BYTES", 1 << 20)
    member = four.member("north")
    assert member.job_state(four.job).stage == "done"
    read = pages[0]
    assert 1 <= read <= 20
    assert member.job_state(four.job).stage == "done"  # what was too much is not asked for again
    assert pages[0] == read
    assert len(member.servers._shelves[3, four.job.id].headers) <= 1


def test_a_server_that_never_completes_an_answer_is_given_up(four: Four, monkeypatch: pytest.MonkeyPatch) -> None:
    """The timeout of a socket starts again with every byte, so a byte from time to time held a member forever."""
    four.tell(*four.story[:9])

    async def drips(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" ")
            await asyncio.sleep(0.05)

    request = ServerClient.request

    def sooner(client: ServerClient, *arguments: Any, seconds: float = module.REQUEST_SECONDS) -> tuple[int, bytes]:
        """The limit of server 3 is shorter, so that the test is fast."""
        if client.number != 3 or "/objects" not in arguments[1]:
            return request(client, *arguments, seconds=seconds)
        assert seconds <= module.LIST_SECONDS
        return request(client, *arguments, seconds=0.5)

    monkeypatch.setattr(ServerClient, "request", sooner)
    four.down(3)
    with served(four.server_states[3], four.loop, lambda api: monkeypatch.setattr(api, "objects", drips)):
        assert four.member("north").job_state(four.job).stage == "gathering"


def test_a_server_that_signs_another_file_for_a_job_hides_nothing(four: Four, monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators may submit jobs. A file under the name of another job, listed first, made that job unknown."""
    four.tell(*four.story[:9])
    forged = make("alpha", "job", four.job, b"something else")

    def as_if(answer: dict[str, Any], after: int) -> None:
        if after == 0:
            answer["objects"] = [listed(forged, 0), *answer["objects"]]
            for place, line in enumerate(answer["objects"], 1):
                line["seq"] = place

    lies(four, 0, as_if, monkeypatch)
    member = four.member("north")
    assert member.description(four.job.id).data == four.job.data
    assert [header.digest for header in member.servers.headers(four.job.id)].count(forged.digest) == 0


# -- a receiver and a lying server -----------------------------------------------------------------------------------


def with_parts(four: Four) -> MemberClient:
    """The receiver of a job that is done, with a result at all servers."""
    parts = [make(name, "result", four.job, b"x", receiver=RECEIVER, attempt=1, chunk=0) for name in OPERATORS]
    four.tell(*four.story, *parts)
    for name, part in zip(OPERATORS, parts, strict=True):
        content = json.dumps({"results": {RECEIVER: [part.digest]}}).encode()
        four.tell(make(name, "audit", four.job, content, attempt=1))
    member = four.member(RECEIVER)
    member.state.make_key(four.job.id)
    return member


@pytest.mark.parametrize("lie", ["audit", "result", "other author", "start", "not given"])
def test_a_lying_server_cannot_keep_a_receiver_from_fetching(
    lie: str, four: Four, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One invented header of an audit, or a second start, was enough to lose a finished result."""
    member = with_parts(four)
    start = make("delta", "start", four.job, attempt=2)
    hers = next(
        h for h in four.server_states[0].mailbox.headers(four.job.id) if h.kind == "audit" and h.author == "alpha"
    )

    def as_if(answer: dict[str, Any], after: int) -> None:
        if after < 1000:
            lines = {
                "audit": [invented(four, "audit", "a" * 64, 1001, attempt=1)],
                "result": [invented(four, "result", "a" * 64, 1001, "alpha", attempt=1, receiver=RECEIVER)],
                "other author": [{"seq": 1001, **hers.as_dict(), "author": "beta"}],
                "start": [listed(start, 1001)],
                "not given": [listed(make("delta", "offer", four.job, bytes(32), server=3, again=7), 1001)],
            }[lie]
            answer["objects"][:0] = [{**line, "seq": after + 1} for line in lines]
            for place, line in enumerate(answer["objects"]):
                line["seq"] = after + 1 + place

    lies(four, 3, as_if, monkeypatch)
    found = Evidence.gather(member, four.job, patience=0)
    assert found.attempt == 1
    assert [chunks[0].header.author for chunks in found._chunks()] == list(OPERATORS)


def test_one_server_cannot_send_a_receiver_to_an_earlier_attempt(four: Four, monkeypatch: pytest.MonkeyPatch) -> None:
    """Server 3 said that attempt 1 failed. It shows the receiver alone that it finished it; attempt 2 was published."""
    story = [item for item in four.story if (item.header.kind, item.header.author) != ("ended", "delta")]
    second = [make("alpha", "start", four.job, attempt=2)]
    second += [make(name, "ready", four.job, attempt=2) for name in OPERATORS]
    second += [ended(four.job, name, 2) for name in OPERATORS]
    four.tell(*story, ended(four.job, "delta", 1, "failed", why="lost"), *second)
    for name in OPERATORS:
        part = make(name, "result", four.job, b"x", receiver=RECEIVER, attempt=2, chunk=0)
        content = json.dumps({"results": {RECEIVER: [part.digest]}}).encode()
        four.tell(part, make(name, "audit", four.job, content, attempt=2))
    shown = ended(four.job, "delta")

    def as_if(answer: dict[str, Any], after: int) -> None:
        if after < 1000:
            answer["objects"].append(listed(shown, 1001))

    lies(four, 3, as_if, monkeypatch)
    member = four.member(RECEIVER)
    member.state.make_key(four.job.id)
    assert Evidence.gather(member, four.job, patience=0).attempt == 2


def test_a_missing_part_is_named(four: Four) -> None:
    member = with_parts(four)
    for each in four.server_states:
        part = next(h for h in each.mailbox.headers(four.job.id) if (h.kind, h.author) == ("result", "gamma"))
        each.mailbox._path(part.digest).unlink()
    with pytest.raises(FederationError, match="the part of the result of gamma is not there"):
        Evidence.gather(member, four.job, patience=0)


def test_invented_group_keys_neither_stop_nor_replace_the_real_one(four: Four, monkeypatch: pytest.MonkeyPatch) -> None:
    """A header that a server invented kept the first owner from sending the key, and the others from taking it."""
    owners = ("north", "south")
    four.job = fit_job(four.membership, "v", owners, {o: [f"{o}1"] for o in owners}, {RECEIVER: ["model"]})
    four.tell(make(RECEIVER, "job", four.job, four.job.data))
    for owner in owners:
        four.member(owner).approve(four.job)
    for each in four.server_states[1:]:
        for header in four.server_states[0].mailbox.headers(four.job.id):
            each.admit(four.server_states[0].mailbox.get(header.digest) or four.story[0], "alpha")

    def as_if(answer: dict[str, Any], after: int) -> None:
        if after < 1000:
            answer["objects"].append(invented(four, "group", "a" * 64, 1001, "north", to="south"))

    lies(four, 3, as_if, monkeypatch)
    made = four.member("north").group_key(four.job, patience=PATIENCE)
    assert four.member("south").group_key(four.job, patience=PATIENCE) == made


def test_a_group_key_is_taken_from_the_first_owner_only(four: Four, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that seals a key of its own to an owner would know how ids become tags."""
    from ppca.federation.sealing import seal

    owners = ("north", "south", "west")
    of = fit_job(four.membership, "v", owners, {o: [f"{o}1"] for o in owners}, {RECEIVER: ["model"]})
    four.tell(make(RECEIVER, "job", of, of.data))
    member = four.member("south")
    key = member.state.make_key(of.id)
    info = {"what": "group", "job": of.id, "to": "south"}
    fake = make("alpha", "group", of, seal(b"known to server 0.", key.public, **info), to="south")
    for each in four.server_states:
        each.mailbox.put(fake)
    with pytest.raises(FederationError, match="still waiting for north"):
        member.group_key(of, patience=0.1)
    right = make("north", "group", of, seal(b"sixteen secrets!", key.public, **info), to="south")
    for each in four.server_states:
        each.mailbox.put(right)
    assert member.group_key(of, patience=PATIENCE) == b"sixteen secrets!"


def test_a_job_file_that_was_changed_is_not_found(four: Four) -> None:
    four.tell(four.story[0])
    member = four.member("north")
    assert member.find(four.job.id[:10]).data == four.job.data
    assert member.find("first").id == four.job.id
    with pytest.raises(FederationError, match="no job"):
        member.find("second")


def test_an_older_federation_is_not_used_again(four: Four) -> None:
    state = four.folder / "state-north"
    MemberClient(membership(2), IDENTITIES["north"], state).close()
    for worse in (membership(1), membership(2, left_out=("west",))):
        with pytest.raises(FileRefused, match="only grows"):
            MemberClient(worse, IDENTITIES["north"], state)
    MemberClient(membership(2), IDENTITIES["north"], state).close()


# -- sending ---------------------------------------------------------------------------------------------------------


def table(folder: Path) -> Path:
    path = folder / "table.csv"
    path.write_text("a,b,c\n" + "".join(f"{i},{i * i % 7},{-i}\n" for i in range(20)))
    return path


class Cut(Exception):
    """The line was cut."""


@pytest.mark.parametrize("cut", range(9))
def test_an_upload_cut_anywhere_goes_on_without_the_data(cut: int, four: Four, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight requests of five objects are let through at most; then the same objects arrive, none sent to a server twice."""
    four.tell(*four.story[:9])
    member, data = four.member("north"), table(four.folder)
    real, sent, left = ServerClient.request, [], [cut]

    def request(
        self: ServerClient, method: str, path: str, body: bytes | None = None, **more: Any
    ) -> tuple[int, bytes]:
        if method in ("PUT", "HEAD"):
            if left[0] == 0:
                raise Cut
            left[0] -= 1
        answer = real(self, method, path, body, **more)
        if method == "PUT":
            sent.append(path)
        return answer

    monkeypatch.setattr(ServerClient, "request", request)
    with pytest.raises(Cut):
        contribute(member, four.job, data)
    data.unlink()
    left[0] = 1000
    for each in four.server_states:  # what has arrived is passed on, as servers do
        for other in four.server_states:
            four_headers = other.mailbox.headers(four.job.id)
            for header in four_headers:
                item = other.mailbox.get(header.digest)
                if item is not None and (header.kind != "envelope" or header.about["to"] == each.server):
                    each.admit(item, OPERATORS[other.server])
    contribute(four.member("north"), four.job, data)
    assert sorted(Counter(sent).values()) == [1, 1, 1, 1, 4], "each envelope once, the contribution to every server"
    assert not (member.state.folder / "outbox" / four.job.id).exists()
    with pytest.raises(FederationError, match="has contributed"):
        contribute(member, four.job, data)


def test_a_cut_after_the_last_object_leaves_no_shares_behind(four: Four, monkeypatch: pytest.MonkeyPatch) -> None:
    four.tell(*four.story[:9])
    member = four.member("north")
    with monkeypatch.context() as patch:
        patch.setattr("ppca.member.local_state.Outbox.clear", lambda self: (_ for _ in ()).throw(Cut()))
        with pytest.raises(Cut):
            contribute(member, four.job, table(four.folder))
    place = member.state.folder / "outbox" / four.job.id
    assert place.exists()
    with pytest.raises(FederationError, match="has contributed"):
        contribute(member, four.job, table(four.folder))
    assert not place.exists()


@pytest.mark.parametrize("damage", ["order", "object", "gone"])
def test_a_damaged_outbox_is_refused_and_made_again(damage: str, four: Four, monkeypatch: pytest.MonkeyPatch) -> None:
    four.tell(*four.story[:9])
    member = four.member("north")
    with monkeypatch.context() as patch:
        patch.setattr(ServerConnections, "put", lambda *_: (_ for _ in ()).throw(Cut()))
        with pytest.raises(Cut):
            contribute(member, four.job, table(four.folder))
    place = member.state.folder / "outbox" / four.job.id
    file = (
        place / "order" if damage == "order" else next(path for path in sorted(place.iterdir()) if path.name != "order")
    )
    file.unlink() if damage == "gone" else file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(FederationError, match="contribute again, with the data"):
        contribute(member, four.job, table(four.folder))
    contribute(member, four.job, table(four.folder))
    assert all(any(h.kind == "envelope" for h in each.mailbox.headers(four.job.id)) for each in four.server_states)


def test_what_a_member_keeps_is_its_alone(four: Four, monkeypatch: pytest.MonkeyPatch) -> None:
    four.tell(*four.story[:9])
    member = four.member("north")
    monkeypatch.setattr(ServerConnections, "put", lambda *_: (_ for _ in ()).throw(Cut()))
    with pytest.raises(Cut):
        contribute(member, four.job, table(four.folder))
    member.state.make_key(four.job.id)
    for path in member.state.folder.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


def test_contributing_is_refused_before_the_table_is_read(four: Four) -> None:
    missing = four.folder / "none.csv"
    four.tell(*four.story[:6])
    with pytest.raises(FederationError, match="has not approved"):
        contribute(four.member("south"), four.job, missing)
    with pytest.raises(FederationError, match="is not an owner"):
        contribute(four.member("visitor"), four.job, missing)
    four.tell(*four.story[:9], make("south", "refusal", four.job, why="no"))
    with pytest.raises(FederationError, match="is over: refused south: no"):
        contribute(four.member("north"), four.job, missing)
