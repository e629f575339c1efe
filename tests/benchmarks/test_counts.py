"""`ppca bench counts` at a small size: both sorts sort, and the tables are in the file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.counts import main


def test_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(4, [6], tmp_path)
    found = json.loads((tmp_path / "counts.json").read_text())
    assert found["per_iteration"]["jacobi-classic"]["sqrt"] == 2
    ours, theirs = sorted(found["sorts"], key=lambda one: one["bytes_per_server"])
    assert (ours["name"], theirs["name"]) == ("sort", "batch_sort")
    assert ours["rounds"] == theirs["rounds"] == 5
    assert "jacobi-eo" in capsys.readouterr().out
