"""`ppca bench chaos`: a federation under fire. Seats and clients are killed, links cut and closed, disks filled, objects damaged.

Jobs run all the time. Every one must end with the right result or in a clear final state; none may hang, nothing may be left
half-written, no process may be left over. Prints the tally.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from benchmarks import table_console
from benchmarks.field import OPERATORS, Field
from ppca.federation.drafting import draft_fit
from ppca.federation.errors import FederationError
from ppca.federation.job import JobDescription
from ppca.member import Member
from ppca.member.fetching import Evidence

OWNERS = ("north", "south", "west")
RECEIVER = "analyst"
COLUMNS = ["a", "b", "c", "d", "e", "f"]
LONGEST = 300.0
"""Seconds after which a job that has not ended counts as hanging."""

SETTINGS = {
    "policy": {"attempts": 40, "jobs_per_member": 1000, "requests_per_second": 500.0},
    "work": {"timeout": 8.0, "start_timeout": 12.0},
}
BOOT = 20.0
"""Seconds that a seat has to get up before the next bad thing happens."""

UNLUCKY = 0.5
"""The part of all clients that are killed."""

ENVELOPE = 2000
"""Objects with more bytes than this are sealed shares."""

FILLING = 48 << 20
TMPFS = "64m"


@dataclass
class Tally:
    """What was done, and what came of it."""

    done: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    attempts: int = 0
    worst_error: float = 0.0

    @property
    def kills(self) -> int:
        return sum(count for what, count in self.done.items() if what.startswith("kill"))


class Chaos(threading.Thread):
    """Does something bad now and then, until it is told to stop."""

    def __init__(self, field: Field, tally: Tally, seed: int, full: Path | None) -> None:
        super().__init__(name="chaos", daemon=True)
        self._field, self._tally, self._full = field, tally, full
        self._random = random.Random(seed)  # noqa: S311 - no secret
        self._over = threading.Event()
        self._clients: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()

    def client(self, process: subprocess.Popen[bytes]) -> None:
        """A process that may be killed."""
        with self._lock:
            self._clients.append(process)
        if self._random.random() < UNLUCKY:
            threading.Timer(self._random.uniform(0.1, 2.5), self._shoot, [process]).start()

    def _shoot(self, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            process.kill()
            self._tally.done["kill of a client"] += 1

    def stop(self) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        actions: list[tuple[int, str, Callable[[], bool]]] = [
            (6, "kill of a seat", self._kill_seat),
            (5, "kill of a client", self._kill_client),
            (2, "cut of a mesh link", lambda: self._cut(self._field.mesh_proxies)),
            (2, "cut of an API link", lambda: self._cut(self._field.api_proxies)),
            (1, "API closed for a while", self._close),
            (1, "damage of an object", self._damage),
            (1, "full disk for a while", self._fill),
        ]
        names = [name for weight, name, _ in actions for _ in range(weight)]
        table = {name: action for _, name, action in actions}
        while not self._over.wait(self._random.uniform(0.3, 3.0)):
            name = self._random.choice(names)
            with contextlib.suppress(OSError):
                if table[name]():
                    self._tally.done[name] += 1

    def _kill_seat(self) -> bool:
        seat = self._random.randrange(4)
        if self._field.processes[seat] is None:
            return False
        self._field.kill(seat, signal.SIGKILL)
        self._over.wait(self._random.uniform(0, 1.0))
        self._field.launch(seat)
        deadline = time.monotonic() + BOOT
        while self._field.health(seat) < 0 and time.monotonic() < deadline and not self._over.wait(0.2):
            pass  # a seat that never gets up could never do its part
        return True

    def _kill_client(self) -> bool:
        with self._lock:
            running = [process for process in self._clients if process.poll() is None]
            self._clients = running
        if not running:
            return False
        self._random.choice(running).kill()
        return True

    def _cut(self, proxies: list[Any]) -> bool:
        self._random.choice(proxies).cut()
        return True

    def _close(self) -> bool:
        proxy = self._random.choice([p for p in self._field.api_proxies if p is not None])
        proxy.closed = True
        proxy.cut()
        self._over.wait(self._random.uniform(0.2, 2.0))
        proxy.closed = False
        return True

    def _damage(self) -> bool:
        """Flips a byte of a stored envelope."""
        store = self._field.folder / self._random.choice(OPERATORS) / "store" / "objects"
        found = [path for path in store.glob("*/*") if path.stat().st_size > ENVELOPE and path.suffix != ".part"]
        if not found or self._random.random() < 0.5:
            return False
        path = self._random.choice(found)
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        return True

    def _fill(self) -> bool:
        """Fills the small disk of one seat's store."""
        if self._full is None:
            return False
        filler = self._full / "filler"
        with contextlib.suppress(OSError), filler.open("wb") as file:
            for _ in range(FILLING >> 20):
                file.write(bytes(1 << 20))
        with contextlib.suppress(OSError), filler.open("ab") as file:
            while True:
                file.write(bytes(4096))
                file.flush()
        self._over.wait(self._random.uniform(0.5, 2.0))
        filler.unlink(missing_ok=True)
        return True


