"""The short form of `ppca bench load`: jobs of several owners at once are all done, in order, each at its first attempt."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import load


def test_jobs_out_of_order_are_counted() -> None:
    assert load.out_of_order({"a": [(1, 1), (4, 5), (2, 3)], "b": [(3, 2)]}) == 0
    assert load.out_of_order({"a": [(1, 4), (2, 3)], "b": [(3, 2), (5, 9), (6, 8)]}) == 2


@pytest.mark.release
@pytest.mark.processes
@pytest.mark.timeout(900)
@pytest.mark.parametrize("flood", [0, 100])
def test_many_jobs_at_once(tmp_path: Path, flood: int) -> None:
    """flood: idle connections of a stranger, per second, to both ports of every server."""
    assert load.main(12, 4, 1, flood, tmp_path)
    found = json.loads((tmp_path / "load-12.json").read_text())
    assert found["done"] == 12
    assert found["out_of_order"] == 0
    if not flood:
        assert (found["attempts"], found["not_begun"]) == (12, 0)
    assert max(found["peak_megabytes"]) < 500
