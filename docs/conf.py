"""Configuration of the documentation site. `make site` builds it; warnings are errors."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from docs import site_pages  # noqa: E402 - needs the path above
from ppca import __version__  # noqa: E402

project = "PPCA"
author = "The PPCA authors"
copyright = author
version = release = __version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "numpydoc"]
exclude_patterns = ["reference/generated/*.md", "**/__pycache__"]
suppress_warnings = ["mystnb.mime_priority"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
nb_execution_mode = "cache"
nb_execution_cache_path = str(ROOT / "build" / "notebooks")
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_ipywidgets_js: dict[str, Any] = {}
"""No widgets: their scripts would come from another host."""

autosummary_generate = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

html_theme = "pydata_sphinx_theme"
html_title = f"PPCA {__version__}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_show_search_summary = False
"""Summaries are fetched by scripts, which browsers refuse for pages of the file system. The list of hits works."""

html_copy_source = False
html_sidebars: dict[str, list[str]] = {"index": []}
html_theme_options: dict[str, Any] = {
    "logo": {"text": "PPCA"},
    "navbar_end": ["theme-switcher"],
    "header_links_before_dropdown": 8,
    "navigation_with_keys": False,
    "show_prev_next": True,
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}

_ATTRIBUTE = re.compile(r"(?<![`\w.])([a-z][a-z_]*_)(?![\w`])")


def plain_docstring(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Write docstrings so that Sphinx reads names in single back-quotes, and fitted attributes, as code."""
    for place, line in enumerate(lines):
        named = re.match(r"^[\w, *]+ : ", line)
        start = named.end() if named else 0
        parts = re.split(r"(``.*?``)", re.sub(r"(?<!`)`([^`]+)`(?!`)", r"``\1``", line[start:]))
        for even in range(0, len(parts), 2):
            parts[even] = _ATTRIBUTE.sub(r"``\1``", parts[even])
            if not re.fullmatch(r"[*\w, ]+", line):
                parts[even] = parts[even].replace("|", r"\|").replace("*", r"\*")
        lines[place] = line[:start] + "".join(parts)


def setup(app: Any) -> None:
    """Write the generated parts of the reference before Sphinx reads it."""
    site_pages.write()
    app.connect("autodoc-process-docstring", plain_docstring, priority=100)
