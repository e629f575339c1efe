"""Admission: every kind of object from the right author, once, in its time, for exactly this job; everything else is refused."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from harness.federation import (
    IDENTITIES,
    OWNERS,
    RECEIVER,
    ROSTER,
    SEAT_KEYS,
    contribution,
    ended,
    job,
    make,
    offers,
    roster,
    story,
)
from ppca.federation.drafting import draft_fit
from ppca.federation.errors import NotNow, ObjectRefused
from ppca.federation.identity import Identity
from ppca.federation.job import JobDescription
from ppca.federation.objects import Object
from ppca.federation.serverfile import Policy
from ppca.seat import admission as module
from ppca.seat.admission import Admission, pieces_of
from ppca.seat.mailbox import Mailbox
from ppca.seat.policy import refusal_of

OF = job()
STORY = story(OF)
KINDS = [item.header.kind for item in STORY]


class Door(Admission):
    """A seat's admission with a roster that can change."""

    def __init__(self, folder: Path, at_most: int = 1 << 30, **policy: Any) -> None:
        self.federation = ROSTER
        super().__init__(Mailbox(folder), lambda: self.federation, Policy(**policy), at_most)

    def tell(self, *items: Object) -> None:
        for item in items:
            self.admit(item, item.header.author)

    def refuses(self, item: Object, words: str | None = None, carrier: str | None = None) -> None:
        before = self.mailbox.headers(item.header.job)
        with pytest.raises(ObjectRefused, match=words):
            self.admit(item, carrier or item.header.author)
        assert self.mailbox.headers(item.header.job) == before


@pytest.fixture
def door(tmp_path: Path) -> Door:
    return Door(tmp_path)


def until(kind: str, more: int = 0) -> list[Object]:
    """The story before the first object of a kind."""
    return STORY[: KINDS.index(kind) + more]


def test_a_job_that_goes_well_is_let_in(door: Door) -> None:
    door.tell(*STORY)
    assert door.course(OF.id).stage == "done"
    for item in STORY:
        assert not door.admit(item, item.header.author), "again does no harm"
    assert len(door.mailbox.headers(OF.id)) == len(STORY)


WRONG: dict[str, list[tuple[str, dict[str, Any], bytes]]] = {
    "offer": [
        ("visitor", {}, SEAT_KEYS[0].public),
        ("north", {}, SEAT_KEYS[0].public),
        ("visitor", {"seat": 0}, SEAT_KEYS[0].public),
    ],
    "approval": [("visitor", {}, b""), (RECEIVER, {}, b""), ("alpha", {}, b"")],
    "refusal": [("visitor", {"why": "no"}, b"")],
    "group": [("north", {"to": "south"}, b""), ("visitor", {"to": "south"}, b"")],
    "envelope": [
        ("visitor", {"to": 0, "piece": 0}, b"x"),
        (RECEIVER, {"to": 0, "piece": 0}, b"x"),
        ("alpha", {"to": 0, "piece": 0}, b"x"),
    ],
    "contribution": [("visitor", {}, b"{}"), (RECEIVER, {}, b"{}"), ("beta", {}, b"{}")],
    "receipt": [
        ("north", {"owner": "north", "contribution": "0" * 64}, b""),
        ("alpha", {"owner": "visitor", "contribution": "0" * 64}, b""),
    ],
    "start": [("beta", {"attempt": 1}, b""), ("north", {"attempt": 1}, b"")],
    "ended": [("north", {"attempt": 1, "outcome": "finished", "final": False, "why": ""}, b"")],
    "result": [
        ("north", {"receiver": RECEIVER}, b""),
        ("alpha", {"receiver": "visitor"}, b""),
        ("alpha", {"receiver": ["x"]}, b""),
    ],
    "audit": [("north", {}, b""), (RECEIVER, {}, b"")],
    "erased": [("north", {"what": "job"}, b"")],
    "cancel": [("visitor", {}, b""), ("spare", {}, b"")],
}


def test_every_kind_has_its_wrong_authors() -> None:
    assert set(WRONG) == set(module.WRITERS)


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_authors_and_wrong_roles(kind: str, door: Door) -> None:
    door.tell(*until("ended"))
    for author, about, payload in WRONG[kind]:
        door.refuses(make(author, kind, OF, payload, **about))


