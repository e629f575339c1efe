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
from harness.admission import OF, STORY, LocalAdmission, until
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


def test_an_altered_job_is_another_job(admission: LocalAdmission) -> None:
    """No approval counts for it, and its name is not the digest of its file."""
    admission.tell(*until("contribution"))
    altered = ProposedJob(OF.data.replace(b'name = "first"', b'name = "other"'))
    admission.refuses(make(RECEIVER, "job", OF.id, altered.data), "not the digest")
    admission.tell(submitted(altered))
    assert all(item.what.startswith(("offer", "approve")) for item in admission.job_state(altered.id).waiting)
    for item in contribution(altered, "north"):
        admission.refuses(item, "has not approved")


def test_an_approval_counts_for_its_job_only(admission: LocalAdmission) -> None:
    other = job(name="other")
    admission.tell(*until("approval"), submitted(other), make("north", "approval", OF))
    replayed = make("north", "approval", OF).data.replace(OF.id.encode(), other.id.encode())
    admission.refuses(Object.parse(replayed), "did not sign")
    assert any(
        item.actor == "north" and item.what.startswith("approve") for item in admission.job_state(other.id).waiting
    )


def test_nothing_for_a_job_that_is_not_there(admission: LocalAdmission) -> None:
    for item in (make("north", "approval", OF), *offers(OF)):
        with pytest.raises(NotNow, match="not known here"):
            admission.tell(item)


def test_who_may_submit(admission: LocalAdmission) -> None:
    admission.refuses(submitted(OF, "visitor"), "is not a member of the job")
    for author in (RECEIVER, "north", "alpha"):
        admission.tell(submitted(OF, author))
    admission.tell(make(RECEIVER, "cancel", OF))
    assert admission.job_state(OF.id).stage == "cancelled"


def test_nobody_submits_a_job_twice(admission: LocalAdmission) -> None:
    """A second object with the same file has another digest: each would count and be stored."""
    admission.tell(submitted(OF))
    admission.refuses(make(RECEIVER, "job", OF, OF.data, note="again"), "has submitted this job already")


def test_jobs_of_members_that_there_are_not(admission: LocalAdmission) -> None:
    for fields in (
        {"owners": (*OWNERS, "nobody")},
        {"owners": (*OWNERS, RECEIVER)},
        {"owners": (*OWNERS, "alpha")},
        {"receivers": {RECEIVER: ["model"], "north": ["model"]}},
    ):
        admission.refuses(submitted(job(**fields)), "is not (an owner|a receiver) in test")


def test_jobs_of_another_revision_or_out_of_time(admission: LocalAdmission) -> None:
    admission.refuses(submitted(job(membership(2))), "another revision")
    past = datetime.now(UTC).replace(microsecond=0) - timedelta(days=1)
    old = fit_job(MEMBERSHIP, "old", OWNERS, ["a"], {RECEIVER: ["model"]}, expires=past)
    admission.refuses(submitted(old), "has expired")
    admission.refuses(make(RECEIVER, "job", "0" * 64, b"no file"), "not the digest")


@pytest.mark.parametrize("data", [b"", b"\xff", b"a = 1", b"[" * 9999, b"expires = 9999-12-31T23:59:59-12:00"])
def test_files_that_are_no_jobs(data: bytes, admission: LocalAdmission) -> None:
    from ppca.federation.errors import FederationError
    from ppca.federation.objects import sha256

    with pytest.raises(FederationError):
        admission.tell(make(RECEIVER, "job", sha256(data), data))
    assert admission.mailbox.jobs() == []


def test_a_job_file_that_is_too_long(admission: LocalAdmission) -> None:
    long = ProposedJob(OF.data + b"#" * (1 << 20))
    admission.refuses(submitted(long), "The maximum is 1,048,576")


def test_a_removed_member_is_out(admission: LocalAdmission) -> None:
    admission.tell(*until("approval"))
    admission.federation = membership(2, left_out=("north",))
    item = make("north", "approval", OF)
    admission.refuses(item, "is not a member of")
    admission.refuses(item, "is not a member of", carrier="beta")
    admission.refuses(submitted(job(admission.federation)), "north is not an owner")


def with_former_keys(admission: LocalAdmission) -> dict[str, Identity]:
    """Give a federation its second revision, in which north and gamma have new keys; return their former ones."""
    old = {
        name: Identity(name, IDENTITIES["nobody" if name == "north" else "spare"].key) for name in ("north", "gamma")
    }
    former = tuple({"name": name, "key": key_text(old[name].public)} for name in old)
    admission.federation = membership(2, left_out=("spare",), former=former)
    return old


