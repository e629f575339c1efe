"""`ppca bench edges` on small tables: everything verified, within 1e-6 of exact arithmetic, and noise marked as such."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ppca.cli.main import app


@pytest.mark.release
@pytest.mark.processes
def test_edges(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["bench", "edges", "--rows", "40", "-o", str(tmp_path)])
    assert done.exit_code == 0, done.output
    rows = json.loads((tmp_path / "edges.json").read_text())
    assert len(rows) == 18
    for row in rows:
        assert row["verified"]
        assert row["ratio_error"] < 1e-6
        assert row["variance_error"] < 1e-6
    (raw,) = (row for row in rows if row["data"].startswith("five") and not row["standardised"])
    assert raw["below_resolution"] >= 3
