"""`ppca bench scale` on a small table: all rows are summed, rightly, nothing stays behind; `ppca bench threads`: equal bits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ppca.cli.main import app


@pytest.mark.release
@pytest.mark.processes
def test_scale(tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="dask.distributed is not installed: pip install 'ppca[dask]'")
    files = tmp_path / "files"
    files.mkdir()
    options = ["--rows", 9000, "--columns", 4, "--files", 3, "--distinct", 2, "--workers", 1, "--folder", files]
    done = CliRunner().invoke(app, ["bench", "scale", "-o", str(tmp_path), *map(str, options)])
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "scale.json").read_text())
    assert [way["rows"] for way in found["ways"]] == [9000] * 4
    assert found["parts"] == 3
    assert found["error"] < 1e-14
    assert len(found["ways"][1]["workers"]) == 1
    assert not list(files.iterdir())


@pytest.mark.processes
def test_threads(tmp_path: Path) -> None:
    options = ["--d", 40, "--threads", 3, "--repeats", 1]
    done = CliRunner().invoke(app, ["bench", "threads", "-o", str(tmp_path), *map(str, options)])
    assert done.exit_code == 0, done.output
    rows = json.loads((tmp_path / "threads.json").read_text())["rows"]
    assert len(rows) == 27
    assert all(row["identical"] and set(row["seconds"]) == {"1", "3"} for row in rows)
