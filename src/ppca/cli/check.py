"""`ppca check`: read tables as `ppca fit` would, and list all problems of all files."""

from __future__ import annotations

import json
from dataclasses import asdict
from inspect import signature
from typing import TYPE_CHECKING, Any

import typer
from rich.text import Text

from ..html.formats import counted
from .errors import in_words, printable
from .fit_options import Files, FitOptions
from .options import command
from .terminal import Terminal

if TYPE_CHECKING:
    from ..estimator.checking import Checked


@command()
def check(files: Files, options: FitOptions) -> None:
    """Check tables as `ppca fit` reads them, and estimate the costs of the fit.

    All problems of all files are listed. The costs are time and traffic.

    The options are those of `ppca fit`. Nothing is written or sent, and no servers start: `ppca doctor` checks the
    servers of a federation. The exit code is 1 if the fit would fail. With --quiet only problems are printed.
    """
    from .fit import notes_of

    found = _checked(files, options)
    found.notes += notes_of(files)
    texts = [in_words(problem, signature(check).parameters) for problem in found.problems]
    if options.as_json:
        typer.echo(json.dumps(_facts(found, texts), indent=1))
    else:
        _show(found, texts, len(files), options.quiet)
    if texts:
        raise typer.Exit(1)


def _checked(files: list[str], options: FitOptions) -> Checked:
    """Return the problems of the options, and of the tables as far as they can be read."""
    from ..estimator.checking import Checked, check_tables
    from ..estimator.plan import Plan
    from ..owner.tables.owners import Problems

    problems = Problems()
    options.check(problems.collect)
    partition = None
    with problems.collect():
        partition = options.partition()
    found = Checked()
    if partition is not None:
        plan = Plan(partition=partition)
        with problems.collect():
            plan = options.plan(partition, "name" if options.keeps else None)
        with problems.collect(), options.dask_cluster():
            found = check_tables(options.tables(files, problems.collect), plan, problems)
    found.problems = problems.found
    return found


def _facts(found: Checked, texts: list[str]) -> dict[str, Any]:
    return {
        "ok": not texts,
        "tables": [asdict(table) for table in found.tables],
        "problems": texts,
        "notes": found.notes,
        "forecast": None if found.forecast is None else asdict(found.forecast),
    }


def _show(found: Checked, texts: list[str], files: int, quiet: bool) -> None:
    from ..web.report import duration, size

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
        end = "No problems. There is no estimate of time and bytes for this solver."
    else:
        took = f"about {duration(found.forecast.seconds)} on two cores, {found.forecast.rounds:,.0f} rounds"
        end = f"No problems. ppca fit takes {took} and {size(found.forecast.bytes)} sent by every server."
    console.print(Text(end), soft_wrap=True, highlight=False)
