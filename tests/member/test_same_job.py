"""One job.toml, run by servers of a federation and by local servers: the same openings, and the same values but for rounding."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.federation import OWNERS, RECEIVER, job
from harness.jobs import run_inputs
from harness.lockstep import LockstepServers
from harness.whole import FourServers, WholeJob
from ppca import open_table
from ppca.federation.proposal import ProposedJob
from ppca.jobs.loading import as_data
from ppca.jobs.registry import openings
from ppca.owner.moments import moments
from ppca.owner.rows import share_sums

COLUMNS = ("a", "b", "c", "d")
TOLERANCE = 1e-6
"""Relative to the largest value of a part, as for recorded jobs: two runs of one job differ by up to 4e-8."""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FourServers]:
    found = FourServers(tmp_path_factory.mktemp("servers"))
    yield found
    found.close()


def tables() -> dict[str, Any]:
    random = np.random.default_rng(3)
    mixing = random.standard_normal((4, 4)) * np.array([4.0, 2.0, 1.0, 0.5])[:, None]
    return {owner: random.standard_normal((30, 4)) @ mixing + 5 for owner in OWNERS}


def in_federation(made: ProposedJob, servers: FourServers, folder: Path) -> tuple[Any, list[Any]]:
    whole = WholeJob(servers, ProposedJob(made.data))
    for owner, table in tables().items():
        path = folder / f"{owner}.csv"
        np.savetxt(path, table, delimiter=",", header=",".join(COLUMNS), comments="", fmt="%.17g")
        assert whole.contribute(owner, path) == [""] * 4
    return whole.run()["to"], whole.audit


def on_local_servers(made: ProposedJob) -> tuple[Any, list[Any]]:
    here = LockstepServers()
    packets = [packet for table in tables().values() for packet in share_sums(moments(open_table(table)), len(OWNERS))]
    found = run_inputs(here, as_data(ProposedJob(made.data).spec), *packets)
    return found["to"], here.audits[-1][0]


@pytest.mark.parametrize("standardize", [False, True])
def test_the_same_job_locally_and_in_a_federation(standardize: bool, servers: FourServers, tmp_path: Path) -> None:
    receivers = {RECEIVER: ["model"], "spare": ["variances"]}
    made = job(name=tmp_path.name, columns=COLUMNS, receivers=receivers, components=2, standardize=standardize)
    there, audit = in_federation(made, servers, tmp_path)
    here, local = on_local_servers(made)
    said = [[(line["what"], line["to"], line["shape"]) for line in lines] for lines in (audit, local)]
    assert said[0] == said[1]
    allowed = {(line.what, line.to) for line in openings(made.spec)}
    assert {(what, to) for what, to, _ in said[0]} == allowed
    assert {name: set(parts) for name, parts in here.items()} == {name: set(parts) for name, parts in there.items()}
    for name, parts in here.items():
        for part, value in parts.items():
            mine, other = np.abs(np.asarray(value, float)), np.abs(np.asarray(there[name][part], float))
            np.testing.assert_allclose(mine, other, atol=TOLERANCE * max(1e-300, float(mine.max())), err_msg=part)
