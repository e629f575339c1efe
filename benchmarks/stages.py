"""Measure how long the stages of a job took, on the slowest of the four servers."""

from __future__ import annotations

from ppca.runtime import Account


def stage_seconds(account: Account) -> dict[str, float]:
    """Seconds by stage, waiting included."""
    seconds: dict[str, float] = {}
    for server in account.stages:
        for stage, counters in server["stages"].items():
            if "work" in counters:
                seconds[stage] = max(seconds.get(stage, 0.0), float(counters["work"]["elapsed"]))
    return seconds
