"""A job that uses a kept model: its units are those of the model, its limits hold, and approvers read what it asks for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.jobs import use_job
from harness.federation import COLUMNS, MEMBERSHIP, OWNERS, RECEIVER, job, membership
from harness.whole import FourServers, WholeJob
from ppca.federation.approval_text import in_words, terms
from ppca.federation.proposal import ProposedJob
from ppca.federation.serverfile import Policy
from ppca.jobs.errors import Refusal
from ppca.server.admission import Admission
from ppca.server.policy import refusal_of
from ppca.server.programs import kept_name

RNG = np.random.default_rng(3)
NEW = RNG.standard_normal((12, 3)) * 3 + 3


class Kept:
    """A fit whose model four servers keep for flags, and its facts."""

    def __init__(self, folder: Path, standardize: bool) -> None:
        self.folder = folder
        self.servers = FourServers(folder / "servers")
        keep = {
            "until": datetime.now(UTC).replace(microsecond=0) + timedelta(days=1),
            "allow": {"flags": [RECEIVER], "transform": [RECEIVER]},
        }
        self.fit = job(components=1, standardize=standardize, keep=keep)
        whole = WholeJob(self.servers, self.fit)
        for owner in OWNERS:
            table = RNG.standard_normal((30, 3)) @ np.diag([3.0, 1.0, 0.1]) + 3
            assert whole.contribute(owner, self.write(owner, table)) == [""] * 4
        found = whole.run()["to"][RECEIVER]
        self.audit = whole.audit
        self.exponents = [int(e) for e in np.broadcast_to(found["exponents"], (3,))]
        for job_runner, store in zip(whole.job_runners, whole.stores, strict=True):
            job_runner.staging.keep(self.fit.id, store[kept_name(self.fit.id)])

    def write(self, name: str, table: Any) -> Path:
        path = self.folder / f"{name}.csv"
        np.savetxt(path, table, delimiter=",", header=",".join(COLUMNS), comments="", fmt="%.17g")
        return path

    def use(self, name: str, rows_at_least: int | None = None, **more: Any) -> ProposedJob:
        fields: dict[str, Any] = {"scales": self.exponents, "rows_at_least": rows_at_least} | more
        fields |= {"model": self.fit.id, "model_owners": OWNERS, "threshold": 4.0}
        fields |= {"standardize": self.fit.spec.data.standardize}
        return use_job(MEMBERSHIP, name, [OWNERS[0]], COLUMNS, {RECEIVER: ["flags"]}, **fields)

    def run(self, use: ProposedJob) -> Any:
        self.whole = WholeJob(self.servers, use)
        assert self.whole.contribute(OWNERS[0], self.write("new", NEW)) == [""] * 4
        return self.whole.run()["to"][RECEIVER]["flags"]


@pytest.fixture(scope="module", params=[False, True], ids=["raw", "standardised"])
def kept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    found = Kept(tmp_path_factory.mktemp("kept"), request.param)
    yield found
    found.servers.close()


def test_an_honest_use(kept: Kept) -> None:
    flags = kept.run(kept.use("honest"))
    assert flags.shape == (12,)
    assert 0 < flags.sum() < 12
    assert [line["what"] for line in kept.whole.audit] == ["units of the model", "anomaly flags"]
    assert {"inputs in range", "verification bit"} <= {line["what"] for line in kept.audit}


def test_other_units_are_refused(kept: Kept) -> None:
    """With the second column 2^20 times as large, a flag says whether its value is above a threshold, and nothing else."""
    false = [kept.exponents[0], kept.exponents[1] - 20, kept.exponents[2]]
    with pytest.raises(Refusal, match="scale_exponents of this job are not those of the model"):
        kept.run(kept.use("false", scales=false))


def test_few_rows_are_refused(kept: Kept) -> None:
    with pytest.raises(Refusal, match="there are 12 new rows; this job needs at least 13"):
        kept.run(kept.use("few", rows_at_least=13))


def test_the_limits_of_an_operator(kept: Kept) -> None:
    admission = kept.servers.server_states[0].admission
    assert refusal_of(kept.use("one").proposal, Policy(), admission) is None
    assert "fewer rows" in str(refusal_of(kept.use("two").proposal, Policy(rows_at_least=5), admission))
    assert refusal_of(kept.use("three", rows_at_least=5).proposal, Policy(rows_at_least=5), admission) is None
    assert "columns" in str(refusal_of(kept.use("four").proposal, Policy(columns_at_most=2), admission))


def test_a_model_is_used_by_the_servers_that_made_it(kept: Kept, tmp_path: Path) -> None:
    """Two operators swap their numbers: each would compute with the shares of another position."""
    later = membership(2, operators=("beta", "alpha", "gamma", "delta"))
    MEMBERSHIP.remember(tmp_path)
    later.remember(tmp_path)
    admission = Admission(kept.servers.server_states[0].mailbox, lambda: later, Policy(), 1 << 30)
    use = replace(kept.use("moved").proposal, federation=later.digest)
    why = "beta was another server than 0 when the model of 'first' was made; fit it again"
    assert refusal_of(use, Policy(), admission) == why


def test_approvers_read_threshold_and_units(kept: Kept) -> None:
    spec = kept.use("read", rows_at_least=10).spec
    text = "\n".join([*terms(spec, OWNERS[0]), *in_words(spec)])
    assert "above 4," in text
    assert ("deviations of the columns" if kept.fit.spec.data.standardize else f"2^{kept.exponents[0]}") in text
    assert "minimum number of new rows: 10" in text
    assert "units of the model" in text
