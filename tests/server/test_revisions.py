"""Jobs of an earlier revision: a server learns of them from another server that took them then, and begins with none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.jobs import fit_job
from harness.api_ports import OPERATORS, LocalPorts
from ppca.federation.errors import ObjectRefused
from ppca.federation.objects import Object
from ppca.server.policy import refusal_of
from ppca.server.server_state import ServerState


@pytest.fixture
def local_ports(tmp_path: Path) -> Iterator[LocalPorts]:
    found = LocalPorts(tmp_path)
    yield found
    found.close()


@pytest.fixture
def former(local_ports: LocalPorts) -> Object:
    """A job that was proposed under revision 1, while there is revision 2 now."""
    ServerState(local_ports.settings(0)).mailbox.close()  # it was in force at alpha's server
    job = fit_job(local_ports.membership("analyst"), "former", ["north"], ["a", "b"], {"analyst": ["model"]})
    local_ports.found(revision=2)
    return Object.make(local_ports.identities["analyst"], "job", job.id, job.data)


def test_members_bring_no_job_of_another_revision(local_ports: LocalPorts, former: Object) -> None:
    server_state = ServerState(local_ports.settings(0))
    with pytest.raises(ObjectRefused, match="another revision of the federation; this server has ports, revision 2"):
        server_state.admit(former, "analyst")


def test_servers_pass_it_on_and_nobody_begins_with_it(local_ports: LocalPorts, former: Object) -> None:
    server_state = ServerState(local_ports.settings(0))
    assert server_state.admit(former, OPERATORS[1])
    job = server_state.admission.job(former.header.job)
    why = refusal_of(job.proposal, server_state.settings.file.policy, server_state.admission)
    assert why == "the job is for another revision of the federation than 2; make it again"


def test_a_revision_that_was_never_in_force_here_is_not_taken_from_servers_either(
    local_ports: LocalPorts, former: Object
) -> None:
    with pytest.raises(ObjectRefused, match="another revision of the federation"):
        ServerState(local_ports.settings(1)).admit(former, OPERATORS[0])
