"""A fit of owners of rows: every owner passes over its table once, and sends shares of its sums once; or of few long rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..jobs import rows as programs
from ..jobs import wide_rows
from ..jobs.loading import as_data
from ..jobs.spec import MEAN, Data, JobSpec, local_owners, numbered
from ..owner.rows import gap_sums_of, share_gap_sums, share_sums, sums_of
from ..owner.tables.records import Records
from ..owner.tables.table import Table
from ..owner.wide import WideRows, padded
from ..protocol import InputPacket
from ..receiver.unsealing import received
from .columns import upload
from .job import Job


def counts_means(tables: Sequence[Table]) -> bool:
    """Whether missing values count as the joint mean: if one owner wants so, all send the same parts, and none shows by that
    whether it misses any. An owner whose table refuses missing values refuses them still."""
    return any(table.mean_for_missing for table in tables)


def wide_records(tables: Sequence[Table]) -> list[Records] | None:
    """All owners' rows, if with those of zeros they are fewer than columns; else None, after a look at no more rows than that."""
    return [Records.of(table) for table in tables] if are_wide(tables) else None


def are_wide(tables: Sequence[Table]) -> bool:
    """Whether all owners' rows, with those of zeros, are fewer than columns."""
    width, rows = tables[0].n_columns, len(tables) * padded(1)
    if rows > width or counts_means(tables):
        return False
    for table in tables:
        rows -= padded(1)
        count = 0
        for size in [table.rows] if table.rows is not None else map(len, table.chunks(check=False)):
            count += size
            if rows + padded(count) >= width:
                return False
        rows += padded(count)
    return True


def row_data(form: str, owners: int, width: int, **more: Any) -> Data:
    """Return the data of so many row owners on local servers."""
    return Data(form=form, owners=local_owners(owners), columns=numbered(width), **more)


def fit_wide_rows(job: Job, owners: Sequence[Records], spec: JobSpec) -> dict[str, Any]:
    """The same from all owners' rows, if these are fewer than columns."""
    parts = [WideRows.of(owner, spec.data.standardize) for owner in owners]
    with job.table() as table:
        pieces = (piece for number, part in enumerate(parts) for piece in part.pieces(number))
        upload(job, table, pieces, sum(len(part.mean) for part in parts))
        packets = [packet for part in parts for packet in part.share_sums()]
        return received(job.run(wide_rows.fit, *packets, table=table, job=as_data(spec)))


def fit_rows(job: Job, tables: Sequence[Table], spec: JobSpec) -> dict[str, Any]:
    """What the servers returned."""
    owners = [_sent(table, number, len(tables), spec.data.missing == MEAN, job) for number, table in enumerate(tables)]
    packets = [packet for owner in owners for packet in owner]
    return received(job.run(programs.fit, *packets, job=as_data(spec)))


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
