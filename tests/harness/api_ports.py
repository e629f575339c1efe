"""A federation on loopback in one process: the API and mesh ports of four servers, without job_runners. For what asks
servers."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from aiohttp import web

from ppca.federation import toml
from ppca.federation.identity import Identity, key_text
from ppca.federation.membership import Membership, MembershipFile, render, statement, write_signatures
from ppca.federation.serverfile import ServerFile, ServerSettings
from ppca.server.api import Api
from ppca.server.router import Router
from ppca.server.server_state import ServerState

OPERATORS = ("alpha", "beta", "gamma", "delta")
MEMBERS = {"north": ["owner"], "analyst": ["receiver"]}


class LocalPorts:
    """Keys and files of all members in folders of their own; ports are opened server by server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.identities = {}
        for name in (*OPERATORS, *MEMBERS):
            (folder / name).mkdir()
            self.identities[name] = Identity.create(name, folder / name / "identity.key")
        self._sockets = [
            socket.socket() for _ in range(12)
        ]  # bound from the beginning, so that no one else gets a port
        for sock in self._sockets:
            sock.bind(("127.0.0.1", 0))
        self.ports = [sock.getsockname()[1] for sock in self._sockets]
        self.found()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._runners: list[web.AppRunner] = []
        self._routers: list[Router] = []

    # -- files -------------------------------------------------------------------------------------------------------

    def found(
        self, *, revision: int = 1, at: tuple[str, ...] = (*OPERATORS, *MEMBERS), keys: dict[str, bytes] | None = None
    ) -> None:
        """Write and signs the federation's file; `at` some members only, or with other keys than the members have."""
        pins = {name: identity.public for name, identity in self.identities.items()} | (keys or {})
        servers = [
            {"number": i, "member": name, "key": key_text(pins[name])}
            | {"api": f"127.0.0.1:{self.ports[3 * i]}", "mesh": f"127.0.0.1:{self.ports[3 * i + 1]}"}
            for i, name in enumerate(OPERATORS)
        ]
        members = [{"name": name, "key": key_text(pins[name]), "roles": roles} for name, roles in MEMBERS.items()]
        content = {"name": "ports", "revision": revision, "server": servers, "member": members}
        data = render(toml.validated(MembershipFile, content, "test"))
        signatures = {name: self.identities[name].sign(statement(data)) for name in OPERATORS}
        for name in at:
            (self.folder / name / "federation.toml").write_bytes(data)
            write_signatures(self.folder / name / "federation.sigs", signatures)

    def membership(self, name: str) -> Membership:
        return Membership.load(self.folder / name)

    def settings(self, server: int, **more: Any) -> ServerSettings:
        ports = self.ports[3 * server : 3 * server + 3]
        listen = {key: f"127.0.0.1:{port}" for key, port in zip(("api", "mesh", "local"), ports, strict=True)}
        content = {"server": server, "federation": "federation.toml", "identity": "identity.key"}
        content |= {"listen": listen, "store": {"path": "store"}, **more}
        return ServerSettings(toml.validated(ServerFile, content, "test"), self.folder / OPERATORS[server])

    # -- ports -------------------------------------------------------------------------------------------------------------

    def open(self, *servers: int, api: Callable[[ServerState], Api] | None = None) -> None:
        """Open API, mesh and health of these servers."""
        for server in servers:
            settings = self.settings(server)
            settings.store.mkdir(mode=0o700, exist_ok=True)
            server_state = ServerState(settings)
            made = Api(server_state, None) if api is None else api(server_state)  # type: ignore[arg-type]
            self._call(self._serve(server, server_state, made))
            self._sockets[3 * server + 1].listen()
            self._routers.append(Router(self._sockets[3 * server + 1]))

    async def _serve(self, server: int, server_state: ServerState, api: Api) -> None:
        api_runner = web.AppRunner(api.application(), access_log=None)
        local = web.Application()
        local.add_routes([web.get("/healthz", _health)])
        health = web.AppRunner(local, access_log=None)
        for runner, sock, context in (
            (api_runner, self._sockets[3 * server], server_state.tls.context(dialing=False)),
            (health, self._sockets[3 * server + 2], None),
        ):
            await runner.setup()
            await web.SockSite(runner, sock, ssl_context=context).start()
            self._runners.append(runner)

    def _call(self, body: Any) -> None:
        done: Future[None] = asyncio.run_coroutine_threadsafe(body, self._loop)
        done.result(60)

    def close(self) -> None:
        for router in self._routers:
            router.close()
        for runner in self._runners:
            self._call(runner.cleanup())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        for sock in self._sockets:
            sock.close()


async def _health(request: web.Request) -> web.Response:
    return web.json_response({"server": 0, "links_up": 3})
