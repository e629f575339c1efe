"""Four servers in lock-step in one thread: deterministic, with exact rounds and bytes, and every message on record.

`run` is for programs on arrays alone; `LockstepServers` has the interface of all servers, for whole jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from ppca.jobs.chunks import Chunk
from ppca.jobs.kept import erase
from ppca.jobs.spec import JobSpec
from ppca.protocol import InputPacket, Opening, RingType, SecretArray, Traffic, local_parties, run_lockstep, share
from ppca.protocol.opening import limits
from ppca.receiver.unsealing import unsealed
from ppca.runtime import Account, Outcome
from ppca.runtime.job_runs import run_job
from ppca.runtime.programs import load, rules_of, stores_packets

Tap = Callable[[int, int, Any], None]
"""Called with sender, receiver and message."""


@dataclass(eq=False)
class LockstepServers:
    """Every run has fresh parties; stores and tables stay, as those of processes do.

    record: whether to keep views. views: by server, all that came in: the packets of owners and the messages of the
    other servers, in order. audits: of every run, the openings as each server recorded them, as dictionaries; openings:
    of the last run, as they are. public: the public parameters of every run, which all servers see. traffic: of the
    last run.
    """

    record: bool = False
    tap: Tap | None = None
    views: list[list[bytes]] = field(default_factory=lambda: [[] for _ in range(4)])
    audits: list[list[list[dict[str, Any]]]] = field(default_factory=list)
    openings: list[list[Opening]] = field(default_factory=list)
    public: list[Mapping[str, Any]] = field(default_factory=list)
    stores: list[dict[str, Any]] = field(default_factory=lambda: [{} for _ in range(4)])
    tables: list[dict[str, Any]] = field(default_factory=lambda: [{} for _ in range(4)])
    traffic: Traffic | None = None
    running: bool = True

    def start(self) -> None:
        """They always run."""

    def stop(self) -> None:
        """There is nothing to stop."""

    @property
    def member(self) -> None:
        """See `Servers.member`."""

    def erase(self, model: str) -> None:
        self.run(erase, [], {"model": model})

    def run_job(self, job: JobSpec, chunks: Iterable[Chunk], progress: Any = None) -> Outcome:
        return run_job(self, job, chunks, progress)

    def run(
        self,
        program: Callable[..., Any] | str,
        inputs: Sequence[list[InputPacket]],
        public: Mapping[str, Any],
        progress: Any = None,
    ) -> Outcome:
        program = load(program) if isinstance(program, str) else program
        self.public.append(public)
        parties = local_parties()
        rules = rules_of(program, public)
        for party, store, tables in zip(parties, self.stores, self.tables, strict=True):
            party.store, party.tables = store, tables
            party.openings = None if rules is None else limits(rules)
        if self.record:
            for server, view in enumerate(self.views):
                view += [part for packets in inputs for part in (packets[server].row, packets[server].column)]

        def tap(sender: int, receiver: int, message: Any) -> None:
            if self.record:
                self.views[receiver].append(message.tobytes())
            if self.tap is not None:
                self.tap(sender, receiver, message)

        async def whole(server: int) -> Any:
            raw = stores_packets(program)
            mine = [
                packets[server] if raw else SecretArray.from_packet(parties[server], packets[server])
                for packets in inputs
            ]
            return await program(parties[server], *mine, **public)

        programs = [whole(server) for server in range(4)]
        try:
            parts, self.traffic = run_lockstep(programs, tap)
        finally:
            for one in programs:
                one.close()
            self.openings = [party.audit for party in parties]
            self.audits.append([[line.as_dict() for line in audit] for audit in self.openings])
        counters: dict[str, Any] = {"total": {"rounds": self.traffic.rounds}, "stages": {}}
        return Outcome(
            parts,
            Account(0.0, self.traffic.rounds, self.traffic.sent, [counters for _ in range(4)], self.audits[-1][0]),
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


@dataclass
class Ended:
    """What a program on arrays opened, what it cost, and what each server recorded."""

    value: Any
    traffic: Traffic
    audits: list[list[Opening]]


def run(
    program: Callable[..., Any], *inputs: Any, dtypes: tuple[RingType | None, ...] = (), tap: Tap | None = None
) -> Ended:
    """Shares `inputs` and runs ``async def program(*secret arrays)``. Results that are still secret are revealed to the
    test."""
    kinds = [*dtypes, *[None] * (len(inputs) - len(dtypes))]
    servers = LockstepServers(tap=tap)

    async def whole(party: Any, *arrays: SecretArray) -> Any:
        return sealed(await program(*arrays))

    parts = servers.run(whole, [share(values, kind) for values, kind in zip(inputs, kinds, strict=True)], {}).parts
    assert servers.traffic is not None
    return Ended(unsealed(parts), servers.traffic, servers.openings)


def sealed(value: Any) -> Any:
    if isinstance(value, SecretArray):
        return value.reveal("test", why="test")
    if isinstance(value, list | tuple):
        return [sealed(item) for item in value]
    return value
