"""What the page about the harness and the targets of the mutation check name is there."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import mutation

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "tests" / "harness" / "README.md").read_text()
NAMES = sorted(set(re.findall(r"`([^`]+)`", PAGE)))
COMMANDS = {"make test", "make test-release", "ppca"}
OF_PYTEST = {"monkeypatch"}
HERE = [ROOT / "pyproject.toml", ROOT / "tests" / "conftest.py", *sorted((ROOT / "tests" / "harness").glob("*.py"))]
"""Files that define fixtures, marks, profiles of examples, and attributes of what the harness offers."""


def resolves(name: str) -> bool:
    """Return whether a name of the page is there: a path, an attribute of a module, or a word of the harness."""
    if "/" in name:
        return (ROOT / name).exists()
    first, *rest = name.partition("(")[0].split(".")
    if not rest:
        return any(re.search(rf"\b{first}\b", path.read_text()) for path in HERE)
    while rest:
        try:
            found = importlib.import_module(
                first if first.split(".")[0] in ("ppca", "benchmarks") else f"harness.{first}"
            )
        except ImportError:
            return False
        if hasattr(found, rest[0]):
            for part in rest:
                found = getattr(found, part, None)
            return found is not None
        first = f"{first}.{rest.pop(0)}"
    return False


@pytest.mark.parametrize("name", [name for name in NAMES if name not in COMMANDS | OF_PYTEST])
def test_names_on_the_page_of_the_harness_are_there(name: str) -> None:
    assert resolves(name), f"tests/harness/README.md names {name}, which is not there"


def test_fixtures_on_the_page_of_the_harness_are_there() -> None:
    named = set(re.findall(r"fixture `(\w+)`", PAGE))
    defined = set(re.findall(r"@pytest\.fixture.*\ndef (\w+)", (ROOT / "tests" / "conftest.py").read_text()))
    assert named
    assert named <= defined


@pytest.mark.parametrize(
    "name", ["one_seat.Seat", "federation.office", "benchmarks.nothing.Field", "tests/nowhere", "nobody_defined_this"]
)
def test_names_that_are_gone_are_noticed(name: str) -> None:
    assert not resolves(name)


def test_targets_of_the_mutation_check_are_there() -> None:
    for pattern, tests in mutation.TARGETS.items():
        assert list(mutation.SOURCE.glob(pattern)), f"tests/mutation.py: no file matches {pattern}"
        assert [path for path in tests.split() if not (ROOT / path).exists()] == []


def test_a_target_that_matches_nothing_ends_the_mutation_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutation, "TARGETS", {"protocol/nothing.py": mutation.PROTOCOL})
    with pytest.raises(SystemExit, match=r"matches protocol/nothing\.py"):
        mutation.sample("", 1, 0)
