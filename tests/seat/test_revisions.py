"""Jobs of an earlier revision: a seat learns of them from another seat, begins with none, and takes none from members."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.doors import OPERATORS, Doors
from ppca.federation.drafting import draft_fit
from ppca.federation.errors import NotNow, ObjectRefused
from ppca.federation.objects import Object
from ppca.seat.office import Office
from ppca.seat.policy import refusal_of


@pytest.fixture
def doors(tmp_path: Path) -> Iterator[Doors]:
    found = Doors(tmp_path)
    yield found
    found.close()


@pytest.fixture
def former(doors: Doors) -> Object:
    """A job that was proposed under revision 1, while there is revision 2 now."""
    job = draft_fit(doors.roster("analyst"), "former", ["north"], ["a", "b"], {"analyst": ["model"]})
    doors.found(revision=2)
    return Object.make(doors.identities["analyst"], "job", job.id, job.data)


def test_members_bring_no_job_of_another_revision(doors: Doors, former: Object) -> None:
    office = Office(doors.settings(0))
    with pytest.raises(ObjectRefused, match="another revision of the federation; this seat has doors, revision 2"):
        office.admit(former, "analyst")


def test_seats_pass_it_on_and_nobody_begins_with_it(doors: Doors, former: Object) -> None:
    office = Office(doors.settings(0))
    assert office.admit(former, OPERATORS[1])
    job = office.admission.job(former.header.job)
    why = refusal_of(job.file, office.settings.file.policy, office.admission)
    assert why == "the job is for another revision of the federation than 2; make it again"


def test_a_lost_seat_gets_all_jobs_back_at_once(doors: Doors) -> None:
    office = Office(doors.settings(0, policy={"jobs_per_member": 2}))
    jobs = [draft_fit(doors.roster("analyst"), f"job {i}", ["north"], ["a"], {"analyst": ["model"]}) for i in range(4)]
    found = [Object.make(doors.identities["analyst"], "job", job.id, job.data) for job in jobs]
    for item in found[:2]:
        assert office.admit(item, OPERATORS[1])
    with pytest.raises(NotNow, match="2 jobs under way"):
        office.admit(found[2], OPERATORS[1])
    for item in found[2:]:
        assert office.admission.admit(item, OPERATORS[1], restoring=True)
