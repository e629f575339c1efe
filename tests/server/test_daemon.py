"""A server of which one part has died says so and ends: it does not go on as if nothing had happened."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from harness import federation
from harness.waiting import PATIENCE, eventually
from ppca.federation.errors import FederationError
from ppca.federation.serverfile import Listen, ServerSettings
from ppca.server import daemon as module
from ppca.server.daemon import Daemon
from ppca.transport import free_ports


def settings(folder: Path) -> ServerSettings:
    api, mesh, local = (f"127.0.0.1:{port}" for port in free_ports(3))
    found = ServerSettings.load(federation.write_files(folder, federation.membership()))
    listen = Listen(api=api, mesh=mesh, local=local)
    return ServerSettings(found.file.model_copy(update={"listen": listen}), found.folder)


async def health(daemon: Daemon) -> tuple[int, dict[str, Any]]:
    url = f"http://{daemon.settings.file.listen.local}/healthz"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status, await answer.json()


def broken(*_: Any) -> Any:
    raise RuntimeError("not foreseen")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("part", ["router", "job_runner", "api_port"])
def test_the_death_of_a_part_ends_the_server(tmp_path: Path, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def kill(daemon: Daemon) -> None:
        if part == "router":
            monkeypatch.setattr(daemon.router, "_patience", broken)
            daemon.router._bell.send(b"!")
        elif part == "job_runner":
            monkeypatch.setattr(daemon.job_runner.server_state.mailbox, "jobs", broken)
        else:
            next(iter(daemon._api_port.accepting)).cancel()

    async def body() -> None:
        daemon = Daemon(settings(tmp_path))
        running = asyncio.create_task(daemon.run())
        await served(daemon, running)
        assert (await health(daemon))[1]["faults"] == []
        kill(daemon)
        done, _ = await asyncio.wait([running], timeout=PATIENCE)
        assert done, "the server goes on without it"
        with pytest.raises(FederationError, match="a part of it failed"):
            running.result()

    asyncio.run(body())


async def served(daemon: Daemon, running: asyncio.Task[None]) -> None:
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while True:
        assert not running.done(), running.exception()
        try:
            await health(daemon)
            return
        except aiohttp.ClientError:
            assert asyncio.get_running_loop().time() < deadline, "it does not start"
            await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (lambda daemon, patch: setattr(daemon, "router", Dead()), "mesh port has ended"),
        (lambda daemon, patch: patch.setattr(module, "SILENCE", -1.0), "runs jobs has done nothing"),
    ],
)
def test_health_and_watchdog_tell_of_a_dead_part(
    tmp_path: Path, fault: Callable[..., None], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(module, "notify", told.append)
    monkeypatch.setattr(module, "RELOAD_SECONDS", 0.02)

    async def body() -> None:
        daemon = Daemon(settings(tmp_path))
        router = daemon.router
        running = asyncio.create_task(daemon.run())
        await served(daemon, running)
        await eventually(lambda: "WATCHDOG=1" in told)
        fault(daemon, monkeypatch)
        status, found = await health(daemon)
        assert (status, says in str(found["faults"])) == (503, True)
        told.clear()
        await asyncio.sleep(0.1)
        assert "WATCHDOG=1" not in told
        daemon.router = router
        running.cancel()
        await asyncio.wait([running], timeout=PATIENCE)
        router.close()
        daemon.server_state.mailbox.close()

    asyncio.run(body())


class Dead:
    """The mesh port after its thread has ended."""

    alive = False
