"""`ppca check`: read tables as `ppca fit` would, and list all problems of all files."""

from __future__ import annotations

import json
from dataclasses import asdict
from inspect import signature
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from ..owner.tables.options import DEFAULTS, ReadOptions
from ..pages.amounts import counted
from .complaint import complaints, in_words, printable
from .options import (
    ADDRESSES,
    KINDS,
    SOLVER,
    SOLVER_HELP,
    AsJson,
    ChosenColumns,
    Components,
    DroppedColumns,
    FoldCase,
    IdColumns,
    Minimum,
    MinRows,
    Namespace,
    Quiet,
    Standardize,
    Vertical,
    Way,
    reading_options,
)
from .terminal import Terminal

if TYPE_CHECKING:
    from ..estimator.checking import Checked


@reading_options()
def check(
    files: Annotated[list[str], typer.Argument(help=f"one table per owner: {KINDS}; {ADDRESSES}")],
    components: Components = "all",
    standardize: Standardize = False,
    columns: ChosenColumns = None,
    drop: DroppedColumns = None,
    read: ReadOptions = DEFAULTS,
    vertical: Vertical = False,
    id: IdColumns = None,
    alignment: Way = "psi",
    namespace: Namespace = None,
    fold_case: FoldCase = False,
    minimum: Minimum = 10,
    min_rows: MinRows = 10,
    solver: Annotated[str, typer.Option(help=SOLVER_HELP, rich_help_panel=SOLVER)] = "auto",
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Read tables as `ppca fit` would, list all problems of all files, and estimate what the fit takes.

    The options are those of `ppca fit`. Nothing is written or sent, and no servers start. The exit code is 1 if the fit would
    fail. With --quiet only problems are printed.
    """
    with complaints(check):
        from ..estimator.checking import check_tables
        from ..estimator.choices import Choices
        from .fit import check_together, component_count, notes_of
        from .options import names_in, partition_of

        check_together(vertical, id, namespace, columns, drop)
        partition = partition_of(id, alignment, namespace, fold_case, minimum) if vertical else "rows"
        choices = Choices(component_count(components), standardize, solver, partition=partition)
        found = check_tables(
            files, choices, columns=names_in(columns), drop=names_in(drop), options=read, min_rows=min_rows
        )
        found.notes += notes_of(files)
        texts = [in_words(problem, signature(check).parameters) for problem in found.problems]
        if as_json:
            typer.echo(json.dumps(_facts(found, texts), indent=1))
        else:
            _show(found, texts, len(files), quiet)
    if texts:
        raise typer.Exit(1)


def _facts(found: Checked, texts: list[str]) -> dict[str, Any]:
    return {
        "ok": not texts,
        "tables": [asdict(table) for table in found.tables],
        "problems": texts,
        "notes": found.notes,
        "forecast": None if found.forecast is None else asdict(found.forecast),
    }


def _show(found: Checked, texts: list[str], files: int, quiet: bool) -> None:
    from ..report import duration, size

    console = Terminal(quiet=quiet)
    for table in found.tables:
        dropped = f", {counted(table.dropped, 'row')} with missing values left out" if table.dropped else ""
        line = f"{table.label}: {counted(table.rows, 'row')}, {counted(table.columns, 'column')}{dropped}"
        console.print(Text(line), soft_wrap=True, highlight=False)
    for text in found.notes:
        console.print(Text.assemble(("note: ", "yellow"), printable(text, 400)), soft_wrap=True, highlight=False)
    for text in texts:
        Terminal().print(
            Text.assemble(("problem: ", "bold red"), printable(text, 4000)), soft_wrap=True, highlight=False
        )
    if texts:
        end = f"{counted(len(texts), 'problem')} in {counted(files, 'file')}: ppca fit would fail."
    elif found.forecast is None:
        end = "No problems. There is no estimate of time and bytes for this solver or for more columns than rows."
    else:
        took = f"about {duration(found.forecast.seconds)} on two cores, {found.forecast.rounds:,.0f} rounds"
        end = f"No problems. ppca fit takes {took} and {size(found.forecast.bytes)} sent by every server."
    console.print(Text(end), soft_wrap=True, highlight=False)
