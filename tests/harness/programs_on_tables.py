"""Server programs for tests; apart, because servers load the whole file."""

from __future__ import annotations

from typing import Any

import numpy as np

from ppca.algorithms.second_moments import Blocks, second_moments
from ppca.jobs.pools import submitter
from ppca.jobs.spool import Spool
from ppca.jobs.uploads import JobUploads
from ppca.protocol import Party, SecretArray
from ppca.runtime import PerServer


async def rows_in_memory(party: Party) -> PerServer:
    """Return the bytes of uploaded rows that each server still holds in memory."""
    return PerServer(Spool.in_memory)


async def moments(
    party: Party, *inputs: SecretArray, tables: list[int], rows: int, starts: list[int], workers: int | str
) -> Any:
    """The sums of the rows of several tables, opened: products and columns, computed in six chunks by the workers."""
    uploads = JobUploads(party.seat)
    for table, part in zip(tables, inputs, strict=True):
        spool = uploads.rows.setdefault(table, Spool(part.shape[1] * part.dtype.limbs))
        spool.append(len(part), [(False, np.ascontiguousarray(split)) for split in part.data])
    with submitter(workers) as (submit, ahead):
        source = uploads.chunks(rows, 6)
        products, columns = await second_moments(party, source, 6, Blocks(tuple(starts), True), submit, ahead)
    uploads.close()
    return {"products": products.reveal(why="test"), "columns": columns.reveal(why="test")}
