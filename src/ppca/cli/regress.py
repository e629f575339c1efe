"""`ppca regress`: joint linear regression of several owners' files on four local servers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .draft import DRAFT, MembersOptions, draft_of, regression_of, write_draft
from .errors import in_words, note, printable
from .fit import notes_of, tell_dropped
from .fit_options import Files
from .options import command
from .regress_options import RegressOptions
from .terminal import Terminal

if TYPE_CHECKING:
    from ..estimator.regression import FittedRegression
    from ..receiver.regression import RegressionModel
    from ..runtime import Account

OF_TWO = (
    "two owners: anyone with the result and one owner's rows can compute much about the means and sums of the other one"
)
"""Note on what a result reveals to two owners about each other."""

REPORT = "report.html"
DIGITS = 4
"""Digits of numbers in the terminal; the files have all of them."""

MAX_LINES = 40
"""Maximum number of lines of the coefficient table in the terminal."""


@command()
def regress(
    files: Files,
    options: RegressOptions,
    proposal: MembersOptions,
    draft: Annotated[
        Path | None,
        typer.Option(
            "--draft",
            help="Write this job.toml for the members of --federation, and compute nothing.",
            rich_help_panel=DRAFT,
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the job of --draft.", rich_help_panel=DRAFT)
    ] = None,
) -> None:
    """Explain one column by all others: joint linear regression on four local servers.

    The servers see only secret shares. They open two bits: whether no column is constant or nearly a linear
    combination of others, and whether the solution is accurate.

    The result folder gets coefficients.csv, regression.json and report.html, all or none; with --reveal correlation
    also correlation.csv.

    With --draft nothing is computed. The column names of the files and the options are written to a job.toml, as by
    ppca job regress.

    With --vertical, owners hold different columns of the same individuals, joined by --id.
    """
    if draft is not None:
        membership, owners, columns = draft_of(files, options, proposal, name, draft)
        job = regression_of(proposal, owners, proposal.receivers or [], columns, options)
        write_draft(proposal.propose(membership, str(name), job), draft, quiet=options.quiet)
        return
    proposal.check_unused()
    _regress_here(files, options)


def _regress_here(files: Sequence[str], options: RegressOptions) -> None:
    """Fit, and write and show the result."""
    from contextlib import nullcontext

    from ..estimator.job import Job
    from ..estimator.regression import FIRST, RegressionPlan, fit_regression
    from .folder import whole_folder
    from .progress import stage_bars

    options.check_tables(known(), nullcontext)
    plan = RegressionPlan(options.analysis(FIRST), options.parts, options.partition())
    with options.dask_cluster():
        tables = options.tables(files)
        for text in [text for table in tables for text in table.notes] + notes_of(files):
            note(text, quiet=options.quiet)
        if len(tables) == 2 and not options.vertical:
            note(OF_TWO, quiet=options.quiet)
        position = options.target.isascii() and options.target.isdigit() and tables[0].names is None
        target = int(options.target) if position else options.target
        with stage_bars(quiet=options.quiet) as show, Job(options.servers(None), show) as job:
            fitted = fit_regression(tables, plan, target, job)
    owners = [table.label for table in tables]
    servers = "four processes on one machine" if options.federation is None else "the four servers of a federation"
    settings = settings_of(fitted.model, servers)
    with whole_folder(options.output, known(), replace=options.force) as folder:
        write_regression(
            folder,
            fitted.model,
            fitted.account,
            title=options.title,
            settings=settings,
            owners=owners,
            by_columns=options.vertical,
        )
    tell_dropped(tables, options.quiet)
    if fitted.by_columns is not None and fitted.by_columns.doubt is not None:
        note(in_words(fitted.by_columns.doubt, signature(regress).parameters), quiet=options.quiet)
    _show(fitted, owners, options)


def known() -> tuple[str, ...]:
    """Names of the files that the result of a regression can consist of."""
    from ..receiver.regression import COEFFICIENTS_FILE, CORRELATION_FILE, REGRESSION_FILE

    return (COEFFICIENTS_FILE, CORRELATION_FILE, REGRESSION_FILE, REPORT)


def settings_of(model: RegressionModel, servers: str) -> dict[str, Any]:
    """Return the settings of a regression, for the report."""
    method = "least squares" if model.method == "ols" else f"ridge, alpha = {model.alpha:g}"
    scaled = {"penalty for": "columns divided by their deviation" if model.scaled else "columns in their units"}
    return {
        "target": model.target,
        "method": method,
        **(scaled if model.method != "ols" else {}),
        "columns": f"{len(model.columns)} chosen",
        "servers": servers,
    }


def write_regression(
    folder: Path,
    model: RegressionModel,
    account: Account,
    *,
    title: str,
    settings: dict[str, Any],
    owners: Sequence[str],
    by_columns: bool,
) -> None:
    """Write the files of a result. Numbers carry all digits."""
    from ..receiver.regression import REGRESSION_FILE
    from ..web.report import write_regression_report
    from .kept import write_tables

    write_tables(folder, model.tables())
    model.save(folder / REGRESSION_FILE)
    write_regression_report(
        folder / REPORT, model, account, title=title, settings=settings, owners=owners, by_columns=by_columns
    )


def print_coefficients(console: Console, model: RegressionModel) -> None:
    """Print the coefficient table, what describes the fit, and what a reader must know."""
    from ..web.report import coefficient_lines, facts

    heads, lines = coefficient_lines(model, DIGITS)
    title = f"Linear regression of {printable(model.target)}"
    table = Table(title=title, title_justify="left", box=SIMPLE, pad_edge=False, collapse_padding=True)
    for number, head in enumerate(heads):
        table.add_column(head, justify="right" if number else "left")
    for line in lines[:MAX_LINES]:
        table.add_row(*(Text(cell) for cell in line))
    if len(lines) > MAX_LINES:
        table.add_row("…", f"{len(lines) - MAX_LINES} more")
    console.print(table)
    console.print(Text("; ".join(f"{name}: {value}" for name, value in facts(model).items())), soft_wrap=True)
    for remark in model.remarks():
        console.print(Text(remark), soft_wrap=True)


def regression_summary(model: RegressionModel) -> dict[str, Any]:
    """Return the numbers of a regression for JSON; NaN as None."""
    table = {name: [_plain(value) for value in values.tolist()] for name, values in model.table().items()}
    return {"target": model.target, "rows": model.rows, "method": model.method, "coefficients": table, "r2": model.r2}


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and value != value else value


def _show(fitted: FittedRegression, owners: Sequence[str], options: RegressOptions) -> None:
    """Print the result on standard output."""
    from .result import account_summary, print_openings, print_profile, print_rows, print_traffic

    if options.as_json:
        found = {"owners": list(owners), **regression_summary(fitted.model), **account_summary(fitted.account)}
        typer.echo(json.dumps(found | {"written": str(options.output)}, indent=1))
        return
    console = Terminal(quiet=options.quiet)
    if fitted.by_columns is not None:
        print_rows(console, owners, fitted.by_columns)
    print_coefficients(console, fitted.model)
    print_openings(console, fitted.account.audit)
    if options.profile:
        print_profile(console, fitted.account)
    print_traffic(console, fitted.account)
    written = sorted(path.name for path in options.output.iterdir())
    console.print(Text(f"written: {options.output} ({', '.join(written)})"), soft_wrap=True, highlight=False)