class Run:
    """Jobs, one after the other, while chaos reigns."""

    def __init__(self, folder: Path, kills: int, seed: int) -> None:
        self.tally, self.kills = Tally(), kills
        self._random = np.random.default_rng(seed)
        self.field = Field(folder / "field", OWNERS, (RECEIVER,), api={}, mesh={}, settings=SETTINGS)
        self._small = self._small_disk()
        self._files: dict[str, Path] = {}
        self.chaos = Chaos(self.field, self.tally, seed, self._small)

    def _small_disk(self) -> Path | None:
        """A small disk below the store of seat 2, where that is permitted."""
        place = self.field.folder / OPERATORS[2] / "store"
        place.mkdir(mode=0o700)
        command = ["mount", "-t", "tmpfs", "-o", f"size={TMPFS},mode=700", "tmpfs", str(place)]
        done = subprocess.run(command, capture_output=True)  # noqa: S603 - a fixed command
        return place if done.returncode == 0 else None

    def run(self) -> Tally:
        try:
            with self.field:
                self.chaos.start()
                number = 0
                while self.tally.kills < self.kills:
                    number += 1
                    self._one(number)
                self.chaos.stop()
                self.field.await_links()
                self._one(number + 1, calm=True)
            self._look_for_leavings()
        finally:
            if self.chaos.is_alive():
                self.chaos.stop()
            self.field.stop()
            if self._small is not None:
                subprocess.run(["umount", "--lazy", str(self._small)], capture_output=True)  # noqa: S603, S607 - a fixed command
        return self.tally

    def _one(self, number: int, calm: bool = False) -> None:
        """One job from its file to its end."""
        began = time.monotonic()
        tables = self._tables()
        receiver = self.field.member(RECEIVER)
        roster = receiver.roster
        job = draft_fit(roster, f"job-{number}", list(OWNERS), COLUMNS, {RECEIVER: ["model"]}, fit={"components": 3})
        with contextlib.closing(receiver):
            try:
                self._stubborn(partial(receiver.submit, job), job, receiver, began)
                for owner in OWNERS:
                    member = self.field.member(owner)
                    with contextlib.closing(member):
                        self._stubborn(partial(member.approve, job), job, member, began)
                self._contribute(job, receiver, began)
                self._await_end(job, receiver, began)
                self._judge(job, receiver, tables, calm)
            except TimeoutError as error:
                self.tally.ends["HANGS"] += 1
                self.tally.faults.append(f"{job.name}: {error}")

    def _tables(self) -> list[NDArray[np.float64]]:
        found = []
        mix = self._random.standard_normal((len(COLUMNS), len(COLUMNS)))
        for owner in OWNERS:
            table = self._random.standard_normal((50, len(COLUMNS))) @ mix + self._random.standard_normal(len(COLUMNS))
            path = self.field.folder / owner / "table.csv"
            np.savetxt(path, table, delimiter=",", header=",".join(COLUMNS), comments="", fmt="%.17g")
            self._files[owner] = path
            found.append(table)
        return found

    def _stubborn(self, action: Callable[[], None], job: JobDescription, member: Member, began: float) -> None:
        """Says the same again until it is done, as a user would, or the job is over."""
        while True:
            try:
                action()
                return
            except (FederationError, OSError):
                if self._over(job, member):
                    return
            if time.monotonic() - began > LONGEST:
                raise TimeoutError("a member cannot do its part")
            time.sleep(0.5)

    def _over(self, job: JobDescription, member: Member) -> bool:
        try:
            return member.course(job).over
        except (FederationError, OSError):
            return False

    def _contribute(self, job: JobDescription, receiver: Member, began: float) -> None:
        """Every owner in a process of its own, started again when it is killed."""
        path = self.field.folder / RECEIVER / "job.toml"
        path.write_bytes(job.data)
        running: dict[str, subprocess.Popen[bytes]] = {}
        left = set(OWNERS)
        while left and not self._over(job, receiver):
            for owner in sorted(left):
                process = running.get(owner)
                if process is None or process.poll() is not None:
                    if self._contributed(job, receiver, owner):
                        left.discard(owner)
                        continue
                    running[owner] = self._client(owner, path)
            if time.monotonic() - began > LONGEST:
                raise TimeoutError("an owner cannot contribute")
            time.sleep(0.2)
        for process in running.values():
            process.kill()
            process.wait()

    def _contributed(self, job: JobDescription, member: Member, owner: str) -> bool:
        try:
            return member.objects(job).by("contribution", owner) is not None
        except (FederationError, OSError):
            return False

    def _client(self, owner: str, job: Path) -> subprocess.Popen[bytes]:
        folder = self.field.folder / owner
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-m", "ppca.cli.main", "contribute", str(job), str(self._files[owner]), "--quiet"],
            cwd=folder,
            env=os.environ | {"PPCA_STATE": str(folder / "state")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.chaos.client(process)
        return process

    def _await_end(self, job: JobDescription, member: Member, began: float) -> None:
        while not self._over(job, member):
            if time.monotonic() - began > LONGEST:
                raise TimeoutError(f"it has not ended: {member.course(job)}")
            time.sleep(0.2)

    def _judge(self, job: JobDescription, member: Member, tables: list[NDArray[np.float64]], calm: bool) -> None:
        course = member.course(job)
        self.tally.attempts += course.attempt
        self.tally.ends[course.ended or course.stage] += 1
        if not course.done:
            self.tally.reasons[course.why[:100]] += 1
            if calm or not course.why:
                self.tally.faults.append(f"{job.name} ended {course.stage} without cause: {course.why}")
            return
        deadline = time.monotonic() + 60
        while True:
            try:
                evidence = Evidence.gather(member, job, patience=10)
                evidence.check()
                break
            except (FederationError, OSError) as error:
                if time.monotonic() > deadline:
                    self.tally.faults.append(f"{job.name} is done, but its result is not there: {error}")
                    return
                time.sleep(0.5)
        self._compare(job, evidence, tables)

    def _compare(self, job: JobDescription, evidence: Evidence, tables: list[NDArray[np.float64]]) -> None:
        from ppca.estimator.federated import fitted_of

        joint = np.concatenate(tables)
        values = np.linalg.eigvalsh(np.cov(joint.T))[::-1]
        ratios = (values / values.sum())[:3]
        error = float(np.abs(fitted_of(evidence).model.explained_variance_ratio - ratios).max())
        self.tally.worst_error = max(self.tally.worst_error, error)
        if not error < 1e-6:
            self.tally.faults.append(f"{job.name} has a wrong result: {error:.1e}")

    def _look_for_leavings(self) -> None:
        """After an orderly stop: no process, no half-written file."""
        for folder in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if folder.name.isdigit() and b"ppca.seat.worker" in (folder / "cmdline").read_bytes():
                    place = os.readlink(folder / "cwd")
                    if place.startswith(str(self.field.folder)):
                        self.tally.faults.append(f"a worker process is left over in {place}")
        for path in self.field.folder.rglob("*.part"):
            # What a killed process leaves is removed when it starts again; these were all started again.
            if "outbox" not in path.parts:
                self.tally.faults.append(f"half-written: {path.relative_to(self.field.folder)}")


def main(kills: int, seed: int, output: Path | None) -> Tally:
    with tempfile.TemporaryDirectory(prefix="ppca-chaos-") as name:
        run = Run(Path(name), kills, seed)
        began = time.monotonic()
        tally = run.run()
    seconds = time.monotonic() - began
    table = Table("what", "how often", title=f"Chaos, seed {seed}: {seconds:.0f} s", title_justify="left")
    for what, count in sorted(tally.done.items()):
        table.add_row(what, str(count))
    table.add_section()
    for what, count in sorted(tally.ends.items()):
        table.add_row(f"jobs that ended: {what}", str(count))
    for why, count in tally.reasons.most_common(8):
        table.add_row(f"  because: {why}", str(count))
    table.add_row("attempts of all jobs", str(tally.attempts))
    table.add_row("largest error of a ratio", f"{tally.worst_error:.1e}")
    table.add_row("faults (hangs, wrong or lost results, leavings)", str(len(tally.faults)))
    console = table_console()
    console.print(table)
    for fault in tally.faults:
        console.print(f"FAULT {fault}", markup=False)
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        content = {"seconds": seconds, "kills": tally.kills, **{k: v for k, v in vars(tally).items()}}
        (output / "chaos.json").write_text(json.dumps(content, indent=1, default=dict) + "\n")
    return tally
