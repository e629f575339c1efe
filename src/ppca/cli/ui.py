"""`ppca ui`: what an owner or a receiver sees and does in a browser, served by its own process on its own machine."""

from __future__ import annotations

import asyncio
import signal
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from .member import MemberOptions
from .options import command
from .terminal import Terminal

if TYPE_CHECKING:
    from ..federation.membership import Membership
    from ..federation.proposal import ProposedJob
    from ..member import MemberClient


@command()
def ui(
    me: MemberOptions,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for results. Each job gets a folder below it.")
    ] = Path("results"),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1. Default: any free port.")] = 0,
    show: Annotated[bool, typer.Option("--open", help="Open the link in your browser.")] = False,
) -> None:
    """Show your jobs in a browser: read, approve, contribute, follow and fetch.

    Stop with Ctrl-C.

    The pages come from this process, which holds your key; the browser never sees it. The printed link works once.
    """
    from ..member import MemberClient

    asyncio.run(_serve(lambda: MemberClient.open(me.federation, me.identity, me.state), output, port, show))


def checked(folder: Path, job: ProposedJob, federation: Membership) -> list[str]:
    """Return the list of checks that a result in a folder passed; raise at the first failure."""
    from ..member.fetching import EVIDENCE, Evidence
    from .fetch import verified

    evidence = Evidence.load(folder / EVIDENCE)
    if evidence.job.id != job.id:
        raise ValueError("it holds the result of another job; move it away, and fetch again.")
    if not federation.vouches_for(evidence.membership):
        raise ValueError("its evidence is of another federation than yours; move it away, and fetch again.")
    return verified(folder, evidence)


async def _serve(open_member: Callable[[], MemberClient], output: Path, port: int, show: bool) -> None:
    from aiohttp import web

    from ..web.member.results import Results
    from ..web.member.site import Pages
    from .fetch import fetch_into

    member = open_member()
    results = Results(output.resolve(), lambda folder, job: checked(folder, job, member.membership))
    pages = Pages(open_member, results, lambda member, job, folder: fetch_into(member, job, folder, replace=False))
    runner = web.AppRunner(pages.application(), access_log=None, shutdown_timeout=2)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    link = pages.authorisation.link(runner.addresses[0][1])
    console = Terminal()
    console.print(Text(f"{member.name}: {link}"), soft_wrap=True, highlight=False)
    console.print(Text("The link works once, in the browser that opens it first. Stop with Ctrl-C."), soft_wrap=True)
    pages.following.start()
    if show:
        await asyncio.to_thread(webbrowser.open, link)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        await stop.wait()
    finally:
        pages.following.stop()
        await runner.cleanup()
        pages.uploads.clear()