@pytest.mark.parametrize(
    ("author", "kind", "about"), [("north", "approval", {}), ("gamma", "receipt", {"owner": "north"})]
)
def test_a_former_key_signs_nothing_for_a_job_of_the_present_revision(
    tmp_path: Path, author: str, kind: str, about: dict[str, Any]
) -> None:
    """Whoever brings it: the key may have been replaced because it was stolen."""
    admission = LocalAdmission(tmp_path)
    old = with_former_keys(admission)
    of = job(admission.federation)
    admission.tell(submitted(of))
    item = Object.make(old[author], kind, of.id, **about)
    for carrier in (author, "beta"):
        admission.refuses(item, "did not sign", carrier=carrier)


def test_an_offer_signed_with_a_former_key_is_refused(tmp_path: Path) -> None:
    """A thief with the old key of a server and another server that passes it on would else get the shares of new owners."""
    admission = LocalAdmission(tmp_path)
    admission.tell(*until("offer"))
    old = with_former_keys(admission)
    new = job(admission.federation)
    admission.tell(submitted(new))
    for of in (OF, new):  # jobs of the earlier and of the present revision
        offer = Object.make(old["gamma"], "offer", of.id, bytes(32), server=2, again=99)
        admission.refuses(offer, "did not sign", carrier="delta")


def test_a_former_key_counts_for_records_of_a_job_of_an_earlier_revision(tmp_path: Path) -> None:
    admission = LocalAdmission(tmp_path)
    admission.tell(*until("contribution"))
    old = with_former_keys(admission)
    item = Object.make(old["gamma"], "receipt", OF.id, owner="north", contribution=sha256(b""))
    assert admission.admit(item, "beta")


# -- limits --------------------------------------------------------------------------------------------------------------


def test_jobs_under_way_and_in_a_day(tmp_path: Path) -> None:
    admission = LocalAdmission(tmp_path, jobs_per_member=2, jobs_per_day=3)
    first, second = job(name="1"), job(name="2")
    admission.tell(submitted(first), submitted(second))
    with pytest.raises(NotNow, match="2 jobs that are not over"):
        admission.tell(submitted(job(name="3")))
    admission.tell(submitted(job(name="4"), "north"))
    admission.tell(make(RECEIVER, "cancel", first), submitted(job(name="3")))
    admission.tell(make(RECEIVER, "cancel", second))
    with pytest.raises(NotNow, match="daily maximum of jobs"):
        admission.tell(submitted(job(name="5")))


def test_a_member_cannot_fill_the_store(tmp_path: Path) -> None:
    admission = LocalAdmission(tmp_path, bytes_per_member=1 << 20)
    admission.tell(*until("envelope"))
    payload = bytes(300_000)
    with pytest.raises(NotNow, match="as much as this server allows a member"):
        admission.tell(*(make("north", "envelope", OF, payload, to=0, chunk=chunk) for chunk in range(10)))
    assert admission.mailbox.bytes_of("north") <= 1 << 20
    admission.tell(make("south", "envelope", OF, payload, to=0, chunk=0))


def test_a_full_store(tmp_path: Path) -> None:
    admission = LocalAdmission(tmp_path, at_most=1 << 20)
    admission.tell(*until("envelope"))
    with pytest.raises(NotNow, match="store of this server is full"):
        admission.tell(make("north", "envelope", OF, bytes(1 << 20), to=0, chunk=0))
    admission._at_most = 1
    admission.refuses(make("west", "refusal", OF, why="no"), "is full")
    admission.tell(make("beta", "refusal", OF, why="no"))


