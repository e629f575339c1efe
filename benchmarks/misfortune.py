"""Inject faults into a federation: kills of any process, cut, closed and slow links, frozen servers, full disks,
attacks.

Each at random moments, one after the other; kills of clients besides. The attacks are in `adversary`.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.adversary import Adversary, memory_of_family, peak_memory
from benchmarks.field import OPERATORS, Field

BOOT = 20.0
"""Seconds that a server has to get up before the next bad thing happens."""

UNLUCKY = 0.5
"""The part of all clients that are killed."""

ENVELOPE = 2000
"""Objects with more bytes than this are sealed shares."""

FILLING = 48 << 20

SLOW = (0.05, 1.0)
"""Seconds that a slow link adds to every byte, one way, while it is slow."""

FROZEN = (0.5, 12.0)
"""Seconds that a server stands still: longer than its peers wait for a round, sometimes."""


@dataclass
class Tally:
    """One injected fault and its outcome."""

    done: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    attempts: int = 0
    memory: int = 0
    family_memory: int = 0
    worst_error: float = 0.0

    @property
    def kills(self) -> int:
        return sum(count for what, count in self.done.items() if what.startswith("kill"))


class Chaos(threading.Thread):
    """Does something bad now and then, until it is told to stop. only: part of the names of what it does."""

    def __init__(self, field: Field, tally: Tally, seed: int, full: Path | None, only: str = "") -> None:
        super().__init__(name="chaos", daemon=True)
        self._field, self._tally, self._full = field, tally, full
        self._random = random.Random(seed)  # noqa: S311 - no secret
        self._over = threading.Event()
        self._clients: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()
        self.adversary = Adversary(field, self._random, self._over)
        self._chosen = [action for action in self._actions() if only in action[1]]
        if not self._chosen:
            raise ValueError(f"nothing that can happen has {only!r} in its name")
        self.phase = "nothing happens"
        threading.Thread(target=self._measure, daemon=True).start()

    def _measure(self) -> None:
        """The most memory that a server has had, as long as the chaos lasts."""
        while not self._over.wait(0.5):
            running = [process.pid for process in self._field.processes if process is not None]
            self._tally.memory = max([self._tally.memory, *map(peak_memory, running)])
            self._tally.family_memory = max([self._tally.family_memory, *map(memory_of_family, running)])

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

    def _actions(self) -> list[tuple[int, str, Callable[[], bool]]]:
        """Return the possible faults: weight, name and function."""
        return [
            (6, "kill of a server", self._kill_server),
            (5, "kill of a client", self._kill_client),
            (4, "kill of a server's worker", self._kill_worker),
            (2, "cut of a server's mesh links", lambda: self._cut(self._field.mesh_proxies)),
            (2, "cut of a server's API links", lambda: self._cut(self._field.api_proxies)),
            (1, "slow mesh links for a while", lambda: self._slow(self._field.mesh_proxies)),
            (1, "slow API links for a while", lambda: self._slow(self._field.api_proxies)),
            (1, "API closed for a while", self._close),
            (1, "frozen server for a while", self._freeze),
            (1, "byte of an envelope changed", lambda: self._damage(whole=True)),
            (1, "envelope cut short", lambda: self._damage(whole=False)),
            (1, "full disk for a while", self._fill),
            *self.adversary.actions(),
        ]

    def run(self) -> None:
        names = [name for weight, name, _ in self._chosen for _ in range(weight)]
        table = {name: action for _, name, action in self._chosen}
        while not self._over.wait(self._random.uniform(0.3, 3.0)):
            name = self._random.choice(names)
            phase = self.phase
            with contextlib.suppress(OSError):
                if table[name]():
                    self._tally.done[f"{name} while {phase}" if name == "kill of a server" else name] += 1

    def _kill_server(self) -> bool:
        server = self._random.randrange(4)
        if self._field.processes[server] is None:
            return False
        self._field.kill(server, signal.SIGKILL)
        self._over.wait(self._random.uniform(0, 1.0))
        self._field.launch(server)
        deadline = time.monotonic() + BOOT
        while self._field.health(server) < 0 and time.monotonic() < deadline and not self._over.wait(0.2):
            pass  # a server that never gets up could never do its part
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

    def _kill_worker(self) -> bool:
        """Kill one process that a server has started: of an attempt, or one that starts or checks; the server lives
        on."""
        workers = [pid for process in self._field.processes if process is not None for pid in descendants(process.pid)]
        if not workers:
            return False
        os.kill(self._random.choice(workers), signal.SIGKILL)
        return True

    def _slow(self, proxies: list[Any]) -> bool:
        proxy = self._random.choice(proxies)
        proxy.delay = self._random.uniform(*SLOW)
        self._over.wait(self._random.uniform(1.0, 4.0))
        proxy.delay = 0.0
        return True

    def _freeze(self) -> bool:
        """A server that neither answers nor hangs up: its connections stand."""
        process = self._random.choice(self._field.processes)
        if process is None:
            return False
        process.send_signal(signal.SIGSTOP)
        self._over.wait(self._random.uniform(*FROZEN))
        process.send_signal(signal.SIGCONT)
        return True

    def _damage(self, *, whole: bool) -> bool:
        """Change a byte of a stored envelope, or leave the first part of it."""
        store = self._field.folder / self._random.choice(OPERATORS) / "store" / "objects"
        found = [path for path in store.glob("*/*") if path.stat().st_size > ENVELOPE and path.suffix != ".part"]
        if not found:
            return False
        path = self._random.choice(found)
        data = bytearray(path.read_bytes())
        place = self._random.randrange(len(data))
        data[place] ^= 1
        path.write_bytes(data if whole else data[:place])
        return True

    def _fill(self) -> bool:
        """Fill the small disk of one server's store."""
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


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, and that these have started, as far as they still run."""
    try:
        found = [(place / "children").read_text().split() for place in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return []
    children = [int(child) for each in found for child in each]
    return children + [each for child in children for each in descendants(child)]
