"""Four servers of a federation in one process: real stores, admission, keys and job_runners. Only processes are
replaced.

Objects pass between the servers in memory. The worker of an attempt is a `FakeAttempt`: it meets those of the other
servers that run the same session, as workers do over the mesh, and takes some time. What it reads are real sealed
contributions. They are checked in this process (`CheckerHere`).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.federation import COLUMNS, IDENTITIES, OPERATORS, job, make, membership, server_state
from harness.waiting import PATIENCE
from harness.whole import CheckerHere
from ppca.federation.envelopes import Envelopes
from ppca.federation.errors import FederationError
from ppca.federation.objects import Object
from ppca.federation.proposal import ProposedJob
from ppca.federation.sealing import SealingKey
from ppca.owner.rows import share_sums, sums_of
from ppca.owner.tables.owners import open_rows
from ppca.runtime.execute import Ran
from ppca.runtime.failure import SUSPECT, Failure
from ppca.server import job_runner as module
from ppca.server.job_runner import JobRunner
from ppca.server.router import Router
from ppca.server.work import AttemptFailed, AttemptInput, Done
from ppca.transport import open_listener

OWNER_KEY = SealingKey()
TABLE = np.random.default_rng(0).standard_normal((20, len(COLUMNS)))


class Hall:
    """Where the workers of all servers meet.

    most: the most attempts that each server ran at a time. held: attempts that have begun wait for `let_go`.
    """

    def __init__(self, duration: float) -> None:
        self.duration = duration
        self.held = False
        self.lock = threading.Condition()
        self.met: dict[bytes, set[int]] = {}
        self.now: Counter[int] = Counter()
        self.most: Counter[int] = Counter()
        self.order: list[bytes] = []
        self.failing: Callable[[int], str | None] = lambda server: None

    def let_go(self) -> None:
        with self.lock:
            self.held = False
            self.lock.notify_all()

    def attempt(self, work: AttemptInput, router: Router, forks: Any, progress: Any = None) -> FakeAttempt:
        return FakeAttempt(self, work)


class FakeAttempt:
    """Stands for `Attempt`."""

    def __init__(self, hall: Hall, work: AttemptInput) -> None:
        self.hall, self.work, self.begun, self._killed = hall, work, False, ""

    def kill(self, why: str = "this server stopped the attempt") -> None:
        with self.hall.lock:
            self._killed = self._killed or why
            self.hall.lock.notify_all()

    def run(self, prepared: Callable[[], None] = lambda: None) -> Done:
        hall, server = self.hall, self.work.server
        assert list(self.work.chunks), "the contributions are read"
        with hall.lock:
            hall.now[server] += 1
            hall.most[server] = max(hall.most[server], hall.now[server])
        try:
            prepared()
            self._meet()
            with hall.lock:
                hall.lock.wait_for(lambda: bool(self._killed) or not hall.held)
                hall.lock.wait_for(lambda: bool(self._killed), hall.duration)
            if self._killed:
                raise AttemptFailed(Failure(server, self._killed, rank=SUSPECT))
            why = hall.failing(server)
            if why is not None:
                raise AttemptFailed(Failure(server, why))
            total = {"rounds": 1, "sent_to": [0, 0, 0, 0], "received_from": [0, 0, 0, 0]}
            return Done(Ran(result={"to": {}}, seconds=0.1, stats={"total": total}, audit=[]), {})
        finally:
            with hall.lock:
                hall.now[server] -= 1
                hall.lock.notify_all()

    def _meet(self) -> None:
        hall, session = self.hall, self.work.session
        deadline = time.monotonic() + self.work.start_timeout
        with hall.lock:
            here = hall.met.setdefault(session, set())
            here.add(self.work.server)
            if len(here) == 4:
                hall.order.append(session)
            hall.lock.notify_all()
            while len(here) < 4:
                left = deadline - time.monotonic()
                if self._killed:
                    here.discard(self.work.server)
                    raise AttemptFailed(Failure(self.work.server, self._killed, rank=SUSPECT))
                if left <= 0:
                    here.discard(self.work.server)
                    raise AttemptFailed(Failure(self.work.server, "no connection with its peers", rank=SUSPECT))
                hall.lock.wait(left)
        self.begun = True


class Federation:
    """Four job_runners; `run` runs a test body in their event loop."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, duration: float = 0.02, **policy: Any) -> None:
        self.membership = membership()
        self.hall = Hall(duration)
        monkeypatch.setattr("ppca.server.attempts.Attempt", self.hall.attempt)
        monkeypatch.setattr(module, "POLL_INTERVAL", 0.1)
        monkeypatch.setattr("ppca.server.contributions.Checker", CheckerHere)
        monkeypatch.setattr("os.fsync", lambda descriptor: None)  # what is tested is not the disk
        tables = {
            "policy": {"owners_at_least": 1, "jobs_per_member": 1000, **policy},
            "work": {"start_timeout": PATIENCE},
        }
        self.server_states = [
            server_state(folder / name, self.membership, server, **tables) for server, name in enumerate(OPERATORS)
        ]
        self.routers = [Router(open_listener()) for _ in OPERATORS]
        self.job_runners: list[JobRunner] = []

    def run(self, body: Callable[[], Any], seconds: float = 240.0) -> None:
        async def whole() -> None:
            self.loop = asyncio.get_running_loop()
            self.job_runners = [
                JobRunner(each, router) for each, router in zip(self.server_states, self.routers, strict=True)
            ]
            for each in self.server_states:
                each.attend(asyncio.get_running_loop())
            tasks = [asyncio.create_task(job_runner.run()) for job_runner in self.job_runners]
            tasks += [asyncio.create_task(self._pass_on(server)) for server in range(4)]
            try:
                async with asyncio.timeout(seconds):
                    await body()
            finally:
                for job_runner in self.job_runners:
                    await job_runner.stop()
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

        try:
            asyncio.run(whole())
        finally:
            for router in self.routers:
                router.close()
            for each in self.server_states:
                each.mailbox.close()

    async def _pass_on(self, server: int) -> None:
        """Bring what one server takes in to the other three, as replication does."""
        mine = self.server_states[server]
        with mine.events() as queue:
            while True:
                event = await queue.get()
                item = mine.mailbox.get(event["header"].digest) if "header" in event else None
                if item is None:
                    continue
                for other in self.server_states:
                    to = item.header.about.get("to")
                    if other is not mine and not (item.header.kind == "envelope" and to != other.server):
                        with suppress(FederationError):  # such as a second refusal of a job
                            other.admit(item, mine.identity.name)

    def tell(self, item: Object, server: int = 0) -> None:
        self.server_states[server].admit(item, item.header.author)

    async def submit(self, name: str, owner: str = "spare") -> ProposedJob:
        """A job of one owner for itself, from its file to its contribution."""
        of = job(self.membership, name, owners=[owner], receivers={owner: ["model"]})
        self.tell(make(owner, "job", of, of.data))
        self.tell(make(owner, "offer", of, OWNER_KEY.public, receiver=owner))
        self.tell(make(owner, "approval", of))
        keys: list[Any] = []
        while len(keys) < 4:
            await asyncio.sleep(0.01)
            objects = [self.server_states[0].mailbox.objects(of.id).offer(name, of_server=True) for name in OPERATORS]
            keys = [self.server_states[0].mailbox.get(h.digest) for h in objects if h is not None]
        envelopes = Envelopes(
            IDENTITIES[owner],
            of.id,
            [key.payload for key in keys],
            lambda item: self.tell(item, item.header.about["to"]),
        )
        (table,) = open_rows([TABLE])
        envelopes.add("packets", share_sums(sums_of(table), 1))
        self.tell(envelopes.finish())
        return of

    def stages(self, *jobs: ProposedJob) -> list[str]:
        return [self.server_states[0].admission.job_state(of.id).stage for of in jobs]

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await asyncio.sleep(0.02)
