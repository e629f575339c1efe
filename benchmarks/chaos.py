"""`ppca bench chaos`: a federation under fire. What can happen is in `misfortune`.

Jobs run all the time, two of row owners, then one of column owners. Every fourth keeps its model, which a second
job then uses on new rows; every fifth has more columns than rows. Every one must end with the right result or
in a clear final state; none may hang, nothing may be left half-written, no process may be left over, and in the end all
four servers must say the same of every job. What an attacker sends must be refused, and no server may take more than
`MAX_MEMORY`. Prints the tally.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from benchmarks import table_console
from benchmarks.adversary import HONEST, LIE, MALLORY, SKEW, altered_servers, lie_file, skew_file
from benchmarks.field import OPERATORS, Field
from benchmarks.jobs import fit_job, use_job
from benchmarks.misfortune import Chaos, Tally
from ppca.federation.errors import FederationError
from ppca.federation.proposal import ProposedJob
from ppca.federation.state import HELD
from ppca.jobs.inference import scale_of
from ppca.member import MemberClient
from ppca.member.fetching import Evidence

OWNERS = ("north", "south", "west")
RECEIVER = "analyst"
COLUMNS = ["a", "b", "c", "d", "e", "f"]
ROWS = 50
WIDE_COLUMNS = [f"g{number}" for number in range(111)]
WIDE_ROWS = 12
"""Rows of an owner in jobs with more columns than rows. The rows of an owner are padded to a multiple of 32."""

ID = "patient"
MAX_SECONDS = 900.0
"""Seconds after which a job that has not ended counts as hanging: also where the machine has much else to do."""

SETTLING = 60.0
"""Seconds in which four servers that are left in peace must come to agree."""

SETTINGS = {
    "policy": {"attempts": 40, "jobs_per_member": 1000, "requests_per_second": 500.0},
    "work": {"timeout": 8.0, "start_timeout": 12.0},
}
TMPFS = "64m"
MAX_MEMORY = 600 << 20
"""Bytes that the process of a server may take, whatever members and strangers send, for jobs of this size."""


def by_owner(columns: list[str]) -> dict[str, list[str]]:
    """Return equal parts of the columns."""
    each = len(columns) // len(OWNERS)
    return {owner: columns[each * number : each * (number + 1)] for number, owner in enumerate(OWNERS)}


class Run:
    """Jobs, one after the other, while chaos reigns."""

    def __init__(self, folder: Path, kills: int, seed: int, seconds: float, only: str = "") -> None:
        self.tally, self.kills, self.seconds = Tally(), kills, seconds
        self.more = 0
        """Number of uses of kept models."""
        self._random = np.random.default_rng(seed)
        owners, receivers = (*OWNERS, MALLORY, *HONEST), (RECEIVER, MALLORY)
        self.field = Field(folder / "field", owners, receivers, api={}, mesh={}, settings=SETTINGS)
        environment = altered_servers(folder)
        for server, name in enumerate(OPERATORS):
            place = self.field.folder / name
            self.field.environments[server] = environment | {SKEW: str(skew_file(place)), LIE: str(lie_file(place))}
        self._small = self._small_disk()
        self._files: dict[str, Path] = {}
        self.chaos = Chaos(self.field, self.tally, seed, self._small, only)

    def _small_disk(self) -> Path | None:
        """A small disk below the store of server 2, if that is permitted."""
        place = self.field.folder / OPERATORS[2] / "store"
        place.mkdir(mode=0o700)
        command = ["mount", "-t", "tmpfs", "-o", f"size={TMPFS},mode=700", "tmpfs", str(place)]
        done = subprocess.run(command, capture_output=True)  # noqa: S603 - a fixed command
        return place if done.returncode == 0 else None

    def run(self) -> Tally:
        try:
            with self.field:
                self.chaos.start()
                number, began = 0, time.monotonic()
                while self.tally.kills < self.kills and time.monotonic() - began < self.seconds:
                    number += 1
                    self._one(number)
                self.chaos.stop()
                self.field.await_links()
                self._one(number + 1, calm=True)
                self.tally.faults += self.chaos.adversary.verdicts(SETTLING)
                self._ask_all_servers(number + 1 + self.more + self.chaos.adversary.lies)
                self.tally.done.update({f"lie: {name}": count for name, count in self.chaos.adversary.ways.items()})
                if self.tally.memory > MAX_MEMORY:
                    self.tally.faults.append(f"a server has taken {self.tally.memory:,} bytes")
            self._look_for_leavings()
        finally:
            if self.chaos.is_alive():
                self.chaos.stop()
            self.field.stop()
            if self._small is not None:
                subprocess.run(["umount", "--lazy", str(self._small)], capture_output=True)  # noqa: S603, S607 - a fixed command
        return self.tally

    def _one(self, number: int, calm: bool = False) -> None:
        """One job from its file to its end, and the use of its model if it keeps one."""
        keeps, wide = number % 4 == 0, number % 5 == 0 and number % 4 != 0
        by_columns = number % 3 == 0 and not keeps
        columns = WIDE_COLUMNS if wide else COLUMNS
        joint = self._tables(columns, by_columns, WIDE_ROWS if wide else ROWS)
        more: dict[str, Any] = {"components": 3, "wide": wide}
        if keeps:
            until = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
            more["keep"] = {"until": until, "allow": {"transform": [RECEIVER]}}
        if by_columns and wide:
            more["align"] = {"alignment": "psi", "minimum": 2}
        with contextlib.closing(self.field.member(RECEIVER)) as receiver:
            held: Any = by_owner(columns) if by_columns else columns
            names = (f"job-{number}", list(OWNERS), held, {RECEIVER: ["model"]})
            job = fit_job(receiver.membership, *names, **more)
            evidence = self._whole(job, receiver, OWNERS, calm)
            if evidence is None:
                return
            self._compare(job, evidence, joint)
            if keeps:
                self._use(job, evidence, receiver, calm)

    def _use(self, fit: ProposedJob, model: Evidence, receiver: MemberClient, calm: bool) -> None:
        """Use a kept model on new rows of one owner."""
        fitted = model.result()
        new = self._random.standard_normal((ROWS, len(COLUMNS)))
        self._write(OWNERS[0], COLUMNS, new)
        job = use_job(
            *(receiver.membership, f"use-{fit.name}", [OWNERS[0]], COLUMNS, {RECEIVER: ["transform"]}),
            fitted.scale.tolist(),
            model=fit.id,
            model_owners=OWNERS,
        )
        self.more += 1
        evidence = self._whole(job, receiver, OWNERS, calm)
        if evidence is not None:
            found = np.ldexp(np.asarray(evidence.result().values["coordinates"]), scale_of(job.spec))
            error = float(np.abs(np.abs(found) - np.abs(fitted.model.project(new))).max())
            if not error < 1e-6:
                self.tally.faults.append(f"{job.name} has wrong coordinates: {error:.1e}")

    def _whole(self, job: ProposedJob, receiver: MemberClient, approvers: Sequence[str], calm: bool) -> Evidence | None:
        """Take a job from its submission to its end; the evidence of its result, if it is done."""
        began = time.monotonic()
        try:
            self.chaos.phase = "a job is submitted and approved"
            self._stubborn(partial(receiver.submit, job), job, receiver, began)
            for owner in approvers:
                member = self.field.member(owner)
                with contextlib.closing(member):
                    self._stubborn(partial(member.approve, job), job, member, began)
            self.chaos.phase = "owners contribute"
            self._contribute(job, receiver, began)
            self.chaos.phase = "servers compute"
            self._await_end(job, receiver, began)
            self.chaos.phase = "a result is fetched"
            return self._judge(job, receiver, calm)
        except TimeoutError as error:
            self.tally.ends["HANGS"] += 1
            self.tally.faults.append(f"{job.name}: {error}")
            return None

    def _tables(self, columns: list[str], by_columns: bool, rows_each: int) -> NDArray[np.float64]:
        """Write a table for every owner; return all of them in one."""
        width, each = len(columns), len(columns) // len(OWNERS)
        rows = rows_each if by_columns else rows_each * len(OWNERS)
        mix = self._random.standard_normal((width, width))
        joint = self._random.standard_normal((rows, width)) @ mix + self._random.standard_normal(width)
        for number, owner in enumerate(OWNERS):
            if by_columns:
                order = self._random.permutation(rows)
                table = np.column_stack([order, joint[order, each * number : each * (number + 1)]])
                self._write(owner, [ID, *by_owner(columns)[owner]], table)
            else:
                self._write(owner, columns, joint[rows_each * number : rows_each * (number + 1)])
        return joint

    def _write(self, owner: str, names: list[str], table: NDArray[np.float64]) -> None:
        self._files[owner] = self.field.folder / owner / "table.csv"
        np.savetxt(self._files[owner], table, delimiter=",", header=",".join(names), comments="", fmt="%.17g")

    def _stubborn(self, action: Callable[[], None], job: ProposedJob, member: MemberClient, began: float) -> None:
        """Say the same again until it is done, as a user would, or the job is over."""
        while True:
            try:
                action()
                return
            except (FederationError, OSError):
                if self._over(job, member):
                    return
            if time.monotonic() - began > MAX_SECONDS:
                raise TimeoutError("a member cannot do its part")
            time.sleep(0.5)

    def _over(self, job: ProposedJob, member: MemberClient) -> bool:
        try:
            return member.job_state(job).over
        except (FederationError, OSError):
            return False

    def _contribute(self, job: ProposedJob, receiver: MemberClient, began: float) -> None:
        """Every owner in a process of its own, started again when it is killed."""
        path = self.field.folder / RECEIVER / "job.toml"
        path.write_bytes(job.data)
        running: dict[str, subprocess.Popen[bytes]] = {}
        left = set(job.proposal.owners)
        while left and not self._over(job, receiver):
            for owner in sorted(left):
                process = running.get(owner)
                if process is None or process.poll() is not None:
                    if self._contributed(job, receiver, owner):
                        left.discard(owner)
                        continue
                    running[owner] = self._client(owner, path, ["--id", ID] if job.spec.data.by_columns else [])
            if time.monotonic() - began > MAX_SECONDS:
                raise TimeoutError("an owner cannot contribute")
            time.sleep(0.2)
        for process in running.values():
            process.kill()
            process.wait()

    def _contributed(self, job: ProposedJob, member: MemberClient, owner: str) -> bool:
        try:
            return member.objects(job).by("contribution", owner) is not None
        except (FederationError, OSError):
            return False

    def _client(self, owner: str, job: Path, options: list[str]) -> subprocess.Popen[bytes]:
        folder = self.field.folder / owner
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [
                sys.executable,
                "-m",
                "ppca.cli.main",
                "contribute",
                str(job),
                str(self._files[owner]),
                "--quiet",
                *options,
            ],
            cwd=folder,
            env=os.environ | {"PPCA_STATE": str(folder / "state")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.chaos.client(process)
        return process

    def _await_end(self, job: ProposedJob, member: MemberClient, began: float) -> None:
        while not self._over(job, member):
            if time.monotonic() - began > MAX_SECONDS:
                raise TimeoutError(f"it has not ended: {member.job_state(job)}")
            self._resume(job, member)
            time.sleep(0.2)

    def _resume(self, job: ProposedJob, member: MemberClient) -> None:
        """Resume a held job, as an operator does that has read why it is held."""
        with contextlib.suppress(FederationError, OSError):
            if member.job_state(job).stage == HELD:
                with contextlib.closing(self.field.member(OPERATORS[-1])) as operator:
                    operator.resume(job)
                self.tally.done["held job resumed by an operator"] += 1

    def _judge(self, job: ProposedJob, member: MemberClient, calm: bool) -> Evidence | None:
        """Return the evidence of the result of a job, if it is done; note a fault if it is not there."""
        job_state = member.job_state(job)
        self.tally.attempts += job_state.attempt
        self.tally.ends[job_state.ended or job_state.stage] += 1
        if not job_state.done:
            self.tally.reasons[job_state.why[:100]] += 1
            if calm or not job_state.why:
                self.tally.faults.append(f"{job.name} ended {job_state.stage} without cause: {job_state.why}")
            return None
        deadline = time.monotonic() + 60
        while True:
            try:
                evidence = Evidence.gather(member, job, patience=10)
                evidence.check()
                return evidence
            except (FederationError, OSError) as error:
                if time.monotonic() > deadline:
                    self.tally.faults.append(f"{job.name} is done, but its result is not there: {error}")
                    return None
                time.sleep(0.5)

    def _compare(self, job: ProposedJob, evidence: Evidence, joint: NDArray[np.float64]) -> None:

        values = np.linalg.eigvalsh(np.cov(joint.T))[::-1]
        ratios = (values / values.sum())[:3]
        error = float(np.abs(evidence.result().model.explained_variance_ratio - ratios).max())
        self.tally.worst_error = max(self.tally.worst_error, error)
        if not error < 1e-6:
            self.tally.faults.append(f"{job.name} has a wrong result: {error:.1e}")

    def _ask_all_servers(self, jobs: int) -> None:
        """Every server must know every job, and they must agree how it ended."""
        deadline = time.monotonic() + SETTLING
        while True:
            said = [self._ends_at(server) for server in range(4)]
            if all(each == said[0] for each in said) and len(said[0]) == jobs:
                return
            if time.monotonic() > deadline:
                odd = {job for each in said for job in each if any(other.get(job) != each[job] for other in said)}
                self.tally.faults.append(
                    f"servers know {[len(each) for each in said]} jobs, and differ about {sorted(odd)}"
                )
                return
            time.sleep(1)

    def _ends_at(self, server: int) -> dict[str, tuple[str, int]]:
        """Job -> how it ended, in which attempt, at one server."""
        place = f"http://127.0.0.1:{self.field.ports[server][2]}/v1/state"
        with urllib.request.urlopen(place, timeout=SETTLING) as answer:
            found = json.loads(answer.read())["jobs"]
        return {job["name"]: (job["ended"] or job["stage"], job["attempt"]) for job in found}

    def _look_for_leavings(self) -> None:
        """After an orderly stop: no process, no half-written file."""
        for folder in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if folder.name.isdigit() and int(folder.name) != os.getpid():
                    place = os.readlink(folder / "cwd")
                    if place.startswith(str(self.field.folder)):
                        words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                        self.tally.faults.append(f"a process is left over: {words}")
        for path in self.field.folder.rglob("*.part"):
            # What a killed process leaves is removed when it starts again; these were all started again.
            if "outbox" not in path.parts:
                self.tally.faults.append(f"half-written: {path.relative_to(self.field.folder)}")


def main(kills: int, seed: int, output: Path | None, seconds: float = math.inf, only: str = "") -> Tally:
    with tempfile.TemporaryDirectory(prefix="ppca-chaos-") as name:
        run = Run(Path(name), kills, seed, seconds, only)
        began = time.monotonic()
        tally = run.run()
    taken = time.monotonic() - began
    table = Table(
        "what", "how often", title=f"Chaos, seed {seed}: {taken:.0f} s, {tally.kills:,} kills", title_justify="left"
    )
    for what, count in sorted(tally.done.items()):
        table.add_row(what, str(count))
    table.add_section()
    for what, count in sorted(tally.ends.items()):
        table.add_row(f"jobs that ended: {what}", str(count))
    for why, count in tally.reasons.most_common(8):
        table.add_row(f"  because: {why}", str(count))
    table.add_row("attempts of all jobs", str(tally.attempts))
    table.add_row("most memory of a server", f"{tally.memory / 1e6:.0f} MB")
    table.add_row("most memory of a server with its processes", f"{tally.family_memory / 1e6:.0f} MB")
    table.add_row("largest error of a ratio", f"{tally.worst_error:.1e}")
    table.add_row("faults (hangs, wrong or lost results, leavings)", str(len(tally.faults)))
    console = table_console()
    console.print(table)
    for fault in tally.faults:
        console.print(f"FAULT {fault}", markup=False)
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        content = {"seconds": taken, "kills": tally.kills, **{k: v for k, v in vars(tally).items()}}
        (output / "chaos.json").write_text(json.dumps(content, indent=1, default=dict) + "\n")
    return tally
