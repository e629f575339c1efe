"""A whole job of a federation in this process: four servers' own stores and checks, and their programs in lock-step.

Everything between an owner's envelopes and the result of an attempt is the code of the servers; only the network, the
processes and the eigensolver's clock are left out. A test can send anything as an owner.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from harness.federation import IDENTITIES, MEMBERSHIP, OPERATORS, RECEIVER_KEY, ended, make, server_state
from ppca.federation.envelopes import Envelopes, result_info
from ppca.federation.membership import Membership
from ppca.federation.objects import Object
from ppca.federation.proposal import ProposedJob
from ppca.federation.sealing import seal
from ppca.federation.state import Objects
from ppca.jobs.forms import compute, digest_of
from ppca.jobs.loading import job_of
from ppca.jobs.registry import openings
from ppca.jobs.uploads import JobUploads
from ppca.member import contributing
from ppca.member.fetching import KINDS, Evidence
from ppca.owner.tables.options import DEFAULTS
from ppca.protocol import Traffic, local_parties, run_lockstep
from ppca.protocol.opening import limits
from ppca.receiver.unsealing import unsealed
from ppca.runtime.control import Message, MessageReader, encode
from ppca.server.checking import Checker, answer
from ppca.server.job_runner import JobRunner
from ppca.server.keys import JOB

GROUP_KEY = bytes(16)


class CheckerHere(Checker):
    """Opens contributions in this process: the same code without the process around it."""

    def _ask(self, seconds: float, request: dict[str, Any]) -> Message:
        said = b"".join(answer({"memory": self._memory, **request}))
        reader, stream = MessageReader(), io.BytesIO(said)
        while (message := reader.read(SimpleNamespace(recv_into=stream.readinto))) is None:  # type: ignore[arg-type]
            pass
        return message


class Owner:
    """Stands for the client of a member while it fills its envelopes."""

    def __init__(self, name: str) -> None:
        self.name = name

    def group_key(self, *_: Any) -> bytes:
        return GROUP_KEY


class FourServers:
    """The stores of four servers, for any number of jobs."""

    def __init__(self, folder: Path, membership: Membership = MEMBERSHIP) -> None:
        policy = {"jobs_per_member": 1000, "jobs_per_day": 10000}
        self.server_states = [
            server_state(folder / str(server), membership, server, policy=policy) for server in range(4)
        ]
        self.job_runners = [JobRunner(one, None) for one in self.server_states]  # type: ignore[arg-type]
        for one in self.job_runners:
            one.shares._checker = CheckerHere(one.server_state.settings.file.policy.input_bytes)

    def close(self) -> None:
        for one in self.server_states:
            one.mailbox.close()


class WholeJob:
    """One job at four servers, with everyone's offers and approvals."""

    def __init__(self, servers: FourServers, job: ProposedJob) -> None:
        self.job = job
        self.server_states, self.job_runners = servers.server_states, servers.job_runners
        self.traffic: Traffic | None = None
        self.audit: list[dict[str, Any]] = []
        self.parts: list[Any] = []
        first = next(iter(job.spec.receivers))
        self.tell(make(first, "job", job, job.data))
        self.keys = [one.keys.make(JOB, job.id).public for one in self.server_states]
        self.tell(*(make(OPERATORS[server], "offer", job, key, server=server) for server, key in enumerate(self.keys)))
        self.tell(*(make(name, "approval", job) for name in job.proposal.approvers))

    def tell(self, *items: Object) -> None:
        for item in items:
            for server, one in enumerate(self.server_states):
                if item.header.kind != "envelope" or item.header.about["to"] == server:
                    one.admit(item, item.header.author)

    def send(self, owner: str, fill: Callable[[Envelopes], Any]) -> list[str]:
        """An owner fills its envelopes and contributes; returns why servers refuse it, by server."""
        made: list[Object] = []
        envelopes = Envelopes(IDENTITIES[owner], self.job.id, self.keys, made.append)
        fill(envelopes)
        last = envelopes.finish()
        return self.deliver(owner, [*made, last])

    def deliver(self, owner: str, items: list[Object]) -> list[str]:
        self.tell(*items)
        found = []
        for one, job_runner in zip(self.server_states, self.job_runners, strict=True):
            job_runner.shares.check(self.job, owner, items[-1].digest)
            objects = Objects(one.mailbox.headers(self.job.id))
            refusal = objects.by("refusal", one.identity.name)
            received = (one.identity.name, owner) in objects.receipts()
            found.append("" if refusal is None else str(refusal.about["why"]))
            assert received != bool(found[-1])
        return found

    def contribute(self, owner: str, data: Any, id: str | None = None) -> list[str]:
        """Return what the client of an honest owner sends."""
        return self.send(owner, lambda envelopes: self.fill(owner, data, envelopes, id))

    def fill(self, owner: str, data: Any, envelopes: Any, id: str | None = None, min_rows: int = 1) -> None:
        table = contributing.table_of(self.job.spec.data, owner, data, id, DEFAULTS, min_rows)
        for chunk in contributing.chunks_of(Owner(owner), self.job, table):  # type: ignore[arg-type]
            contributing.add(envelopes, chunk, tables=self.job.spec.data.tables is not None)

    def evidence(
        self, receiver: str, change: Callable[[int, dict[str, Any]], Any] = lambda server, part: None
    ) -> Evidence:
        """What a receiver fetches after `run`. change: gets each server's part of the result before it is sealed."""
        items = {
            header.digest: one.mailbox.get(header.digest)
            for one in self.server_states
            for header in one.mailbox.headers(self.job.id)
            if header.kind in KINDS
        }
        found = [item for item in items.values() if item is not None]
        said = {item.header.author: item.digest for item in found if item.header.kind == "contribution"}
        found += [make(OPERATORS[0], "start", self.job, attempt=1), *(ended(self.job, name) for name in OPERATORS)]
        found += [make(to, "offer", self.job, RECEIVER_KEY.public, receiver=to) for to in self.job.spec.receivers]
        assert self.traffic is not None
        for server, (name, part) in enumerate(zip(OPERATORS, self.parts, strict=True)):
            mine = {**part, "to": {receiver: dict(part["to"].get(receiver, {}))}}
            change(server, mine["to"][receiver])
            info = result_info(self.job.id, receiver, server, 1, 0, 1)
            data = seal(b"".join(encode("result", result=mine)), RECEIVER_KEY.public, **info)
            result = make(name, "result", self.job, data, receiver=receiver, attempt=1)
            total = {"rounds": self.traffic.rounds, "bytes_sent": self.traffic.sent[server]}
            audit = {
                "attempt": 1,
                "server": server,
                "seconds": 1.0,
                "stats": {"total": total, "stages": {}},
                "audit": self.audit,
            }
            audit |= {"results": {receiver: [result.digest]}, "contributions": said}
            found += [result, make(name, "audit", self.job, json.dumps(audit).encode(), attempt=1, server=server)]
        return Evidence(self.server_states[0].membership, self.job, receiver, RECEIVER_KEY, found)

    def run(self) -> dict[str, Any]:
        """One attempt: the unsealed result. Raises what the program raises."""
        works = [job_runner.attempts.work(self.job, "start") for job_runner in self.job_runners]
        parties, job = local_parties(), job_of(works[0].job)
        uploads = [JobUploads(seat) for seat in range(4)]
        for party, work, mine in zip(parties, works, uploads, strict=True):
            party.openings = limits([line.rule() for line in openings(job)])
            party.store = dict(work.kept)
            for part in work.chunks:
                mine.add(part)
        assert len({digest_of(job_of(work.job), mine) for work, mine in zip(works, uploads, strict=True)}) == 1
        running = [compute(party, job, mine) for party, mine in zip(parties, uploads, strict=True)]
        try:
            self.parts, self.traffic = run_lockstep(running)
        finally:
            for one in running:
                one.close()
            self.audit = [line.as_dict() for line in parties[0].audit]
        self.stores = [party.store for party in parties]
        result: dict[str, Any] = unsealed(self.parts)
        return result


class Altered:
    """Envelopes of an owner with a modified client: `change` gets every message before it is sent."""

    def __init__(self, envelopes: Envelopes, change: Callable[[str, list[Any], dict[str, Any]], Any]) -> None:
        self._envelopes = envelopes
        self._change = change

    def add(self, kind: str, packets: Any, **fields: Any) -> None:
        found = self._change(kind, list(packets), fields)
        if found is not None:
            self._envelopes.add(*found[:2], **found[2])
