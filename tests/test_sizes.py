"""Limits that keep files and functions readable in one sitting."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "ppca"

FILE_LINES, FUNCTION_LINES, PARAMETERS = 400, 60, 12

MANY_PARAMETERS = {"estimator/pca.py:PCA.__init__"}
"""scikit-learn asks for one argument for each parameter of an estimator."""


def too_much(path: Path) -> Iterator[str]:
    """What is beyond the limits in a module."""
    text, name = path.read_text(), str(path.relative_to(SOURCE))
    if len(text.splitlines()) > FILE_LINES:
        yield f"{name} has {len(text.splitlines())} lines"
    yield from _in_body(ast.parse(text), f"{name}:")


def _in_body(node: ast.AST, place: str) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _in_body(child, f"{place}{child.name}.")
        else:
            yield from _in_body(child, place)
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (child.end_lineno or child.lineno) - child.lineno + 1
            taken = child.args
            parameters = len([*taken.posonlyargs, *taken.args, *taken.kwonlyargs])
            if lines > FUNCTION_LINES:
                yield f"{place}{child.name} has {lines} lines"
            if parameters > PARAMETERS and f"{place}{child.name}" not in MANY_PARAMETERS:
                yield f"{place}{child.name} has {parameters} parameters"


def test_files_and_functions_are_short() -> None:
    assert [text for path in sorted(SOURCE.rglob("*.py")) for text in too_much(path)] == []


def test_what_is_beyond_the_limits_is_named(tmp_path: Path) -> None:
    path = SOURCE / "planted.py"
    body = "\n".join(f"        x = {number}" for number in range(61))
    arguments = ", ".join(f"a{number}" for number in range(13))
    planted = f"class A:\n    def long(self):\n{body}\n\n    def wide({arguments}):\n        pass\n" + "\n" * 400

    class Planted(type(path)):  # type: ignore[misc]
        """A module that is not there."""

        def read_text(self) -> str:
            return planted

    assert list(too_much(Planted(path))) == [
        "planted.py has 466 lines",
        "planted.py:A.long has 62 lines",
        "planted.py:A.wide has 13 parameters",
    ]
