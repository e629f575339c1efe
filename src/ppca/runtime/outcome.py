"""The answers of four servers to one program, and the account of its costs and openings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from ..protocol import InconsistentShares
from ..transport import server_name
from .execute import Ran
from .failure import ServersFailed


@dataclass
class Account:
    """Costs of a run or a job: time, rounds, payload bytes per server, traffic by stage; and the list of all openings.

    Rounds and bytes include the key agreement at the start of a run: 1 round, which is a stage of its own.
    """

    seconds: float
    rounds: int
    bytes_sent: list[int]
    stages: list[dict[str, Any]]
    audit: list[dict[str, Any]]

    @classmethod
    def total(cls, accounts: Sequence[Account]) -> Self:
        """The account of several runs on the same servers."""
        audit = [line for one in accounts for line in one.audit]
        return cls(
            seconds=sum(one.seconds for one in accounts),
            rounds=sum(one.rounds for one in accounts),
            bytes_sent=[sum(sent) for sent in zip(*(one.bytes_sent for one in accounts), strict=True)],
            stages=[_added([one.stages[server] for one in accounts]) for server in range(len(accounts[0].stages))],
            audit=[{**line, "number": number} for number, line in enumerate(audit, start=1)],
        )


@dataclass(frozen=True)
class Outcome:
    """The results of a program and the account of the run.

    parts: the result of each server, in which values for a receiver are still sealed.
    """

    parts: list[Any]
    account: Account

    @classmethod
    def of(cls, runs: Sequence[Ran]) -> Self:
        """Combine the reports of the four servers.

        Raise ServersFailed if their rounds or traffic differ, InconsistentShares if their audit logs differ.
        """
        totals = [ran.stats["total"] for ran in runs]
        _check_traffic(totals)
        audits = [ran.audit for ran in runs]
        if any(audit != audits[0] for audit in audits[1:]):
            raise InconsistentShares("the servers' audit logs differ; the result was not used")
        account = Account(
            seconds=max(ran.seconds for ran in runs),
            rounds=totals[0]["rounds"],
            bytes_sent=[total["bytes_sent"] for total in totals],
            stages=[ran.stats for ran in runs],
            audit=audits[0],
        )
        return cls([ran.result for ran in runs], account)


def _check_traffic(totals: list[dict[str, Any]]) -> None:
    """Raise ServersFailed unless all servers had the same number of rounds, and each received what was sent to it."""
    rounds = [total["rounds"] for total in totals]
    if len(set(rounds)) > 1:
        raise ServersFailed(
            f"the servers took {rounds} rounds (by server): all must run the same program on the same job. "
            "The result was not used."
        )
    for sender, total in enumerate(totals):
        for receiver, sent in enumerate(total["sent_to"]):
            received = totals[receiver]["received_from"][sender]
            if sent != received:
                raise ServersFailed(
                    f"{server_name(sender)} sent {sent} bytes to {server_name(receiver)}, which expected {received}: "
                    "a round of the program is not the same on all servers. The result was not used."
                )


def _added(stats: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Add the counters of one server over several runs, stage by stage."""
    stages: dict[str, dict[str, Any]] = {}
    for one in stats:
        for name, counters in one["stages"].items():
            stages[name] = _sum(stages[name], counters) if name in stages else counters
    total = stats[0]["total"]
    for one in stats[1:]:
        total = _sum(total, one["total"])
    return {"stages": stages, "total": total}


def _sum(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Add two counters: numbers, lists of numbers by peer, or dictionaries of counters."""
    added: dict[str, Any] = {}
    for key in first | second:
        value, other = first.get(key), second.get(key)
        if value is None or other is None:
            added[key] = other if value is None else value
        elif isinstance(value, dict):
            added[key] = _sum(value, other)
        else:
            added[key] = (
                [a + b for a, b in zip(value, other, strict=True)] if isinstance(value, list) else value + other
            )
    return added
