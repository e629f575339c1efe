"""A job that is not completed in time, on four server processes: it expires in real time, and all of them erase it.

tests/server/test_erasure.py asserts this with a clock that the test moves.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from benchmarks.field import OPERATORS, Field
from benchmarks.jobs import fit_job
from harness.envelopes import envelopes_of
from ppca.federation.errors import FederationError
from ppca.federation.proposal import ProposedJob
from ppca.member.contributing import contribute

pytestmark = [pytest.mark.processes, pytest.mark.release]
OWNERS = ("north", "south", "west")
COLUMNS = ["a", "b", "c"]
PATIENCE = 240.0
TABLES = {owner: np.random.default_rng(i).standard_normal((30, 3)) for i, owner in enumerate(OWNERS)}


def await_that(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def proposed(field: Field, name: str, expires: str = "7d") -> ProposedJob:
    analyst = field.member("analyst")
    job = fit_job(*(analyst.membership, name, OWNERS, COLUMNS, {"analyst": ["model"]}), components=2, expires=expires)
    analyst.submit(job)
    return job


def gives(field: Field, owner: str, job: ProposedJob) -> None:
    path = field.folder / f"{owner}.csv"
    np.savetxt(path, TABLES[owner], delimiter=",", header=",".join(COLUMNS), comments="", fmt="%.17g")
    member = field.member(owner)
    member.approve(job)
    await_that(lambda: not any(item.what.startswith("offer") for item in member.job_state(job).waiting))
    contribute(member, job, path)


def test_a_job_that_expires_is_erased_by_all_servers(tmp_path: Path) -> None:
    with Field(tmp_path / "field", OWNERS, ("analyst",)) as field:
        job = proposed(field, "too-late", expires="60s")
        gives(field, "north", job)
        keys = [field.folder / seat / "store" / "keys" / f"job-{job.id}.key" for seat in OPERATORS]
        analyst = field.member("analyst")
        envelopes = {digest for chunks in envelopes_of(analyst, job, "north") for digest in chunks}
        assert envelopes
        assert all(key.exists() for key in keys)
        await_that(lambda: analyst.job_state(job).stage == "erased")
        assert analyst.job_state(job).ended == "expired"
        assert not any(key.exists() for key in keys)
        left = [
            path for seat in OPERATORS for path in (field.folder / seat / "store").rglob("*") if path.name in envelopes
        ]
        assert left == []
        with pytest.raises(FederationError, match="is over"):
            field.member("south").approve(job)
