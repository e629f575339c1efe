"""A fit of owners of rows: their sums go to the servers as shares, after a survey of counts and scales."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..jobs import rows as programs
from ..owner import rows as owner_rows
from ..owner.moments import Moments
from ..owner.tables.table import Table
from .job import Job

Scale = NDArray[np.int64]


def sums_of(tables: Sequence[Table], job: Job) -> list[Moments]:
    """Every owner's pass over its table."""
    return [_pass(table, number / len(tables), len(tables), job) for number, table in enumerate(tables)]


def _pass(table: Table, before: float, tables: int, job: Job) -> Moments:
    def show(done: int, total: int | None) -> None:
        part = done / total / tables if total else 0.0
        job.progress(f"owners, {table.label}: {done:,} rows", before + part)

    sums = owner_rows.sums_of(table, show)
    job.progress(f"owners, {table.label}: {sums.count:,} rows", before + 1 / tables)
    return sums


def fit_rows(
    job: Job,
    owners: Sequence[Moments],
    bounds: Any,
    choices: dict[str, Any],
    check_rows: Callable[[int], None],
    add_to: str | None = None,
) -> tuple[dict[str, Any], Scale]:
    """What the servers returned, and the public scale exponents of the columns. `add_to`: kept sums that these are added to."""
    count, scale = survey(job, owners, bounds, choices["standardize"])
    check_rows(count)
    packets = [packet for owner in owners for packet in owner_rows.share_moments(owner, count, scale)]
    return job.run(programs.fit, *packets, rows=count, add_to=add_to, choices=choices), scale


def survey(job: Job, owners: Sequence[Moments], bounds: Any, per_column: bool) -> tuple[int, Scale]:
    """The joint number of rows and the public scale exponents."""
    width = len(owners[0].mean)
    shared = [owner_rows.share_survey(owner.count, owner.largest, per_column) for owner in owners]
    if isinstance(bounds, str):
        if bounds != "auto":
            raise ValueError(f"bounds={bounds!r}: use 'auto', a number, or one number per column")
        answer = job.run(programs.survey, *[packet for pair in shared for packet in pair])
        return answer["rows"], owner_rows.joint_scale(answer["exponents"], width)
    scale = owner_rows.declared_scale(bounds, width, per_column)
    for owner in owners:
        owner_rows.check_within(owner.label, owner.names, owner.largest, np.ldexp(1.0, scale))
    return job.run(programs.count_rows, *[pair[0] for pair in shared]), scale
