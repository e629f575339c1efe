"""The short form of `ppca bench floods`: honest jobs are done during every flood, and the memory of servers is bounded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import floods


@pytest.mark.release
@pytest.mark.processes
@pytest.mark.timeout(1800)
def test_honest_jobs_are_done_during_floods(tmp_path: Path) -> None:
    assert floods.main(1, tmp_path)
    rows = json.loads((tmp_path / "floods.json").read_text())
    assert len(rows) == 8
    assert all(row["actions"] > 0 for row in rows[1:])
    assert max(row["server_megabytes"] for row in rows) < 600
