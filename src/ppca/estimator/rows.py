"""A fit of owners of rows: every owner passes over its table once, and sends shares of its sums once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..jobs import rows as programs
from ..owner.moments import Moments
from ..owner.rows import share_sums, sums_of
from ..owner.tables.table import Table
from .job import Job


def fit_rows(job: Job, tables: Sequence[Table], choices: dict[str, Any], add_to: str | None = None) -> dict[str, Any]:
    """What the servers returned. `add_to`: the name of kept sums that these are added to."""
    sums = [_pass(table, number, len(tables), job) for number, table in enumerate(tables)]
    packets = [packet for owner in sums for packet in share_sums(owner, len(tables))]
    found: dict[str, Any] = job.run(programs.fit, *packets, add_to=add_to, choices=choices)
    return found


def _pass(table: Table, before: int, tables: int, job: Job) -> Moments:
    """One owner's pass over its table, with its progress."""

    def show(done: int, total: int | None) -> None:
        part = done / total if total else 0.0
        job.progress(f"owners, {table.label}: {done:,} rows", (before + part) / tables)

    sums = sums_of(table, show)
    show(sums.count, sums.count)
    return sums
