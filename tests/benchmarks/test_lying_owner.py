"""Every lie of the adversary reaches the check that must refuse it, which names the owner."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.lying_owner import WAYS, contribution
from harness.federation import IDENTITIES, OWNERS, job
from harness.whole import FourServers, WholeJob
from ppca.jobs.errors import Refusal

LIAR = "south"
BY_OWNER = {owner: [f"{owner}{number}" for number in range(2)] for owner in OWNERS}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FourServers]:
    found = FourServers(tmp_path_factory.mktemp("servers"))
    yield found
    found.close()


def begun(servers: FourServers, folder: Path, name: str, by_columns: bool) -> tuple[WholeJob, Any]:
    """A job to which every owner but the liar has contributed, and what fills the liar's envelopes."""
    columns: Any = BY_OWNER if by_columns else ["a", "b"]
    align = {"alignment": "psi", "minimum": 2} if by_columns else None
    whole = WholeJob(servers, job(name=name, columns=columns, components=2, align=align))
    draw = np.random.default_rng(3)
    tables = {}
    for owner in OWNERS:
        names = BY_OWNER[owner] if by_columns else columns
        table = np.column_stack([np.arange(40) + 100, draw.standard_normal((40, 2)) + 3])
        tables[owner] = folder / f"{owner}.csv"
        np.savetxt(tables[owner], table, delimiter=",", header=",".join(["id", *names]), comments="", fmt="%.17g")
        if owner != LIAR:
            assert whole.contribute(owner, tables[owner], "id" if by_columns else None) == [""] * 4
    return whole, lambda envelopes: whole.fill(LIAR, tables[LIAR], envelopes, "id" if by_columns else None)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.release)])
@pytest.mark.parametrize("name", WAYS)
def test_a_lie_is_refused_by_the_name_of_its_owner(name: str, seed: int, servers: FourServers, tmp_path: Path) -> None:
    """All lies of the adversary lacked the random elements, so they were refused at the first message."""
    whole, fill = begun(servers, tmp_path, f"{seed}-{name[:20].replace(' ', '-')}", WAYS[name].by_columns)
    made = contribution(name, IDENTITIES[LIAR], whole.job.id, whole.keys, fill, random.Random(seed))
    found = [why for why in whole.deliver(LIAR, made) if why]
    assert "random elements" not in " ".join(found) or WAYS[name].change is None
    if found:
        assert all(LIAR in why for why in found)
    else:
        with pytest.raises(Refusal, match=LIAR):
            whole.run()
