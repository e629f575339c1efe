"""Jobs of an earlier revision: a server learns of them from another server that took them then, and begins with none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.jobs import fit_job
from harness.api_ports import OPERATORS, Doors
from ppca.federation.errors import ObjectRefused
from ppca.federation.objects import Object
from ppca.server.policy import refusal_of
from ppca.server.server_state import ServerState


@pytest.fixture
def doors(tmp_path: Path) -> Iterator[Doors]:
    found = Doors(tmp_path)
    yield found
    found.close()


@pytest.fixture
def former(doors: Doors) -> Object:
    """A job that was proposed under revision 1, while there is revision 2 now."""
    ServerState(doors.settings(0)).mailbox.close()  # it was in force at alpha's server
    job = fit_job(doors.membership("analyst"), "former", ["north"], ["a", "b"], {"analyst": ["model"]})
    doors.found(revision=2)
    return Object.make(doors.identities["analyst"], "job", job.id, job.data)


def test_members_bring_no_job_of_another_revision(doors: Doors, former: Object) -> None:
    server_state = ServerState(doors.settings(0))
    with pytest.raises(ObjectRefused, match="another revision of the federation; this server has doors, revision 2"):
        server_state.admit(former, "analyst")


def test_seats_pass_it_on_and_nobody_begins_with_it(doors: Doors, former: Object) -> None:
    server_state = ServerState(doors.settings(0))
    assert server_state.admit(former, OPERATORS[1])
    job = server_state.admission.job(former.header.job)
    why = refusal_of(job.proposal, server_state.settings.file.policy, server_state.admission)
    assert why == "the job is for another revision of the federation than 2; make it again"


def test_a_revision_that_was_never_in_force_here_is_not_taken_from_seats_either(doors: Doors, former: Object) -> None:
    with pytest.raises(ObjectRefused, match="another revision of the federation"):
        ServerState(doors.settings(1)).admit(former, OPERATORS[0])