def test_a_member_cannot_flood_with_small_objects(admission: LocalAdmission, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_OBJECTS", 20)
    admission.tell(*until("envelope"))
    with pytest.raises(ObjectRefused, match="maximum of 20 objects"):
        admission.tell(*(make("north", "envelope", OF, b"x", to=0, chunk=chunk) for chunk in range(100)))
    assert admission.mailbox.objects(OF.id).count["north"] == 20
    admission.tell(make("south", "envelope", OF, b"x", to=0, chunk=0))


def test_parsed_jobs_are_not_kept_without_end(admission: LocalAdmission, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PARSED_JOBS", 3)
    jobs = [job(name=str(n)) for n in range(6)]
    admission.tell(*map(submitted, jobs))
    assert [admission.job(each.id).id for each in jobs] == [each.id for each in jobs]
    assert len(admission._jobs) == 3


def test_parsed_jobs_are_bounded_by_the_bytes_of_their_files(
    admission: LocalAdmission, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [job(name=f"{n:02}") for n in range(6)]
    monkeypatch.setattr(module, "PARSED_BYTES", 3 * len(jobs[0].data))
    admission.tell(*map(submitted, jobs))
    assert [admission.job(each.id).id for each in jobs] == [each.id for each in jobs]
    assert len(admission._jobs) == 3
    assert admission._parsed == sum(len(known.data) for known in admission._jobs.values())


def test_threads_do_not_get_two_of_what_is_said_once(admission: LocalAdmission) -> None:
    """Checked and stored as one step: of many different approvals, contributions and starts at once, one gets in."""
    admission.tell(*until("start"))
    items = [make("alpha", "start", OF, attempt=1, n=n) for n in range(16)]
    items += [make("north", "approval", OF, n=n) for n in range(16)]

    def put(item: Object) -> bool:
        try:
            return admission.admit(item, item.header.author)
        except ObjectRefused:
            return False

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(put, items)) == 1
    assert [header.kind for header in admission.mailbox.headers(OF.id)].count("start") == 1


def test_threads_do_not_get_over_the_limit(tmp_path: Path) -> None:
    admission = LocalAdmission(tmp_path, jobs_per_member=3)
    items = [submitted(job(name=str(n))) for n in range(12)]

    def put(item: Object) -> bool:
        try:
            return admission.admit(item, RECEIVER)
        except NotNow:
            return False

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(put, items)) == 3


def test_lost_content_is_taken_again_whatever_has_happened_since(admission: LocalAdmission) -> None:
    admission.tell(*STORY)
    envelope = next(item for item in STORY if item.header.kind == "envelope")
    admission.mailbox._path(envelope.digest).unlink()
    assert admission.mailbox.get(envelope.digest) is None
    assert not admission.admit(envelope, "delta")
    assert admission.mailbox.get(envelope.digest) == envelope


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
def test_what_a_server_takes_part_in(
    fields: dict[str, Any], policy: dict[str, Any], words: str | None, admission: LocalAdmission
) -> None:
    found = refusal_of(job(**fields).proposal, Policy(**policy), admission)
    assert (found is None) == (words is None), found
    assert words is None or words in (found or "")


def test_another_build_is_refused(admission: LocalAdmission) -> None:
    other = ProposedJob(OF.data.replace(b"+", b"+f", 1))
    assert "must have the same" in (refusal_of(other.proposal, Policy(), admission) or "")


@pytest.mark.parametrize(
    "payload", [b"[]", b"{}", b'{"chunks": 1}', b'{"chunks": [[], [], []]}', b'{"chunks": [[1], [], [], []]}', b"x"]
)
def test_contributions_that_list_no_envelopes(payload: bytes) -> None:
    from ppca.federation.errors import FederationError

    with pytest.raises(FederationError):
        chunks_of(make("north", "contribution", OF, payload))


def test_files_that_are_refused_count_as_jobs_of_the_day(tmp_path: Path) -> None:
    """Reading a file costs a server time whether it is a job or not."""
    admission = LocalAdmission(tmp_path, jobs_per_day=3)
    for number in range(3):
        data = OF.data + f"\nunknown{number} = 1\n".encode()
        with pytest.raises(FederationError, match="unknown"):
            admission.admit(make(RECEIVER, "job", sha256(data), data), RECEIVER)
    data = OF.data + b"\nunknown = 1\n"
    admission.refuses(make(RECEIVER, "job", sha256(data), data), "daily maximum of invalid job files")
    admission.refuses(submitted(OF), "daily maximum of invalid job files")
    assert admission.admit(make("north", "job", OF, OF.data), "north"), "others are not held up"


def test_a_number_of_400_digits_is_refused_and_counted(admission: LocalAdmission) -> None:
    """It was answered with an internal error and not counted, and ended commands of members with a traceback."""
    data = re.sub(rb"(?m)^tol = .*$", b"tol = 1" + b"0" * 400, OF.data)
    assert data != OF.data
    with pytest.raises(FederationError, match="is too large for a number"):
        ProposedJob(data)
    with pytest.raises(FederationError, match="is too large for a number"):
        admission.admit(make(RECEIVER, "job", sha256(data), data), RECEIVER)
    assert admission._refusals(RECEIVER) == 1


def test_an_unexpected_error_in_a_file_is_a_refusal_and_counted(
    admission: LocalAdmission, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(data: bytes) -> ProposedJob:
        raise ZeroDivisionError

    monkeypatch.setattr(module, "ProposedJob", fails)
    admission.refuses(make(RECEIVER, "job", OF.id, OF.data), "cannot be read \\(ZeroDivisionError")
    assert admission._refusals(RECEIVER) == 1


def test_a_file_is_read_outside_the_lock(admission: LocalAdmission, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one member's file is read, others are served."""
    begun, go_on = threading.Event(), threading.Event()

    def slow(data: bytes) -> ProposedJob:
        begun.set()
        assert go_on.wait(PATIENCE)
        return ProposedJob(data)

    monkeypatch.setattr(module, "ProposedJob", slow)
    other = job(name="other")
    with ThreadPoolExecutor(1) as pool:
        pending = pool.submit(admission.admit, make(RECEIVER, "job", other, other.data), RECEIVER)
        try:
            assert begun.wait(PATIENCE)
            assert admission._lock.acquire(timeout=PATIENCE)
            admission._lock.release()
        finally:
            go_on.set()
        assert pending.result(PATIENCE)
