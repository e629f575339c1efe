"""Chunks: parts of an owner's contribution as shares for all four servers, and the part of one server."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..protocol import InputPacket

Tags = NDArray[np.uint64]


@dataclass
class ServerChunk:
    """The part of a chunk for one server: its packets, by input. The other fields are those of `Chunk`."""

    table: int
    packets: list[InputPacket]
    rows: bool = False
    tags: Tags | None = None
    order: bytes | None = None


@dataclass
class Chunk:
    """Shares of some rows of a table, or of the other inputs of a table.

    table: number of the table among those of the sender, from 0. The receiving server checks the range and adds the
    number of the sender's first table.
    packets: by input, then by server. rows: True: rows of a table, which servers keep in a spool; False: inputs, kept
    in memory.
    tags: pseudonyms of the ids of the rows (psi). order: a keyed digest of the order of all ids of the table, with its
    first rows, if owners say that their rows are aligned and have ids.
    """

    table: int
    packets: list[list[InputPacket]]
    rows: bool = False
    tags: Tags | None = None
    order: bytes | None = None

    def part(self, server: int) -> ServerChunk:
        """Return the part of this chunk for one server."""
        return ServerChunk(self.table, [packets[server] for packets in self.packets], self.rows, self.tags, self.order)

    @property
    def size(self) -> int:
        """Bytes that leave the owner for all four servers."""
        sent = sum(len(packet.row) + len(packet.column) for packets in self.packets for packet in packets)
        return sent + (0 if self.tags is None else 4 * self.tags.nbytes)
