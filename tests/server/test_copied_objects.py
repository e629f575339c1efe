"""What a server takes back from another one, and large job files: a lying server or member cannot stop a server with them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.admission import LocalAdmission, until
from harness.federation import RECEIVER, job, make, server_state, story
from ppca.federation.errors import NotNow, ObjectRefused
from ppca.federation.headers import is_well_formed
from ppca.federation.objects import Object
from ppca.server import admission as module
from ppca.server.restoring import Restoring


def restoring(folder: Path, *items: Object) -> Restoring:
    """A server that gets these objects from another one."""
    content = {item.digest: item.data for item in items}
    mates = SimpleNamespace(get=lambda seat, path, missing_ok=False: content[path.rsplit("/", 1)[1]])
    shares: Any = SimpleNamespace(mates=mates)
    nobody: Any = None
    return Restoring(server_state(folder), shares, nobody, lambda line: None)


@pytest.mark.parametrize(
    ("author", "kind", "about"),
    [
        ("delta", "start", {"attempt": 1, "turn": 1}),
        ("alpha", "start", {"attempt": 1_000_000, "turn": 1}),
        ("alpha", "start", {"attempt": 1, "turn": 10**400}),
        ("north", "receipt", {"owner": "south", "contribution": "0" * 64}),
        ("visitor", "ended", {"attempt": 1, "outcome": "failed", "why": "x", "final": True}),
        ("visitor", "approval", {}),
    ],
)
def test_a_server_takes_nothing_back_that_its_author_may_not_write(
    tmp_path: Path, author: str, kind: str, about: dict[str, Any]
) -> None:
    """One lying server could else make server 0 propose attempts that the others refuse, or stop at every start."""
    of = job()
    honest = [item for item in story(of) if item.header.kind not in ("start", "ready", "ended", "result", "audit")]
    lie = make(author, kind, of, **about)
    restored = restoring(tmp_path, *honest, lie)
    for item in honest:
        assert restored._take(item.data)
    with pytest.raises((ObjectRefused, NotNow)):
        restored._take(lie.data)


def test_the_files_of_open_jobs_of_a_member_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server parses them now and then: there must be room for those of all members."""
    admission = LocalAdmission(tmp_path)
    jobs = [job(name=str(number)) for number in range(3)]
    monkeypatch.setattr(module, "MAX_OPEN_BYTES", len(jobs[0].data) // 2)
    submitted = [make(RECEIVER, "job", each, each.data) for each in jobs]
    admission.tell(submitted[0])
    with pytest.raises(NotNow, match="that are not over exceed"):
        admission.tell(submitted[1])
    admission.mailbox.note(f"over {jobs[0].id}", "0")
    admission.tell(submitted[1])


def test_the_parsed_job_that_was_used_last_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one in left first: a list of slightly more jobs than there is room for was parsed anew every time."""
    monkeypatch.setattr(module, "PARSED_JOBS", 2)
    admission = LocalAdmission(tmp_path)
    first, second, third = (job(name=str(number)) for number in range(3))
    admission.tell(*(make(RECEIVER, "job", each, each.data) for each in (first, second, third)))
    for each in (first, second, first, third):
        admission.job(each.id)
    assert list(admission._jobs) == [first.id, third.id]


@pytest.mark.parametrize(
    ("kind", "about"),
    [
        ("start", {"attempt": 1 << 20}),
        ("start", {"attempt": 1, "turn": 1 << 53}),
        ("start", {"attempt": 1, "turn": -1}),
        ("offer", {"server": 0, "place": 1.5}),
        ("offer", {"server": 0, "again": True}),
    ],
)
def test_numbers_in_headers_have_bounds(kind: str, about: dict[str, Any]) -> None:
    assert not is_well_formed(make("alpha", kind, job(), **about).header)


def test_who_has_a_part_in_a_job_is_known_without_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member's stream of events asks this for every object, also of jobs with large files that are not parsed any more."""
    admission = LocalAdmission(tmp_path)
    admission.tell(*until("approval"))
    (of,) = admission.mailbox.jobs()
    members = admission.members(of)
    assert {"north", "south", "west", RECEIVER} <= members

    def parse(*arguments: Any) -> None:
        raise AssertionError("the file was parsed again")

    monkeypatch.setattr(module, "ProposedJob", parse)
    admission._jobs.clear()
    assert admission.members(of) == members
    assert (admission.name(of), admission.jobs()) == ("first", ([of], []))


def test_the_job_files_of_a_member_take_a_bounded_part_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    admission = LocalAdmission(tmp_path)
    first, second = job(name="1"), job(name="2")
    monkeypatch.setattr(module, "MAX_JOB_BYTES", 3 * len(first.data) // 2)
    admission.tell(make(RECEIVER, "job", first, first.data))
    admission.tell(make(RECEIVER, "job", second, second.data))
    third = job(name="3")
    with pytest.raises(NotNow, match=r"the files of analyst's jobs exceed [0-9,]+ bytes"):
        admission.tell(make(RECEIVER, "job", third, third.data))
    admission.tell(make("north", "job", third, third.data))
