"""`ppca bench floods`: the time of an honest job while four servers are flooded, and the peak memory of a server.

One federation of four server processes. For each flood, an honest owner has some small jobs computed one after the
other while the flood lasts; the table states the median time of a job, from its proposal to its end, how many were
done, and the most memory that a server, and a process that it started, has had meanwhile.
"""

from __future__ import annotations

import contextlib
import json
import random
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich.table import Table

from benchmarks import table_console
from benchmarks.adversary import HONEST, MALLORY, Adversary, peak_memory
from benchmarks.field import Field
from benchmarks.jobs import fit_job
from benchmarks.misfortune import descendants
from ppca.federation.errors import FederationError
from ppca.member import MemberClient
from ppca.member.contributing import contribute

OWNER = "north"
COLUMNS = ["a", "b", "c"]
ROWS = 20
RATE = 100
"""Idle connections per second to each flooded port."""

HELD = 10.0
"""Seconds that an idle connection is left open."""

THREADS = 4
"""Threads of a flood that waits for answers."""

MAX_START_SECONDS = 60.0
"""Seconds that a flood may take for its first action. Honest jobs begin afterwards."""

MAX_SECONDS = 900.0
"""Seconds after which a job that has not ended counts as not done."""


@dataclass
class Row:
    """Result of one flood. times: seconds of each honest job that was done."""

    flood: str
    jobs: int
    times: list[float]
    actions: int
    server_megabytes: float
    child_megabytes: float


