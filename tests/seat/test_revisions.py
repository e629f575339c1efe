"""Jobs of an earlier revision: a seat learns of them from another seat that took them then, and begins with none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.jobs import fit_job
from harness.doors import OPERATORS, Doors
from ppca.federation.errors import ObjectRefused
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
    Office(doors.settings(0)).mailbox.close()  # it was in force at alpha's seat
    job = fit_job(doors.roster("analyst"), "former", ["north"], ["a", "b"], {"analyst": ["model"]})
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
    why = refusal_of(job.proposal, office.settings.file.policy, office.admission)
    assert why == "the job is for another revision of the federation than 2; make it again"


def test_a_revision_that_was_never_in_force_here_is_not_taken_from_seats_either(doors: Doors, former: Object) -> None:
    with pytest.raises(ObjectRefused, match="another revision of the federation"):
        Office(doors.settings(1)).admit(former, OPERATORS[0])
