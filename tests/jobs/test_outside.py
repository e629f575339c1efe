"""An analysis from outside the package, kept as an example: one class and one registration, and no change of any other file.

`harness/outside.py` has the class. It runs on local servers and in a federation, with the same checks, texts for approvers
and enforced openings as every analysis.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from harness.federation import MEMBERSHIP, OWNERS, RECEIVER
from harness.jobs import run_inputs
from harness.lockstep import LockstepServers
from harness.outside import JointMeans
from harness.whole import FourServers, WholeJob
from ppca import open_table
from ppca.federation.approval_text import in_words, terms
from ppca.federation.errors import FileRefused
from ppca.federation.proposal import ProposedJob, propose
from ppca.federation.serverfile import Policy
from ppca.jobs.checks import SpecError
from ppca.jobs.chunks import Chunk
from ppca.jobs.loading import as_data
from ppca.jobs.openings import AllowedOpening
from ppca.jobs.registry import ANALYSES, register
from ppca.jobs.spec import CLIENT, ROWS, Analysis, Data, JobSpec
from ppca.owner.moments import moments
from ppca.owner.rows import share_sums
from ppca.protocol import OpeningRefused
from ppca.receiver.unsealing import unsealed
from ppca.runtime import LocalServers, ServersFailed
from ppca.runtime.worker import arguments_of as worker_arguments
from ppca.server.policy import refusal_of

COLUMNS = ("a", "b", "c")


class Greedy(JointMeans):
    """Reveals the number of rows, and does not list that."""

    NAME: ClassVar[str] = "greedy/1"

    def openings(self, job: JobSpec) -> list[AllowedOpening]:
        return [line for line in super().openings(job) if line.what != "number of rows"]


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    for analysis in (JointMeans, Greedy):
        register(analysis)
    yield
    for analysis in (JointMeans, Greedy):
        del ANALYSES[analysis.NAME]


def spec(analysis: Analysis, receivers: Any = None, **data: Any) -> JobSpec:
    fields: dict[str, Any] = {"form": ROWS, "owners": OWNERS, "columns": COLUMNS, "check_inputs": True} | data
    return JobSpec(data=Data(**fields), analysis=analysis, receivers=receivers or {RECEIVER: ("means",)})


def tables() -> dict[str, Any]:
    random = np.random.default_rng(4)
    return {owner: random.standard_normal((20, 3)) * [1.0, 10.0, 100.0] + [0.5, -3.0, 1e4] for owner in OWNERS}


def mean_of(parts: dict[str, Any]) -> Any:
    return np.ldexp(np.asarray(parts["mean"], float), np.asarray(parts["exponents"], int))


def on_local_servers(job: JobSpec) -> tuple[dict[str, Any], list[str]]:
    here = LockstepServers()
    packets = [part for table in tables().values() for part in share_sums(moments(open_table(table)), len(OWNERS))]
    found = run_inputs(here, as_data(job), *packets)
    return found["to"], [line["what"] for line in here.audits[-1][0]]


TRUTH = np.concatenate(list(tables().values())).mean(axis=0)
ERROR = 2.0**-60 * float(np.abs(TRUTH).max())
"""Means have 68 digits after the largest of the owners' means, and come back as doubles of 53 digits each."""


def close(found: Any) -> None:
    np.testing.assert_allclose(found, TRUTH, rtol=1e-12, atol=ERROR)


def test_it_runs_on_local_servers() -> None:
    found, audit = on_local_servers(spec(JointMeans(with_rows=True)))
    close(mean_of(found[RECEIVER]))
    assert int(found[RECEIVER]["rows"]) == 60
    assert audit == ["inputs in range", "means", "scale of the means", "number of rows"]


@pytest.mark.processes
def test_it_runs_in_server_processes_that_import_its_module() -> None:
    job = spec(JointMeans(with_rows=True), {CLIENT: ("means",)}, check_inputs=False)
    sums = [share_sums(moments(open_table(table)), len(OWNERS)) for table in tables().values()]
    with LocalServers(developer=True, modules=("harness.outside_registered",)) as servers:
        done = servers.run_job(job, [Chunk(number, packets) for number, packets in enumerate(sums)])
    found = unsealed(done.parts)["to"][CLIENT]
    close(mean_of(found))
    assert int(found["rows"]) == 60
    assert [line["what"] for line in done.account.audit] == ["means", "scale of the means", "number of rows"]


@pytest.mark.processes
def test_a_module_that_servers_cannot_import_is_named() -> None:
    with (
        pytest.raises(ServersFailed, match=r"No module named 'harness\.nowhere'"),
        LocalServers(developer=True, modules=("harness.nowhere",)),
    ):
        pass


def test_only_developer_servers_import_modules_that_a_client_names() -> None:
    with pytest.raises(ValueError, match="only developer servers import them"):
        LocalServers(modules=("harness.outside_registered",))
    with pytest.raises(SystemExit):
        worker_arguments(["--server", "0", "--client", "1", "--control", "3", "--module", "harness.outside_registered"])


def test_an_opening_that_it_does_not_list_is_refused() -> None:
    on_local_servers(spec(Greedy()))
    with pytest.raises(OpeningRefused, match="number of rows"):
        on_local_servers(spec(Greedy(with_rows=True)))


def test_it_runs_in_a_federation(tmp_path: Path) -> None:
    made = propose(MEMBERSHIP.digest, tmp_path.name, spec(JointMeans()))
    assert b'[analysis]\nname = "means/1"\nwith_rows = false\n' in made.data
    again = ProposedJob(made.data)
    assert again.spec == made.spec
    assert "means of 3 columns" in terms(again.spec, "north")
    assert f"to {RECEIVER}: means (the joint mean of every column)" in in_words(again.spec)
    servers = FourServers(tmp_path / "servers")
    try:
        admission = servers.server_states[0].admission
        assert "not means/1" in str(refusal_of(again.proposal, Policy(analyses=("pca/1",)), admission))
        assert refusal_of(again.proposal, Policy(analyses=("means/1",)), admission) is None
        whole = WholeJob(servers, again)
        for owner, table in tables().items():
            path = tmp_path / f"{owner}.csv"
            np.savetxt(path, table, delimiter=",", header=",".join(COLUMNS), comments="", fmt="%.17g")
            assert whole.contribute(owner, path) == [""] * 4
        close(mean_of(whole.run()["to"][RECEIVER]))
    finally:
        servers.close()
    assert [line["what"] for line in whole.audit] == ["inputs in range", "means", "scale of the means"]


def test_its_faults_are_refused_by_field() -> None:
    with pytest.raises(SpecError) as refused:
        spec(JointMeans(with_rows=3))  # type: ignore[arg-type]
    assert refused.value.field == "analysis.with_rows"
    with pytest.raises(SpecError) as refused:
        spec(JointMeans(), {RECEIVER: ("components",)})
    assert refused.value.field == f"receivers.{RECEIVER}"
    made = propose(MEMBERSHIP.digest, "n", spec(JointMeans()))
    with pytest.raises(FileRefused, match=r"analysis\.digits = 3: is unknown; known are with_rows"):
        ProposedJob(made.data.replace(b"with_rows = false", b"digits = 3"))
