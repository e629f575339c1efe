"""Putting together what four servers answer: public values must agree, sealed ones are unsealed here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..protocol import InconsistentShares, Sealed, unseal


@dataclass
class RunReport:
    """The account of a run: time, rounds, payload bytes per seat, traffic by stage, and everything that was opened."""

    seconds: float
    rounds: int
    bytes_sent: list[int]
    stages: list[dict[str, Any]]
    audit: list[dict[str, Any]]


@dataclass(frozen=True)
class PerSeat:
    """A public value that may differ between servers (a measurement): the client gets the list of all four."""

    value: Any


def combine(answers: list[dict[str, Any]]) -> tuple[Any, RunReport]:
    """The client's view of a run: its value and its report. `answers` are by seat."""
    totals = [answer["stats"]["total"] for answer in answers]
    audits = [answer["audit"] for answer in answers]
    if any(audit != audits[0] for audit in audits[1:]):
        raise InconsistentShares("the servers' audit logs differ; the result was not used")
    report = RunReport(
        seconds=max(answer["seconds"] for answer in answers),
        rounds=totals[0]["rounds"],
        bytes_sent=[total["bytes_sent"] for total in totals],
        stages=[answer["stats"] for answer in answers],
        audit=audits[0],
    )
    return merge([answer["value"] for answer in answers]), report


def merge(values: list[Any]) -> Any:
    """One value from four equal structures."""
    first = values[0]
    if isinstance(first, Sealed):
        return unseal(values)
    if isinstance(first, PerSeat):
        return [value.value for value in values]
    if isinstance(first, list | tuple):
        return [merge(list(items)) for items in zip(*values, strict=True)]
    if isinstance(first, dict):
        return {key: merge([value[key] for value in values]) for key in first}
    if any(not np.array_equal(np.asarray(first), np.asarray(other)) for other in values[1:]):
        raise InconsistentShares("the servers returned different public values; the result was not used")
    return first
