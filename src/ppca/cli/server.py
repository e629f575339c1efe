"""`ppca server`: one server of a federation, from its settings to its daemon."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from .federation import FEDERATION, IDENTITY, File, IdentityFile
from .options import command
from .terminal import Terminal

app = typer.Typer(help="Run one server of a federation.", no_args_is_help=True)
ServerFileOption = Annotated[
    Path, typer.Option("--config", "-c", envvar="PPCA_SERVER", help="Settings file of the server, such as server.toml.")
]


@app.command()
@command()
def init(
    file: File = FEDERATION,
    identity: IdentityFile = IDENTITY,
    config: ServerFileOption = Path("server.toml"),
    store: Annotated[str, typer.Option(help="Folder of the store, relative to server.toml.")] = "store",
    api: Annotated[str, typer.Option(help="Listening address for members and servers.")] = "0.0.0.0:7443",
    mesh: Annotated[str, typer.Option(help="Listening address for other servers while jobs run.")] = "0.0.0.0:7444",
    local: Annotated[
        str, typer.Option(help="Address on this machine for metrics, health and the operator's page.")
    ] = "127.0.0.1:7445",
) -> None:
    """Write server.toml for your server, with all settings and their meaning.

    Nothing is started.
    """
    from ..federation import toml
    from ..federation.identity import Identity
    from ..federation.membership import Membership
    from ..federation.serverfile import ServerFile, render_server
    from ..runtime.files import write_whole

    if config.exists():
        raise ValueError(f"{config} exists. Edit it, or choose another file with -c.")
    me, membership = Identity.load(identity), Membership.load(file)
    membership.check_identity(me)
    server = membership.server_of(me.name)
    if server is None:
        raise ValueError(f"{me.name} is not an operator in {file}.")
    here = config.resolve().parent
    content = {
        "server": server,
        "federation": _seen_from(here, file),
        "identity": _seen_from(here, identity),
        "listen": {"api": api, "mesh": mesh, "local": local},
        "store": {"path": store},
    }
    write_whole(config, render_server(toml.validated(ServerFile, content, str(config))))
    Terminal().print(Text(f"written: {config}, server {server}. Next: ppca server run -c {config}"), soft_wrap=True)


def _seen_from(folder: Path, path: Path) -> str:
    found = path.resolve()
    return str(found.relative_to(folder)) if found.is_relative_to(folder) else str(found)


@app.command()
@command()
def run(
    config: ServerFileOption = Path("server.toml"),
    identity: Annotated[
        Path | None, typer.Option("--identity", "-i", help="Your identity.key. Default: the path in server.toml.")
    ] = None,
    level: Annotated[str, typer.Option("--log", help="Log level: debug, info, warning or error.")] = "info",
    accept: Annotated[
        str | None,
        typer.Option(help="Accept the revision with this digest, which fewer than three former operators signed."),
    ] = None,
) -> None:
    """Run one server until stopped (Ctrl-C, SIGTERM).

    Logs are JSON lines on standard error.
    """
    from ..server.daemon import serve

    serve(config, level.upper(), identity, accept)


@app.command()
@command()
def restore(config: ServerFileOption = Path("server.toml")) -> None:
    """Restore the shares of a lost server from the other servers.

    Run it before the new server. It restores unfinished jobs and kept models.

    Before this, the operator makes a new key, and the federation signs a revision with that key (ppca federation add
    --server). The other three servers must run with that revision. Every share is copied from another server that holds
    the same share. No server combines shares.
    """
    from ..server.daemon import restore as bring_back

    console = Terminal()
    missing = bring_back(config, lambda text: console.print(Text(text), soft_wrap=True))
    if missing:
        console.print(
            Text(
                f"{len(missing)} things are missing (listed above); everything else is restored. Run the "
                "command again when the servers named above answer, or start the server without them: "
                f"ppca server run -c {config}"
            ),
            soft_wrap=True,
        )
        raise typer.Exit(1)
    console.print(Text(f"done. Next: ppca server run -c {config}"), soft_wrap=True)
