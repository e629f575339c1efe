"""A federation of processes on this machine, made without the command line: for benchmarks and tests that need many of
them.

Every server is a process of `ppca server run` with its own folder; members act in this process. Servers may be reached
through proxies, killed and started again.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from ppca.federation import toml
from ppca.federation.identity import Identity, key_text
from ppca.federation.membership import Membership, MembershipFile, render, statement, write_signatures
from ppca.federation.serverfile import ServerFile, render_server
from ppca.member import MemberClient
from ppca.runtime.files import write_whole
from ppca.transport import free_ports

from .proxy import Proxy

OPERATORS = ("alpha", "beta", "gamma", "delta")
HEALTH_SECONDS = 2.0


class Field:
    """Four servers and their members.

    owners, receivers: names; a name may be in both. api, mesh: proxies before these ports (delay, rate), or None for
    none. settings: tables of server.toml that differ from the defaults, as {"policy": {...}}.
    """

    def __init__(
        self,
        folder: Path,
        owners: Sequence[str] = ("north", "south", "west"),
        receivers: Sequence[str] = ("analyst",),
        *,
        api: Mapping[str, Any] | None = None,
        mesh: Mapping[str, Any] | None = None,
        settings: Mapping[str, Mapping[str, Any]] | None = None,
        threads: int = 1,
    ) -> None:
        self.folder = folder
        names = list(dict.fromkeys([*OPERATORS, *owners, *receivers]))
        self.identities = {name: Identity.create(name, folder / name / "identity.key") for name in names}
        ports = iter(free_ports(3 * len(OPERATORS)))
        self.ports = [(next(ports), next(ports), next(ports)) for _ in OPERATORS]
        self.api_proxies = [None if api is None else Proxy(("127.0.0.1", ports[0]), **api) for ports in self.ports]
        self.mesh_proxies = [None if mesh is None else Proxy(("127.0.0.1", ports[1]), **mesh) for ports in self.ports]
        self.processes: list[subprocess.Popen[bytes] | None] = [None] * 4
        self.environments: dict[int, dict[str, str]] = {}
        self._owners, self._receivers = owners, receivers
        self.write_membership(1)
        for server, name in enumerate(OPERATORS):
            self._write_server(server, name, settings or {}, threads)

    def write_membership(
        self,
        revision: int,
        left_out: Sequence[str] = (),
        former: Sequence[tuple[str, Identity]] = (),
        only: Sequence[str] | None = None,
    ) -> Membership:
        """The federation's file, signed by all four, in every member's folder. former: identities that were
        replaced. only: members that get it, if not all."""
        servers = []
        for server, name in enumerate(OPERATORS):
            public = [
                port if proxy is None else proxy.port
                for port, proxy in zip(
                    self.ports[server], (self.api_proxies[server], self.mesh_proxies[server]), strict=False
                )
            ]
            key = key_text(self.identities[name].public)
            where = {"api": f"127.0.0.1:{public[0]}", "mesh": f"127.0.0.1:{public[1]}"}
            servers.append({"number": server, "member": name, "key": key, **where})
        members = []
        for name in dict.fromkeys([*self._owners, *self._receivers]):
            if name not in left_out:
                roles = [
                    role for role, whose in (("owner", self._owners), ("receiver", self._receivers)) if name in whose
                ]
                members.append({"name": name, "key": key_text(self.identities[name].public), "roles": tuple(roles)})
        content = {"name": "field", "revision": revision, "server": tuple(servers), "member": tuple(members)}
        content["former"] = tuple({"name": name, "key": key_text(old.public)} for name, old in former)
        data = render(toml.validated(MembershipFile, content, "the federation"))
        signatures = {name: self.identities[name].sign(statement(data)) for name in OPERATORS}
        for name in self.identities if only is None else only:
            write_signatures(self.folder / name / "federation.sigs", signatures)
            write_whole(self.folder / name / "federation.toml", data)
        return Membership(data, signatures)

    def _write_server(self, server: int, name: str, settings: Mapping[str, Mapping[str, Any]], threads: int) -> None:
        api, mesh, local = self.ports[server]
        content: dict[str, Any] = {
            "server": server,
            "federation": "federation.toml",
            "identity": "identity.key",
            "listen": {"api": f"127.0.0.1:{api}", "mesh": f"127.0.0.1:{mesh}", "local": f"127.0.0.1:{local}"},
            "store": {"path": "store"} | dict(settings.get("store", {})),
            "policy": dict(settings.get("policy", {})),
            "work": {"threads": threads} | dict(settings.get("work", {})),
        }
        file = toml.validated(ServerFile, content, "the server")
        write_whole(self.folder / name / "server.toml", render_server(file))

    # -- processes ---------------------------------------------------------------------------------------------------

    def start(self, *servers: int) -> Self:
        """Start these servers (all without), and wait until every server that runs reaches every other one that
        runs."""
        for server in servers or range(4):
            if self.processes[server] is None:
                self.processes[server] = self._launch(server)
        self.await_links()
        return self

    def launch(self, server: int) -> None:
        """Start a server without waiting."""
        self.processes[server] = self._launch(server)

    def _launch(self, server: int) -> subprocess.Popen[bytes]:
        folder = self.folder / OPERATORS[server]
        with (folder / "server.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "ppca.cli.main", "server", "run"],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | {"PYTHONUNBUFFERED": "1"} | self.environments.get(server, {}),
                start_new_session=True,
            )

    def await_links(self, seconds: float = 240.0) -> None:
        running = [server for server, process in enumerate(self.processes) if process is not None]
        deadline = time.monotonic() + seconds
        while not all(self.health(server) >= len(running) - 1 for server in running):
            for server in running:
                process = self.processes[server]
                if process is not None and process.poll() is not None:
                    raise RuntimeError(f"server {server} ended: {self.log(server)[-3:]}")
            if time.monotonic() > deadline:
                raise RuntimeError("the servers do not find each other")
            time.sleep(0.1)

    def health(self, server: int) -> int:
        place = f"http://127.0.0.1:{self.ports[server][2]}/healthz"
        try:
            with urllib.request.urlopen(place, timeout=HEALTH_SECONDS) as answer:
                return int(json.loads(answer.read())["links_up"])
        except (OSError, ValueError, KeyError):
            return -1

    def log(self, server: int) -> list[str]:
        return (self.folder / OPERATORS[server] / "server.log").read_text().splitlines()

    def kill(self, server: int, number: int = signal.SIGKILL) -> None:
        """Kill a server (its workers end with it), and wait until it is gone."""
        process, self.processes[server] = self.processes[server], None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)
            process.wait()

    def stop(self) -> None:
        """End everything in order."""
        for process in self.processes:
            if process is not None:
                process.terminate()
        for server, process in enumerate(self.processes):
            if process is not None:
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
            self.processes[server] = None
        for proxy in [*self.api_proxies, *self.mesh_proxies]:
            if proxy is not None:
                proxy.close()
        self.api_proxies = self.mesh_proxies = [None] * 4

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    # -- members -----------------------------------------------------------------------------------------------------

    def member(self, name: str) -> MemberClient:
        folder = self.folder / name
        return MemberClient.open(folder / "federation.toml", folder / "identity.key", folder / "state")