@pytest.mark.parametrize("kind", sorted(set(KINDS)))
def test_an_outsider_and_a_forger(kind: str, door: Door) -> None:
    """Right in everything but the key."""
    item = next(item for item in STORY if item.header.kind == kind)
    door.tell(*until(kind))
    author = item.header.author
    forged = Object.make(Identity(author, IDENTITIES["nobody"].key), kind, OF.id, item.payload, **item.header.about)
    door.refuses(forged, "did not sign")
    door.refuses(forged, "did not sign", carrier="beta")
    door.refuses(
        Object.make(IDENTITIES["nobody"], kind, OF.id, item.payload, **item.header.about), "no member", carrier="beta"
    )


def test_members_bring_their_own_and_seats_any(door: Door) -> None:
    door.tell(*until("approval"))
    item = make("north", "approval", OF)
    door.refuses(item, "members bring their own", carrier="south")
    door.refuses(item, "members bring their own", carrier=RECEIVER)
    assert door.admit(item, "delta")


AGAIN: dict[str, Callable[[], Object]] = {
    "approval": lambda: make("north", "approval", OF, note="again"),
    "contribution": lambda: make("north", "contribution", OF, b"{}"),
    "offer": lambda: make("alpha", "offer", OF, SEAT_KEYS[1].public, seat=0),
    "start": lambda: make("alpha", "start", OF, attempt=1, note="again"),
    "ended": lambda: ended(OF, "alpha", audit="other"),
    "job": lambda: make(RECEIVER, "job", OF, OF.data, note="again"),
}


@pytest.mark.parametrize("kind", AGAIN)
def test_what_is_said_once(kind: str, door: Door) -> None:
    door.tell(*(STORY[:-3] if kind == "ended" else [item for item in STORY if item.header.kind != "ended"]))
    door.refuses(AGAIN[kind](), "already|comes next")


def test_a_refusal_ends_a_job_and_nothing_comes_after(door: Door) -> None:
    door.tell(*until("contribution"), make("south", "refusal", OF, why="no"))
    assert door.course(OF.id).stage == "refused"
    for item in (
        make("north", "refusal", OF, why="too"),
        contribution(OF, "north")[-1],
        make("alpha", "start", OF, attempt=1),
    ):
        door.refuses(item, "is over")
    door.tell(make("alpha", "erased", OF, what="job"))


def test_a_job_that_is_over_takes_what_seats_still_owe(door: Door) -> None:
    door.tell(*STORY)
    door.tell(
        make("alpha", "result", OF, b"x", receiver=RECEIVER, attempt=1), make("alpha", "audit", OF, b"{}", attempt=1)
    )
    door.refuses(make("north", "cancel", OF), "is over")


def test_an_operator_offers_again_only_as_a_restored_seat(door: Door) -> None:
    door.tell(*until("approval"))
    door.tell(make("alpha", "offer", OF, SEAT_KEYS[1].public, seat=0, again=1))
    door.refuses(make("alpha", "offer", OF, SEAT_KEYS[2].public, seat=0, again=1), "already")
    door.refuses(make("alpha", "offer", OF, SEAT_KEYS[2].public, seat=1, again=2), "no part")
    door.refuses(make(RECEIVER, "offer", OF, SEAT_KEYS[2].public, receiver=RECEIVER, again=2), "already")
    door.refuses(make(RECEIVER, "offer", OF, SEAT_KEYS[2].public, seat=0), "no part")


def test_an_operator_who_receives_offers_twice(tmp_path: Path) -> None:
    line = {"name": "alpha", "key": ROSTER.file.seat[0].key, "roles": ("receiver",)}
    members = tuple(member.model_dump() for member in ROSTER.file.member)
    both = roster(member=(*members, line))
    of = job(both, receivers={"alpha": ["model"]})
    door = Door(tmp_path)
    door.federation = both
    door.tell(make("alpha", "job", of, of.data), *offers(of))
    assert not any(item.what.startswith("offer") for item in door.course(of.id).waiting)
    door.refuses(make("alpha", "offer", of, SEAT_KEYS[3].public, receiver="alpha"), "already")


