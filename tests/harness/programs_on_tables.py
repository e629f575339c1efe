"""Server programs for tests; apart, because servers load the whole file."""

from __future__ import annotations

from typing import Any

from ppca.algorithms.second_moments import Blocks, second_moments
from ppca.jobs.pools import submitter
from ppca.jobs.uploads import Uploads, forget
from ppca.protocol import Party
from ppca.runtime.codec import PerServer


async def count_tables(party: Party) -> PerServer:
    """Return how many uploads each server still holds."""
    return PerServer(len(party.tables))


async def moments(party: Party, *, table: str, rows: int, starts: list[int], workers: int | str) -> Any:
    """The sums of a job, opened: products and columns, computed in six pieces by the workers."""
    with submitter(workers) as (submit, ahead):
        source = Uploads.of(party, table).pieces(rows, 6)
        products, columns = await second_moments(party, source, 6, Blocks(tuple(starts), True), submit, ahead)
    await forget(party, table=table)
    return {"products": products.reveal(why="test"), "columns": columns.reveal(why="test")}
