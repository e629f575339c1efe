"""The command line. Verbs are the user's steps; every command says what it does and where its results are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from .. import __version__
from ..cluster import ClusterError, LocalCluster, ProgramError
from ..protocol import InputRefused
from . import bench, demo, fit, inspect

app = typer.Typer(
    help="Joint principal component analysis over data that may not be shown.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,  # locals may hold data
)
app.add_typer(bench.app, name="bench")
app.command()(fit.fit)
app.command()(inspect.inspect)
app.command()(demo.demo)
console = Console()
errors = Console(stderr=True)


def _version(wanted: bool) -> None:
    if wanted:
        console.print(f"ppca {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    """Joint principal component analysis over data that may not be shown."""


@app.command()
def run(
    program: Annotated[str, typer.Argument(help="module:function or file.py:function, an 'async def'")],
    inputs: Annotated[list[Path] | None, typer.Argument(help="the client's secret arrays (.npy, .csv)")] = None,
    public: Annotated[list[str] | None, typer.Option("--public", "-p", help="public parameter name=value")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="write the result here (.npz)")] = None,
    tls: Annotated[bool, typer.Option("--tls", help="mutual TLS between the servers")] = False,
    timeout: Annotated[float, typer.Option(help="seconds a communication round may take")] = 60.0,
) -> None:
    """Run a program on four local servers: secrets are shared here, only shares reach the servers."""
    arrays = [_load(path) for path in inputs or []]
    parameters = dict(_parameter(text) for text in public or [])
    try:
        with (
            Progress(
                SpinnerColumn(),
                TextColumn("{task.description}"),
                BarColumn(),
                TimeElapsedColumn(),
                console=console,
                transient=True,
            ) as bar,
            LocalCluster(tls=tls, timeout=timeout) as cluster,
        ):
            task = bar.add_task(program, total=None)

            def show(text: str, fraction: float | None, rounds: int) -> None:
                bar.update(task, description=f"{text} [dim]({rounds} rounds)[/]", total=1.0, completed=fraction or 0.0)

            result = cluster.run(program, *arrays, progress=show, **parameters)
            report = cluster.report
    except (ClusterError, ProgramError, InputRefused) as error:
        errors.print(f"[red]error:[/] {error}", highlight=False)
        raise typer.Exit(1) from None
    assert report is not None
    _show(result)
    sent = max(report.bytes_sent)
    console.print(
        f"{report.rounds} rounds, {sent:,} bytes sent by the busiest server, {report.seconds:.3f} s", style="dim"
    )
    openings = Table("opened", "shape", "to", "why", title="What left the sharing")
    for line in report.audit:
        openings.add_row(line["what"], str(tuple(line["shape"])), line["to"], line["why"])
    console.print(openings)
    if output is not None:
        _save(output, result)
        console.print(f"written: {output}")


def _load(path: Path) -> Any:
    try:
        return np.load(path, allow_pickle=False) if path.suffix == ".npy" else np.loadtxt(path, delimiter=",", ndmin=1)
    except (OSError, ValueError) as error:
        errors.print(f"[red]error:[/] cannot read {path}: {error}", highlight=False)
        raise typer.Exit(1) from None


def _parameter(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator or not name.isidentifier():
        raise typer.BadParameter(f"{text!r} is not of the form name=value")
    for convert in (int, float):
        try:
            return name, convert(value)
        except ValueError:
            continue
    return name, value


def _flat(result: Any, prefix: str = "result") -> dict[str, Any]:
    if isinstance(result, dict):
        return {k: v for key, item in result.items() for k, v in _flat(item, key).items()}
    if isinstance(result, list) and not all(isinstance(item, int | float | str) for item in result):
        return {k: v for i, item in enumerate(result) for k, v in _flat(item, f"{prefix}_{i}").items()}
    return {prefix: result}


def _show(result: Any) -> None:
    for name, value in _flat(result).items():
        console.print(f"[bold]{name}[/] =", np.array2string(np.asarray(value), threshold=20, precision=6))


def _save(path: Path, result: Any) -> None:
    part = path.with_suffix(".part.npz")
    arrays: dict[str, Any] = {name: np.asarray(value) for name, value in _flat(result).items()}
    np.savez(part, **arrays)
    part.replace(path)


@app.command()
def protocols() -> None:
    """List the protocols with their rounds, bytes, ranges and errors."""
    from .. import protocol  # noqa: F401 - importing the layer fills the table
    from ..protocol.cost import PROTOCOLS

    table = Table("protocol", "rounds", "bytes per server", "input range", "error", "failure probability")
    for cost in PROTOCOLS.values():
        table.add_row(cost.name, str(cost.rounds(2)), cost.bytes_text, cost.input_range, cost.error, cost.failure)
    console.print(table)


if __name__ == "__main__":
    app()
