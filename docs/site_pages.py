"""Writes the generated pages of the reference: commands from Typer, files from their models, errors, metrics and
routes.

They are made when the site is built and are not kept in the repository, so they are always those of the code. `fields`
has the meaning of every field; a field without one, or a meaning without a field, is an error.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

import ppca
from ppca.federation.membership import Former, Member, MembershipFile, ServerEntry
from ppca.federation.proposal import Proposal
from ppca.federation.serverfile import Listen, Policy, ServerFile, StoreSettings, Workers, WorkSettings
from ppca.jobs.infer import UseModel
from ppca.jobs.pca import JointPCA
from ppca.jobs.regression import JointRegression
from ppca.jobs.spec import Align, Data, Keep

from . import fields
from .generate import ROOT, first_sentence, markdown

PLACE = ROOT / "docs" / "reference" / "generated"
TABLES: dict[str, list[tuple[str, type]]] = {
    "job-fields": [
        ("", Proposal),
        ("[data]", Data),
        ("[data.align]", Align),
        ('[analysis] with name = "pca/1"', JointPCA),
        ('[analysis] with name = "infer/1"', UseModel),
        ('[analysis] with name = "regression/1"', JointRegression),
        ("[keep]", Keep),
    ],
    "federation-fields": [
        ("", MembershipFile),
        ("[[server]]", ServerEntry),
        ("[[member]]", Member),
        ("[[former]]", Former),
    ],
    "server-fields": [
        ("", ServerFile),
        ("[listen]", Listen),
        ("[store]", StoreSettings),
        ("[policy]", Policy),
        ("[work]", WorkSettings),
        ("[workers]", Workers),
    ],
}
"""Name of a page's part -> the tables of the file, each with its model."""

KINDS = {"str": "text", "int": "whole number", "float": "number", "bool": "true or false", "datetime": "time"}
ROOT_PAGES = {
    "CONTRIBUTING.md": "../development/contributing.md",
    "RELEASING.md": "../development/releasing.md",
    "CHANGELOG.md": "../development/changelog.md",
    "SECURITY.md": "../security/reporting.md",
}
"""Pages of the root of the repository that the site shows, too -> their page there, seen from another folder of
pages."""

EXAMPLES = ("job.toml", "federation.toml", "server.toml")
UNSAID = object()


def write() -> None:
    """Write all parts into docs/reference/generated."""
    PLACE.mkdir(parents=True, exist_ok=True)
    parts = {
        "cli": commands(),
        "errors": errors(),
        "metrics": metrics(),
        "http": routes(),
        **{name: model_tables(tables) for name, tables in TABLES.items()},
        **{Path(name).stem.lower(): root_page(name) for name in ROOT_PAGES},
        **{name.replace(".", "-"): f"```toml\n{_example(name)}```" for name in EXAMPLES},
    }
    for name, text in parts.items():
        path = PLACE / f"{name}.md"
        if not path.exists() or path.read_text() != text + "\n":
            path.write_text(text + "\n")


def _example(name: str) -> str:
    return (ROOT / "deploy" / "example" / name).read_text()


def root_page(name: str) -> str:
    """Return a page of the root with its links as they are from a folder of docs/."""

    def moved(link: re.Match[str]) -> str:
        label, target = link.groups()
        if target in ROOT_PAGES:
            return f"[{label}]({ROOT_PAGES[target]})"
        outside = target.endswith(".md") and not target.startswith("docs/")
        return f"`{target}`" if outside else f"[{label}](../../{target})"

    return re.sub(r"\[([^\]]+)\]\((?!https?:|mailto:|#)([^)\s]+)\)", moved, (ROOT / name).read_text())


def commands() -> str:
    """Return all commands with their options, as Typer documents them."""
    call = [sys.executable, "-m", "typer", "ppca.cli.main", "utils", "docs", "--name", "ppca"]
    text = subprocess.run(call, capture_output=True, text=True, check=True, cwd=ROOT).stdout  # noqa: S603 - fixed words
    text = text.partition("**Commands**")[2].partition("\n## ")[2]
    return "## " + text.rstrip()


def model_tables(tables: list[tuple[str, type]]) -> str:
    """Return a section with a table of fields for every table of a file."""
    parts = []
    for heading, model in tables:
        meanings = fields.MEANINGS[model.__name__]
        found = {name: (kind, default) for name, kind, default in _fields(model)}
        if set(found) != set(meanings):
            wrong = sorted(set(found) ^ set(meanings))
            raise ValueError(f"docs/fields.py and {model.__name__} differ in {', '.join(wrong)}: describe every field")
        rows = [[f"`{name}`", kind, default, meanings[name]] for name, (kind, default) in found.items()]
        title = f"## `{heading}`" if heading else "## Top of the file"
        parts.append(f"{title}\n\n{markdown(['field', 'type', 'default', 'meaning'], rows, set())}")
    return "\n\n".join(parts)


