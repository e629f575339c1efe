"""`ppca bench topk` at small sizes: its table, and its judge of accepted results, who must know a wrong one."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks import topk
from benchmarks.__main__ import app


@pytest.mark.processes
@pytest.mark.release
def test_both_solvers_beside_each_other(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        app, ["topk", "--d", "60", "--k", "2", "--spectrum", "decaying", "--beside", "60", "-o", str(tmp_path)]
    )
    assert done.exit_code == 0, done.output
    rows = json.loads((tmp_path / "topk.json").read_text())
    assert [row["solver"] for row in rows] == ["topk", "allpairs"]
    assert all(row["verified"] and row["residual"] < 4e-7 and row["eigenvalue_error"] < 1e-6 for row in rows)
    assert "times fewer bytes" in done.output


def test_random_matrices(tmp_path: Path) -> None:
    assert topk.cases(3, 40, 1e-7, 5, False, tmp_path)
    tally = json.loads((tmp_path / "topk-cases.json").read_text())
    assert sum(count for what, count in tally.items() if what not in ("d", "seed")) == 3


@pytest.mark.parametrize("kind", ["decaying", "steep", "very steep", "flat", "noisy", "gene", "random"])
def test_made_matrices_have_the_spectrum_they_should(kind: str) -> None:
    values = topk.spectrum(kind, 30, 4, np.random.default_rng(2))
    A = topk.turned(values, np.random.default_rng(3))
    assert 0.5 < np.linalg.norm(A) <= 1
    np.testing.assert_allclose(
        np.linalg.eigvalsh(A)[::-1], values * np.linalg.norm(A) / np.linalg.norm(values), rtol=0, atol=30 * 2.0**-40
    )


def test_the_judge_knows_wrong_results() -> None:
    A = topk.turned(topk.spectrum("decaying", 30, 3, np.random.default_rng(0)), np.random.default_rng(1))
    values, vectors = np.linalg.eigh(A)
    values, V = values[::-1], vectors[:, ::-1]
    assert topk.verdict(A, 3, values[:3], V[:, :3], 1e-7) == "accepted and right"
    assert topk.verdict(A, 3, values[1:4], V[:, 1:4], 1e-7) == topk.WRONG  # the largest is missing
    assert topk.verdict(A, 3, values[:3], V[:, [0, 2, 1]], 1e-7) == topk.WRONG  # vectors of other values
