"""The sums of an owner whose table is a Dask frame or array, computed on the owner's own Dask cluster.

Each worker sums its parts of the table with `moments` or `gap_sums`; the sums (d^2 or 4 d^2 numbers) are merged pairwise on the
workers, and one set of sums comes back. The result differs from one pass by rounding only: see `Moments.merge`, `GapSums.merge`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, TypeVar

from .errors import OwnerError
from .gaps import GapSums
from .moments import Moments, Progress
from .tables.dask import DaskTable

S = TypeVar("S", Moments, GapSums)


def sums_on_dask(table: DaskTable, sums: Callable[..., S], progress: Progress | None = None) -> S | None:
    """The sums of a Dask table, computed by the workers of the client in use; None if there is no client.

    sums: `moments` or `gap_sums`.
    """
    try:
        import distributed

        client: Any = distributed.get_client()
    except (ImportError, ValueError):
        return None
    try:
        blocks = table.blocks()
        bare = copy.copy(table)
        bare.data = None
        parts = client.map(_sum_block, client.compute(blocks), [bare] * len(blocks), sums=sums, pure=False)
        total: S = _merged(distributed, client, list(parts), table.label, progress)
        return total
    except (distributed.KilledWorker, distributed.comm.CommClosedError) as error:
        raise OwnerError(
            f"{table.label}: the Dask cluster lost its workers ({error}). Restart it and run again."
        ) from error


def _merged(distributed: Any, client: Any, parts: list[Any], label: str, progress: Progress | None) -> Any:
    """Merge neighbours until one is left. Waits for the parts first, so that an error names the part it came from."""
    done = 0
    counts = client.map(_count, parts, pure=False)
    for _, count in distributed.as_completed(counts, loop=client.loop, with_results=True):
        done += count
        if progress is not None:
            progress(done, None)
    if done == 0:
        raise OwnerError(f"{label}: the table has no rows. An owner needs at least one.")
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=False)
        merged = [client.submit(_merge, left, right, pure=False) for left, right in pairs]
        parts = merged + parts[len(parts) - len(parts) % 2 :]
    return parts[0].result()


def _sum_block(block: Any, table: DaskTable, sums: Callable[..., S]) -> S | None:
    part = table.part(block)
    return None if part is None else sums(part, threads=1)


def _count(part: Moments | GapSums | None) -> int:
    return 0 if part is None else part.count


def _merge(left: S | None, right: S | None) -> S | None:
    if left is None or right is None:
        return left or right
    return left.merge(right)
