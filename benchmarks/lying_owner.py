"""Contributions of an owner with a modified client: made by the client's own code, with one part altered.

Each contribution begins with random elements, has shapes and types that the job asks for unless these are what is
altered, and is rightly sealed and signed. So it reaches the check that must refuse it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.malformed import changed, restructured
from ppca.federation.envelopes import Envelopes, messages, summands_at
from ppca.federation.errors import FederationError
from ppca.federation.identity import Identity
from ppca.federation.objects import Object
from ppca.native import ring
from ppca.protocol import InputPacket, share_ring
from ppca.protocol.inputs import receive
from ppca.runtime.control import encode

Change = Callable[[str, list[Any], dict[str, Any]], Any]
"""Gets kind, packets and fields of a message of an unmodified client; returns those that are sent."""

BEYOND_TABLE = 1 << 14
"""An exponent that is larger by this wins comparisons of 15 bits and is looked up as if it were not."""

TRIES = 50


def plain(packets: list[InputPacket]) -> Any:
    """Return the ring elements that an owner has shared."""
    return ring.add(receive(packets[0], 0, 0)[0], receive(packets[2], 1, 0)[0])


def with_first(packets: list[InputPacket], value: int) -> list[InputPacket]:
    """Return the same array with another first element."""
    whole = plain(packets)
    whole.reshape(-1, whole.shape[-1])[0] = ring.constants([value], whole.shape[-1])[0]
    return share_ring(whole, packets[0].dtype)


def number(place: int, value: int) -> Change:
    """Replace the first element of one of the inputs."""

    def change(kind: str, packets: list[Any], fields: dict[str, Any]) -> Any:
        if kind == "packets":
            packets[place] = with_first(packets[place], value)
        return kind, packets, fields

    return change


def isolation(kind: str, packets: list[Any], fields: dict[str, Any]) -> Any:
    """Hide the totals of the owners with smaller means: all exponents of means win and count as small."""
    size, dtype = packets[2][0].shape[0], packets[2][0].dtype
    packets[2] = share_ring(ring.integers(np.full(size, 2 + BEYOND_TABLE), dtype.limbs), dtype)
    return kind, packets, fields


def two_splits(kind: str, packets: list[Any], fields: dict[str, Any]) -> Any:
    """Share different numbers in the two splits."""
    other = share_ring(ring.add(plain(packets[0]), plain(packets[0])), packets[0][0].dtype)
    mixed = [InputPacket(a.shape, a.dtype, a.row, b.column) for a, b in zip(packets[0], other, strict=True)]
    return kind, [mixed, *packets[1:]], fields


def marked_row(kind: str, packets: list[Any], fields: dict[str, Any]) -> Any:
    """Send rows of zeros but for one, so that its covariances are that person's row at the other owners."""
    if kind == "rows":
        packets[0] = with_first(share_ring(0 * plain(packets[0]), packets[0][0].dtype), 1 << 20)
    return kind, packets, fields


def row(bits: int) -> Change:
    """Replace the first number of the rows by a power of two."""

    def change(kind: str, packets: list[Any], fields: dict[str, Any]) -> Any:
        if kind == "rows":
            packets[0] = with_first(packets[0], 1 << bits)
        return kind, packets, fields

    return change


def tags(change: Callable[[Any], Any]) -> Change:
    def changed_tags(kind: str, packets: list[Any], fields: dict[str, Any]) -> Any:
        if fields.get("tags") is not None:
            fields = fields | {"tags": change(fields["tags"])}
        return kind, packets, fields

    return changed_tags


def reversed_tags(found: Any) -> Any:
    return found[::-1].copy()


def repeated_tags(found: Any) -> Any:
    return np.concatenate([found[:1], found[:-1]])


@dataclass(frozen=True)
class Way:
    """One way to lie. by_columns: the form of the job that it is for. only: the server that gets the lie, if one."""

    by_columns: bool
    change: Change | None
    only: int | None = None


WAYS: dict[str, Way] = {
    "a count below zero": Way(False, number(0, -40)),
    "a root that is not that of the count": Way(False, number(1, 7 << 45)),
    "an exponent that is looked up as another": Way(False, number(2, 2 + BEYOND_TABLE)),
    "isolation of another owner's totals": Way(False, isolation),
    "a mantissa out of range": Way(False, number(3, 1 << 127)),
    "a factor out of range": Way(False, number(6, 1 << 90)),
    "two splits of different numbers": Way(False, two_splits),
    "inputs of 38 owners": Way(False, lambda kind, packets, fields: (kind, 38 * packets, fields)),
    "another number at one server": Way(False, number(0, 41), only=3),
    "a malformed stream": Way(False, None),
    "a row out of range": Way(True, row(62)),
    "a marked row": Way(True, marked_row),
    "tags that are not sorted": Way(True, tags(reversed_tags)),
    "tags that are repeated": Way(True, tags(repeated_tags)),
    "tags that differ at one server": Way(True, tags(reversed_tags), only=1),
    "rows for the table of another owner": Way(
        True, lambda kind, packets, fields: (kind, packets, fields | {"part": 1})
    ),
}


class LyingEnvelopes(Envelopes):
    """Envelopes with a lie: the same one for all servers, another message for one, or a malformed stream for one."""

    def __init__(
        self,
        way: Way,
        draw: random.Random,
        identity: Identity,
        job: str,
        keys: Sequence[bytes],
        put: Callable[[Object], Any],
    ) -> None:
        self._way, self._draw = way, draw
        self._victim = draw.randrange(4)
        super().__init__(identity, job, keys, put)

    def add(self, kind: str, packets: Sequence[list[InputPacket]], **fields: Any) -> None:
        """Add a message, altered unless it is the first one."""
        way = self._way
        if kind == "blind" or way.change is None:
            super().add(kind, packets, **fields)
        elif way.only is None:
            kind, packets, fields = way.change(kind, list(packets), fields)
            super().add(kind, packets, **fields)
        else:
            before = len(self._open[way.only])
            super().add(kind, packets, **fields)  # what the owner signs
            del self._open[way.only][before:]
            kind, packets, fields = way.change(kind, list(packets), fields)
            for part in encode(kind, packets=[each[way.only] for each in packets], **fields):
                self._open[way.only] += part

    def _close(self, server: int, size: int) -> None:
        if self._way.change is None and server == self._victim and not self._chunks[server]:
            content = bytes(self._open[server][:size])
            wrong = self._malformed(content, server)
            self._open[server][:size] = wrong
            size = len(wrong)
        super()._close(server, size)

    def _malformed(self, content: bytes, server: int) -> bytes:
        """Return a stream that says something else than the right one, or nothing."""
        right = summands_at(server, messages([content]))
        for _ in range(TRIES):
            again = self._draw.random() < 0.5
            wrong = restructured(content, self._draw) if again else changed(content, [content], self._draw)
            try:
                if summands_at(server, messages([wrong])) != right:
                    return wrong
            except Exception:  # whatever a server makes of it
                return wrong
        raise FederationError("every change of the stream says the same")


def contribution(
    name: str, identity: Identity, job: str, keys: Sequence[bytes], fill: Callable[[Any], Any], draw: random.Random
) -> list[Object]:
    """Return the objects of a contribution with a lie. fill: adds the messages of an unmodified client."""
    made: list[Object] = []
    envelopes = LyingEnvelopes(WAYS[name], draw, identity, job, keys, made.append)
    fill(envelopes)
    last = envelopes.finish()  # seals the last chunks
    return [*made, last]
