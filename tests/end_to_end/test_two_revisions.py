"""Some servers have the new revision of the federation while a job is under way: it runs or waits, and nothing is lost."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from benchmarks.field import OPERATORS, Field
from benchmarks.jobs import fit_job
from ppca.federation.proposal import ProposedJob
from ppca.member.contributing import contribute
from ppca.member.fetching import Evidence

pytestmark = pytest.mark.processes
OWNERS = ("north", "south", "west")
COLUMNS = ["a", "b", "c"]
PATIENCE = 240.0
TABLES = {owner: np.random.default_rng(i).standard_normal((30, 3)) for i, owner in enumerate(OWNERS)}


def await_that(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def revision_of(field: Field, server: int) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{field.ports[server][2]}/v1/state", timeout=10) as answer:
        return int(json.loads(answer.read())["revision"])


def fill(field: Field, job: ProposedJob, owner: str, folder: Path) -> None:
    path = folder / f"{owner}.csv"
    np.savetxt(path, TABLES[owner], delimiter=",", header=",".join(COLUMNS), comments="", fmt="%.17g")
    with closing(field.member(owner)) as member:
        contribute(member, job, path)


@pytest.mark.release
@pytest.mark.timeout(900)
def test_a_job_is_done_although_two_revisions_are_in_force(tmp_path: Path) -> None:
    with Field(tmp_path / "field", (*OWNERS, "gone"), ("analyst",)) as field:
        with closing(field.member("analyst")) as analyst:
            job = fit_job(analyst.membership, "between", OWNERS, COLUMNS, {"analyst": ["model"]}, components=2)
            analyst.submit(job)
            for owner in OWNERS:
                with closing(field.member(owner)) as member:
                    member.approve(job)
            await_that(lambda: not any(item.what.startswith("offer") for item in analyst.job_state(job).waiting))
            for owner in OWNERS[:2]:
                fill(field, job, owner, tmp_path)
            field.write_membership(2, left_out=("gone",), only=OPERATORS[:2])
            await_that(lambda: [revision_of(field, server) for server in range(4)] == [2, 2, 1, 1])
            fill(field, job, OWNERS[2], tmp_path)
            time.sleep(10)  # the job runs, or waits
            assert not analyst.job_state(job).over or analyst.job_state(job).done
        field.write_membership(2, left_out=("gone",))
        await_that(lambda: all(revision_of(field, server) == 2 for server in range(4)))
        with closing(field.member("analyst")) as analyst:
            *_, (state, _) = analyst.watch(job, PATIENCE)
            assert state.done, state.why
            evidence = Evidence.gather(analyst, job)
            evidence.check()
        values = np.linalg.eigvalsh(np.cov(np.vstack(list(TABLES.values())).T))[::-1]
        ratios = evidence.result().model.explained_variance_ratio
        assert np.abs(ratios - (values / values.sum())[:2]).max() < 1e-8
