"""`tools/retired_words.py` reports retired words with the place and the replacement, and the clean packages have none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parent.parent / "tools"
sys.path.insert(0, str(TOOLS))

import retired_words  # noqa: E402

PYTHON = '''
"""Check of tables."""

MOST_ROWS = 3
"""Of a table."""

def check(rows):  # rows of the owner who has them
    """Whether rows fit."""
    where_no_word_counts = rows  # `so many` in backticks is code
    raise ValueError(f"{rows} rows: so many are not allowed")
'''

CPP = """// A seat in place of a server.
constexpr int kSeat = 4;  // the room
"""

PAGE = """# Servers

Whoever has the folder has the result.

```python
# so many lines of code
```
"""

TEMPLATE = """<p class="who">{{ who }} No news</p>
<p>Nobody knows <b>who</b> said it.</p>
"""

SETTINGS = """# The door of the server.
who = "nobody"
"""


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("planted.py", PYTHON, {(4, "MOST_ROWS"), (5, "Of"), (7, "who"), (8, "Whether"), (10, "so many")}),
        ("planted.hpp", CPP, {(1, "seat"), (1, "in place of"), (2, "room")}),
        ("planted.md", PAGE, {(3, "Whoever")}),
        ("planted.html", TEMPLATE, {(2, "who")}),
        ("planted.toml", SETTINGS, {(1, "door")}),
    ],
)
def test_planted_words_are_found(tmp_path: Path, name: str, text: str, expected: set[tuple[int, str]]) -> None:
    path = tmp_path / name
    path.write_text(text)
    found = list(retired_words.found_in(path))
    assert {(one.line, one.word) for one in found} == expected
    assert all(one.instead for one in found)


def test_long_lines_of_prose_are_found(tmp_path: Path) -> None:
    path = tmp_path / "planted.py"
    path.write_text(f"# {'word ' * 30}\nx = '{'word ' * 30}'\n")
    assert [(one.line, one.pattern) for one in retired_words.found_in(path)] == [(1, "long")]


def test_coordinates_may_be_called_seats() -> None:
    assert not list(retired_words.found_in(TOOLS.parent / "src/ppca/transport/errors.py"))


def test_clean_packages_stay_clean() -> None:
    assert all(retired_words.files(folder) for folder in retired_words.CLEAN)
    found = [
        one
        for folder in retired_words.CLEAN
        for path in retired_words.files(folder)
        for one in retired_words.found_in(path)
    ]
    assert found == []


def test_files_that_the_site_writes_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retired_words, "ROOT", tmp_path)
    for folder in ("docs", "docs/generated"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "page.md").write_text(PAGE)
    assert retired_words.files("docs") == [tmp_path / "docs" / "page.md"]
