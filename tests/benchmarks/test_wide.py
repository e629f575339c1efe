"""`ppca bench wide` at a small size: all limits are kept, and what it writes is what it measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import wide


@pytest.mark.release
@pytest.mark.processes
def test_small(tmp_path: Path) -> None:
    assert wide.main(24, 160, 3, tmp_path)
    jobs = json.loads((tmp_path / "wide.json").read_text())["jobs"]
    assert [(job["partition"], job["standardised"]) for job in jobs] == [
        ("columns", False),
        ("rows", False),
        ("columns", True),
        ("rows", True),
    ]
    assert all("components" in job["stages"] and 0 < job["peak_memory"] < wide.MAX_MEMORY for job in jobs)
