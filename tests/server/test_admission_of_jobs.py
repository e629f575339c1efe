"""Admission of jobs: whose, which, how many and how large; and what the policy of a server lets it take part in."""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from benchmarks.jobs import fit_job
from harness.admission import OF, STORY, Door, until
from harness.federation import IDENTITIES, MEMBERSHIP, OWNERS, RECEIVER, contribution, job, make, membership, offers
from harness.waiting import PATIENCE
from ppca.federation.errors import FederationError, NotNow, ObjectRefused
from ppca.federation.identity import Identity, key_text
from ppca.federation.objects import Object, sha256
from ppca.federation.proposal import ProposedJob
from ppca.federation.serverfile import Policy
from ppca.server import admission as module
from ppca.server.object_rules import chunks_of
from ppca.server.policy import refusal_of

BY_OWNER = {owner: [f"{owner}{number}" for number in range(2)] for owner in OWNERS}


def submitted(of: ProposedJob, author: str = RECEIVER) -> Object:
    return make(author, "job", of, of.data)


def test_an_altered_job_is_another_job(door: Door) -> None:
    """No approval counts for it, and its name is not the digest of its file."""
    door.tell(*until("contribution"))
    altered = ProposedJob(OF.data.replace(b'name = "first"', b'name = "other"'))
    door.refuses(make(RECEIVER, "job", OF.id, altered.data), "not the digest")
    door.tell(submitted(altered))
    assert all(item.what.startswith(("offer", "approve")) for item in door.job_state(altered.id).waiting)
    for item in contribution(altered, "north"):
        door.refuses(item, "has not approved")


def test_an_approval_counts_for_its_job_only(door: Door) -> None:
    other = job(name="other")
    door.tell(*until("approval"), submitted(other), make("north", "approval", OF))
    replayed = make("north", "approval", OF).data.replace(OF.id.encode(), other.id.encode())
    door.refuses(Object.parse(replayed), "did not sign")
    assert any(item.actor == "north" and item.what.startswith("approve") for item in door.job_state(other.id).waiting)


def test_nothing_for_a_job_that_is_not_there(door: Door) -> None:
    for item in (make("north", "approval", OF), *offers(OF)):
        with pytest.raises(NotNow, match="not known here"):
            door.tell(item)


def test_who_may_submit(door: Door) -> None:
    door.refuses(submitted(OF, "visitor"), "is not a member of the job")
    for author in (RECEIVER, "north", "alpha"):
        door.tell(submitted(OF, author))
    door.tell(make(RECEIVER, "cancel", OF))
    assert door.job_state(OF.id).stage == "cancelled"


def test_nobody_submits_a_job_twice(door: Door) -> None:
    """A second object with the same file has another digest: each would count and be stored."""
    door.tell(submitted(OF))
    door.refuses(make(RECEIVER, "job", OF, OF.data, note="again"), "has submitted this job already")


def test_jobs_of_members_that_there_are_not(door: Door) -> None:
    for fields in (
        {"owners": (*OWNERS, "nobody")},
        {"owners": (*OWNERS, RECEIVER)},
        {"owners": (*OWNERS, "alpha")},
        {"receivers": {RECEIVER: ["model"], "north": ["model"]}},
    ):
        door.refuses(submitted(job(**fields)), "is not (an owner|a receiver) in test")


def test_jobs_of_another_revision_or_out_of_time(door: Door) -> None:
    door.refuses(submitted(job(membership(2))), "another revision")
    past = datetime.now(UTC).replace(microsecond=0) - timedelta(days=1)
    old = fit_job(MEMBERSHIP, "old", OWNERS, ["a"], {RECEIVER: ["model"]}, expires=past)
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
    long = ProposedJob(OF.data + b"#" * (1 << 20))
    door.refuses(submitted(long), "at most 1,048,576 are read")


def test_a_removed_member_is_out(door: Door) -> None:
    door.tell(*until("approval"))
    door.federation = membership(2, left_out=("north",))
    item = make("north", "approval", OF)
    door.refuses(item, "is not a member of")
    door.refuses(item, "is not a member of", carrier="beta")
    door.refuses(submitted(job(door.federation)), "north is not an owner")


def with_former_keys(door: Door) -> dict[str, Identity]:
    """Give a federation its second revision, in which north and gamma have new keys; return their former ones."""
    old = {
        name: Identity(name, IDENTITIES["nobody" if name == "north" else "spare"].key) for name in ("north", "gamma")
    }
    former = tuple({"name": name, "key": key_text(old[name].public)} for name in old)
    door.federation = membership(2, left_out=("spare",), former=former)
    return old


