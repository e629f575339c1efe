"""`ppca doctor`: what keeps this machine from taking part in its federation, and what to do about it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from .errors import printable
from .member import MemberOptions
from .options import Quiet, command
from .terminal import Terminal

if TYPE_CHECKING:
    from ..member.doctor import CheckedFiles
    from ..member.doctor_report import Finding

MARKS = {"good": ("✓", "green"), "note": ("!", "yellow"), "wrong": ("✗", "bold red")}


@command()
def doctor(
    me: MemberOptions,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", "-c", help="Settings file server.toml: check a server instead of an owner or receiver."
        ),
    ] = None,
    idle: Annotated[
        int, typer.Option(min=0, max=600, help="Also test that connections survive this number of idle seconds.")
    ] = 0,
    bandwidth: Annotated[bool, typer.Option(help="Measure the bandwidth with 2 MiB each way.")] = True,
    report: Annotated[
        Path | None, typer.Option("--report", help="Write results and measurements as JSON, without secrets.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Check names, ports, keys, clocks, disks and versions.

    For each problem it says how to fix it.

    Exit code 1 if there is a problem. Nothing is changed. With -c server.toml (for operators), connections between the
    mesh ports are also checked, in both directions.
    """
    from ..member.doctor import Doctor
    from ..runtime.files import write_whole

    console = Terminal(quiet=quiet)
    with console.status("") as status:
        examined = Doctor(
            _checked_files(config, me),
            idle=idle,
            bandwidth=bandwidth,
            told=lambda text: status.update(Text(text)),
        ).examine()
    for finding in examined.items:
        _show(console, finding)
    if report is not None:
        write_whole(report, (json.dumps(examined.report(), indent=1) + "\n").encode())
        console.print(Text(f"written: {report}"), soft_wrap=True)
    if not examined.sound:
        raise typer.Exit(1)


def _checked_files(config: Path | None, me: MemberOptions) -> CheckedFiles:
    from ..federation.serverfile import ServerSettings
    from ..member.doctor import CheckedFiles

    if config is None:
        return CheckedFiles(me.federation, me.identity, state=me.state)
    settings = ServerSettings.load(config)
    return CheckedFiles(settings.federation, settings.identity, settings)


def _show(console: Terminal, finding: Finding) -> None:
    mark, style = MARKS[finding.level]
    said = f"{finding.where}: {printable(finding.said, 400)}"
    console.print(Text.assemble((mark, style), " ", said), soft_wrap=True, highlight=False)
    if finding.remedy:
        console.print(Text(f"  → {finding.remedy}"), soft_wrap=True, highlight=False)
