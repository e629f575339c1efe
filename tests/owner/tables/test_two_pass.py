"""Column owners whose rows leave in the order of their table: passed over twice instead of held, with the same result."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from harness.lockstep import LockstepServers
from ppca import PCA, Columns
from ppca.owner.errors import BadValue, NoRows, OwnerError
from ppca.owner.tables import records, table
from ppca.owner.tables.opening import open_table
from ppca.owner.tables.records import Records
from ppca.owner.tables.two_pass import TwoPassValues

X = np.random.default_rng(0).normal(size=(2000, 6)) @ np.random.default_rng(1).normal(size=(6, 6)) + 1e6


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every table is too large to be held, and comes in many chunks."""
    monkeypatch.setattr(records, "HELD_NUMBERS", 0)
    monkeypatch.setattr(table, "CHUNK_ROWS", 77)


def test_what_an_upload_needs() -> None:
    values = TwoPassValues(open_table(X))
    assert values.shape == (len(values), 6) == X.shape
    assert (values.min(axis=0) == X.min(axis=0)).all()
    assert (values.max(axis=0) == X.max(axis=0)).all()
    exact = np.array([math.fsum(column) / 2000 for column in X.T])
    assert np.abs(values.mean(axis=0) - exact).max() <= 2.0**-51 * 1e6  # an ulp or two
    for step in (1, 77, 100, 5000):
        assert (np.concatenate([values[at : at + step] for at in range(0, 2000, step)]) == X).all()
    assert (values[500:600] == X[500:600]).all()


def test_what_is_held_all_the_same() -> None:
    def is_passed(data: Any, **options: Any) -> bool:
        found = Records.for_upload(open_table(data, **options), in_order=True, columns=12, fill=True)
        assert len(found.values) == len(data)
        return isinstance(found.values, TwoPassValues)

    assert is_passed(X)
    assert not is_passed(X[:11])  # a wide table
    assert not is_passed(X, missing="mean")
    assert not is_passed(np.arange(4000).reshape(2000, 2) + 2**60)
    assert isinstance(Records.for_upload(open_table(X), in_order=False, columns=12).values, np.ndarray)


def test_refusals(tmp_path: Path) -> None:
    holes = X.copy()
    holes[1500, 2] = np.nan
    with pytest.raises(BadValue, match=r"column 3 has a missing value .* in row 1,501"):
        TwoPassValues(open_table(holes))
    path = tmp_path / "x.csv"
    pd.DataFrame(X, columns=list("abcdef")).to_csv(path, index=False)
    values = TwoPassValues(open_table(path))
    pd.DataFrame(X[:100], columns=list("abcdef")).to_csv(path, index=False)
    with pytest.raises(OwnerError, match="has changed while it was read"):
        values[0:2000]
    path.write_text("a,b\n")
    with pytest.raises(NoRows):
        TwoPassValues(open_table(path))


def test_a_fit_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    people = [f"p{i}" for i in range(2000)]
    owners = [
        pd.DataFrame(X[:, part], columns=list(names)).assign(who=people)
        for part, names in ((slice(0, 2), "ab"), (slice(2, 6), "cdef"))
    ]
    partition = Columns(id="who", alignment="aligned")
    found = PCA(3, partition=partition, servers=LockstepServers()).fit(owners)
    monkeypatch.setattr(records, "HELD_NUMBERS", 1 << 24)
    wanted = PCA(3, partition=partition, servers=LockstepServers()).fit(owners)
    assert found.rows_of_owners_ == wanted.rows_of_owners_ == [2000, 2000]
    assert np.abs(found.explained_variance_ratio_ - wanted.explained_variance_ratio_).max() < 1e-9
    assert np.abs(found.mean_ - X.mean(axis=0)).max() < 1e-6  # on the grid of 2^-24 of the deviations
    owners[1] = owners[1].iloc[::-1]
    with pytest.raises(OwnerError, match="have different ids or another order"):
        PCA(3, partition=partition, servers=LockstepServers()).fit(owners)


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_rows_appended_between_two_passes_are_refused(tmp_path: Path, kind: str) -> None:
    """They were left out without notice: the count, the means and the rows that were sent were those of different tables."""
    path = tmp_path / "north" / "x.csv"
    path.parent.mkdir()
    pd.DataFrame(X, columns=list("abcdef")).to_csv(path, index=False)
    values = TwoPassValues(open_table(path if kind == "file" else path.parent))
    with path.open("a") as file:
        file.write("1,2,3,4,5,6\n")
    with pytest.raises(OwnerError, match="has changed while it was read"):
        values[0:2000]


def test_a_file_that_changes_during_a_pass_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    pd.DataFrame(X, columns=list("abcdef")).to_csv(path, index=False)
    chunks = open_table(path).chunks()
    next(chunks)
    with path.open("a") as file:
        file.write("1,2,3,4,5,6\n")
    with pytest.raises(OwnerError, match="has changed while it was read"):
        list(chunks)
