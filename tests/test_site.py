"""The documentation site: it builds without warnings, tutorials run, and pages load nothing from other hosts."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from docs import site_pages

ROOT = Path(__file__).resolve().parent.parent
LOADED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "video": "src"}
"""Elements that make a browser load something, with the attribute that names it. Of links, only those that load."""

LOADING_LINKS = {"stylesheet", "preload", "prefetch", "icon", "modulepreload", "preconnect", "dns-prefetch"}


def test_every_field_and_route_is_described() -> None:
    for tables in site_pages.TABLES.values():
        assert "| required |" in site_pages.model_tables(tables)
    assert site_pages.routes().count("| `") > 15
    assert site_pages.metrics().count("`ppca_") > 5


def test_a_field_without_a_meaning_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(site_pages.fields.MEANINGS["WorkSettings"], "threads")
    with pytest.raises(ValueError, match=r"docs/fields.py and WorkSettings differ in threads"):
        site_pages.model_tables(site_pages.TABLES["server-fields"])


def test_errors_of_the_reference_are_importable() -> None:
    table = (ROOT / "docs/reference/python.md").read_text().partition("## Errors")[2]
    found = re.findall(r"^\| `(\w+)` \| `([\w.]+)` \|", table, re.MULTILINE)
    assert {"OwnerError", "SpecError", "FederationError", "ServersFailed"} <= {name for name, _ in found}
    for name, module in found:
        error = getattr(import_module(module), name)
        assert issubclass(error, ValueError) == (name != "ServersFailed")


def test_every_public_name_is_in_the_reference() -> None:
    import ppca

    page = (ROOT / "docs/reference/python.md").read_text()
    missing = [name for name in ppca.__all__ if name != "__version__" and not re.search(rf":: {name}\n", page)]
    assert missing == []


class Loads(HTMLParser):
    """Collects what a page loads from other hosts."""

    def __init__(self) -> None:
        super().__init__()
        self.foreign: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag == "link" and not LOADING_LINKS & set((found.get("rel") or "").split()):
            return
        address = found.get(LOADED.get(tag, "")) or ""
        if re.match(r"(https?:)?//", address):
            self.foreign.append(f"{tag} {address}")


def test_foreign_scripts_and_fonts_are_found() -> None:
    page = Loads()
    page.feed(
        '<a href="https://a.org"></a><script src="//b.org/x.js"></script><link rel="stylesheet" href="https://c.org/">'
    )
    assert page.foreign == ["script //b.org/x.js", "link https://c.org/"]


@pytest.mark.release
@pytest.mark.processes
@pytest.mark.timeout(1900)  # five notebooks start servers: about two minutes on two idle cores
@pytest.mark.skipif(
    find_spec("sphinx") is None, reason="the extra `docs` is not installed; make test-release installs it"
)
def test_the_site_builds_and_loads_nothing_from_other_hosts() -> None:
    """In the folders of `make site`, which then has nothing left to run."""
    site = ROOT / "build" / "site"
    call = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going", "docs", str(site)]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr[-5000:]
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 40
    for path in pages:
        page = Loads()
        page.feed(path.read_text())
        assert page.foreign == [], path.name
    for style in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*['\"]?(https?:)?//", style.read_text()), style.name
    for tutorial in sorted((ROOT / "docs/tutorials").glob("*-*.md")):
        shown = (site / "tutorials" / f"{tutorial.stem}.html").read_text()
        assert "cell_output" in shown, f"{tutorial.name} was not run"
        assert "data:image/png" in shown or "_images/" in shown, f"{tutorial.name} shows no picture"
