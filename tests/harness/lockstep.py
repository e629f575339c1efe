"""Four servers in lock-step in one thread: deterministic, with exact rounds and bytes, and every message on record.

`run` is for programs on arrays alone; `LockstepServers` has the interface of all servers, for whole jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

from ppca.jobs.chunks import Chunk
from ppca.jobs.forms import compute, digest_of
from ppca.jobs.kept import SUMS
from ppca.jobs.loading import as_data, job_of
from ppca.jobs.registry import openings
from ppca.jobs.spec import JobSpec
from ppca.jobs.uploads import JobUploads
from ppca.protocol import (
    InputPacket,
    Opening,
    Party,
    RingType,
    SecretArray,
    Traffic,
    local_parties,
    run_lockstep,
    share,
)
from ppca.protocol.opening import limits
from ppca.receiver.unsealing import unsealed
from ppca.runtime import Account, Outcome
from ppca.runtime.programs import load

Tap = Callable[[int, int, Any], None]
"""Called with sender, receiver and message."""


@dataclass(eq=False)
class LockstepServers:
    """Every run has fresh parties; stores stay, as those of processes do.

    record: whether to keep views. views: by server, all that came in: the packets of owners and the messages of the other
    servers, in order. audits: of every run, the openings as each server recorded them, as dictionaries; openings: of
    the last run,
    as they are. public: what all servers see of chunks and jobs. uploads, parties: of the last run, by server. traffic: of it.
    """

    record: bool = False
    tap: Tap | None = None
    views: list[list[bytes]] = field(default_factory=lambda: [[] for _ in range(4)])
    audits: list[list[list[dict[str, Any]]]] = field(default_factory=list)
    openings: list[list[Opening]] = field(default_factory=list)
    public: list[Mapping[str, Any]] = field(default_factory=list)
    stores: list[dict[str, Any]] = field(default_factory=lambda: [{} for _ in range(4)])
    uploads: list[JobUploads] = field(default_factory=list)
    parties: list[Party] = field(default_factory=list)
    traffic: Traffic | None = None
    running: bool = True

    def start(self) -> None:
        """They always run."""

    def stop(self) -> None:
        """There is nothing to stop."""

    @property
    def member(self) -> None:
        """See `Servers.member`."""

    @property
    def held(self) -> list[int]:
        """Number of uploaded rows of the last job that each server still holds."""
        return [sum(spool.rows for spool in uploads.rows.values()) for uploads in self.uploads]

    def erase(self, model: str) -> None:
        for store in self.stores:
            for name in (model, model + SUMS):
                store.pop(name, None)

    def run_job(self, job: JobSpec, chunks: Iterable[Chunk], progress: Any = None) -> Outcome:
        """See `Servers.run_job`."""
        job = job_of(as_data(job))  # as it reaches a server
        self.uploads = uploads = [JobUploads(seat) for seat in range(4)]
        try:
            for chunk in chunks:
                for seat in range(4):
                    uploads[seat].add(chunk.part(seat))
                    self.saw(seat, *chunk.part(seat).packets)
                about = {"table": chunk.table, "tags": chunk.tags, "order": chunk.order}
                self.public.append({name: value for name, value in about.items() if value is not None})
            self.public.append(as_data(job))
            assert len({digest_of(job, each) for each in uploads}) == 1
            rules = [line.rule() for line in openings(job)]
            return self._run([partial(compute, job=job, uploads=each) for each in uploads], rules)
        finally:
            for each in uploads:
                each.close()

    def run(
        self,
        program: Callable[..., Any] | str,
        inputs: Sequence[list[InputPacket]],
        public: Mapping[str, Any],
        progress: Any = None,
    ) -> Outcome:
        """Run a program of a developer."""
        called = load(program) if isinstance(program, str) else program

        def body(party: Party) -> Any:
            mine = [packets[party.seat] for packets in inputs]
            return called(party, *[SecretArray.from_packet(party, packet) for packet in mine], **public)

        for seat in range(4):
            self.saw(seat, *(packets[seat] for packets in inputs))
        return self._run([body] * 4, None)

    def saw(self, server: int, *packets: InputPacket) -> None:
        if self.record:
            self.views[server] += [part for packet in packets for part in (packet.row, packet.column)]

    def _run(self, bodies: Sequence[Callable[[Party], Any]], rules: list[dict[str, Any]] | None) -> Outcome:
        parties = self.parties = local_parties()
        for party, store in zip(parties, self.stores, strict=True):
            party.store = store
            party.openings = None if rules is None else limits(rules)

        def tap(sender: int, receiver: int, message: Any) -> None:
            if self.record:
                self.views[receiver].append(message.tobytes())
            if self.tap is not None:
                self.tap(sender, receiver, message)

        programs = [body(party) for body, party in zip(bodies, parties, strict=True)]
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
