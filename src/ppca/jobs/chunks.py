"""Chunk: part of what an owner sends for a job, as shares for all four servers, and one server's part of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..protocol import InputPacket

Tags = NDArray[np.uint64]


@dataclass
class Part:
    """What one server gets of a chunk: its packets, by input. The other fields are those of `Chunk`."""

    table: int
    packets: list[InputPacket]
    rows: bool = False
    tags: Tags | None = None
    order: bytes | None = None


@dataclass
class Chunk:
    """Shares of some rows of a table, or of the other inputs of a table.

    table: which of the sender's tables, from 0. Whoever knows the sender adds its first table and checks the range.
    packets: by input, then by server. rows: True: rows of a table, which servers keep in a spool; False: inputs, kept in memory.
    tags: pseudonyms of the ids of the rows (psi). order: a keyed digest of the order of all ids of the table, with its first
    rows, if owners say that their rows are aligned and have ids.
    """

    table: int
    packets: list[list[InputPacket]]
    rows: bool = False
    tags: Tags | None = None
    order: bytes | None = None

    def part(self, seat: int) -> Part:
        """What a server gets of this chunk."""
        return Part(self.table, [packets[seat] for packets in self.packets], self.rows, self.tags, self.order)

    @property
    def size(self) -> int:
        """Bytes that leave the owner for all four servers."""
        sent = sum(len(packet.row) + len(packet.column) for packets in self.packets for packet in packets)
        return sent + (0 if self.tags is None else 4 * self.tags.nbytes)
