"""A small federation for tests: keys, a signed membership, jobs, and servers in this process, without any server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aiohttp import web
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from benchmarks.jobs import Columns, fit_job
from ppca.federation import toml
from ppca.federation.envelopes import Envelopes
from ppca.federation.identity import KEY_FILE, Identity, key_text
from ppca.federation.membership import Membership, MembershipFile, render, statement, write_signatures
from ppca.federation.objects import Header, Object
from ppca.federation.proposal import ProposedJob
from ppca.federation.sealing import SealingKey
from ppca.federation.serverfile import ServerFile, ServerSettings, render_server
from ppca.protocol import share
from ppca.runtime.files import write_whole
from ppca.server.api import Api
from ppca.server.server_state import ServerState
from ppca.transport import free_ports

OPERATORS = ("alpha", "beta", "gamma", "delta")
OWNERS = ("north", "south", "west")
RECEIVER = "analyst"
OUTSIDER = "nobody"
COLUMNS = ("a", "b", "c")
NAMES = (*OPERATORS, *OWNERS, RECEIVER, "visitor", "spare")
"""visitor: a member without a part in the job. spare: an owner and receiver without one."""

IDENTITIES = {name: Identity(name, Ed25519PrivateKey.generate()) for name in (*NAMES, OUTSIDER)}


def membership(
    revision: int = 1,
    *,
    operators: Sequence[str] = OPERATORS,
    left_out: Sequence[str] = (),
    ports: Sequence[int] = (7001, 7002, 7003, 7004),
    **more: Any,
) -> Membership:
    """The federation's file, signed by the four operators. more: other fields of the file."""
    keys = {name: key_text(IDENTITIES[name].public) for name in NAMES}
    servers = tuple(
        {
            "number": server,
            "member": name,
            "key": keys[name],
            "api": f"127.0.0.1:{ports[server]}",
            "mesh": "127.0.0.1:9",
        }
        for server, name in enumerate(operators)
    )
    roles: dict[str, tuple[str, ...]] = {**dict.fromkeys(OWNERS, ("owner",)), RECEIVER: ("receiver",)}
    roles |= {"visitor": ("owner", "receiver"), "spare": ("owner", "receiver")}
    members = tuple({"name": n, "key": keys[n], "roles": r} for n, r in roles.items() if n not in left_out)
    content: dict[str, Any] = {"name": "test", "revision": revision, "server": servers, "member": members, **more}
    data = render(toml.validated(MembershipFile, content, "the federation"))
    return Membership(data, {name: IDENTITIES[name].sign(statement(data)) for name in operators})


MEMBERSHIP = membership()


def job(
    federation: Membership = MEMBERSHIP,
    name: str = "first",
    owners: Sequence[str] = OWNERS,
    columns: Columns = COLUMNS,
    receivers: Mapping[str, Sequence[str]] | None = None,
    **fields: Any,
) -> ProposedJob:
    """A fit. fields: see `fit_job`."""
    return fit_job(federation, name, owners, columns, receivers or {RECEIVER: ["model"]}, **fields)


def make(author: str, kind: str, of: ProposedJob | str, payload: bytes = b"", **about: Any) -> Object:
    return Object.make(IDENTITIES[author], kind, of if isinstance(of, str) else of.id, payload, **about)


SERVER_KEYS = [SealingKey() for _ in OPERATORS]
RECEIVER_KEY = SealingKey()


def offers(of: ProposedJob) -> list[Object]:
    """Of the four servers and the receivers."""
    servers = [
        make(name, "offer", of, SERVER_KEYS[server].public, server=server) for server, name in enumerate(OPERATORS)
    ]
    return [*servers, *(make(name, "offer", of, RECEIVER_KEY.public, receiver=name) for name in of.spec.receivers)]


def contribution(of: ProposedJob, owner: str, values: Any = (1.0, 2.0)) -> list[Object]:
    """An owner's envelopes, and its contribution last."""
    made: list[Object] = []
    envelopes = Envelopes(IDENTITIES[owner], of.id, [key.public for key in SERVER_KEYS], made.append)
    envelopes.add("packets", [share(list(values))])
    last = envelopes.finish()
    return [*made, last]