def _fields(model: Any) -> Iterator[tuple[str, str, str]]:
    """Name, type and default of the fields that a file can have."""
    if issubclass(model, BaseModel):
        for name, field in model.model_fields.items():
            yield name, _kind(field.annotation), _default(UNSAID if field.is_required() else field.default)
        return
    hints = typing.get_type_hints(model)
    for one in dataclasses.fields(model):
        if one.name != "job":
            unsaid = one.default is dataclasses.MISSING
            yield one.name, _kind(hints[one.name]), _default(UNSAID if unsaid else one.default)


def _kind(annotation: Any) -> str:
    """A type in words."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _kind(arguments[0])
    if origin is typing.Literal:
        return " or ".join(f'"{one}"' for one in arguments)
    if origin is tuple:
        return f"list of {_kind(arguments[0])}"
    if origin is not None and isinstance(origin, type) and origin.__name__ in ("Mapping", "dict"):
        return f"table: {_kind(arguments[0])} to {_kind(arguments[1])}"
    if arguments:
        return " or ".join(dict.fromkeys(_kind(one) for one in arguments if one is not type(None)))
    name = getattr(annotation, "__name__", str(annotation))
    return KINDS.get(name, "table")


def _default(value: Any) -> str:
    if value is UNSAID:
        return "required"
    if value is None:
        return "absent"
    if isinstance(value, BaseModel):
        return "see below"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return ", ".join(f'`"{one}"`' for one in value) or "empty"
    return f'`"{value}"`' if isinstance(value, str) else f"`{value:,}`".replace(",", "_")


def errors() -> str:
    """Return all error classes of the package, by layer, with the first sentence of their docstrings."""
    rows = []
    for module in sorted(one.name for one in pkgutil.walk_packages(ppca.__path__, "ppca.")):
        if module.endswith("__main__"):
            continue
        for name, found in inspect.getmembers(importlib.import_module(module), inspect.isclass):
            if found.__module__ == module and issubclass(found, Exception):
                base = ", ".join(one.__name__ for one in found.__bases__)
                rows.append([f"`{name}`", f"`{module}`", base, first_sentence(inspect.getdoc(found) or "") + "."])
    return markdown(["error", "module", "is a", "raised"], rows, set())


def metrics() -> str:
    """Return the names and meanings of the Prometheus metrics, from the page that serves them."""
    source = (ROOT / "src/ppca/server/operator_page.py").read_text()
    found = re.findall(r'(?:Gauge\(|^\s+\()"(ppca_\w+)", "([^"]+)"(?:, \["(\w+)"\])?', source, re.MULTILINE)
    if len(found) < 5:
        raise ValueError("docs/site_pages.py finds no metrics in server/operator_page.py")
    rows = [[f"`{name}`", f"`{label}`" if label else "", about] for name, about, label in found]
    return markdown(["metric", "label", "meaning"], rows, set())


def routes() -> str:
    """Return the routes of a server: those for members and servers, and those of the operator's page."""
    parts = []
    for file, heading in (
        ("api.py", "For members and servers (port `[listen] api`)"),
        ("probes.py", "For `ppca doctor` (port `[listen] api`)"),
        ("operator_page.py", "On the server's own machine (port `[listen] local`)"),
    ):
        text = (ROOT / "src/ppca/server" / file).read_text()
        found = re.findall(r'web\.(get|put|post)\((?:"([^"]+)"|EVENTS), self\.', text)
        rows = []
        for verb, literal in found:
            path = literal or "/v1/events"
            meaning = fields.ROUTES.get((verb.upper(), path))
            if meaning is None:
                raise ValueError(f"docs/fields.py does not say what {verb.upper()} {path} ({file}) does")
            rows.append([f"`{verb.upper()} {path}`", meaning])
        parts.append(f"## {heading}\n\n{markdown(['request', 'answer'], rows, set())}")
    return "\n\n".join(parts)


def main() -> None:
    """Write the parts without building the site."""
    write()


if __name__ == "__main__":
    main()
    print(f"written: {PLACE.relative_to(Path.cwd()) if PLACE.is_relative_to(Path.cwd()) else PLACE}")
