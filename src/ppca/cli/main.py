"""The command line. Verbs are the user's steps; every command says what it does and where its results are."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from .. import __version__
from . import (
    bench,
    check,
    demo,
    doctor,
    federation,
    fetch,
    fit,
    forget,
    infer,
    inspect,
    job,
    member,
    regress,
    run,
    server,
    trial,
    ui,
)
from .errors import error_messages
from .surroundings import check_surroundings
from .terminal import Terminal

app = typer.Typer(
    help="Joint PCA over private data: no owner shows its rows.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,  # locals may hold data
    rich_markup_mode="markdown",  # paragraphs of help texts flow
)
app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True}, add_help_option=False)(
    bench.bench
)
app.command()(check.check)
app.command()(fit.fit)
app.command()(regress.regress)
app.command()(inspect.inspect)
app.command()(infer.transform)
app.command()(infer.detect)
app.command()(forget.forget)
app.command()(demo.demo)
app.command()(run.run)

MEMBERS = "Federation"
app.command(rich_help_panel=MEMBERS)(trial.trial)
app.command(rich_help_panel=MEMBERS)(federation.keygen)
app.add_typer(federation.app, name="federation", rich_help_panel=MEMBERS)
app.add_typer(server.app, name="server", rich_help_panel=MEMBERS)
app.command(rich_help_panel=MEMBERS)(doctor.doctor)
app.add_typer(job.app, name="job", rich_help_panel=MEMBERS)
for verb in (
    *(member.approve, member.refuse, member.contribute, member.status, member.watch),
    *(fetch.fetch, fetch.verify, member.audit),
):
    app.command(rich_help_panel=MEMBERS)(verb)
app.command(rich_help_panel=MEMBERS)(ui.ui)


def _version(wanted: bool) -> None:
    if wanted:
        Terminal().print(f"ppca {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Joint PCA over private data: several owners, one result, and no owner shows its rows."""
    with error_messages():
        check_surroundings()


@app.command()
def protocols() -> None:
    """List the protocols with their rounds, bytes, ranges and errors."""
    from .. import protocol  # noqa: F401 - importing the layer fills the table
    from ..protocol.cost import PROTOCOLS

    table = Table("protocol", "rounds", "bytes per server", "input range", "error", "failure probability")
    for cost in PROTOCOLS.values():
        table.add_row(cost.name, str(cost.rounds(2)), cost.bytes_text, cost.input_range, cost.error, cost.failure)
    Terminal().print(table)


if __name__ == "__main__":
    app()
