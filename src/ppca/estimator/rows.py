"""A fit of owners of rows: every owner passes over its table once, and sends shares of its sums once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..jobs import rows as programs
from ..owner.rows import gap_sums_of, share_gap_sums, share_sums, sums_of
from ..owner.tables.table import Table
from ..protocol import InputPacket
from ..receiver.unsealing import received
from .job import Job


def counts_means(tables: Sequence[Table]) -> bool:
    """Whether missing values count as the joint mean: if one owner wants so, all send the same parts, and none shows by that
    whether it misses any. An owner whose table refuses missing values refuses them still."""
    return any(table.mean_for_missing for table in tables)


def fit_rows(job: Job, tables: Sequence[Table], choices: dict[str, Any], add_to: str | None = None) -> dict[str, Any]:
    """What the servers returned. `add_to`: the name of kept sums that these are added to."""
    means = counts_means(tables)
    owners = [_sent(table, number, len(tables), means, job) for number, table in enumerate(tables)]
    packets = [packet for owner in owners for packet in owner]
    return received(job.run(programs.fit, *packets, add_to=add_to, mean_for_missing=means, choices=choices))


def _sent(table: Table, before: int, tables: int, means: bool, job: Job) -> list[list[InputPacket]]:
    """What an owner sends after a pass over its table, with its progress."""

    def show(done: int, total: int | None) -> None:
        part = done / total if total else 0.0
        job.progress(f"owners, {table.label}: {done:,} rows", (before + part) / tables)

    if means:
        gaps = gap_sums_of(table, show)
        show(gaps.count, gaps.count)
        return share_gap_sums(gaps, tables)
    sums = sums_of(table, show)
    show(sums.count, sums.count)
    return share_sums(sums, tables)
