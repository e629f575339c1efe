"""Groups of options: one option per field, one value for the command."""

from __future__ import annotations

from dataclasses import dataclass
from inspect import signature
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from ppca.cli.options import Help, OutputOptions, command
from ppca.owner.tables.options import DEFAULTS, ReadOptions

GOT: list[object] = []


@dataclass(frozen=True, kw_only=True)
class Both(OutputOptions):
    table: Annotated[str, typer.Argument(help="a table")]
    read: Annotated[ReadOptions, Help(missing=None, decimal="the separator")] = DEFAULTS


@command()
def analyse(both: Both, count: Annotated[int, typer.Option(help="how many")] = 1) -> None:
    GOT.append((both, count))
    if count > 2:
        raise ValueError("--count is too large.")


def run(*words: str) -> tuple[int, str]:
    app = typer.Typer()
    app.command()(analyse)
    GOT.clear()
    done = CliRunner().invoke(app, list(words), catch_exceptions=False)
    return done.exit_code, done.output


def test_every_field_of_a_group_is_an_option() -> None:
    names = list(signature(analyse).parameters)
    assert names[0] == "count"  # its own options come first
    assert set(names[1:]) == {"quiet", "as_json", "force", "table", "decimal", "thousands", "na_values", "encoding"}


def test_a_command_gets_groups_as_values() -> None:
    code, text = run("t.csv", "--json", "--decimal", ",", "--na-values", "a,b", "--na-values", "c", "--count", "2")
    assert code == 0, text
    read = ReadOptions(decimal=",", na_values=("a", "b", "c"))
    assert [(Both(table="t.csv", as_json=True, read=read), 2)] == GOT


def test_help_texts_may_differ() -> None:
    code, text = run("--help")
    assert code == 0
    assert "the separator" in text
    assert "--missing" not in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--count", "3"], "error: --count is too large."),
        (["--decimal", "x"], "error: --decimal x: must be '.' or ','."),
    ],
)
def test_errors_of_a_command_and_of_its_options_are_messages(words: list[str], said: str) -> None:
    code, text = run("t.csv", *words)
    assert code == 1
    assert said in " ".join(text.split())
