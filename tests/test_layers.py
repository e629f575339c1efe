"""These tests pin the structure. No package imports from a layer above its own, no module is in a cycle, and servers import no
package that sees plaintext: code that is not there cannot reveal rows."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from docs import generate

SOURCE = Path(__file__).resolve().parent.parent / "src" / "ppca"
PACKAGES = [Path(folder).name for folder in generate.PACKAGES if folder.startswith("src/ppca/")]  # from the ground up
TESTS = Path(__file__).resolve().parent
BESIDES = {"active_model", "benchmarks", "deploy", "end_to_end", "harness", "recorded"}
"""Folders of tests that belong to no package; tests/harness/README.md says what they hold."""

PLAINTEXT = {"owner", "receiver", "member", "estimator", "web", "cli"}
"""Packages that see an owner's rows or a receiver's results."""

SERVER_SIDE = ("runtime", "jobs", "server")
"""Packages that servers run; they import those below them."""

Graph = dict[str, set[str]]
"""The modules that each module imports."""

DATA_MODULES = ("checks", "chunks", "errors", "input_types", "matching", "openings", "spec", "text")
DATA_ONLY = {"jobs", *(f"jobs.{name}" for name in DATA_MODULES)}
"""Modules of jobs that say what data are, and nothing of what is computed from them."""


def imports(path: Path) -> Iterator[str]:
    """Modules of the package that a module imports anywhere in its text, by their path below src/ppca with dots."""
    here = path.relative_to(SOURCE).parent.parts
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
        yield from (name.removeprefix("ppca.") for name in names if name.startswith("ppca."))
        if isinstance(node, ast.ImportFrom) and node.level:
            base = (*here[: len(here) + 1 - node.level], *(node.module or "").split("."))
            for name in node.names:
                target = SOURCE.joinpath(*base, name.name)
                module = target.is_dir() or target.with_suffix(".py").exists()
                yield ".".join(part for part in (*base, name.name if module else "") if part)


@cache
def graph() -> Graph:
    """Return the modules that each module imports."""
    return {
        ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): set(imports(path)) - {""}
        for path in sorted(SOURCE.glob("*/**/*.py"))
    }


def package(module: str) -> str:
    return module.partition(".")[0]


def edges(of: Graph) -> set[tuple[str, str]]:
    """Return the pairs of packages of which the first imports from the second."""
    return {(package(module), package(target)) for module, targets in of.items() for target in targets}


def upward(of: Graph) -> list[tuple[str, str]]:
    """Return the pairs of packages of which the first imports from the second, which is above it."""
    return [(a, b) for a, b in sorted(edges(of)) if PACKAGES.index(b) > PACKAGES.index(a)]


def check_no_cycle(of: Graph) -> None:
    """Raise `CycleError` with the cycle if modules import each other in a cycle."""
    names = {
        module: {target for target in targets if target in of and target != module} for module, targets in of.items()
    }
    assert list(TopologicalSorter(names).static_order())


def reached(of: Graph, *packages: str) -> set[str]:
    """Return the modules of packages and all that they import, also through others."""
    found, left = set(), [module for module in of if package(module) in packages]
    while left:
        module = left.pop()
        found.add(module)
        left += [target for target in of.get(module, ()) if target not in found]
    return found


def plaintext_reached(of: Graph) -> set[str]:
    """Return the packages that see plaintext and that servers import, also through others."""
    return {package(module) for module in reached(of, *SERVER_SIDE)} & PLAINTEXT


def test_no_package_imports_upward() -> None:
    for name in PACKAGES:
        used = sorted((b for a, b in edges(graph()) if a == name and b != name), key=PACKAGES.index)
        print(f"{name:10} -> {' '.join(used) or '-'}")
    assert upward(graph()) == []
    assert {package(module) for module in graph()} == set(PACKAGES)


def test_contributors_read_the_same_order() -> None:
    page = (SOURCE.parent.parent / "CONTRIBUTING.md").read_text()
    assert f"\n{' < '.join(PACKAGES)}. No module imports from a layer above its own." in page


def test_no_module_is_in_a_cycle() -> None:
    check_no_cycle(graph())


def test_owners_know_no_analysis() -> None:
    """What an owner sends follows from `Data`: no analysis can change it."""
    assert {module for module in reached(graph(), "owner") if package(module) == "jobs"} <= DATA_ONLY


def test_receivers_know_no_owner() -> None:
    """A result does not depend on code that reads tables."""
    assert "owner" not in {package(module) for module in reached(graph(), "receiver")}


def test_servers_import_no_package_that_sees_plaintext() -> None:
    """Not even through others: everything that the packages of the servers import, and what that imports."""
    assert plaintext_reached(graph()) == set()


# -- the same checks notice a violation that is planted into the graph ---------------------------------------------------


def planted(module: str, target: str) -> Graph:
    """Return the graph with one more import, between modules that are there."""
    assert {module, target} <= graph().keys()
    return graph() | {module: graph()[module] | {target}}


def test_an_upward_import_is_noticed() -> None:
    assert upward(planted("protocol.compare", "jobs.spec")) == [("protocol", "jobs")]


def test_a_cycle_is_noticed() -> None:
    assert "jobs.spec" in graph()["jobs.analysis"]
    with pytest.raises(CycleError) as raised:
        check_no_cycle(planted("jobs.spec", "jobs.analysis"))
    assert {"jobs.spec", "jobs.analysis"} <= set(raised.value.args[1])


def test_servers_that_see_plaintext_are_noticed() -> None:
    """Directly, and through a package of another layer."""
    assert plaintext_reached(planted("server.daemon", "owner.rows")) >= {"owner"}
    assert plaintext_reached(planted("federation.state", "receiver.unsealing")) == {"receiver"}


def test_imports_are_read_from_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative and absolute imports, of modules and of names, also within functions."""
    for name in ("owner/rows", "jobs/spec", "runtime/local"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / f"{name}.py").write_text("")
    text = (
        "import ppca.owner.rows\nfrom ..jobs.spec import Data\ndef f():\n    from ..runtime import local\nimport os\n"
    )
    (tmp_path / "runtime" / "worker.py").write_text(text)
    monkeypatch.setitem(globals(), "SOURCE", tmp_path)
    assert set(imports(tmp_path / "runtime" / "worker.py")) == {"owner.rows", "jobs.spec", "runtime.local"}


def test_folders_of_tests_mirror_the_packages() -> None:
    folders = {path.name for path in TESTS.iterdir() if any(path.rglob("*.py"))}
    assert folders == {*PACKAGES, *BESIDES}
    page = (TESTS / "harness" / "README.md").read_text()
    assert [name for name in BESIDES if f"`tests/{name}`" not in page] == []
