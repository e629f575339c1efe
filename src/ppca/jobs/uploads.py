"""JobUploads of a job on one server: inputs, rows as shares with their tags, and the rows that all owners
have.

A form of column owners begins with `align`: which rows all owners have, from their tags (or: all rows, when owners
agreed on the order).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..protocol import InputPacket, InputRefused, Party, SecretArray
from ..protocol.inputs import size_of, summands
from ..protocol.opening import SERVERS, record
from .chunks import ServerChunk
from .errors import NoResult, Refusal
from .matching import MatchError, match, too_few
from .operator import INPUT_BYTES
from .pools import Workers
from .spec import Data
from .spool import Spool

DEFAULT_MEMORY = 4 << 30
"""Bytes that the inputs of a job may take in memory unless the operator says otherwise."""

MATCH, ORDER = "match", "order"
"""Causes of refusals to which interfaces add hints: too few common ids; different ids or order of aligned rows."""


class JobUploads:
    """The owners' uploads for one job on this server.

    memory: bytes that inputs may take in memory. workers: where local products are computed, see `pools`. rows, tags,
    orders: by table.
    common: by table, the positions of the rows that all owners have.
    """

    def __init__(self, server: int, memory: int = DEFAULT_MEMORY, workers: Workers = 0) -> None:
        self.server = server
        self.memory = memory
        self.workers = workers
        self.rows: dict[int, Spool] = {}
        self.tags: dict[int, Spool] = {}
        self.orders: dict[int, bytes] = {}
        self.common: list[NDArray[np.integer[Any]]] | None = None
        self._packets: list[InputPacket] = []
        self._taken = 0
        self._scratch: list[Spool] = []

    def add(self, part: ServerChunk) -> None:
        """Take a chunk: rows go into the spool of their table, inputs stay as packets until the job runs.

        Raises `Refusal` for packets of wrong sizes, or of more bytes than the operator allows, before memory is taken
        for them.
        """
        size = check_packets(part.packets, self.server, self.memory, 0 if part.rows else self._taken)
        if not part.rows:
            self._packets += part.packets
            self._taken += size
            return
        for packet in part.packets:
            rows, width = packet.shape
            spool = self.rows.setdefault(part.table, Spool(width * packet.dtype.limbs))
            spool.append(rows, summands(packet, *divmod(self.server, 2)))
        if part.tags is not None:
            self.tags.setdefault(part.table, Spool(2)).append(len(part.tags), [(False, part.tags)])
        if part.order is not None:
            self.orders[part.table] = part.order

    def inputs(self, party: Party) -> list[SecretArray]:
        """The shares of all inputs. Each packet is let go as it is taken: inputs are not in memory twice."""
        self._packets.reverse()
        found = []
        while self._packets:
            found.append(SecretArray.from_packet(party, self._packets.pop()))
        return found

    @property
    def shapes(self) -> list[Any]:
        """Shapes and types of all inputs, and of the rows and tags of all tables, as plain data."""
        inputs = [[list(packet.shape), packet.dtype.bits, packet.dtype.frac] for packet in self._packets]
        tags = {table: spool.rows for table, spool in self.tags.items()}
        return [
            inputs,
            [[table, spool.rows, spool.width, tags.get(table)] for table, spool in sorted(self.rows.items())],
        ]

    def spool(self, width: int) -> Spool:
        """Return a new spool, which is closed with all others when the job ends."""
        self._scratch.append(Spool(width))
        return self._scratch[-1]

    def chunks(self, rows: int, count: int) -> Iterator[NDArray[np.uint64]]:
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

    def close_rows(self) -> None:
        """Give memory and files of the uploaded rows back."""
        for spool in (*self.rows.values(), *self.tags.values()):
            spool.close()

    def close(self) -> None:
        """Give everything back."""
        self.close_rows()
        for spool in self._scratch:
            spool.close()
        self._packets, self._scratch = [], []


def check_packets(packets: Sequence[InputPacket], server: int, memory: int, taken: int = 0) -> int:
    """Refuse packets of wrong sizes, or of more bytes than the operator allows, before memory is taken for them.

    taken: bytes of earlier packets. Return the bytes that these packets take.
    """
    size = sum(size_of(packet) for packet in packets)
    if taken + size > memory:
        raise Refusal(
            f"the inputs take {taken + size:,} bytes in the memory of a server, its operator allows {memory:,} "
            f"({INPUT_BYTES}): send fewer rows at a time"
        )
    try:
        for packet in packets:
            summands(packet, *divmod(server, 2))
    except InputRefused as error:
        raise Refusal(str(error)) from None
    return size


@dataclass
class Aligned:
    """The rows that all owners have: their number, which is public, and their tags if they were joined by tags."""

    rows: int
    tags: NDArray[np.uint64] | None = None


def align(party: Party, uploads: JobUploads, data: Data, turned: bool = False) -> Aligned:
    """Fix the common rows. Raises `NoResult` if the job cannot go on.

    turned: owners have uploaded columns (of 128-bit numbers) one below the other, not rows.

    Tags are for the receiver: only an owner can link them to its ids.
    """
    if data.align is None:
        raise Refusal(f"a job of the form {data.form!r} does not join columns")
    spools = [spool for _, spool in sorted(uploads.rows.items())]
    counts = [spool.width // 2 if turned else spool.rows for spool in spools]
    if not counts:
        raise NoResult("no owner has sent rows")
    if not uploads.tags:
        if refused := _other_order(uploads.orders, counts, tables_of(data)):
            raise NoResult(refused, ORDER)
        if refused := too_few(counts[0], data.align.minimum):
            raise NoResult(refused)
        return Aligned(counts[0])
    if [uploads.tags[owner].rows for owner in sorted(uploads.tags)] != counts:
        raise NoResult("an owner did not send one tag for every row")
    tags = _Tags([spool for _, spool in sorted(uploads.tags.items())])
    try:
        uploads.common = match(tags, data.align.minimum)
    except MatchError as error:
        raise NoResult(str(error), MATCH) from None
    common = len(uploads.common[0])
    told = tags[0][uploads.common[0]]
    for spool in uploads.tags.values():
        spool.close()
    record(party, "match pattern of pseudonyms", (common, len(tags)), SERVERS, "alignment by psi")
    return Aligned(common, told)


def tables_of(data: Data) -> list[str]:
    """Return the name of each table in refusals: its owner, with the number of the table if an owner has several."""
    if data.tables is None:
        return list(data.owners)
    return [f"table {number} of {data.owners[0]}" for number in range(1, len(data.tables) + 1)]


def _other_order(orders: dict[int, bytes], counts: list[int], every: list[str]) -> str | None:
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
        f"{', '.join(names)} declared their rows aligned, but have different ids or another order. "
        "Nothing was computed. Bring the tables into the same order, or propose the job with alignment "
        "psi, which joins rows by id."
    )


class _Tags(Sequence[Any]):
    """The owners' tags, read on demand."""

    def __init__(self, spools: list[Spool]) -> None:
        self._spools = spools

    def __len__(self) -> int:
        return len(self._spools)

    def __getitem__(self, owner: Any) -> Any:
        return self._spools[owner].take(slice(None))[0]
