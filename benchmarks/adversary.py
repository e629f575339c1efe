"""Attacks on a federation while honest jobs run: strangers, members, lying owners and servers, damaged stores, wrong
clocks.

Every attack is one function that takes some seconds at most. What it sends must be refused, or end in a clear state;
`verdicts` says afterwards what was not. Attacks on a store kill the server first, as a failing disk and a crash come
together.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import ssl
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import lying
from benchmarks.field import OPERATORS, Field
from benchmarks.jobs import fit_job
from benchmarks.lying_owner import WAYS as LIES
from benchmarks.lying_owner import contribution
from ppca.federation.errors import FederationError
from ppca.federation.headers import BROKEN, WITHDRAWN
from ppca.federation.objects import Object, sha256
from ppca.federation.proposal import ProposedJob
from ppca.federation.state import READY, RUNNING
from ppca.member import MemberClient
from ppca.member.connections import ServerConnections
from ppca.member.contributing import add, chunks_of, contribute, table_of
from ppca.owner.tables.options import DEFAULTS
from ppca.owner.tables.table import Table

MALLORY = "mallory"
"""A member that means harm: an owner and a receiver."""

HONEST = ("harbour", "hill")
"""Honest owners in the jobs of Mallory."""

ID = "patient"
ROWS = 30
SECONDS = 10.0
"""Timeout of one step of a job of Mallory."""

SECONDS_PER_JOB = 10.0
"""Further seconds that each job of Mallory may take to end after the chaos."""

COLUMNS = ["a", "b", "c"]
CONNECTIONS = 400
"""Connections of one flood."""

SKEW = "PPCA_BENCH_SKEW"
"""Names the file with the seconds by which the clock of a server process is wrong (`altered_servers`)."""

LIE = "PPCA_BENCH_LIE"
"""Names the file that says how the frames of a server are wrong (`lying`)."""

DAYS = (-30.0, -2.0, 2.0, 30.0, 4000.0)
WAYS = ("flip", "cut", "empty", "missing", "old copy")
STORED = {
    "an object": "objects/*/*",
    "the records": "records.db",
    "a key of a job": "keys/*.key",
    "a staged file": "staged/*/*/*",
    "a kept model": "models/*",
    "a restored chunk": "restored/*/*/*",
}
"""Kinds of files in a store, by what they are."""

ALONE = ("a key of a job", "a restored chunk")
"""Kinds that are damaged at one server only."""

EXPENSIVE = (
    ".".join(["a"] * 30_000) + " = 1",
    f"[{'.'.join(['a'] * 30_000)}]",
    "x = [" + "1," * 400_000 + "]",
    "".join(f"k{number} = 1\n" for number in range(50_000)),
    "x = " + "[" * 50_000,
)


class Adversary:
    """The attacks; `actions` gives each with its weight and name."""

    def __init__(self, field: Field, draw: random.Random, over: threading.Event) -> None:
        self._field, self._random, self._over = field, draw, over
        self._lying: list[ProposedJob] = []
        self._unfinished: list[ProposedJob] = []
        """Jobs in which an owner could not do its part."""
        self.ways: Counter[str] = Counter()
        """Number of lies of each kind."""
        self._faults: list[str] = []
        self._copies: dict[Path, bytes] = {}
        self._number = 0
        self._victim = draw.randrange(4)
        """The server that loses keys: two servers that lose the key of one job at the same time lose its shares for
        good."""

    def actions(self) -> list[tuple[int, str, Callable[[], bool]]]:
        found: list[tuple[int, str, Callable[[], bool]]] = [
            (1, "flood of a stranger", self._flood),
            (1, "noise of a stranger", self._noise),
            (1, "expensive files of a member", self._files),
            (1, "wrong objects of a member", self._objects),
            (1, "wrong objects of an operator", self._as_operator),
            (2, "contribution of a lying owner", self._lie),
            (1, "false end of an attempt by an operator", self._contradict),
            (2, "server that lies below the protocol", self._frames),
            (1, "wrong clock for a while", self._skew),
        ]
        return [*found, *((1, f"kill of a server, and damage of {what}", self._damaging(what)) for what in STORED)]

    # -- strangers ---------------------------------------------------------------------------------------------------

    def _flood(self) -> bool:
        """Connections that say nothing, to both ports of one server."""
        ports = self._field.ports[self._random.randrange(4)][:2]
        held = []
        for number in range(CONNECTIONS):
            with contextlib.suppress(OSError):
                held.append(socket.create_connection(("127.0.0.1", ports[number % 2]), 1.0))
        self._over.wait(self._random.uniform(0.2, 2.0))
        for sock in held:
            sock.close()
        return bool(held)

    def _noise(self) -> bool:
        """Bytes, requests without TLS, and TLS without a certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        for _ in range(20):
            port = self._field.ports[self._random.randrange(4)][self._random.randrange(2)]
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0) as sock:
                sock.settimeout(1.0)
                way = self._random.randrange(3)
                if way == 2:
                    with context.wrap_socket(sock) as tls:
                        tls.sendall(b"GET /v1/hello HTTP/1.1\r\nHost: x\r\n\r\n")
                        if tls.recv(1 << 12):
                            self._faults.append("a stranger without a certificate was answered")
                else:
                    sock.sendall(self._random.randbytes(500) if way else b"GET / HTTP/1.1\r\n\r\n")
        return True

    # -- members -----------------------------------------------------------------------------------------------------

    def _refused(self, servers: ServerConnections, item: Object, what: str) -> bool:
        """Bring an object that must be refused to one server; False if it did not answer."""
        client = servers.clients[self._random.randrange(4)]
        try:
            status, _ = client.request("PUT", f"/v1/objects/{item.digest}", item.data)
        except (FederationError, OSError):
            return False
        if status in (200, 201):
            self._faults.append(f"{what} was taken: {item.header}")
        return True

    def _files(self) -> bool:
        with contextlib.closing(self._field.member(MALLORY)) as member:
            data = self._random.choice(EXPENSIVE).encode() + b"\n# %d\n" % self._random.randrange(1 << 40)
            return self._refused(member.servers, self._made(MALLORY, "job", sha256(data), data), "an expensive file")

    def _objects(self) -> bool:
        """Objects that are not Mallory's to write, about any job."""
        with contextlib.closing(self._field.member(MALLORY)) as member:
            wrong: list[tuple[str, dict[str, Any]]] = [("receipt", {"owner": MALLORY, "contribution": "0" * 64})]
            wrong += [
                ("erased", {"what": "job"}),
                ("result", {"receiver": MALLORY}),
                ("audit", {}),
                ("start", {"attempt": 1}),
            ]
            return all(self._refused(member.servers, *self._wrong(MALLORY, *each)) for each in wrong)

    def _as_operator(self) -> bool:
        """An operator writes what is another's, or about attempts that there are not."""
        name = self._random.choice(OPERATORS[1:])
        membership = self._field.member(MALLORY).membership
        servers = ServerConnections(membership, self._field.identities[name])
        with contextlib.closing(servers):
            ended: dict[str, Any] = {"attempt": 99, "outcome": "finished", "final": False, "why": ""}
            wrong: list[tuple[str, dict[str, Any]]] = [
                ("approval", {}),
                ("contribution", {}),
                ("envelope", {"to": 0, "chunk": 0}),
                ("ended", ended),
            ]
            return all(self._refused(servers, *self._wrong(name, *each)) for each in wrong)

    def _contradict(self) -> bool:
        """An operator signs the end of an attempt that is under way. Its server says later what really became of it."""
        server = self._random.randrange(4)
        name = OPERATORS[server]
        with contextlib.closing(
            ServerConnections(self._field.member(MALLORY).membership, self._field.identities[name])
        ) as servers:
            try:
                with urllib.request.urlopen(
                    f"http://127.0.0.1:{self._field.ports[server][2]}/v1/state", timeout=10
                ) as answer:
                    jobs = json.loads(answer.read())["jobs"]
                open_jobs = [each for each in jobs if each["stage"] in (READY, RUNNING) and each["attempt"]]
                if not open_jobs:
                    return False
                job = self._random.choice(open_jobs)
                said = {
                    "outcome": self._random.choice((WITHDRAWN, BROKEN)),
                    "why": "a lie",
                    "final": False,
                    "hold": False,
                }
                item = self._made(name, "ended", job["id"], b"", attempt=job["attempt"], server=server, **said)
                client = servers.clients[self._random.randrange(4)]
                return client.request("PUT", f"/v1/objects/{item.digest}", item.data)[0] == 201
            except (FederationError, OSError):
                return False

    def _wrong(self, author: str, kind: str, about: dict[str, Any]) -> tuple[Object, str]:
        job = self._random.choice(self._lying).id if self._lying and self._random.random() < 0.5 else "0" * 64
        return self._made(author, kind, job, b"", **about), f"{kind} of {author}"

    def _made(self, author: str, kind: str, job: str, payload: bytes, **about: Any) -> Object:
        return Object.make(self._field.identities[author], kind, job, payload, **about)

    def _lie(self) -> bool:
        """A job of Mallory and honest owners, to which Mallory's contribution is altered in one way or another."""
        self._number += 1
        name = self._random.choice(list(LIES))
        by_columns = LIES[name].by_columns
        owners = [MALLORY, *HONEST]
        columns: Any = (
            {owner: [f"{owner}-{each}" for each in COLUMNS[:2]] for owner in owners} if by_columns else COLUMNS
        )
        with contextlib.closing(self._field.member(MALLORY)) as member:
            job = fit_job(member.membership, f"lie-{self._number}", owners, columns, {MALLORY: ["model"]}, components=2)
            try:
                member.submit(job)
                self._unfinished.append(job)
                member.approve(job)
                for owner in HONEST:
                    self._honestly(owner, job)
                keys = self._keys(member, job)
                table = table_of(job.spec.data, MALLORY, self._table(MALLORY, job), job_id(job), DEFAULTS, 1)
                for item in contribution(
                    *(name, member.identity, job.id, keys, partial(_fill, member, job, table), self._random)
                ):
                    member.servers.put(item)
                for owner in HONEST:
                    self._honestly(owner, job, contributes=True)
            except (FederationError, OSError):
                return False
        self._unfinished.remove(job)
        self._lying.append(job)
        self.ways[name] += 1
        return True

    def _honestly(self, owner: str, job: ProposedJob, *, contributes: bool = False) -> None:
        """An honest owner approves, or contributes."""
        with contextlib.closing(self._field.member(owner)) as member:
            if not contributes:
                member.approve(job)
                return
            with contextlib.suppress(FederationError):  # the job may be refused by then, as it should be
                contribute(member, job, self._table(owner, job), id=job_id(job), patience=SECONDS)

    def _table(self, owner: str, job: ProposedJob) -> Path:
        """Write a table of an owner; column owners have the same ids."""
        by_columns = job.spec.data.by_columns
        names = list(job.spec.data.column_names[job.spec.data.columns_of(owner)]) if by_columns else COLUMNS
        rows = [[self._random.gauss(3.0, 1.0) for _ in names] for _ in range(ROWS)]
        lines = [",".join([*([ID] if by_columns else []), *names])]
        for number, values in enumerate(rows):
            lines.append(",".join([*([str(number)] if by_columns else []), *map(repr, values)]))
        path = self._field.folder / owner / f"{job.name}.csv"
        path.write_text("\n".join(lines) + "\n")
        return path

    def _keys(self, member: MemberClient, job: ProposedJob) -> list[bytes]:
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                return member.server_keys(job)
            except FederationError:
                if time.monotonic() > deadline:
                    raise
                self._over.wait(0.2)

    # -- stores and clocks ---------------------------------------------------------------------------------------------

    def _damaging(self, what: str) -> Callable[[], bool]:
        return lambda: self._damage(what)

    def _damage(self, what: str) -> bool:
        """Kill a server, damages a file of its store, and start it again."""
        server = self._victim if what in ALONE else self._random.randrange(4)
        store = self._field.folder / OPERATORS[server] / "store"
        found = [path for path in store.glob(STORED[what]) if path.is_file() and path.suffix != ".part"]
        if not found or self._field.processes[server] is None:
            return False
        path, way = self._random.choice(found), self._random.choice(WAYS)
        self._field.kill(server, signal.SIGKILL)
        with contextlib.suppress(OSError):
            self._spoil(path, way)
        self._field.launch(server)
        deadline = time.monotonic() + 30
        while self._field.health(server) < 0 and not self._over.wait(0.2):
            process = self._field.processes[server]
            if process is not None and process.poll() is not None:
                self._faults.append(
                    f"server {server} does not start: {what}, {way}: {self._field.log(server)[-1][:300]}"
                )
                self._field.launch(server)
            if time.monotonic() > deadline:
                break
        return True

    def _spoil(self, path: Path, way: str) -> None:
        data = path.read_bytes()
        old = self._copies.setdefault(path, data)
        if way == "missing":
            path.unlink()
        elif way == "flip" and data:
            place = self._random.randrange(len(data))
            path.write_bytes(data[:place] + bytes([data[place] ^ 1 << self._random.randrange(8)]) + data[place + 1 :])
        else:
            path.write_bytes({"cut": data[: len(data) // 2], "empty": b"", "old copy": old}.get(way, data))

    def _skew(self) -> bool:
        """The clock of one server is days away, for some seconds."""
        place = skew_file(self._field.folder / self._random.choice(OPERATORS))
        place.write_text(str(86400 * self._random.choice(DAYS)))
        self._over.wait(self._random.uniform(1.0, 6.0))
        place.write_text("0")
        return True

    def _frames(self) -> bool:
        """The frames of one server to the others are wrong until some were sent. Whether there were any."""
        place = lie_file(self._field.folder / self._random.choice(OPERATORS))
        before = _size(lying.counts_of(place))
        place.write_text(self._random.choice(lying.WAYS))
        deadline = time.monotonic() + self._random.uniform(5.0, 20.0)
        while not (told := _size(lying.counts_of(place)) > before) and time.monotonic() < deadline:
            self._over.wait(0.2)
        self._over.wait(self._random.uniform(0.0, 2.0))
        place.write_text("")
        return told

    # -- afterwards ----------------------------------------------------------------------------------------------------

    def verdicts(self, seconds: float) -> list[str]:
        """Return what was not refused: every lying owner's job must have ended, and not well."""
        left = list(self._lying)
        deadline = time.monotonic() + seconds + SECONDS_PER_JOB * len(left)
        with contextlib.closing(self._field.member(MALLORY)) as member:
            for job in self._unfinished:
                self._cancel(member, job, deadline)
            while left and time.monotonic() < deadline:
                left = [job for job in left if not self._ended(member, job)]
                time.sleep(0.5)
        return [*self._faults, *(f"{job.name}: a lying owner's job has not ended" for job in left)]

    def _cancel(self, member: MemberClient, job: ProposedJob, deadline: float) -> None:
        """End a job in which an owner could not do its part, at all servers."""
        while time.monotonic() < deadline:
            try:
                member.submit(job)
                member.cancel(job)
                return
            except (FederationError, OSError):
                if self._ended(member, job):
                    return
                time.sleep(0.5)
        self._faults.append(f"{job.name}: it cannot be cancelled")

    def _ended(self, member: MemberClient, job: ProposedJob) -> bool:
        try:
            job_state = member.job_state(job)
        except (FederationError, OSError):
            return False
        if job_state.done:
            self._faults.append(f"{job.name}: a lying owner's job is done")
        return job_state.over

    @property
    def lies(self) -> int:
        """Number of jobs with a lying owner."""
        return len(self._lying) + len(self._unfinished)


def job_id(job: ProposedJob) -> str | None:
    """Return the name of the column of ids, if the job is of column owners."""
    return ID if job.spec.data.by_columns else None


def _fill(member: MemberClient, job: ProposedJob, table: Table, envelopes: Any) -> None:
    """Add the messages of an unmodified client."""
    for chunk in chunks_of(member, job, table, SECONDS):
        add(envelopes, chunk, tables=False)


def skew_file(folder: Path) -> Path:
    return folder / "skew"


def lie_file(folder: Path) -> Path:
    return folder / "lie"


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def altered_servers(folder: Path) -> dict[str, str]:
    """The environment of server processes that lie as the file LIE says, with clocks (`time.time`) wrong as SKEW
    says."""
    place = folder / "altered"
    place.mkdir(exist_ok=True)
    (place / "sitecustomize.py").write_text(
        "import os, time\n"
        f"_file, _real = os.environ.get({SKEW!r}, ''), time.time\n"
        "def _skewed():\n"
        "    try:\n"
        "        with open(_file) as file:\n"
        "            return _real() + float(file.read() or 0)\n"
        "    except (OSError, ValueError):\n"
        "        return _real()\n"
        "if _file:\n"
        "    time.time = _skewed\n"
        f"if os.environ.get({LIE!r}):\n"
        "    import benchmarks.lying\n"
        f"    benchmarks.lying.install(os.environ[{LIE!r}])\n"
    )
    root = Path(__file__).resolve().parents[1]
    paths = [str(place), str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(paths)}


def peak_memory(pid: int) -> int:
    """The most memory that a process has had so far, in bytes."""
    return _of_process(pid, "VmHWM:")


def memory_of_family(pid: int) -> int:
    """The memory that a process and its descendants have now, in bytes. Pages that they share count for each."""
    return _of_process(pid, "VmRSS:") + sum(map(memory_of_family, children(pid)))


def children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, task.read_text().split())
    return found


def _of_process(pid: int, what: str) -> int:
    with contextlib.suppress(OSError, IndexError, ValueError):
        text = Path(f"/proc/{pid}/status").read_text()
        return int(text.partition(what)[2].split()[0]) << 10
    return 0
