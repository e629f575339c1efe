"""`ppca bench reproduce`: every part runs at a tiny size and writes its three forms; the page is made of what was measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.reproduce import collecting
from benchmarks.reproduce.parts import PARTS
from benchmarks.reproduce.result import Table, behind
from benchmarks.reproduce.style import MAX_BYTES
from ppca.cli.main import app


@pytest.mark.release
@pytest.mark.processes
@pytest.mark.parametrize("name", PARTS)
def test_part_at_a_tiny_size(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PPCA_DATA", raising=False)
    done = CliRunner().invoke(app, ["bench", "reproduce", name, "--tiny", "-o", str(tmp_path)])
    assert done.exit_code == 0, done.output
    data = json.loads((tmp_path / f"{name}.json").read_text())
    assert data["conditions"]
    assert data["tables"]
    for table in data["tables"]:
        assert table["title"] in " ".join(done.output.split())  # titles of narrow tables are wrapped
        assert table["rows"]
        assert {len(row) for row in table["rows"]} == {len(table["columns"])}
    section = (tmp_path / f"{name}.md").read_text()
    assert section.startswith(f"## {data['title']}\n")
    for plot in data["plots"]:
        assert f"({plot['file']})" in section
        assert 1000 < (tmp_path / plot["file"]).stat().st_size <= MAX_BYTES


def test_unknown_part() -> None:
    done = CliRunner().invoke(app, ["bench", "reproduce", "table9"])
    assert done.exit_code == 2
    assert "unknown part" in done.output


def test_page_is_made_of_what_was_measured() -> None:
    assert collecting.PAGE.read_text() == collecting.page(), "run `ppca bench reproduce collect`, and edit no number"
    assert collecting.README.read_text() == collecting.readme(), (
        "run `ppca bench reproduce collect`, and edit no number"
    )


def test_kept_results_are_no_tiny_ones() -> None:
    assert {data["scale"] for data in collecting.kept().values()} <= {"full", "quick"}


def test_tiny_results_are_not_collected(tmp_path: Path) -> None:
    (tmp_path / "table1.json").write_text(json.dumps({"scale": "tiny", "plots": []}))
    with pytest.raises(ValueError, match="measures nothing"):
        collecting.collected(tmp_path)


def test_a_cell_says_where_we_fall_short() -> None:
    assert behind(1.0, 1.0, "the paper") == ""
    assert behind(3.0, 1.5, "the paper") == " (behind the paper: 2x)"
    assert behind(1.0, 0.0, "SPU") == " (behind SPU)"


def test_table_of_records_keeps_all_digits() -> None:
    table = Table.of("t", [{"x": 1 / 3}], {"x": lambda r: f"{r['x']:.1f}"})
    assert (table.rows, table.records) == ([["0.3"]], [{"x": 1 / 3}])
