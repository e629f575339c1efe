"""Servers for tests: four seats in lock-step in one thread, with everything each of them receives on record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from ppca.protocol import InputPacket, SecretArray, local_parties, run_lockstep, share
from ppca.servers.outcome import Account, merge
from ppca.servers.programs import TAKES_PACKETS


@dataclass(eq=False)
class SeatsInStep:
    """The interface of `LocalServers`, as far as the estimator uses it.

    views: by seat, all that came in: the packets of owners and the messages of the other seats, in order.
    audits: of every run, the openings as each seat recorded them.
    public: the public parameters of every run, which all seats see.
    """

    report: Account | None = None
    record: bool = False
    views: list[list[bytes]] = field(default_factory=lambda: [[] for _ in range(4)])
    audits: list[list[list[dict[str, Any]]]] = field(default_factory=list)
    public: list[dict[str, Any]] = field(default_factory=list)
    stores: list[dict[str, Any]] = field(default_factory=lambda: [{} for _ in range(4)])
    tables: list[dict[str, Any]] = field(default_factory=lambda: [{} for _ in range(4)])

    def run(self, program: Callable[..., Any], /, *secret: Any, progress: Any = None, **public: Any) -> Any:
        packets = [_packets(value) for value in secret]
        self.public.append(public)
        parties = local_parties()
        for party, store, tables in zip(parties, self.stores, self.tables, strict=True):
            party.store, party.tables = store, tables
        if self.record:
            for seat, view in enumerate(self.views):
                view += [part for packet in packets for part in (packet[seat].row, packet[seat].column)]

        def tap(sender: int, receiver: int, message: Any) -> None:
            if self.record:
                self.views[receiver].append(message.tobytes())

        async def whole(seat: int) -> Any:
            raw = getattr(program, TAKES_PACKETS, False)
            inputs = [
                packet[seat] if raw else SecretArray.from_packet(parties[seat], packet[seat]) for packet in packets
            ]
            return await program(parties[seat], *inputs, **public)

        programs = [whole(seat) for seat in range(4)]
        try:
            results, traffic = run_lockstep(programs, tap)
        finally:
            for one in programs:
                one.close()
        audits = [[line.as_dict() for line in party.audit] for party in parties]
        self.audits.append(audits)
        counters: dict[str, Any] = {"total": {"rounds": traffic.rounds}, "stages": {}}
        self.report = Account(0.0, traffic.rounds, traffic.sent, [counters for _ in range(4)], audits[0])
        return merge(results)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


def _packets(value: Any) -> list[InputPacket]:
    if isinstance(value, list) and value and isinstance(value[0], InputPacket):
        return value
    return share(np.asarray(value))
