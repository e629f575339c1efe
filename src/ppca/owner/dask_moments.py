"""Compute an owner's sums on its own Dask cluster, from a Dask frame or array, or from files that the workers can read.

1. The table is split into parts: partitions of the frame, files, or row groups of Parquet files. A worker reads a part
   with `moments` or `moments_with_missing`, in bounded memory, and keeps its sums (d^2 or 4 d^2 numbers). Parts of
   files are submitted a few per thread of the cluster at a time. The scheduler orders a frame's partitions; each is
   summed at once.
2. Sums of neighbours are merged on the workers as soon as both exist, in the order of the rows, like the digits of a
   binary counter. At most log2(parts) sums and those of the parts in progress are stored. The result does not depend on
   the order in which parts finish.
3. One set of sums is returned.

Error: that of one pass, and 8 u g_ij for each of log2(parts) merges (see `Moments.merge`, `MissingMoments.merge`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from .cluster import client_in_use, losses
from .errors import NoRows, OwnerError, UnreadableData
from .missing_moments import MissingMoments
from .moments import Moments, Progress
from .tables.dask import DaskTable
from .tables.reading import CompleteRows
from .tables.table import Table

S = TypeVar("S", Moments, MissingMoments)

PARTS_PER_THREAD = 3
"""Number of parts of files submitted at a time per thread of the cluster: one in progress and two waiting."""


@dataclass(frozen=True)
class PartialSums(Generic[S]):
    """Result of a part on a worker: its sums (None if it is empty), and the number of rows dropped for a missing
    value."""

    sums: S | None
    dropped: int = 0

    @property
    def rows(self) -> int:
        return 0 if self.sums is None else self.sums.count


def sums_on_dask(table: Table, sums: Callable[..., S], progress: Progress | None = None) -> S | None:
    """Return the sums of a table, computed by the workers of the current Dask client; None if only this process has its
    rows.

    sums: `moments` or `moments_with_missing`. Without a client a frame is computed in this process, and files are
    refused.
    """
    inner = table.table if isinstance(table, CompleteRows) else table
    parts = table.independent_parts()
    client = client_in_use()
    if parts is None and (client is None or not isinstance(inner, DaskTable)):
        return None
    if client is None:
        raise OwnerError(
            f"{table.label}: no Dask client is in use. Connect one first: distributed.Client('tls://...')."
        )
    with losses(table.label):
        if isinstance(inner, DaskTable):
            futures = _sums_of_frame(client, inner, table is not inner, sums)
            job_state = _PartScheduler(client, len(futures), futures.pop)
        else:
            files = [part for part in parts or () if part.rows != 0]
            job_state = _PartScheduler(
                client, len(files), lambda number: client.submit(_sum_part, files[number], sums, pure=False)
            )
        total: PartialSums[S] = job_state.total(table.rows, progress)
    if isinstance(table, CompleteRows):
        table.dropped_elsewhere = total.dropped
    if total.sums is None:
        raise NoRows.for_missing(table.label) if total.dropped else NoRows.for_none(table.label)
    return replace(total.sums, label=table.label)


def _sums_of_frame(client: Any, frame: DaskTable, complete: bool, sums: Callable[..., S]) -> dict[int, Any]:
    """Submit one graph for all partitions: common parts (a shuffle) are computed once, and the scheduler bounds the
    memory."""
    import dask

    bare = dask.delayed(frame.bare(), pure=True)
    work = dask.delayed(_sum_block, pure=False)
    blocks = [work(block, number, bare, complete, sums) for number, block in enumerate(frame.blocks())]
    return dict(enumerate(client.compute(blocks)))


class _PartScheduler:
    """Submit parts, a limited number at a time, and merge their sums as they finish. start: makes the future of a
    part."""

    def __init__(self, client: Any, parts: int, start: Callable[[int], Any]) -> None:
        self.client, self.parts, self.start = client, parts, start
        self.window = PARTS_PER_THREAD * max(1, sum(client.nthreads().values()))
        self.running: dict[int, Any] = {}
        self.held: list[tuple[int, Any]] = []
        """Merged sums, each with log2 of its number of parts, in descending order."""

    def total(self, rows: int | None, progress: Progress | None) -> Any:
        """Return the sums of all parts. If one fails, cancel those in progress and raise its error."""
        try:
            done = 0
            for count in self._ended():
                done += count
                if progress is not None:
                    progress(done, rows)
        except BaseException:
            self.client.cancel([*self.running.values(), *(future for _, future in self.held)])
            raise
        while len(self.held) > 1:
            (_, left), (size, right) = self.held[-2:]
            self.held[-2:] = [(size, self.client.submit(_merged, left, right, pure=False))]
        return self.held[0][1].result() if self.held else PartialSums(None)

    def _ended(self) -> Iterator[int]:
        """Yield the number of rows of each part as it finishes; start a new part for each that is merged."""
        import distributed

        ended: Any = distributed.as_completed(loop=self.client.loop, with_results=True)  # type: ignore[no-untyped-call]
        places: dict[str, int] = {}
        waiting: set[int] = set()
        merged = started = 0
        while True:
            while started < min(self.parts, merged + self.window):
                self.running[started] = self.start(started)
                rows = self.client.submit(_rows, self.running[started], pure=False)
                places[rows.key] = started
                ended.add(rows)
                started += 1
            if not places:
                return
            future, count = next(ended)
            waiting.add(places.pop(future.key))
            while merged in waiting:
                waiting.remove(merged)
                self._merge(self.running.pop(merged))
                merged += 1
            yield count

    def _merge(self, future: Any) -> None:
        size = 0
        while self.held and self.held[-1][0] == size:
            future = self.client.submit(_merged, self.held.pop()[1], future, pure=False)
            size += 1
        self.held.append((size, future))


def _sum_block(block: Any, number: int, frame: DaskTable, complete: bool, sums: Callable[..., S]) -> PartialSums[S]:
    part = frame.part(block, number)
    if part is None:
        return PartialSums(None)
    return _sum_part(CompleteRows(part) if complete else part, sums)


def _sum_part(part: Table, sums: Callable[..., S]) -> PartialSums[S]:
    """Sum a part, in one thread of a worker."""
    found: S | None = None
    try:
        found = sums(part, threads=1)
    except NoRows:
        pass  # others may have some
    except UnreadableData as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise UnreadableData(
                f"{part.label}: a worker of the Dask cluster does not find the file. Workers read by themselves: "
                "give a folder that all of them see, or an address like s3://bucket/folder."
            ) from None
        raise
    return PartialSums(found, part.dropped if isinstance(part, CompleteRows) else 0)


def _rows(part: PartialSums[Any]) -> int:
    return part.rows


def _merged(left: PartialSums[S], right: PartialSums[S]) -> PartialSums[S]:
    dropped = left.dropped + right.dropped
    if left.sums is None or right.sums is None:
        return PartialSums(left.sums or right.sums, dropped)
    return PartialSums(left.sums.merge(right.sums), dropped)