def test_contributing_needs_an_approval(door: Door) -> None:
    door.tell(*until("approval"), make("north", "approval", OF))
    for item in contribution(OF, "south"):
        door.refuses(item, "has not approved")
    door.tell(*contribution(OF, "north"))
    door.refuses(make("north", "envelope", OF, b"x", to=0, piece=9), "has finished")


@pytest.mark.parametrize(
    "about",
    [
        {},
        {"to": 0},
        {"piece": 0},
        {"to": 4, "piece": 0},
        {"to": -1, "piece": 0},
        {"to": True, "piece": 0},
        {"to": 1.0, "piece": 0},
        {"to": "0", "piece": 0},
        {"to": [0], "piece": 0},
        {"to": 0, "piece": -1},
        {"to": 0, "piece": 1 << 16},
        {"to": 0, "piece": True},
    ],
)
def test_envelopes_to_nowhere(about: dict[str, Any], door: Door) -> None:
    door.tell(*until("envelope"))
    door.refuses(make("north", "envelope", OF, b"x", **about), "addressed to no seat|no number")


@pytest.mark.parametrize(
    ("kind", "author", "about"),
    [
        ("start", "alpha", {}),
        ("start", "alpha", {"attempt": 0}),
        ("start", "alpha", {"attempt": 2}),
        ("start", "alpha", {"attempt": "1"}),
        ("start", "alpha", {"attempt": [1]}),
        ("receipt", "alpha", {"owner": "north"}),
        ("receipt", "alpha", {"owner": ["north"], "contribution": "0" * 64}),
        ("ended", "alpha", {"attempt": 1}),
        ("ended", "alpha", {"attempt": [1], "outcome": "finished", "final": False, "why": ""}),
        ("ended", "alpha", {"attempt": 1, "outcome": "won", "final": False, "why": ""}),
        ("ended", "alpha", {"attempt": 1, "outcome": ["finished"], "final": False, "why": ""}),
        ("ended", "alpha", {"attempt": 1, "outcome": "failed", "final": 1, "why": ""}),
        ("ended", "alpha", {"attempt": 1, "outcome": "failed", "final": False, "why": "x" * 3000}),
        ("ended", "alpha", {"attempt": 1, "outcome": "failed", "final": False, "why": "\x1b[2J"}),
        ("ended", "alpha", {"attempt": 9, "outcome": "failed", "final": False, "why": ""}),
        ("refusal", "north", {}),
        ("refusal", "north", {"why": 1}),
        ("refusal", "north", {"why": "\x1b]0;owned\x07"}),
        ("refusal", "north", {"why": "x" * 2001}),
        ("approval", "north", {}),
        ("offer", RECEIVER, {"receiver": RECEIVER}),
    ],
)
def test_objects_that_do_not_say_what_they_must(kind: str, author: str, about: dict[str, Any], door: Door) -> None:
    before = until("approval") if kind in ("approval", "refusal") else until("start", 0 if kind == "start" else 1)
    door.tell(
        *(
            item
            for item in before
            if not (kind == "offer" and item.header.author == RECEIVER and item.header.kind == kind)
        )
    )
    door.refuses(make(author, kind, OF, b"payload" if kind == "approval" else b"", **about))


# -- jobs ----------------------------------------------------------------------------------------------------------------


def submitted(of: JobDescription, author: str = RECEIVER) -> Object:
    return make(author, "job", of, of.data)


def test_an_altered_job_is_another_job(door: Door) -> None:
    """No approval counts for it, and its name is not the digest of its file."""
    door.tell(*until("contribution"))
    altered = JobDescription(OF.data.replace(b'name = "first"', b'name = "other"'))
    door.refuses(make(RECEIVER, "job", OF.id, altered.data), "not the digest")
    door.tell(submitted(altered))
    assert all(item.what.startswith(("offer", "approve")) for item in door.course(altered.id).waiting)
    for item in contribution(altered, "north"):
        door.refuses(item, "has not approved")


def test_an_approval_counts_for_its_job_only(door: Door) -> None:
    other = job(name="other")
    door.tell(*until("approval"), submitted(other), make("north", "approval", OF))
    replayed = make("north", "approval", OF).data.replace(OF.id.encode(), other.id.encode())
    door.refuses(Object.parse(replayed), "did not sign")
    assert any(item.who == "north" and item.what.startswith("approve") for item in door.course(other.id).waiting)


