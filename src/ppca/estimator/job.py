"""One job: programs on the same four servers, one after the other. Shares go in, the receiver's values come out.

    with Job() as job:
        product = job.run("my_module:program", x, y, threshold=3)
    print(job.account.rounds)

This is the only module in which plain numbers become shares and sealed results become plain numbers: the process that
runs a local job acts for its owners and its receiver.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import chain, islice
from typing import Any, Self

from ..jobs.chunks import Chunk
from ..jobs.spec import CLIENT, JobSpec
from ..protocol import InputPacket, share
from ..receiver.unsealing import unsealed
from ..runtime import Account, LocalServers, ProgramError, Servers
from ..runtime.programs import Program
from ..runtime.servers import Progress, RunsPrograms


class Job:
    """Run programs and add up their accounts.

    servers: servers that compute; None: four processes of this machine that run any program. In a ``with`` block,
    servers that do not run yet are started by `start_soon` or the first program, so that invalid parameters cost no
    time, and stopped when the block ends.
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

    @property
    def receiver(self) -> str:
        """Name of the caller as a receiver."""
        return self.servers.member or CLIENT

    def start_soon(self) -> None:
        """Start the servers of this block in the background, while the owners read their tables."""
        if self._may_start and not self._started and not self.servers.running:
            self._started = True
            pool = ThreadPoolExecutor(1)
            self._starting = pool.submit(self.servers.start)
            pool.shutdown(wait=False)

    def run_job(self, spec: JobSpec, chunks: Iterable[Chunk]) -> Any:
        """Run a job; return public values and, in plaintext, the values revealed to receivers.

        The first chunk is made while the servers start.
        """
        self.start_soon()
        coming = iter(chunks)
        first = list(islice(coming, 1))
        self._await_start()
        outcome = self.servers.run_job(spec, chain(first, coming), None if self._told is None else self.progress)
        self._accounts.append(outcome.account)
        return unsealed(outcome.parts)

    def run(self, program: Program | str, /, *inputs: Any, **public: Any) -> Any:
        """Run a program; return its opened values and, in plaintext, its revealed ones.

        inputs: the secrets, as arrays, which are shared before they leave this process, or as packets from
        `ppca.share`.
        public: parameters that all servers see.
        """
        packets = [_packets(values, f"input {i}") for i, values in enumerate(inputs)]
        if not isinstance(self.servers, RunsPrograms):
            raise ProgramError(
                "the servers of a federation run jobs only. Use ppca.LocalServers for programs of your own."
            )
        self.start_soon()
        self._await_start()
        outcome = self.servers.run(program, packets, public, None if self._told is None else self.progress)
        self._accounts.append(outcome.account)
        return unsealed(outcome.parts)

    def _await_start(self) -> None:
        if self._starting is not None:
            self.progress("servers", None)
            self._starting.result()
            self._starting = None

    def progress(self, text: str, fraction: float | None, rounds: int = 0) -> None:
        """Report progress. rounds: of the current run; those of earlier runs are added."""
        if self._told is not None:
            self._told(text, fraction, sum(account.rounds for account in self._accounts) + rounds)

    @property
    def account(self) -> Account:
        """Account of all programs so far: rounds, bytes, seconds, and all openings."""
        if not self._accounts:
            raise ValueError("this job has not run a program yet")
        return Account.total(self._accounts)


def _packets(values: Any, name: str) -> list[InputPacket]:
    if isinstance(values, list) and len(values) == 4 and all(isinstance(item, InputPacket) for item in values):
        return values
    return share(values, name=name)
