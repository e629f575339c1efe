"""Uploads of owners for a job: rows as shares, tags of ids, and the rows that all owners have.

upload    append rows of one owner, as shares, to its part of the table, with their tags (psi)
forget    drop a table: at the end of a job, or if the job is abandoned

A program that uses a table begins with `align`, which finds the rows that all owners have: from their tags, or all rows
if owners agreed on the order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..protocol import InputPacket, Party
from ..protocol.inputs import summands
from ..protocol.opening import SERVERS, record
from .errors import Refusal
from .matching import MatchError, match, too_few
from .spec import Data
from .spool import Spool

MATCH, ORDER = "match", "order"
"""Causes of refusals to which interfaces add hints: too few common ids; different ids or order of aligned rows."""


class Uploads:
    """The table of one job on this server: the owners' rows, their tags, and the rows that all have in common."""

    def __init__(self) -> None:
        self.rows: dict[int, Spool] = {}
        self.tags: dict[int, Spool] = {}
        self.orders: dict[int, str] = {}
        self.common: list[NDArray[np.integer[Any]]] | None = None

    @classmethod
    def of(cls, party: Party, table: str) -> Uploads:
        found: Uploads = party.tables.setdefault(table, cls())
        return found

    def append(
        self, owner: int, piece: InputPacket, tags: NDArray[np.uint64] | None, server: int, order: str | None = None
    ) -> int:
        """Add rows of an owner, as its packet for this server, and their tags; return how many rows it has now.

        order: a keyed digest of the owner's ids in their order, if its rows are said to be aligned.
        """
        rows, width = piece.shape
        spool = self.rows.setdefault(owner, Spool(width * piece.dtype.limbs))
        spool.append(rows, summands(piece, *divmod(server, 2)))
        if tags is not None:
            self.tags.setdefault(owner, Spool(2)).append(len(tags), [(False, tags)])
        if order is not None:
            self.orders[owner] = order
        return spool.rows

    def pieces(self, rows: int, count: int) -> Iterator[NDArray[np.uint64]]:
        """Yield the common rows with all owners' columns, in `count` chunks of nearly equal length, shape (2, rows,
        words)."""
        width = sum(spool.width for spool in self.rows.values())
        there = (
            self.common[0] if self.common is not None else range(min((s.rows for s in self.rows.values()), default=0))
        )
        if not 0 < rows <= len(there):
            raise Refusal(f"the job states {rows} rows, the owners have {len(there)} in common")
        for start, stop in pairwise(rows * k // count for k in range(count + 1)):
            joint, column = np.empty((2, stop - start, width), np.uint64), 0
            for owner, spool in sorted(self.rows.items()):
                at = slice(start, stop) if self.common is None else self.common[owner][start:stop]
                spool.take(at, joint[:, :, column : column + spool.width])
                column += spool.width
            yield joint

    def close(self) -> None:
        for spool in (*self.rows.values(), *self.tags.values()):
            spool.close()


async def upload(
    party: Party,
    piece: InputPacket,
    *,
    table: str,
    owner: int,
    tags: NDArray[np.uint64] | None = None,
    order: str | None = None,
) -> int:
    """Append rows to the table of an owner; return its number of rows. All servers see the tags, which are
    pseudonyms."""
    return Uploads.of(party, table).append(owner, piece, tags, party.seat, order)


def align(party: Party, table: str, data: Data, turned: bool = False) -> dict[str, Any]:
    """Determine the common rows. Return their public number and, with psi, their tags; or why the job cannot continue.

    turned: owners have uploaded columns (of 128-bit numbers) one below the other, not rows.

    Tags are for the receiver: only an owner can link them to its ids. Programs return a refusal as their answer, not as
    an error, so that the servers continue and keep other records.
    """
    if data.align is None:
        raise Refusal(f"a job of the form {data.form!r} does not join columns")
    uploads = Uploads.of(party, table)
    spools = [spool for _, spool in sorted(uploads.rows.items())]
    counts = [spool.width // 2 if turned else spool.rows for spool in spools]
    if not counts:
        return {"refused": "no owner has sent rows"}
    if not uploads.tags:
        if refused := _other_order(uploads.orders, counts, tables_of(data)):
            return {"refused": refused, "cause": ORDER}
        if refused := too_few(counts[0], data.align.minimum):
            return {"refused": refused}
        return {"rows": counts[0]}
    if [uploads.tags[owner].rows for owner in sorted(uploads.tags)] != counts:
        return {"refused": "an owner did not send one tag for every row"}
    tags = _Tags([spool for _, spool in sorted(uploads.tags.items())])
    try:
        uploads.common = match(tags, data.align.minimum)
    except MatchError as error:
        return {"refused": str(error), "cause": MATCH}
    common = len(uploads.common[0])
    told = tags[0][uploads.common[0]]
    for spool in uploads.tags.values():
        spool.close()
    record(party, "match pattern of pseudonyms", (common, len(tags)), SERVERS, "alignment by psi")
    return {"rows": common, "tags": told}


def tables_of(data: Data) -> list[str]:
    """Return the name of each table in refusals: its owner, with the number of the table if an owner has several."""
    if data.tables is None:
        return list(data.owners)
    return [f"table {number} of {data.owners[0]}" for number in range(1, len(data.tables) + 1)]


def _other_order(orders: dict[int, str], counts: list[int], every: list[str]) -> str | None:
    """Return why tables are not aligned, or None, from numbers of rows and keyed digests of ids. every: names of the
    tables."""
    count = len(counts)
    if len(set(counts)) > 1:
        listed = ", ".join(f"{name}: {rows:,}" for name, rows in zip(every, counts, strict=False))
        return f"aligned tables must have the same rows, but their numbers differ ({listed}); join by id with 'psi'"
    if orders and len(orders) < count:
        return (
            f"{', '.join(every[number] for number in range(count) if number not in orders)} sent rows without ids, "
            "the other owners sent ids. Their order cannot be compared. Nothing was computed. Contribute with the "
            "column of ids (--id) at all owners, or at none."
        )
    if len(set(orders.values())) < 2:
        return None
    names = [every[number] for number in sorted(orders)]
    return (
        f"{', '.join(names)} declared their rows aligned, but have different ids or another order. Nothing was "
        "computed. Bring the tables into the same order, or propose the job with alignment psi, which joins rows by "
        "id."
    )


class _Tags(Sequence[Any]):
    """The owners' tags, read on demand."""

    def __init__(self, spools: list[Spool]) -> None:
        self._spools = spools

    def __len__(self) -> int:
        return len(self._spools)

    def __getitem__(self, owner: Any) -> Any:
        return self._spools[owner].take(slice(None))[0]


async def forget(party: Party, *, table: str) -> None:
    """Drop the table of a job."""
    uploads = party.tables.pop(table, None)
    if uploads is not None:
        uploads.close()
