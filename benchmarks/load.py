"""`ppca bench load`: many small jobs of many owners at once, over four server processes.

Every job belongs to one owner, which computes for itself on a small table. All jobs are submitted as fast as the owners
can; every owner acts in a thread of its own. Stated: how long submitting took, jobs per minute, the order in which jobs
were started, attempts, the peak memory of each server, and the processor time of a job. `--flood` opens idle
connections to the API and mesh ports of all servers meanwhile.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks import table_console
from benchmarks.field import OPERATORS, Field
from benchmarks.jobs import fit_job
from benchmarks.misfortune import descendants
from ppca.federation.errors import FederationError
from ppca.federation.proposal import ProposedJob
from ppca.member import MemberClient
from ppca.member.contributing import contribute

COLUMNS = ["a", "b", "c"]
ROWS = 20
LOOK = 1.0
"""Seconds between two looks at a server, at least. A look may take a tenth of the time at most: it lists all jobs."""


@dataclass
class Load:
    """Results of a run. The memory of a server is that of its process, without workers."""

    jobs: int
    owners: int
    at_once: int
    flood: int
    submitted_seconds: float
    contributed_seconds: float
    seconds: float
    done: int
    other_ends: dict[str, int]
    attempts: int
    not_begun: int
    out_of_order: int
    longest_queue: int
    peak_megabytes: list[float]
    slowest_page_seconds: float
    server_cpu_seconds: float
    worker_cpu_seconds: float
    member_cpu_seconds: float

    @property
    def per_minute(self) -> float:
        return 60 * self.done / self.seconds


class Run:
    """One federation under load."""

    def __init__(self, folder: Path, jobs: int, owners: int, at_once: int, flood: int) -> None:
        self.names = [f"owner-{number}" for number in range(owners)]
        self.jobs, self.at_once, self.flood = jobs, at_once, flood
        per_owner = -(-jobs // owners) + 10
        policy: dict[str, float] = {"owners_at_least": 1, "jobs_per_member": per_owner, "jobs_at_once": at_once}
        policy["requests_per_second"] = 500.0
        self.field = Field(folder, self.names, self.names, settings={"policy": policy})
        self.table = folder / "table.csv"
        values = np.random.default_rng(0).standard_normal((ROWS, len(COLUMNS)))
        np.savetxt(self.table, values, delimiter=",", header=",".join(COLUMNS), comments="", fmt="%.17g")
        self.made: dict[str, ProposedJob] = {}
        self.faults: Counter[str] = Counter()
        self.longest_queue = 0
        self.slowest_page = 0.0

    def run(self) -> Load:
        with self.field, flooded(self.field, self.flood):
            began = time.monotonic()
            with ThreadPoolExecutor(len(self.names)) as pool:
                list(pool.map(self._submit_all, self.names))
                submitted = time.monotonic() - began
                list(pool.map(self._contribute_to_all, self.names))
                contributed = time.monotonic() - began
            states = self._await_ends(began)
            seconds = time.monotonic() - began
            return self._load(states, submitted, contributed, seconds)

    def _submit_all(self, name: str) -> None:
        """One owner: propose all its jobs."""
        with contextlib.closing(self.field.member(name)) as member:
            for number in range(self.names.index(name), self.jobs, len(self.names)):
                job = fit_job(member.membership, f"job-{number}", [name], COLUMNS, {name: ["model"]}, components=2)
                self.made[job.id] = job
                self._stubborn(lambda job=job: member.submit(job))  # type: ignore[misc]

    def _contribute_to_all(self, name: str) -> None:
        """One owner: approve all its jobs and contribute to them, in the order in which it has proposed them."""
        with contextlib.closing(self.field.member(name)) as member:
            for job in [job for job in self.made.values() if job.proposal.owners[0] == name]:
                self._stubborn(lambda job=job: member.approve(job))  # type: ignore[misc]
                self._stubborn(lambda job=job: self._contribute(member, job))  # type: ignore[misc]

    def _contribute(self, member: MemberClient, job: ProposedJob) -> None:
        contribute(member, job, self.table)

    def _stubborn(self, action: Callable[[], object]) -> None:
        """Repeat what a server cannot take yet, as a user would."""
        for _ in range(600):
            try:
                action()
                return
            except (FederationError, OSError) as error:
                if "has contributed" in str(error):
                    return
                self.faults[str(error)[:60]] += 1
            time.sleep(0.2)
        raise TimeoutError(f"an owner cannot do its part: {self.faults.most_common(3)}")

    def _await_ends(self, began: float) -> dict[str, dict[str, Any]]:
        """The state of every job at server 0, once all are over."""
        shown = 0.0
        while True:
            asked = time.monotonic()
            state = self._state(0)
            took = time.monotonic() - asked
            self.slowest_page = max(self.slowest_page, took)
            jobs = {job["id"]: job for job in state["jobs"] if job["id"] in self.made}
            self.longest_queue = max(self.longest_queue, len(state["queue"]))
            stages = Counter(job["stage"] for job in jobs.values())
            if len(jobs) == self.jobs and not stages.keys() & {"proposed", "gathering", "ready", "running"}:
                return jobs
            if time.monotonic() - shown > 30:
                shown = time.monotonic()
                print(f"{shown - began:6.0f} s: {dict(stages)}", flush=True)
            time.sleep(max(LOOK, 9 * took))

    def _state(self, server: int) -> dict[str, Any]:
        import urllib.request

        place = f"http://127.0.0.1:{self.field.ports[server][2]}/v1/state"
        with urllib.request.urlopen(place, timeout=120) as answer:
            found: dict[str, Any] = json.loads(answer.read())
            return found

    def _load(self, states: dict[str, dict[str, Any]], submitted: float, contributed: float, seconds: float) -> Load:
        ends = Counter(job["ended"] or job["stage"] for job in states.values())
        starts, tried, idle = self._attempts()
        return Load(
            jobs=self.jobs,
            owners=len(self.names),
            at_once=self.at_once,
            flood=self.flood,
            submitted_seconds=submitted,
            contributed_seconds=contributed,
            seconds=seconds,
            done=ends.pop("done", 0),
            other_ends=dict(ends),
            attempts=tried,
            not_begun=idle,
            out_of_order=out_of_order(starts),
            longest_queue=self.longest_queue,
            peak_megabytes=[self._peak(server) for server in range(4)],
            slowest_page_seconds=self.slowest_page,
            server_cpu_seconds=sum(self._cpu(server, children=False) for server in range(4)),
            worker_cpu_seconds=sum(self._cpu(server, children=True) for server in range(4)),
            member_cpu_seconds=time.process_time(),
        )

    def _attempts(self) -> tuple[dict[str, list[tuple[int, int]]], int, int]:
        """By owner (place in the queue, turn of the first start) of its jobs; attempts; those that did not begin."""
        found: dict[str, list[tuple[int, int]]] = {}
        tried = idle = 0
        for name in self.names:
            member = self.field.member(name)
            with contextlib.closing(member):
                for job in [job for job in self.made.values() if job.proposal.owners[0] == name]:
                    objects = member.objects(job)
                    starts = objects.starts()
                    offer = objects.offer(OPERATORS[0], of_server=True)
                    assert offer is not None
                    found.setdefault(name, []).append((offer.about["place"], starts[1].about["turn"]))
                    tried += len(starts)
                    idle += sum(
                        any(h.about["outcome"] == "withdrawn" for h in objects.ended(number).values())
                        for number in starts
                    )
        return found, tried, idle

    def _peak(self, server: int) -> float:
        process = self.field.processes[server]
        assert process is not None
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))

    def _cpu(self, server: int, *, children: bool) -> float:
        """Processor seconds of a server, or of all processes that it started."""
        process = self.field.processes[server]
        assert process is not None
        if not children:
            return _cpu_seconds(process.pid)[0]
        return _cpu_seconds(process.pid)[1] + sum(sum(_cpu_seconds(pid)) for pid in descendants(process.pid))


def _cpu_seconds(pid: int) -> tuple[float, float]:
    """Processor seconds of a process, and of its children that have ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has ended since
        return 0.0, 0.0
    user, system, *ended = (int(field) / os.sysconf("SC_CLK_TCK") for field in fields[11:15])
    return user + system, sum(ended)