class Floods:
    """A federation, its honest owner, and the floods by name."""

    def __init__(self, folder: Path) -> None:
        policy = {"owners_at_least": 1, "jobs_per_member": 100_000, "jobs_per_day": 100_000}
        members = list(dict.fromkeys([OWNER, MALLORY, *HONEST]))
        self.field = Field(folder, members, members, settings={"policy": policy})
        self.table = folder / "table.csv"
        values = np.random.default_rng(0).standard_normal((ROWS, len(COLUMNS)))
        np.savetxt(self.table, values, delimiter=",", header=",".join(COLUMNS), comments="", fmt="%.17g")
        self.number = 0
        self.actions = 0
        self.over = threading.Event()
        self.opening = threading.Lock()
        self.floods: dict[str, list[Callable[[], None]]] = {
            "none": [],
            f"idle TCP connections to the mesh ports, {RATE} per second each": self._idle(1),
            f"idle TCP connections to the API ports, {RATE} per second each": self._idle(0),
            "TLS handshakes of a member": [self._repeat(self._handshake)] * THREADS,
            "requests of a member": [self._repeat(self._request)] * THREADS,
            "expensive job files of a member": [self._attack("expensive files of a member")],
            "objects that a member may not write": [self._attack("wrong objects of a member")],
            "malformed contributions of a member": [self._attack("contribution of a lying owner")],
        }

    def _idle(self, which: int) -> list[Callable[[], None]]:
        return [lambda port=ports[which]: self._connect(port) for ports in self.field.ports]  # type: ignore[misc]

    def _connect(self, port: int) -> None:
        held: list[tuple[float, socket.socket]] = []
        while not self.over.wait(1 / RATE):
            with contextlib.suppress(OSError):
                held.append((time.monotonic(), socket.create_connection(("127.0.0.1", port), 1)))
                self.actions += 1
            while held and held[0][0] < time.monotonic() - HELD:
                held.pop(0)[1].close()
        for _, sock in held:
            sock.close()

    def _repeat(self, action: Callable[[MemberClient, int], None]) -> Callable[[], None]:
        def body() -> None:
            with self.opening:  # a member's folder is for one process at a time
                member = self.field.member(MALLORY)
            with contextlib.closing(member):
                while not self.over.is_set():
                    with contextlib.suppress(FederationError, OSError):
                        action(member, self.actions % 4)
                    self.actions += 1

        return body

    def _handshake(self, member: MemberClient, server: int) -> None:
        member.servers.clients[server].close()
        member.servers.clients[server].request("GET", "/v1/hello")

    def _request(self, member: MemberClient, server: int) -> None:
        member.servers.clients[server].request("GET", "/v1/jobs")

    def _attack(self, wanted: str) -> Callable[[], None]:
        """An attack of the adversary of `ppca bench chaos`, again and again."""

        def body() -> None:
            adversary = Adversary(self.field, random.Random(0), self.over)  # noqa: S311 - no secret
            (attack,) = [action for _, name, action in adversary.actions() if name == wanted]
            while not self.over.is_set():
                with contextlib.suppress(FederationError, OSError):
                    self.actions += attack()

        return body

    @contextlib.contextmanager
    def _flooded(self, name: str) -> Iterator[None]:
        self.over.clear()
        self.actions = 0
        threads = [threading.Thread(target=body) for body in self.floods[name]]
        for thread in threads:
            thread.start()
        try:
            deadline = time.monotonic() + MAX_START_SECONDS
            while threads and not self.actions and time.monotonic() < deadline:
                time.sleep(0.05)
            yield
        finally:
            self.over.set()
            for thread in threads:
                thread.join()

    def run(self, name: str, jobs: int) -> Row:
        """Honest jobs while one flood lasts."""
        servers = [process.pid for process in self.field.processes if process is not None]
        for pid in [each for server in servers for each in (server, *descendants(server))]:
            with contextlib.suppress(OSError):
                Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak of its memory counts from here
        with self._flooded(name):
            times = [taken for _ in range(jobs) if (taken := self._job()) is not None]
            children = [peak_memory(pid) for server in servers for pid in descendants(server)]
        own = max(map(peak_memory, servers))
        return Row(name, jobs, times, self.actions, own / 1e6, max(children, default=0) / 1e6)

    def _job(self) -> float | None:
        """Seconds of a job from its proposal to its end; None if it was not done."""
        began, self.number = time.monotonic(), self.number + 1
        with contextlib.closing(self.field.member(OWNER)) as member:
            job = fit_job(member.membership, f"job-{self.number}", [OWNER], COLUMNS, {OWNER: ["model"]}, components=2)
            steps: list[Callable[[], object]] = [
                lambda: member.submit(job),
                lambda: member.approve(job),
                lambda: contribute(member, job, self.table),
            ]
            while time.monotonic() < began + MAX_SECONDS:
                try:
                    while steps:
                        steps[0]()
                        del steps[0]
                    job_state = member.job_state(job)
                    if job_state.over:
                        return time.monotonic() - began if job_state.done else None
                except (FederationError, OSError):  # as a user would, it tries again
                    pass
                time.sleep(0.1)
        return None


def main(jobs: int, output: Path) -> bool:
    """Print the table and write JSON; whether all jobs were done."""
    with tempfile.TemporaryDirectory(prefix="ppca-floods-") as name:
        floods = Floods(Path(name))
        with floods.field:
            floods._job()  # the first one starts the processes of the servers
            rows = []
            for flood in floods.floods:
                rows.append(floods.run(flood, jobs))
                print(f"{flood}: {rows[-1].times}", flush=True)
    table = Table("flood", title=f"{jobs} small jobs during each flood", title_justify="left")
    for heading in ("actions", "jobs done", "median time of a job", "peak memory of a server", "of a child process"):
        table.add_column(heading, justify="right")
    for row in rows:
        median = f"{statistics.median(row.times):.1f} s" if row.times else "none"
        memory = [f"{each:.0f} MB" for each in (row.server_megabytes, row.child_megabytes)]
        table.add_row(row.flood, f"{row.actions:,}", f"{len(row.times)} of {row.jobs}", median, *memory)
    table_console().print(table)
    output.mkdir(parents=True, exist_ok=True)
    (output / "floods.json").write_text(json.dumps([asdict(row) for row in rows], indent=1))
    return all(len(row.times) == row.jobs for row in rows)