def test_nothing_for_a_job_that_is_not_there(door: Door) -> None:
    for item in (make("north", "approval", OF), *offers(OF)):
        with pytest.raises(NotNow, match="not known here"):
            door.tell(item)


def test_who_may_submit(door: Door) -> None:
    door.refuses(submitted(OF, "visitor"), "has no part in the job")
    for author in (RECEIVER, "north", "alpha"):
        door.tell(submitted(OF, author))
    door.tell(make(RECEIVER, "cancel", OF))
    assert door.course(OF.id).stage == "cancelled"


def test_jobs_of_members_that_there_are_not(door: Door) -> None:
    for fields in (
        {"owners": (*OWNERS, "nobody")},
        {"owners": (*OWNERS, RECEIVER)},
        {"owners": (*OWNERS, "alpha")},
        {"receivers": {RECEIVER: ["model"], "north": ["model"]}},
    ):
        door.refuses(submitted(job(**fields)), "is no (owner|receiver) in test")


def test_jobs_of_another_revision_or_out_of_time(door: Door) -> None:
    door.refuses(submitted(job(roster(2))), "another revision")
    old = draft_fit(ROSTER, "old", OWNERS, ["a"], {RECEIVER: ["model"]}, now=datetime.now(UTC) - timedelta(days=8))
    door.refuses(submitted(old), "has expired")
    door.refuses(make(RECEIVER, "job", "0" * 64, b"no file"), "not the digest")


@pytest.mark.parametrize("data", [b"", b"\xff", b"a = 1", b"[" * 9999, b"expires = 9999-12-31T23:59:59-12:00"])
def test_files_that_are_no_jobs(data: bytes, door: Door) -> None:
    from ppca.federation.errors import FederationError
    from ppca.federation.objects import sha256

    with pytest.raises(FederationError):
        door.tell(make(RECEIVER, "job", sha256(data), data))
    assert door.mailbox.jobs() == []


def test_a_job_file_that_is_too_long(door: Door) -> None:
    long = JobDescription(OF.data + b"#" * (1 << 20))
    door.refuses(submitted(long), "too long")


def test_a_removed_member_is_out(door: Door) -> None:
    door.tell(*until("approval"))
    door.federation = roster(2, left_out=("north",))
    item = make("north", "approval", OF)
    door.refuses(item, "no member")
    door.refuses(item, "no member", carrier="beta")
    door.refuses(submitted(job(door.federation)), "north is no owner")


def test_a_former_key_counts_only_through_a_seat(tmp_path: Path) -> None:
    old = IDENTITIES["nobody"]
    from ppca.federation.identity import key_text

    door = Door(tmp_path)
    door.federation = roster(former=({"name": "north", "key": key_text(old.public)},))
    of = job(door.federation)
    door.tell(submitted(of))
    item = Object.make(Identity("north", old.key), "approval", of.id)
    door.refuses(item, "did not sign")
    assert door.admit(item, "beta")


# -- limits --------------------------------------------------------------------------------------------------------------


def test_jobs_under_way_and_in_a_day(tmp_path: Path) -> None:
    door = Door(tmp_path, jobs_per_member=2, jobs_per_day=3)
    first, second = job(name="1"), job(name="2")
    door.tell(submitted(first), submitted(second))
    with pytest.raises(NotNow, match="2 jobs under way"):
        door.tell(submitted(job(name="3")))
    door.tell(submitted(job(name="4"), "north"))
    door.tell(make(RECEIVER, "cancel", first), submitted(job(name="3")))
    door.tell(make(RECEIVER, "cancel", second))
    with pytest.raises(NotNow, match="in a day"):
        door.tell(submitted(job(name="5")))


def test_a_member_cannot_fill_the_store(tmp_path: Path) -> None:
    door = Door(tmp_path, bytes_per_member=1 << 20)
    door.tell(*until("envelope"))
    payload = bytes(300_000)
    with pytest.raises(NotNow, match="as much as this seat allows a member"):
        door.tell(*(make("north", "envelope", OF, payload, to=0, piece=piece) for piece in range(10)))
    assert door.mailbox.bytes_of("north") <= 1 << 20
    door.tell(make("south", "envelope", OF, payload, to=0, piece=0))


