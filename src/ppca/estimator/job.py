"""One job: programs on the same four servers, one after the other. Shares go in, the receiver's values come out.

    with Job() as job:
        product = job.run("my_module:program", x, y, threshold=3)
    print(job.account.rounds)

This is the one place where plain numbers become shares for servers and sealed results become plain numbers again: whoever
runs a job acts for its owners and its receiver.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, Self

from ..jobs.uploads import forget
from ..protocol import InputPacket, share
from ..receiver.unsealing import unsealed
from ..servers import Account, LocalServers, Servers
from ..servers.interface import Progress
from ..servers.programs import Program


class Job:
    """Runs programs and adds up their account.

    servers: those that compute; None: four processes of this machine that run any program of yours. In a ``with`` block, servers
    that do not run yet are started by `start_soon` or the first program, so that refused parameters cost nothing, and stopped
    when the block is left.
    """

    def __init__(self, servers: Servers | None = None, progress: Progress | None = None) -> None:
        self.servers: Servers = LocalServers(developer=True) if servers is None else servers
        self._told = progress
        self._accounts: list[Account] = []
        self._may_start = False
        self._started = False
        self._starting: Future[Any] | None = None

    def __enter__(self) -> Self:
        self._may_start = True
        return self

    def __exit__(self, *exc: object) -> None:
        self._may_start = False
        if self._starting is not None:
            wait([self._starting])
            self._starting = None
        if self._started:
            self.servers.stop()
            self._started = False

    def start_soon(self) -> None:
        """Starts the servers of this block in the background: they are up by the time the owners have read their tables."""
        if self._may_start and not self._started and not self.servers.running:
            self._started = True
            pool = ThreadPoolExecutor(1)
            self._starting = pool.submit(self.servers.start)
            pool.shutdown(wait=False)

    def run(self, program: Program | str, /, *inputs: Any, **public: Any) -> Any:
        """What the program returned: opened values, and revealed ones in the clear.

        inputs: the secrets, as arrays, which are shared before they leave this process, or as packets from `ppca.share`.
        public: parameters that all servers see.
        """
        packets = [_packets(values, f"input {i}") for i, values in enumerate(inputs)]
        self.start_soon()
        if self._starting is not None:
            self.progress("servers", None)
            self._starting.result()
            self._starting = None
        outcome = self.servers.run(program, packets, public, None if self._told is None else self.progress)
        self._accounts.append(outcome.account)
        return unsealed(outcome.parts)

    def progress(self, text: str, fraction: float | None, rounds: int = 0) -> None:
        """Tells how far the job is; `rounds` of the present run are added to those before."""
        if self._told is not None:
            self._told(text, fraction, sum(account.rounds for account in self._accounts) + rounds)

    @property
    def account(self) -> Account:
        """Of all programs so far: rounds, bytes, seconds, and everything that was opened."""
        if not self._accounts:
            raise ValueError("no program of this job has run yet")
        return Account.total(self._accounts)

    @contextmanager
    def table(self) -> Iterator[str]:
        """The name of a new table to which owners upload; if the block fails, the servers forget it and keep everything else."""
        name = secrets.token_hex(8)
        try:
            yield name
        except Exception:
            if self.servers.running:  # else the table has ended with the servers
                self.run(forget, table=name)
            raise


def _packets(values: Any, name: str) -> list[InputPacket]:
    if isinstance(values, list) and len(values) == 4 and all(isinstance(item, InputPacket) for item in values):
        return values
    return share(values, name=name)
