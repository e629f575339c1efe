"""`ppca bench chaos`: a federation under fire. Seats and clients are killed, links cut and closed, disks filled, objects damaged.

Jobs run all the time. Every one must end with the right result or in a clear final state; none may hang, nothing may be left
half-written, no process may be left over. Prints the tally.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from benchmarks import table_console
from benchmarks.field import OPERATORS, Field
from benchmarks.misfortune import Chaos, Tally
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
TMPFS = "64m"


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