def test_a_full_store(tmp_path: Path) -> None:
    door = Door(tmp_path, at_most=1 << 20)
    door.tell(*until("envelope"))
    with pytest.raises(NotNow, match="store of this seat is full"):
        door.tell(make("north", "envelope", OF, bytes(1 << 20), to=0, piece=0))
    door._at_most = 1
    door.refuses(make("west", "refusal", OF, why="no"), "is full")
    door.tell(make("beta", "refusal", OF, why="no"))


def test_a_member_cannot_flood_with_small_objects(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_OBJECTS", 20)
    door.tell(*until("envelope"))
    with pytest.raises(ObjectRefused, match="as many objects"):
        door.tell(*(make("north", "envelope", OF, b"x", to=0, piece=piece) for piece in range(100)))
    assert door.mailbox.count("north", OF.id) == 20
    door.tell(make("south", "envelope", OF, b"x", to=0, piece=0))


def test_parsed_jobs_are_not_kept_without_end(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PARSED_JOBS", 3)
    jobs = [job(name=str(n)) for n in range(6)]
    door.tell(*map(submitted, jobs))
    assert [door.job(each.id).id for each in jobs] == [each.id for each in jobs]
    assert len(door._jobs) == 3


def test_threads_do_not_get_two_of_what_is_said_once(door: Door) -> None:
    """Checked and stored as one step: of many different approvals, contributions and starts at once, one gets in."""
    door.tell(*until("start"))
    items = [make("alpha", "start", OF, attempt=1, n=n) for n in range(16)]
    items += [make("north", "approval", OF, n=n) for n in range(16)]

    def put(item: Object) -> bool:
        try:
            return door.admit(item, item.header.author)
        except ObjectRefused:
            return False

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(put, items)) == 1
    assert [header.kind for header in door.mailbox.headers(OF.id)].count("start") == 1


def test_threads_do_not_get_over_the_limit(tmp_path: Path) -> None:
    door = Door(tmp_path, jobs_per_member=3)
    items = [submitted(job(name=str(n))) for n in range(12)]

    def put(item: Object) -> bool:
        try:
            return door.admit(item, RECEIVER)
        except NotNow:
            return False

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(put, items)) == 3


def test_lost_content_is_taken_again_whatever_has_happened_since(door: Door) -> None:
    door.tell(*STORY)
    envelope = next(item for item in STORY if item.header.kind == "envelope")
    door.mailbox._path(envelope.digest).unlink()
    assert door.mailbox.get(envelope.digest) is None
    assert not door.admit(envelope, "delta")
    assert door.mailbox.get(envelope.digest) == envelope


# -- the policy of a seat ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "policy", "words"),
    [
        ({}, {}, None),
        ({"owners": OWNERS[:2]}, {}, "wants 3"),
        ({"owners": OWNERS[:1]}, {}, "wants 3"),
        ({"owners": ("spare",), "receivers": {"spare": ["model"]}}, {}, None),
        ({}, {"columns_at_most": 2}, "at most 2"),
        ({}, {"programs": ("pca-columns/1",)}, "not pca-rows/1"),
        ({}, {"rows_at_least": 50}, "rows_at_least = 50"),
        ({"rows_at_least": 50}, {"rows_at_least": 50}, None),
        ({"expires": "91d"}, {}, "stay longer"),
        ({"erase_after": "91d"}, {}, "stay longer"),
        ({"expires": "91d"}, {"longest": "100d"}, None),
    ],
)
def test_what_a_seat_takes_part_in(
    fields: dict[str, Any], policy: dict[str, Any], words: str | None, door: Door
) -> None:
    found = refusal_of(job(**fields).file, Policy(**policy), door)
    assert (found is None) == (words is None), found
    assert words is None or words in (found or "")


def test_another_build_is_refused(door: Door) -> None:
    other = JobDescription(OF.data.replace(b"+", b"+f", 1))
    assert "must have the same" in (refusal_of(other.file, Policy(), door) or "")


@pytest.mark.parametrize(
    "payload", [b"[]", b"{}", b'{"pieces": 1}', b'{"pieces": [[], [], []]}', b'{"pieces": [[1], [], [], []]}', b"x"]
)
def test_contributions_that_list_no_envelopes(payload: bytes) -> None:
    from ppca.federation.errors import FederationError

    with pytest.raises(FederationError):
        pieces_of(make("north", "contribution", OF, payload))
