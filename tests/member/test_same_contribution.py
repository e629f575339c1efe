"""Owners of local jobs and members of a federation send the same, and get the same results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from harness.federation import RECEIVER, job
from harness.lockstep import LockstepServers
from harness.whole import GROUP_KEY, FourServers, WholeJob
from ppca import PCA, Columns, open_table
from ppca.jobs.spec import FORMS, PSI, WIDE_ROWS, Align, Data, local_owners, numbered
from ppca.owner.contribute import Source, contribution, form_of
from ppca.owner.tables.owners import open_columns, open_rows
from ppca.receiver.parts import Parts
from ppca.receiver.unsealing import received

HOLES = 0.05
"""Fraction of the values that are missing."""


def table(rows: int, columns: int, seed: int = 3) -> NDArray[np.float64]:
    random = np.random.default_rng(seed)
    return random.standard_normal((rows, columns)) * np.geomspace(4, 0.5, columns) + 7


def data_of(form: str, rows: int) -> tuple[Data, list[Source]]:
    """A job of two tables of this form, and what their owners have."""
    by_columns, wide, new = "columns" in form, "wide" in form, form in ("new-rows", "new-columns", "coordinates")
    width = 80 if wide else 6
    X = table(rows, width)
    more: dict[str, Any] = {"scales": (2,) * width} if new else {}
    if not by_columns:
        sources = [Source(one) for one in open_rows(np.array_split(X, 2))]
        return Data(form=form, owners=local_owners(2), columns=numbered(width), **more), sources
    halves = [pd.DataFrame(part).assign(id=np.arange(rows)) for part in np.array_split(X, 2, axis=1)]
    names = [[f"{owner}{k}" for k in range(width // 2)] for owner in "ab"]
    tables = open_columns([half.set_axis([*own, "id"], axis=1) for half, own in zip(halves, names, strict=True)], "id")
    columns = {"owner-1": numbered(width // 2), "owner-2": numbered(width // 2, width // 2)}
    return Data(form=form, owners=local_owners(2), columns=columns, align=Align(), **more), [Source(t) for t in tables]


@pytest.mark.parametrize("form", FORMS)
def test_rows_come_before_the_other_inputs_of_a_table(form: str) -> None:
    data, sources = data_of(form, 40)
    asked: list[int] = []

    def key() -> bytes:
        asked.append(1)
        return GROUP_KEY

    for number, source in enumerate(sources):
        told: list[int] = []
        chunks = list(contribution(data, number, source, key, lambda done, total, told=told: told.append(done)))
        kinds = [chunk.rows for chunk in chunks]
        assert kinds == sorted(kinds, reverse=True)
        assert {chunk.table for chunk in chunks} == {number}
        assert all(len(chunk.packets) == 1 for chunk in chunks if chunk.rows)
        assert (chunks[0].tags is not None) == (data.align is not None and data.align.alignment == PSI)
        assert [chunk.part(2).packets for chunk in chunks] == [[four[2] for four in c.packets] for c in chunks]
        assert told == sorted(told)
        assert told[-1] > 0
    assert bool(asked) == (data.align is not None)


def test_the_form_follows_from_rows_and_columns() -> None:
    for rows, width, form in ((40, 6, "rows"), (20, 100, WIDE_ROWS)):
        assert form_of([Source(one) for one in open_rows(np.array_split(table(rows, width), 2))]) == form
    for rows, form in ((60, "columns"), (5, "wide-columns")):
        _, sources = data_of("columns", rows)
        assert form_of(sources, Align()) == form


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Any:
    found = FourServers(tmp_path_factory.mktemp("servers"))
    yield found
    found.close()


def test_missing_values_of_column_owners_are_filled_in_both_worlds(servers: FourServers, tmp_path: Path) -> None:
    """Each owner puts the mean of its own column instead of a missing value."""
    X = table(60, 6)
    X[np.random.default_rng(4).random(X.shape) < HOLES] = np.nan
    names = [f"v{k}" for k in range(6)]
    held = {"north": names[:2], "south": names[2:4], "west": names[4:]}
    frames = {owner: pd.DataFrame(X, columns=names)[own].assign(id=np.arange(60)) for owner, own in held.items()}
    described = job(
        name="fill", columns=held, missing="mean", components=2, align={"alignment": "psi", "row_share_at_most": 1}
    )
    whole = WholeJob(servers, described)
    for owner, frame in frames.items():
        frame.to_csv(tmp_path / f"{owner}.csv", index=False)
        assert whole.contribute(owner, tmp_path / f"{owner}.csv", "id") == [""] * 4
    result = received(whole.run(), RECEIVER)
    exponents = np.broadcast_to(np.asarray(result["exponents"], np.int64), (6,))
    variances = Parts.of(result, exponents.copy()).variances

    local = PCA(2, partition=Columns("id"), servers=LockstepServers())
    local.fit([open_table(frame, missing="mean") for frame in frames.values()])
    filled = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
    truth = np.linalg.eigvalsh(np.cov(filled.T))[::-1][:2]
    for found in (variances, local.explained_variance_):
        np.testing.assert_allclose(found, truth, rtol=1e-6)
