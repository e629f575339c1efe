"""The documentation is true: generated tables are current, examples print what is shown, links resolve."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
EXAMPLES = {
    "first-steps": ("README.md", "first_steps.py"),
    "joint-pca": ("README.md", "joint_pca.py"),
    "secret-svd": ("docs/eigensolvers.md", "secret_svd.py"),
}


def table_maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_protocol_table", ROOT / "docs" / "make_protocol_table.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_tables_are_current() -> None:
    assert list(table_maker().stale()) == [], "run `make docs` and commit the result"


@pytest.mark.parametrize("marker", EXAMPLES)
def test_the_page_shows_the_example(marker: str) -> None:
    page, file = EXAMPLES[marker]
    shown = re.search(rf"<!-- {marker} -->\n```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert shown is not None
    assert shown[1] == (ROOT / "examples" / file).read_text()


@pytest.mark.parametrize(("page", "file"), EXAMPLES.values())
def test_the_page_shows_what_the_example_prints(page: str, file: str) -> None:
    call = rf"^    \$ \.venv/bin/python examples/{re.escape(file)}\n((?:    .*\n)+)"
    shown = re.search(call, (ROOT / page).read_text(), re.MULTILINE)
    assert shown is not None
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / file], capture_output=True, text=True, timeout=120, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == re.sub(r"^    ", "", shown[1], flags=re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """The fragments of a page's headings, as GitHub derives them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_resolve(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if link.startswith(("http://", "https://")):
            continue
        path, _, fragment = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {link}, which does not exist"
        if fragment:
            assert fragment in anchors(target), f"{page.name} links to {link}: no such heading"
