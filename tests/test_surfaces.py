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
from ppca.cli.complaint import NAMES, REMEDIES, in_words
from ppca.estimator import advice
from ppca.owner.errors import BadColumns, BadValue, ParameterRefused

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
    assert set(NAMES) == {"n_components"}


def test_only_options_of_the_command_are_advised() -> None:
    error = BadValue("x: column 'b' has text.", columns=["b"], row=1, options=("drop", "columns"))
    assert in_words(error, ["drop"]) == "x: column 'b' has text. --drop b leaves the column out."
    assert in_words(error, []) == str(error) == "x: column 'b' has text."
    assert in_words(BadColumns("no."), ["drop"]) == "no."


def test_parameters_become_options() -> None:
    assert in_words(ParameterRefused("n_components", 9, "is too many"), ()) == "-k 9 is too many."
    assert in_words(ParameterRefused("max_iterations", 0, "is too few"), ()) == "--max-iterations 0 is too few."
    assert in_words(ParameterRefused("namespace", None, "is needed"), ()) == "--namespace is needed."
    assert str(ParameterRefused("n_components", 9, "is too many")) == "n_components=9 is too many"
