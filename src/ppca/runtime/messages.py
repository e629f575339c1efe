"""A server's part of a chunk as a control message, and back: every field is checked before anything is made of it."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from ..jobs.chunks import ServerChunk
from ..protocol import InputPacket
from .codec import CodecError


def fields_of(part: ServerChunk) -> dict[str, Any]:
    """Return the fields of the message that carries a part of a chunk."""
    return {**vars(part), "order": None if part.order is None else part.order.hex()}


def part_of(fields: dict[str, Any]) -> ServerChunk:
    """Return the part of a chunk that a message carries. Raises `CodecError` unless it has the form of one."""
    names = ("table", "packets", "rows", "tags", "order")
    table, packets, rows, tags, order = (fields.get(name) for name in names)
    fits = fields.keys() == set(names) and type(table) is int and type(rows) is bool
    fits = fits and isinstance(packets, list) and all(isinstance(packet, InputPacket) for packet in packets)
    fits = fits and (tags is None or (isinstance(tags, np.ndarray) and tags.dtype == np.uint64 and tags.ndim == 2))
    fits = fits and (order is None or isinstance(order, str))
    if not fits:
        raise CodecError("a 'chunk' message needs a table, a list of packets, and whether they are rows")
    digest = None if order is None else bytes.fromhex(order)
    return ServerChunk(cast(int, table), cast(list[InputPacket], packets), rows is True, tags, digest)
