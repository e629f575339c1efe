"""The page of attacks names tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
PAGE = (TESTS.parent / "docs" / "security" / "attacks.md").read_text()


def test_every_test_that_the_page_names_exists() -> None:
    files = {TESTS / name for name in re.findall(r"`([a-z_/0-9]+\.py)`", PAGE)}
    wrong = [path for path in files if not path.is_file() and not (TESTS.parent / path.relative_to(TESTS)).is_file()]
    missing = [TESTS.parent / path.relative_to(TESTS.parent) for path in wrong if not _below_root(path)]
    assert not missing
    text = "".join(path.read_text() for path in TESTS.rglob("test_*.py"))
    names = set(re.findall(r"`(test_[a-z_0-9]+)`", PAGE))
    assert names
    assert not {name for name in names if f"def {name}(" not in text}


def _below_root(path: Path) -> bool:
    """Return whether the page gives the path from the root of the repository."""
    return (TESTS.parent / path.relative_to(TESTS)).is_file()
