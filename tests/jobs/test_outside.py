"""An analysis from outside the package, kept as an example: one class and one registration, and no change of any other file.

It runs on local servers and in a federation, with the same checks, texts for approvers and enforced openings as every analysis.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from harness.federation import MEMBERSHIP, OWNERS, RECEIVER
from harness.jobs import run_inputs
from harness.lockstep import LockstepServers
from harness.whole import FourServers, WholeJob
from ppca import open_table
from ppca.algorithms.joint_covariance import JointCovariance
from ppca.algorithms.scales import floating
from ppca.federation.approval_text import in_words, terms
from ppca.federation.errors import FileRefused
from ppca.federation.proposal import ProposedJob, propose
from ppca.federation.serverfile import Policy
from ppca.jobs.checks import SpecError, check_switch
from ppca.jobs.loading import as_data
from ppca.jobs.openings import AllowedOpening
from ppca.jobs.registry import ANALYSES, register
from ppca.jobs.spec import ROWS, Analysis, Data, JobSpec
from ppca.owner.moments import moments
from ppca.owner.rows import share_sums
from ppca.protocol import OpeningRefused, Party
from ppca.server.policy import refusal_of

COLUMNS = ("a", "b", "c")


@dataclass(frozen=True, kw_only=True)
class JointMeans(Analysis):
    """The joint mean of every column. with_rows: also the number of rows of all owners together."""

    NAME: ClassVar[str] = "means/1"
    FORMS: ClassVar[frozenset[str]] = frozenset({ROWS})
    PARTS: ClassVar[tuple[str, ...]] = ("means",)

    with_rows: bool = False

    def check(self, job: JobSpec) -> None:
        check_switch("analysis.with_rows", self.with_rows)
        if job.keep is not None:
            raise SpecError("keep", job.keep.name, "means are no model that servers can keep")

    def openings(self, job: JobSpec) -> list[AllowedOpening]:
        whats = ["means", "scale of the means", *(["number of rows"] if self.with_rows else [])]
        return [AllowedOpening(what, receiver) for receiver in job.receivers for what in whats]

    def terms(self, job: JobSpec) -> list[str]:
        return [f"means of {job.data.width} columns" + (", and the number of rows" if self.with_rows else "")]

    async def run(self, party: Party, table: JointCovariance, job: JobSpec) -> dict[str, Any]:
        mean, exponent = await floating(table.mean_mantissa, table.mean_exponent)
        to: dict[str, Any] = {}
        for name in job.receivers:
            to[name] = {
                "mean": mean.reveal(name, what="means", why="agreed result"),
                "exponents": exponent.reveal(name, what="scale of the means", why="agreed result"),
            }
            if self.with_rows:
                to[name]["rows"] = table.n_rows.reveal(name, what="number of rows", why="agreed result")
        return {"to": to}


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