def out_of_order(starts: dict[str, list[tuple[int, int]]]) -> int:
    """Jobs of an owner that were started before an earlier job of the same owner that was there for them to wait
    for."""
    count = 0
    for pairs in starts.values():
        turns = [turn for _, turn in sorted(pairs)]
        count += sum(later < earlier for earlier, later in pairwise(turns))
    return count


@contextlib.contextmanager
def flooded(field: Field, rate: int) -> Any:
    """Open this number of idle connections per second to the API and the mesh ports, and leave each open for ten
    seconds."""
    over = threading.Event()

    def flood(port: int) -> None:
        held: list[tuple[float, socket.socket]] = []
        while not over.wait(1 / rate):
            with contextlib.suppress(OSError):
                held.append((time.monotonic(), socket.create_connection(("127.0.0.1", port), 1)))
            while held and held[0][0] < time.monotonic() - 10:
                held.pop(0)[1].close()
        for _, sock in held:
            sock.close()

    threads = [threading.Thread(target=flood, args=(port,)) for ports in field.ports for port in ports[:2] if rate]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def main(jobs: int, owners: int, at_once: int, flood: int, output: Path) -> bool:
    """Print the table and write JSON; whether all jobs were done."""
    with tempfile.TemporaryDirectory(prefix="ppca-load-") as name:
        load = Run(Path(name), jobs, owners, at_once, flood).run()
    table = Table(title=f"{jobs} jobs of {owners} owners", title_justify="left")
    table.add_column("")
    table.add_column("", justify="right")
    for what, value in (
        ("jobs done", f"{load.done} of {load.jobs}"),
        ("other ends", ", ".join(f"{count} {stage}" for stage, count in load.other_ends.items()) or "none"),
        ("seconds until all were submitted", f"{load.submitted_seconds:.0f}"),
        ("seconds until all were contributed to", f"{load.contributed_seconds:.0f}"),
        ("seconds until all were over", f"{load.seconds:.0f}"),
        ("jobs per minute", f"{load.per_minute:.1f}"),
        ("attempts; of these not begun", f"{load.attempts}; {load.not_begun}"),
        ("jobs started before an earlier one of the same owner", str(load.out_of_order)),
        ("longest queue", str(load.longest_queue)),
        ("peak memory of the servers, MB", ", ".join(f"{each:.0f}" for each in load.peak_megabytes)),
        ("slowest answer of /v1/state, seconds", f"{load.slowest_page_seconds:.1f}"),
        ("processor seconds per job of the four servers", f"{load.server_cpu_seconds / load.jobs:.2f}"),
        ("processor seconds per job of their workers", f"{load.worker_cpu_seconds / load.jobs:.2f}"),
        ("processor seconds per job of the owners", f"{load.member_cpu_seconds / load.jobs:.2f}"),
    ):
        table.add_row(what, value)
    table_console().print(table)
    output.mkdir(parents=True, exist_ok=True)
    (output / f"load-{jobs}.json").write_text(json.dumps(asdict(load) | {"per_minute": load.per_minute}, indent=1))
    return load.done == load.jobs