@pytest.mark.parametrize(
    ("author", "kind", "about"), [("north", "approval", {}), ("gamma", "receipt", {"owner": "north"})]
)
def test_a_former_key_signs_nothing_for_a_job_of_the_present_revision(
    tmp_path: Path, author: str, kind: str, about: dict[str, Any]
) -> None:
    """Whoever brings it: the key may have been replaced because it was stolen."""
    door = Door(tmp_path)
    old = with_former_keys(door)
    of = job(door.federation)
    door.tell(submitted(of))
    item = Object.make(old[author], kind, of.id, **about)
    for carrier in (author, "beta"):
        door.refuses(item, "did not sign", carrier=carrier)


def test_an_offer_signed_with_a_former_key_is_refused(tmp_path: Path) -> None:
    """A thief with the old key of a server and another server that passes it on would else get the shares of new owners."""
    door = Door(tmp_path)
    door.tell(*until("offer"))
    old = with_former_keys(door)
    new = job(door.federation)
    door.tell(submitted(new))
    for of in (OF, new):  # jobs of the earlier and of the present revision
        offer = Object.make(old["gamma"], "offer", of.id, bytes(32), server=2, again=99)
        door.refuses(offer, "did not sign", carrier="delta")


def test_a_former_key_counts_for_records_of_a_job_of_an_earlier_revision(tmp_path: Path) -> None:
    door = Door(tmp_path)
    door.tell(*until("contribution"))
    old = with_former_keys(door)
    item = Object.make(old["gamma"], "receipt", OF.id, owner="north", contribution=sha256(b""))
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
    with pytest.raises(NotNow, match="as much as this server allows a member"):
        door.tell(*(make("north", "envelope", OF, payload, to=0, chunk=chunk) for chunk in range(10)))
    assert door.mailbox.bytes_of("north") <= 1 << 20
    door.tell(make("south", "envelope", OF, payload, to=0, chunk=0))


def test_a_full_store(tmp_path: Path) -> None:
    door = Door(tmp_path, at_most=1 << 20)
    door.tell(*until("envelope"))
    with pytest.raises(NotNow, match="store of this server is full"):
        door.tell(make("north", "envelope", OF, bytes(1 << 20), to=0, chunk=0))
    door._at_most = 1
    door.refuses(make("west", "refusal", OF, why="no"), "is full")
    door.tell(make("beta", "refusal", OF, why="no"))


