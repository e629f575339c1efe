"""The forms "new-rows", "new-columns" and "coordinates": uploaded rows in units of a kept model, read a batch at a
time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ..algorithms.input_ranges import Ranges, table_bound, table_projections
from ..protocol import Party, SecretArray
from .errors import Refusal
from .input_checks import check_ranges
from .input_types import COORDINATE, row_type
from .spec import COORDINATES, Data, JobSpec
from .uploads import JobUploads, align

NUMBERS = 1 << 19
"""Numbers of joint rows worked on at a time, however many rows there are."""


@dataclass
class SharedRows:
    """New rows. count: their number, which servers see. batches: reads all rows again.

    common: whether they are the rows that several owners have in common. tags: of these rows, if they were joined by
    tags.
    """

    count: int
    batches: Callable[[], Iterator[SecretArray]]
    common: bool = False
    tags: NDArray[np.uint64] | None = None


async def enter(party: Party, job: JobSpec, uploads: JobUploads) -> SharedRows:
    """Return the uploaded rows. Raises `NoResult` if the owners have too few in common.

    If several column owners are checked, what they sent must be in range (`input_checks`).
    """
    data = job.data
    if data.align is None:
        rows = sum(spool.rows for spool in uploads.rows.values())
        check_number(rows, data.rows_at_least)
        return SharedRows(rows, partial(_own_rows, party, uploads, data))
    with party.stage("align"):
        aligned = align(party, uploads, data)
    check_number(aligned.rows, data.rows_at_least)
    batches = partial(_common_rows, party, uploads, aligned.rows, data)
    owners = data.checked_owners
    if owners is not None and len(owners) > 1:
        with party.stage("input checks"):
            await _check(party, uploads, aligned.rows, batches(), data, owners)
    return SharedRows(aligned.rows, batches, common=True, tags=aligned.tags)


def check_number(rows: int, least: int | None) -> None:
    """Refuse fewer rows than the job or an operator asks for. Servers see the number of new rows."""
    if not rows:
        raise Refusal("there are zero new rows. Contribute at least one row")
    if least is not None and rows < least:
        raise Refusal(
            f"there are {rows:,} new rows; this job needs at least {least:,} (rows_at_least). Nothing was computed."
        )


async def _check(
    party: Party, uploads: JobUploads, rows: int, batches: Iterator[SecretArray], data: Data, owners: Sequence[str]
) -> None:
    """Refuse owners whose new rows are out of range: their squares would overflow, and scores would be of no rows at
    all."""
    kind = row_type(data.standardize)
    widths = [spool.width // kind.limbs for _, spool in sorted(uploads.rows.items())]
    ranges, whose = Ranges(len(widths)), np.repeat(np.arange(len(widths)), widths)
    sums = table_projections(party, (batch.data for batch in batches), whose, len(widths))
    for number, width in enumerate(widths):
        bound = table_bound(rows * width, kind.frac + kind.span)
        ranges.between(sums[number], -bound, bound, np.full(sums.shape[1], number))
    await check_ranges(party, ranges, owners)


def _own_rows(party: Party, uploads: JobUploads, data: Data) -> Iterator[SecretArray]:
    """The rows of all owners, one owner after the other, a batch at a time."""
    kind = COORDINATE if data.form == COORDINATES else row_type(data.standardize)
    total, done = sum(spool.rows for spool in uploads.rows.values()), 0
    for _, spool in sorted(uploads.rows.items()):
        step = max(1, NUMBERS // max(1, spool.width // kind.limbs))
        for start in range(0, spool.rows, step):
            party.progress(f"new rows, {done:,} of {total:,}", done / total)
            words = spool.take(slice(start, start + step))
            done += words.shape[1]
            yield SecretArray(party, words.reshape(2, words.shape[1], -1, kind.limbs), kind)


def _common_rows(party: Party, uploads: JobUploads, rows: int, data: Data) -> Iterator[SecretArray]:
    """The common rows with all columns side by side, a batch at a time."""
    kind = row_type(data.standardize)
    width = sum(spool.width for spool in uploads.rows.values()) // kind.limbs
    count = max(1, -(-rows * width // NUMBERS))
    for done, words in enumerate(uploads.chunks(rows, count)):
        party.progress(f"joint rows, batch {done + 1} of {count}", done / count)
        yield SecretArray(party, words.reshape(2, -1, width, kind.limbs), kind)
