"""`ppca bench accuracy` and `ppca bench owner`: small runs of the parts that measure."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks import accuracy, data_sets, owner, textbook
from ppca.cli.main import app


@pytest.mark.processes
def test_accuracy(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["bench", "accuracy", "--set", "wine", "-o", str(tmp_path)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    rows = json.loads((tmp_path / "accuracy.json").read_text())["rows"]
    assert [row["standardised"] for row in rows] == [False, True]
    for row in rows:
        assert (row["rows"], row["columns"], row["owners"]) == (178, 13, 3)
        assert row["broken"] == []
        assert row["verified"] is True
    assert "kept" in done.stdout


@pytest.mark.processes
def test_components(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        app, ["bench", "components", "--table", "iris", "-o", str(tmp_path)], catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    rows = textbook.load(tmp_path / "components.json")
    assert [row.standardised for row in rows] == [False, True]
    for row in rows:
        assert (row.rows, row.columns, row.determined) == (150, 4, 4)
        assert 0 < row.error < row.bound < 1e-5
        assert row.covered < 1
    assert "4 of 4" in done.stdout


def test_unknown_table() -> None:
    done = CliRunner().invoke(app, ["bench", "components", "--table", "titanic"])
    assert done.exit_code == 2
    assert "unknown table" in done.output


def test_figures_of_components_are_rounded_upwards() -> None:
    row = textbook.Row("t", 10, 3, False, 2, 1.01e-9, 2e-7, 0.991)
    assert textbook.cells(row)[3:] == ["2 of 3", "2e-09", "2e-07", "1.00"]


def test_unknown_data_set() -> None:
    done = CliRunner().invoke(app, ["bench", "accuracy", "--set", "iris"])
    assert done.exit_code == 2
    assert "unknown data set" in done.output


def test_without_a_checkout_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package has no benchmarks/ beside it."""
    monkeypatch.setattr("ppca.cli.bench.CHECKOUT", tmp_path)
    done = CliRunner().invoke(app, ["bench", "ops"])
    assert done.exit_code == 1
    assert "benchmarks are part of a checkout, not of the installed package: clone it" in done.stderr


def test_limits_by_size() -> None:
    sizes = [1, 50, 51, 115, 116, 200, 201]
    assert [accuracy.limit_at(accuracy.ROUND_LIMITS, d) for d in sizes] == [260, 260, 330, 330, 420, 420, None]


def test_broken_limits_are_named() -> None:
    assert accuracy.Accuracy(1e-8, 1e-7, 1e-7, 1e-8).broken() == []
    assert accuracy.Accuracy(1e-5, 1e-8, float("nan"), 1e-6).broken() == ["ratio_error", "residual", "orthogonality"]


@pytest.mark.processes
@pytest.mark.parametrize(
    ("named", "said"), [(True, "no musk_odds.parquet in"), (False, "no musk_odds.parquet: name the folder")]
)
def test_absent_data_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool, said: str) -> None:
    monkeypatch.delenv("PPCA_DATA", raising=False)
    where = ["--data", str(tmp_path)] if named else []
    command = ["bench", "accuracy", "--set", "Musk", "--set", "N-BaIoT", *where, "-o", str(tmp_path)]
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    assert done.exit_code == 0
    assert f"Musk was left out: {said}" in done.stdout
    assert json.loads((tmp_path / "accuracy.json").read_text())["absent"] == ["Musk", "N-BaIoT"]


def test_split_deals_out_every_row() -> None:
    X = np.arange(40.0).reshape(20, 2)
    for parts in (1, 3, 5):
        owners = data_sets.split(X, parts)
        assert len(owners) == parts
        np.testing.assert_array_equal(np.vstack(owners), X)


@pytest.mark.parametrize("present", [True, False])
def test_owners_have_all_rows(tmp_path: Path, present: bool) -> None:
    counts = tmp_path / "nbaiot" / "full_dataset_row_counts.csv"
    if present:
        counts.parent.mkdir()
        lines = [f"device {i // 2},{1000 * i + 1}" for i in range(2 * owner.OWNERS)]
        counts.write_text("\n".join(["device,rows_in_full_dataset", *lines]))
    rows = owner.rows_of_owners(owner.ROWS, tmp_path)
    assert len(rows) == owner.OWNERS
    assert sum(rows) == owner.ROWS
    assert (len(set(rows)) > 2) == present  # equal but for rounding where the counts are absent


def test_pass_and_floor(tmp_path: Path) -> None:
    """The table has the wanted covariance, and both measurements read all of it."""
    factor = np.array([[2.0, 0.0], [1.0, 0.5]], np.float32)
    path = tmp_path / "owner.npy"
    owner.write(path, 70_000, np.array([5.0, -1.0], np.float32), factor, seed=0)
    X = np.load(path)
    assert X.shape == (70_000, 2)
    np.testing.assert_allclose(np.cov(X.T), factor @ factor.T, atol=0.1)  # 4 sigma of 70,000 samples are 0.09
    own = owner.measure_pass(path)
    assert own["seconds"] > 0
    assert 1e6 < own["memory"] < 1e11
    assert all(value > 0 for value in owner.measure_floor(path).values())
