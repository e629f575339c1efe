"""One server of a federation: the API port, the mesh port, the loop that runs jobs, and a page for the operator on this
machine.

If any of its tasks or threads ends, the server ends with an error, and systemd starts it again. A server of which one
part has died must not go on as if nothing had happened: `/healthz` answers 503, and the watchdog is not told that all
is well.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import resource
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from aiohttp import web

from ..federation.build import build
from ..federation.errors import FederationError
from ..federation.membership import address
from ..federation.serverfile import ServerSettings
from ..jobs.operator import DaskCluster
from ..transport import open_listener
from . import logs
from .api import Api
from .api_port import ApiPort
from .contributions import Contributions
from .job_runner import JobRunner
from .operator_page import local_page
from .replication import Followers
from .restoring import Restoring
from .router import Router
from .server_state import LEAF_VALIDITY, ServerState
from .staging import Staging

log = logging.getLogger("ppca.server")
RELOAD_SECONDS = 2.0
STOP_SECONDS = 10.0
SILENCE = 30.0
"""Seconds without a pass of the loop that runs jobs, which makes one every second, after which something is wrong."""

RENEWAL = LEAF_VALIDITY.total_seconds() / 2


class Daemon:
    """One server's server in one process."""

    def __init__(self, settings: ServerSettings, accepted: str | None = None) -> None:
        self.settings = settings
        self.server_state = ServerState(settings, accepted)
        self.router = Router(open_listener(*address(settings.file.listen.mesh)))
        self.job_runner = JobRunner(self.server_state, self.router)
        self.followers = Followers(self.server_state)
        self._handlers = Api(self.server_state, self.job_runner)
        self._api = web.AppRunner(
            self._handlers.application(),
            access_log=None,
            keepalive_timeout=75,
            auto_decompress=False,
            shutdown_timeout=5,
        )
        self._tasks: list[asyncio.Task[None]] = []

    def faults(self) -> list[str]:
        """Return which part of this process has failed; empty if none."""
        found = [] if self.router.alive else ["the thread of the mesh port has ended"]
        if self.job_runner.silent > SILENCE:
            found.append(f"the loop that runs jobs has done nothing for {self.job_runner.silent:.0f} s")
        return found

    async def run(self) -> None:
        """Serve until told to stop. Raises FederationError if a part of the server ends before."""
        loop = asyncio.get_running_loop()
        stop, broken = asyncio.Event(), asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        self.server_state.attend(loop)
        threading.excepthook = lambda args: _thread_ended(args, lambda: loop.call_soon_threadsafe(broken.set))
        local = web.AppRunner(
            local_page(self.server_state, self.job_runner, self.followers, self.faults), access_log=None
        )
        await self._api.setup()
        await local.setup()
        assert self._api.server is not None
        context = self.server_state.tls.context(dialing=False)
        self._api_port = ApiPort(self._api.server, context, lambda peercert: self.server_state.tls.member_of(peercert))
        await self._api_port.open(*address(self.settings.file.listen.api))
        self._tasks += self._api_port.accepting
        host, port = address(self.settings.file.listen.local)
        await web.TCPSite(local, host, port).start()
        self._start(self._handlers.sweep(self._api.server))
        self._start(self.job_runner.run())
        self._start(self._keep_current())
        for server in self.followers.links:
            self._start(self.followers.follow(server))
        log.info(
            "serving",
            extra={
                "server": self.server_state.server,
                "build": build(),
                "revision": self.server_state.membership.revision,
            },
        )
        notify("READY=1")
        ends = [asyncio.create_task(event.wait()) for event in (stop, broken)]
        await asyncio.wait([*ends, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
        notify("STOPPING=1")
        for task in self._tasks:
            if task.done() and not task.cancelled() and task.exception() is not None:
                log.error("a task ended", exc_info=task.exception())
        await self._stop(local)
        if not stop.is_set():
            raise FederationError("the server stopped because a part of it failed; the log says which")

    def _start(self, body: object) -> None:
        self._tasks.append(asyncio.create_task(body))  # type: ignore[arg-type]

    async def _stop(self, local: web.AppRunner) -> None:
        """In order: no new requests, running attempts ended and said to have failed, then everything closed."""
        log.info("stopping")
        await self.job_runner.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks, timeout=STOP_SECONDS)
        await self._api_port.close()
        await self._api.cleanup()
        await local.cleanup()
        self.router.close()
        self.server_state.mailbox.close()
        threading.excepthook = threading.__excepthook__

    async def _keep_current(self) -> None:
        """Read the federation's file when it changes, renews the leaf in time, and tell systemd that all is well."""
        loop = asyncio.get_running_loop()
        due = loop.time() + RENEWAL
        seen = self._stamp()
        while True:
            await asyncio.sleep(RELOAD_SECONDS)
            if not self.faults():
                notify("WATCHDOG=1")
            stamp = self._stamp()
            changed = stamp != seen and self.server_state.renew()
            seen = stamp
            if changed or loop.time() >= due:
                self.server_state.renew_tls()
                self._api_port.context = self.server_state.tls.context(dialing=False)
                due = loop.time() + RENEWAL

    def _stamp(self) -> tuple[float, ...]:
        found = []
        for path in (self.settings.federation, self.settings.federation.with_suffix(".sigs")):
            with suppress(OSError):
                found.append(path.stat().st_mtime)
        return tuple(found)


def _thread_ended(args: threading.ExceptHookArgs, tell: Callable[[], object]) -> None:
    """Log the exception that ended a thread, and tell."""
    assert args.exc_value is not None
    log.error("a thread ended", exc_info=(args.exc_type, args.exc_value, args.exc_traceback))
    with suppress(RuntimeError):  # the loop has ended before
        tell()


def notify(state: str) -> None:
    """Tell systemd, if it started this process (Type=notify)."""
    place = os.environ.get("NOTIFY_SOCKET")
    if not place:
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.connect("\0" + place[1:] if place.startswith("@") else place)
        sock.sendall(state.encode())


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """One server to a store: two would tell different things about the same job."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise FederationError(
                f"another server uses {folder}; stop it first, or give this one its own [store]."
            ) from None
        yield


def restore(path: Path, told: Callable[[str], None]) -> list[str]:
    """Bring back what a lost server had, from its mates, before it runs again; return what is missing."""
    os.umask(0o077)
    settings = ServerSettings.load(path)
    with alone(settings.store):
        server_state = ServerState(settings)
        shares = Contributions(server_state)
        try:
            return Restoring(server_state, shares, Staging(settings.store, server_state.keys), told).run()
        finally:
            shares.close()
            server_state.mailbox.close()


def serve(path: Path, level: str = "INFO", identity: Path | None = None, accepted: str | None = None) -> None:
    """The whole life of a server, from its file to its orderly end. accepted: see `Revisions.take`."""
    os.umask(0o077)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # every connection is a file
    logs.set_up(level)
    settings = ServerSettings.load(path, identity)
    workers = settings.file.workers
    if workers is not None:  # the processes of jobs read it there; a job can name no cluster
        cluster = DaskCluster(
            workers.scheduler, *map(settings.path, (workers.authority, workers.certificate, workers.key))
        )
        os.environ.update(cluster.environment())
    with alone(settings.store):
        asyncio.run(Daemon(settings, accepted).run())
