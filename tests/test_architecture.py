"""The page on the architecture names modules that exist, and the path of a row stays short in both worlds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "development" / "architecture.md").read_text()

MAX_STATIONS = 16
"""Maximum number of modules that a row, or what is left of it, passes through from the table to the result."""


def stations(path: str) -> list[list[str]]:
    """Return the modules of every line of a table: first the station, then the modules in brackets beside it."""
    table = PAGE.split(f"<!-- {path} path -->\n")[1].split("\n\n")[0]
    return [re.findall(r"`([\w/]+\.py)`", line.split("|")[1]) for line in table.splitlines()[2:]]


def test_modules_that_the_page_names_exist() -> None:
    named = re.findall(r"`((?:[a-z]\w*/)+\w+\.py)`", PAGE)
    assert len(named) > 20
    lost = [name for name in named if not any((base / name).exists() for base in (ROOT / "src" / "ppca", ROOT))]
    assert lost == []


@pytest.mark.parametrize("path", ["local", "federation"])
def test_the_path_of_a_row_is_short(path: str) -> None:
    found = stations(path)
    assert 10 < len(found) <= MAX_STATIONS
    for first, *beside in found:
        station = ROOT / "src" / "ppca" / first
        assert station.exists(), first
        lost = [
            name for name in beside if not (station.parent / name).exists() and not (ROOT / "src/ppca" / name).exists()
        ]
        assert lost == []
