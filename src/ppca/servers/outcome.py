"""Putting together what four servers answer: public values must agree, sealed ones are unsealed here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..protocol import InconsistentShares, Sealed, unseal
from ..transport import seat_name
from .codec import PerSeat
from .failure import ServersFailed
from .programs import Ran


@dataclass
class Account:
    """The account of a run: time, rounds, payload bytes per seat, traffic by stage, and everything that was opened.

    Rounds and bytes include the key agreement at the start of a run: 1 round, of which `stages` tells.
    """

    seconds: float
    rounds: int
    bytes_sent: list[int]
    stages: list[dict[str, Any]]
    audit: list[dict[str, Any]]


def combine(runs: list[Ran]) -> tuple[Any, Account]:
    """The client's view of a run: its result and its report. `runs` are by seat."""
    totals = [ran.stats["total"] for ran in runs]
    _check_traffic(totals)
    audits = [ran.audit for ran in runs]
    if any(audit != audits[0] for audit in audits[1:]):
        raise InconsistentShares("the servers' audit logs differ; the result was not used")
    report = Account(
        seconds=max(ran.seconds for ran in runs),
        rounds=totals[0]["rounds"],
        bytes_sent=[total["bytes_sent"] for total in totals],
        stages=[ran.stats for ran in runs],
        audit=audits[0],
    )
    return merge([ran.result for ran in runs]), report


def _check_traffic(totals: list[dict[str, Any]]) -> None:
    """All that was sent was received, in equally many rounds: a program that forgets a message is noticed here."""
    rounds = [total["rounds"] for total in totals]
    if len(set(rounds)) > 1:
        raise ServersFailed(
            f"the servers took {rounds} rounds (by seat): all must run the same program on the same job. "
            "The result was not used."
        )
    for sender, total in enumerate(totals):
        for receiver, sent in enumerate(total["sent_to"]):
            received = totals[receiver]["received_from"][sender]
            if sent != received:
                raise ServersFailed(
                    f"{seat_name(sender)} sent {sent} bytes to {seat_name(receiver)}, which expected {received}: a round "
                    "of the program is not the same on all servers. The result was not used."
                )


def merge(values: list[Any], where: str = "the result") -> Any:
    """One value from four equal structures."""
    first = values[0]
    if any(_form(value) != _form(first) for value in values[1:]):
        raise InconsistentShares(f"{where} has not the same form on all servers; it was not used")
    if isinstance(first, Sealed):
        return unseal(values)
    if isinstance(first, PerSeat):
        return [value.value for value in values]
    if isinstance(first, list | tuple):
        return [merge(list(items), f"{where}[{i}]") for i, items in enumerate(zip(*values, strict=True))]
    if isinstance(first, dict):
        return {key: merge([value[key] for value in values], f"{where}[{key!r}]") for key in first}
    if not all(_same(first, other) for other in values[1:]):
        raise InconsistentShares(f"{where} is a public value that differs between the servers; it was not used")
    return first


def _form(value: Any) -> Any:
    """What must be equal before values can be compared or merged part by part."""
    if isinstance(value, list | tuple):
        return list, len(value)
    if isinstance(value, dict):
        return dict, set(value)
    return type(value)


def _same(first: Any, other: Any) -> bool:
    a, b = np.asarray(first), np.asarray(other)
    return a.dtype == b.dtype and bool(np.array_equal(a, b, equal_nan=a.dtype.kind in "fc"))


def combined(runs: Sequence[Account]) -> Account:
    """The account of a job that took several runs on the same servers."""
    audit = [line for run in runs for line in run.audit]
    return Account(
        seconds=sum(run.seconds for run in runs),
        rounds=sum(run.rounds for run in runs),
        bytes_sent=[sum(sent) for sent in zip(*(run.bytes_sent for run in runs), strict=True)],
        stages=[_added([run.stages[seat] for run in runs]) for seat in range(len(runs[0].stages))],
        audit=[{**line, "number": number} for number, line in enumerate(audit, start=1)],
    )


def _added(stats: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One server's counters of several runs; a stage that occurs in more than one is counted once."""
    stages: dict[str, dict[str, Any]] = {}
    for one in stats:
        for name, counters in one["stages"].items():
            stages[name] = _sum(stages[name], counters) if name in stages else counters
    total = stats[0]["total"]
    for one in stats[1:]:
        total = _sum(total, one["total"])
    return {"stages": stages, "total": total}


def _sum(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Counters are numbers, lists of numbers by peer, or counters themselves."""
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
