"""The account of a job in lines: traffic by stage, and everything that was opened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...html import formats
from ...native import clock
from ...runtime import Account

RECEIVERS = {"servers": "all servers", "client": "receiver"}
"""Display names of recipients of opened values; other names are receivers of the job."""


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
    """Equal openings in a row of their own: `count` values of this shape were opened to this receiver for this
    reason."""

    what: str
    shape: tuple[int, ...]
    to: str
    why: str
    count: int

    @property
    def shape_text(self) -> str:
        return formats.shape(self.shape)


def stage_lines(run: Account) -> list[StageLine]:
    """Stages in the order in which they began; what happened outside of any is called 'other'."""
    names = dict.fromkeys(name for server in run.stages for name in server["stages"])
    lines = []
    for name in names:
        parts = [server["stages"][name] for server in run.stages if name in server["stages"]]
        sent = max(part["bytes_sent"] for part in parts)
        waited = sum(part["seconds"] for part in parts) / len(parts)
        work = [part.get("work", {}) for part in parts]
        elapsed, products, fss = (
            sum(one.get(kind, 0.0) for one in work) / len(work) for kind in ("elapsed", clock.PRODUCTS, clock.FSS)
        )
        lines.append(StageLine(name or "other", parts[0]["rounds"], sent, waited, max(elapsed, waited), products, fss))
    return lines


@dataclass(frozen=True)
class KindLine:
    """Bytes of the busiest server for one kind of message in one stage."""

    stage: str
    kind: str
    sent: int


def kind_lines(run: Account) -> list[KindLine]:
    """Return where the bytes went: stages in the order in which they began, in each the largest first."""
    busiest = max(run.stages, key=lambda server: int(server["total"]["bytes_sent"]))
    lines = []
    for stage, counters in busiest["stages"].items():
        kinds = sorted(counters.get("kinds", {}).items(), key=lambda item: -item[1])
        lines += [KindLine(stage, kind, sent) for kind, sent in kinds if sent]
    return lines


def opening_lines(audit: Sequence[dict[str, Any]]) -> list[OpeningLine]:
    """The audit with equal openings grouped, in the order of their first appearance."""
    counts: dict[tuple[str, tuple[int, ...], str, str], int] = {}
    for line in audit:
        key = (line["what"], tuple(line["shape"]), RECEIVERS.get(line["to"], line["to"]), line["why"])
        counts[key] = counts.get(key, 0) + 1
    return [OpeningLine(*key, count) for key, count in counts.items()]
