"""The account of a job in lines: traffic by stage, and everything that was opened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..cluster import RunReport
from ..native import clock
from . import amounts

RECEIVERS = {"servers": "all servers", "client": "receiver"}
"""Who got to see an opened value; other names are receivers as the job named them."""


@dataclass(frozen=True)
class StageLine:
    """One stage of a job. `sent` is what the busiest server sent; times are means of the servers: `waited` in rounds,
    `products` in local ring products, `fss` in making and evaluating keys, `elapsed` in all."""

    name: str
    rounds: int
    sent: int
    waited: float
    elapsed: float
    products: float
    fss: float


@dataclass(frozen=True)
class OpeningLine:
    """Equal openings in a row of their own: `count` values of this shape were opened to this receiver for this reason."""

    what: str
    shape: tuple[int, ...]
    to: str
    why: str
    count: int

    @property
    def shape_text(self) -> str:
        return amounts.shape(self.shape)


def stage_lines(run: RunReport) -> list[StageLine]:
    """Stages in the order in which they began; what happened outside of any is called 'other'."""
    names = dict.fromkeys(name for seat in run.stages for name in seat["stages"])
    lines = []
    for name in names:
        parts = [seat["stages"][name] for seat in run.stages if name in seat["stages"]]
        sent = max(part["bytes_sent"] for part in parts)
        waited = sum(part["seconds"] for part in parts) / len(parts)
        work = [part.get("work", {}) for part in parts]
        elapsed, products, fss = (
            sum(one.get(kind, 0.0) for one in work) / len(work) for kind in ("elapsed", clock.PRODUCTS, clock.FSS)
        )
        lines.append(StageLine(name or "other", parts[0]["rounds"], sent, waited, max(elapsed, waited), products, fss))
    return lines


def opening_lines(audit: Sequence[dict[str, Any]]) -> list[OpeningLine]:
    """The audit with equal openings grouped, in the order of their first appearance."""
    counts: dict[tuple[str, tuple[int, ...], str, str], int] = {}
    for line in audit:
        key = (line["what"], tuple(line["shape"]), RECEIVERS.get(line["to"], line["to"]), line["why"])
        counts[key] = counts.get(key, 0) + 1
    return [OpeningLine(*key, count) for key, count in counts.items()]


def combined(runs: Sequence[RunReport]) -> RunReport:
    """The account of a job that took several runs on the same servers."""
    audit = [line for run in runs for line in run.audit]
    return RunReport(
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