def ended(of: ProposedJob, author: str, attempt: int = 1, outcome: str = "finished", **more: Any) -> Object:
    about: dict[str, Any] = {"audit": "a", "rounds": 7, "sent": [5, 5, 5, 5], "received": [5, 5, 5, 5]}
    about = (about if outcome == "finished" else {}) | {"why": "", "final": False} | more
    return make(author, "ended", of, attempt=attempt, outcome=outcome, **about)


def story(of: ProposedJob) -> list[Object]:
    """All objects of a job that goes well, in an order in which they can happen."""
    told = [
        make(RECEIVER, "job", of, of.data),
        *offers(of),
        *(make(owner, "approval", of) for owner in of.proposal.owners),
    ]
    for owner in of.proposal.owners:
        sent = contribution(of, owner)
        told += sent
        told += [make(name, "receipt", of, owner=owner, contribution=sent[-1].digest) for name in OPERATORS]
    told.append(make("alpha", "start", of, attempt=1))
    told += [make(name, "ready", of, attempt=1) for name in OPERATORS]
    return [*told, *(ended(of, name) for name in OPERATORS)]


def headers(items: Sequence[Object]) -> list[Header]:
    return [item.header for item in items]


# -- servers
# ---------------------------------------------------------------------------------------------------------------


def free_port() -> int:
    return free_ports(1)[0]


def write_files(folder: Path, federation: Membership, server: int = 0, **tables: Any) -> Path:
    """The folder of one server: identity, federation, server.toml. tables: of server.toml."""
    folder.mkdir(parents=True, exist_ok=True)
    name = federation.operators[server]
    write_identity(folder, name)
    put_membership(folder, federation)
    api = federation.servers[server].api
    content: dict[str, Any] = {"server": server, "federation": "federation.toml", "identity": KEY_FILE} | tables
    content["listen"] = {"api": api, "mesh": "127.0.0.1:9", "local": "127.0.0.1:9"}
    content["store"] = {"path": "store"} | dict(tables.get("store", {}))
    write_whole(folder / "server.toml", render_server(toml.validated(ServerFile, content, "the server")))
    return folder


def write_identity(folder: Path, name: str) -> Path:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    pem = IDENTITIES[name].key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    write_whole(folder / KEY_FILE, f"ppca identity of {name}\n".encode() + pem, 0o600)
    return folder / KEY_FILE


def put_membership(folder: Path, federation: Membership) -> None:
    write_signatures(folder / "federation.sigs", federation.signatures)
    write_whole(folder / "federation.toml", federation.data)


def server_state(folder: Path, federation: Membership = MEMBERSHIP, server: int = 0, **tables: Any) -> ServerState:
    return ServerState(ServerSettings.load(write_files(folder, federation, server, **tables)))


class Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, body: Any, seconds: float = 60.0) -> Any:
        return asyncio.run_coroutine_threadsafe(body, self.loop).result(seconds)

    def close(self) -> None:
        async def cancel() -> None:
            others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        self.run(cancel())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()


@contextmanager
def served(of: ServerState, loop: Loop, use: Callable[[Api], None] = lambda api: None) -> Iterator[Api]:
    """The API of a server, open with real TLS."""
    api = Api(of, None)  # type: ignore[arg-type]
    use(api)

    async def start() -> tuple[web.AppRunner, asyncio.Server]:
        of.attend(asyncio.get_running_loop())
        runner = web.AppRunner(api.application(), access_log=None, auto_decompress=False, shutdown_timeout=0.2)
        await runner.setup()
        host, port = of.membership.servers[of.server].api.split(":")
        context = of.tls.context(dialing=False)
        assert runner.server is not None
        return runner, await asyncio.get_running_loop().create_server(runner.server, host, int(port), ssl=context)

    runner, server = loop.run(start())

    async def stop() -> None:
        server.close()
        await runner.cleanup()

    try:
        yield api
    finally:
        loop.run(stop())
