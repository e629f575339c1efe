"""Messages use the terms of the interface they appear in: no command-line options in Python errors, and the reverse.

The first two tests pin the structure: they read the sources, because not every error can be raised in a test."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from inspect import signature
from pathlib import Path

import pytest

import ppca
from ppca.cli import fit, infer
from ppca.cli.errors import REMEDIES, in_words
from ppca.estimator import advice
from ppca.jobs.checks import SpecError
from ppca.owner.errors import BadColumns, BadValue

SOURCE = Path(ppca.__file__).parent
COMMANDS = (fit.fit, infer.transform, infer.detect)


def messages(path: Path) -> Iterator[str]:
    """Texts of everything that is raised in a module."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Raise) and node.exc is not None:
            yield " ".join(
                part.value
                for part in ast.walk(node.exc)
                if isinstance(part, ast.Constant) and isinstance(part.value, str)
            )


@pytest.mark.parametrize("room", ["jobs", "owner", "receiver", "estimator"])
def test_python_does_not_advise_options_of_the_command_line(room: str) -> None:
    for path in (SOURCE / room).rglob("*.py"):
        for text in messages(path):
            assert not re.search(r"(^|\W)--[a-z]", text), f"{path.name}: {text}"


def test_the_command_line_does_not_speak_of_parameters() -> None:
    for path in (SOURCE / "cli").glob("*.py"):
        for text in messages(path):
            assert not re.search(r"[a-z_]=(\.\.\.|\[|')|PCA\(|Columns\(", text), f"{path.name}: {text}"


def test_options_that_are_advised_exist() -> None:
    assert REMEDIES.keys() == advice.REMEDIES.keys()
    for name in REMEDIES:
        assert any(name in signature(command).parameters for command in COMMANDS), name


def test_only_options_of_the_command_are_advised() -> None:
    error = BadValue("x: column 'b' has text.", columns=["b"], row=1, options=("drop", "columns"))
    assert in_words(error, ["drop"]) == "x: column 'b' has text. --drop b leaves the column out."
    assert in_words(error, []) == str(error) == "x: column 'b' has text."
    assert in_words(BadColumns("no."), ["drop"]) == "no."


def test_fields_become_options_and_parameters() -> None:
    """One error names its field in the words of each interface."""
    for field, option, parameter in (
        ("analysis.components", "-k 9", "n_components=9"),
        ("analysis.max_iterations", "--max-iterations 9", "max_iterations=9"),
        ("data.align.minimum", "--minimum 9", "minimum=9"),
        ("receivers.analyst", "--receiver 9", "analyst=9"),
        ("decimal", "--decimal 9", "decimal=9"),
    ):
        error = SpecError(field, 9, "is too many")
        assert str(error) == f"{field}=9: is too many"
        assert in_words(error, ()) == f"{option}: is too many."
        assert str(advice.renamed(error)) == f"{parameter}: is too many"
    assert in_words(SpecError("data.align.namespace", None, "is needed"), ()) == "--namespace: is needed."
