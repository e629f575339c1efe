"""These tests pin the structure. No package imports from a layer above its own, no module is in a cycle, and servers import no
package that sees plaintext: code that is not there cannot reveal rows."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

from docs import generate

SOURCE = Path(__file__).resolve().parent.parent / "src" / "ppca"
PACKAGES = [Path(folder).name for folder in generate.PACKAGES if folder.startswith("src/ppca/")]  # from the ground up
TESTS = Path(__file__).resolve().parent
BESIDES = {"active_model", "benchmarks", "deploy", "end_to_end", "harness", "recorded"}
"""Folders of tests that belong to no package; tests/harness/README.md says what they hold."""

PLAINTEXT = {"owner", "receiver", "member", "estimator", "web", "cli"}
"""Packages that see an owner's rows or a receiver's results."""


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
def graph() -> dict[str, set[str]]:
    """Return the modules that each module imports."""
    return {
        ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): set(imports(path)) - {""}
        for path in sorted(SOURCE.glob("*/**/*.py"))
    }


def package(module: str) -> str:
    return module.partition(".")[0]


def test_no_package_imports_upward() -> None:
    edges = {(package(module), package(target)) for module, targets in graph().items() for target in targets}
    for name in PACKAGES:
        print(
            f"{name:10} -> {' '.join(sorted((b for a, b in edges if a == name and b != name), key=PACKAGES.index)) or '-'}"
        )
    assert [(a, b) for a, b in sorted(edges) if PACKAGES.index(b) > PACKAGES.index(a)] == []
    assert {package(module) for module in graph()} == set(PACKAGES)


def test_contributors_read_the_same_order() -> None:
    page = (SOURCE.parent.parent / "CONTRIBUTING.md").read_text()
    assert f"\n{' < '.join(PACKAGES)}. No module imports from a layer above its own." in page


def test_no_module_is_in_a_cycle() -> None:
    names = {
        module: {target for target in targets if target in graph() and target != module}
        for module, targets in graph().items()
    }
    assert list(TopologicalSorter(names).static_order())  # raises CycleError with the cycle


def test_owners_know_no_analysis() -> None:
    """What an owner sends follows from `Data`: no analysis can change it."""
    reached, left = set(), [module for module in graph() if package(module) == "owner"]
    while left:
        module = left.pop()
        reached.add(module)
        left += [target for target in graph().get(module, ()) if target not in reached]
    assert {module for module in reached if package(module) == "jobs"} <= DATA_ONLY


def test_servers_import_no_package_that_sees_plaintext() -> None:
    """Not even through others: everything that the packages of the servers import, and what that imports."""
    reached, left = set(), [module for module in graph() if package(module) in ("runtime", "jobs", "server")]
    while left:
        module = left.pop()
        reached.add(module)
        left += [target for target in graph().get(module, ()) if target not in reached]
    assert {package(module) for module in reached} & PLAINTEXT == set()


def test_folders_of_tests_mirror_the_packages() -> None:
    folders = {path.name for path in TESTS.iterdir() if any(path.rglob("*.py"))}
    assert folders == {*PACKAGES, *BESIDES}
    page = (TESTS / "harness" / "README.md").read_text()
    assert [name for name in BESIDES if f"`tests/{name}`" not in page] == []