def test_a_member_cannot_flood_with_small_objects(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_OBJECTS", 20)
    door.tell(*until("envelope"))
    with pytest.raises(ObjectRefused, match="as many objects"):
        door.tell(*(make("north", "envelope", OF, b"x", to=0, chunk=chunk) for chunk in range(100)))
    assert door.mailbox.objects(OF.id).count["north"] == 20
    door.tell(make("south", "envelope", OF, b"x", to=0, chunk=0))


def test_parsed_jobs_are_not_kept_without_end(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PARSED_JOBS", 3)
    jobs = [job(name=str(n)) for n in range(6)]
    door.tell(*map(submitted, jobs))
    assert [door.job(each.id).id for each in jobs] == [each.id for each in jobs]
    assert len(door._jobs) == 3


def test_parsed_jobs_are_bounded_by_the_bytes_of_their_files(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [job(name=f"{n:02}") for n in range(6)]
    monkeypatch.setattr(module, "PARSED_BYTES", 3 * len(jobs[0].data))
    door.tell(*map(submitted, jobs))
    assert [door.job(each.id).id for each in jobs] == [each.id for each in jobs]
    assert len(door._jobs) == 3
    assert door._parsed == sum(len(known.data) for known in door._jobs.values())


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


# -- the policy of a server ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "policy", "words"),
    [
        ({}, {}, None),
        ({"owners": OWNERS[:2]}, {}, "wants 3"),
        ({"owners": OWNERS[:1]}, {}, "wants 3"),
        ({"owners": ("spare",), "receivers": {"spare": ["model"]}}, {}, None),
        ({}, {"columns_at_most": 2}, "at most 2"),
        ({}, {"analyses": ("infer/1",)}, "runs infer/1, not pca/1"),
        ({}, {"forms": ("columns",)}, "the forms columns, not rows"),
        ({}, {"rows_at_least": 50}, "rows_at_least = 50"),
        ({"rows_at_least": 50}, {"rows_at_least": 50}, None),
        ({"columns": BY_OWNER}, {"row_share_at_most": 0.8}, None),  # 0.75 in new jobs
        ({"columns": BY_OWNER}, {"row_share_at_most": 0.5}, "does not set row_share_at_most to 0.5 or less"),
        ({"columns": BY_OWNER, "align": {"row_share_at_most": 1}}, {}, None),
        (
            {"columns": BY_OWNER, "align": {"row_share_at_most": 1}},
            {"row_share_at_most": 0.9},
            "does not set row_share_at_most",
        ),
        ({"columns": BY_OWNER, "wide": True}, {"row_share_at_most": 0.9}, "more columns than rows cannot have it"),
        ({"owners": ("spare",), "receivers": {"spare": ["model"]}}, {"row_share_at_most": 0.9}, None),
        ({}, {"row_share_at_most": 0.5}, None),
        ({"fixed_iterations": 1000}, {}, None),
        ({"fixed_iterations": 1001}, {}, "1,001 iterations; this server runs at most 1,000"),
        ({"max_iterations": 100_000}, {}, "100,000 iterations"),
        ({"expires": "91d"}, {}, "stay longer"),
        ({"erase_after": "91d"}, {}, "stay longer"),
        ({"expires": "91d"}, {"max_job_lifetime": "100d"}, None),
        (
            {"keep": {"allow": {}, "until": datetime(9999, 1, 1, tzinfo=UTC)}},
            {},
            "until 9999-01-01; this server keeps models",
        ),
        ({"keep": {"allow": {}, "until": datetime.now(UTC).replace(microsecond=0) + timedelta(365)}}, {}, None),
    ],
)
def test_what_a_seat_takes_part_in(
    fields: dict[str, Any], policy: dict[str, Any], words: str | None, door: Door
) -> None:
    found = refusal_of(job(**fields).proposal, Policy(**policy), door)
    assert (found is None) == (words is None), found
    assert words is None or words in (found or "")


def test_another_build_is_refused(door: Door) -> None:
    other = ProposedJob(OF.data.replace(b"+", b"+f", 1))
    assert "must have the same" in (refusal_of(other.proposal, Policy(), door) or "")


@pytest.mark.parametrize(
    "payload", [b"[]", b"{}", b'{"chunks": 1}', b'{"chunks": [[], [], []]}', b'{"chunks": [[1], [], [], []]}', b"x"]
)
def test_contributions_that_list_no_envelopes(payload: bytes) -> None:
    from ppca.federation.errors import FederationError

    with pytest.raises(FederationError):
        chunks_of(make("north", "contribution", OF, payload))


def test_files_that_are_refused_count_as_jobs_of_the_day(tmp_path: Path) -> None:
    """Reading a file costs a server time whether it is a job or not."""
    door = Door(tmp_path, jobs_per_day=3)
    for number in range(3):
        data = OF.data + f"\nunknown{number} = 1\n".encode()
        with pytest.raises(FederationError, match="unknown"):
            door.admit(make(RECEIVER, "job", sha256(data), data), RECEIVER)
    data = OF.data + b"\nunknown = 1\n"
    door.refuses(make(RECEIVER, "job", sha256(data), data), "daily maximum of invalid job files")
    door.refuses(submitted(OF), "daily maximum of invalid job files")
    assert door.admit(make("north", "job", OF, OF.data), "north"), "others are not held up"


def test_a_number_of_400_digits_is_refused_and_counted(door: Door) -> None:
    """It was answered with an internal error and not counted, and ended commands of members with a traceback."""
    data = re.sub(rb"(?m)^tol = .*$", b"tol = 1" + b"0" * 400, OF.data)
    assert data != OF.data
    with pytest.raises(FederationError, match="is too large for a number"):
        ProposedJob(data)
    with pytest.raises(FederationError, match="is too large for a number"):
        door.admit(make(RECEIVER, "job", sha256(data), data), RECEIVER)
    assert door._refusals(RECEIVER) == 1


def test_an_unexpected_error_in_a_file_is_a_refusal_and_counted(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(data: bytes) -> ProposedJob:
        raise ZeroDivisionError

    monkeypatch.setattr(module, "ProposedJob", fails)
    door.refuses(make(RECEIVER, "job", OF.id, OF.data), "cannot be read \\(ZeroDivisionError")
    assert door._refusals(RECEIVER) == 1


def test_a_file_is_read_outside_the_lock(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one member's file is read, others are served."""
    begun, go_on = threading.Event(), threading.Event()

    def slow(data: bytes) -> ProposedJob:
        begun.set()
        assert go_on.wait(PATIENCE)
        return ProposedJob(data)

    monkeypatch.setattr(module, "ProposedJob", slow)
    other = job(name="other")
    with ThreadPoolExecutor(1) as pool:
        pending = pool.submit(door.admit, make(RECEIVER, "job", other, other.data), RECEIVER)
        try:
            assert begun.wait(PATIENCE)
            assert door._lock.acquire(timeout=PATIENCE)
            door._lock.release()
        finally:
            go_on.set()
        assert pending.result(PATIENCE)
