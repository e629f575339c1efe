"""What an owner sends to a server: a stream of messages, cut into pieces of at most 16 MiB, each sealed as one envelope.

Messages are those of the control channel: "packets" (secret inputs of the program) and "rows" (a piece of a table, with tags).

In its contribution the owner signs the digests of all envelopes, of the four summands R0, R1, C0, C1, and of R0 - C0. The
digests also cover everything else in the messages: kinds, fields, shapes, types and tags. Every server compares those that it can
compute:
- Servers of a row have the same R, servers of a column the same C, and all four the same messages around them.
- Server 0 has R0 - C0, server 3 has C1 - R1. They are equal only if R0 + R1 = C0 + C1: both splits are of the same numbers.
  R0 and C0 are independent streams, so the digest of their difference says nothing about the numbers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..native import ring
from ..protocol import InputPacket
from ..protocol.inputs import receive
from ..runtime.codec import CodecError
from ..runtime.control import LONGEST_BUFFERS, ChannelClosed, Message, MessageReader, encode
from .errors import ObjectRefused
from .identity import Identity
from .membership import SEATS
from .objects import PIECE_BYTES, Object
from .sealing import SealingKey, seal

MOST_TEXT = 1 << 16
"""Bytes of the text of a message; arrays are not text."""

SUMMANDS = ("R0", "R1", "C0", "C1")
DIFFERENCE = "R0-C0"


class Envelopes:
    """One owner's contribution on its way. put: takes every envelope as soon as it is full."""

    def __init__(self, identity: Identity, job: str, keys: Sequence[bytes], put: Callable[[Object], Any]) -> None:
        self._identity = identity
        self._job = job
        self._keys = keys
        self._put = put
        self._open = [bytearray() for _ in SEATS]
        self._pieces: list[list[str]] = [[] for _ in SEATS]
        self._summands = Summands()
        self.bytes_sent = 0

    def add(self, kind: str, packets: Sequence[list[InputPacket]], **fields: Any) -> None:
        """A message to every server: its packets of these inputs, and what all servers see."""
        for seat in SEATS:
            mine = [each[seat] for each in packets]
            text, *buffers = encode(kind, packets=mine, **fields)
            if len(text) > MOST_TEXT:
                raise ObjectRefused(
                    f"{len(packets):,} inputs in one message are more than a server reads; send fewer tables"
                )
            for part in (text, *buffers):
                self._open[seat] += part
            self._summands.add(kind, {"packets": mine, **fields}, seat)
            while len(self._open[seat]) >= PIECE_BYTES:
                self._close(seat, PIECE_BYTES)

    def _close(self, seat: int, size: int) -> None:
        piece = len(self._pieces[seat])
        info = envelope_info(self._job, self._identity.name, seat, piece)
        sealed = seal(bytes(self._open[seat][:size]), self._keys[seat], **info)
        del self._open[seat][:size]
        item = Object.make(self._identity, "envelope", self._job, sealed, to=seat, piece=piece)
        self._pieces[seat].append(item.digest)
        self.bytes_sent += len(item.data)
        self._put(item)

    def finish(self) -> Object:
        """Seals what is left; returns the contribution, which goes last."""
        for seat in SEATS:
            if self._open[seat]:
                self._close(seat, len(self._open[seat]))
        content = {"pieces": self._pieces, "summands": self._summands.digests()}
        return Object.make(self._identity, "contribution", self._job, json.dumps(content).encode())


def envelope_info(job: str, owner: str, seat: int, piece: int) -> dict[str, Any]:
    """What an envelope is bound to."""
    return {"what": "envelope", "job": job, "owner": owner, "seat": seat, "piece": piece}


def result_info(job: str, receiver: str, seat: int, attempt: int, piece: int, pieces: int) -> dict[str, Any]:
    """What a piece of a server's part of a result is bound to."""
    about = {"receiver": receiver, "seat": seat, "attempt": attempt, "piece": piece, "pieces": pieces}
    return {"what": "result", "job": job, **about}


def pieces_in(data: bytes) -> list[bytes]:
    """Bytes cut into pieces that each fit into one object; at least one piece."""
    return [data[start : start + PIECE_BYTES] for start in range(0, max(1, len(data)), PIECE_BYTES)]


class Summands:
    """Running digests of what an owner sends: the four summands, and the difference of the first ones."""

    def __init__(self) -> None:
        self._hashes = {name: hashlib.sha256(f"ppca {name}\0".encode()) for name in (*SUMMANDS, DIFFERENCE)}

    def add(self, kind: str, fields: Mapping[str, Any], seat: int) -> None:
        """Add a server's message. Both servers of a row hold the same R: the one of column 0 counts; for C that of row 0."""
        for name, parts in _digested(kind, fields, seat).items():
            if (name[0] == "R" and seat % 2 == 0) or (name[0] == "C" and seat < 2):
                for part in parts:
                    self._hashes[name].update(part)

    def digests(self) -> dict[str, str]:
        return {name: value.hexdigest() for name, value in self._hashes.items()}


def summands_at(seat: int, messages: Iterable[Message]) -> dict[str, str]:
    """The digests that a server can compute: of its two summands, and at servers 0 and 3 of the difference."""
    row, column = divmod(seat, 2)
    names = [f"R{row}", f"C{column}", *([DIFFERENCE] if row == column else [])]
    hashes = {name: hashlib.sha256(f"ppca {name}\0".encode()) for name in names}
    for kind, fields in messages:
        for name, parts in _digested(kind, fields, seat).items():
            for part in parts:
                hashes[name].update(part)
    return {name: value.hexdigest() for name, value in hashes.items()}


def _digested(kind: str, fields: Mapping[str, Any], seat: int) -> dict[str, Iterator[bytes]]:
    """What a message adds to each digest that a server can compute: everything in it, with one summand of each packet."""
    row, column = divmod(seat, 2)
    packets: list[InputPacket] = fields["packets"]
    around = {name: _plain(value) for name, value in fields.items() if name != "packets"}
    shapes = [[list(p.shape), [p.dtype.bits, p.dtype.frac, p.dtype.span]] for p in packets]
    head = json.dumps([kind, around, shapes], sort_keys=True).encode()

    def whole(payloads: Iterable[bytes]) -> Iterator[bytes]:
        for part in (head, *payloads):
            yield len(part).to_bytes(8, "big")
            yield part

    found = {f"R{row}": whole(p.row for p in packets), f"C{column}": whole(p.column for p in packets)}
    if row == column:
        found[DIFFERENCE] = whole(_difference(packet, row) for packet in packets)
    return found


def _difference(packet: InputPacket, row: int) -> bytes:
    """R0 - C0 at server 0, C1 - R1 at server 3."""
    rows, columns = receive(packet, row, row)
    return (ring.sub(rows, columns) if row == 0 else ring.sub(columns, rows)).tobytes()


def _plain(value: Any) -> Any:
    """A field of a message as JSON; an array by its type, shape and digest."""
    if isinstance(value, np.ndarray):
        return ["array", value.dtype.str, list(value.shape), hashlib.sha256(value.tobytes()).hexdigest()]
    return value


def opened(items: Iterable[Object], key: SealingKey, seat: int) -> Iterator[bytes]:
    """The plain pieces of one owner's envelopes, in their order."""
    for number, item in enumerate(items):
        yield key.open(item.payload, **envelope_info(item.header.job, item.header.author, seat, number))


def messages(pieces: Iterable[bytes], longest: int = LONGEST_BUFFERS) -> Iterator[Message]:
    """The messages in a stream of pieces; a stream that breaks off, or holds something else, is refused.

    longest: bytes that one message may take.
    """
    stream, reader = _Stream(pieces), MessageReader(longest, MOST_TEXT)
    try:
        while not stream.at_end():
            message = reader.read(stream)  # type: ignore[arg-type]
            if message is not None:
                yield _checked(message)
                stream.complete = True
            else:
                stream.complete = False
    except ChannelClosed:
        raise ObjectRefused("the shares of an owner break off; it must contribute again") from None
    except CodecError as error:
        raise ObjectRefused(f"the shares of an owner are malformed: {error}") from None
    if not stream.complete:
        raise ObjectRefused("the shares of an owner break off; it must contribute again")


def message_of(data: bytes, kind: str) -> dict[str, Any]:
    """The fields of the one message that these bytes are."""
    stream, reader = _Stream([data]), MessageReader()
    try:
        message = None
        while message is None and not stream.at_end():
            message = reader.read(stream)  # type: ignore[arg-type]
        if message is not None and message[0] == kind and stream.at_end():
            return message[1]
    except (ChannelClosed, CodecError):
        pass
    raise ObjectRefused(f"these bytes are no {kind}")


def _checked(message: Message) -> Message:
    kind, fields = message
    packets = fields.get("packets")
    if kind not in ("packets", "rows") or not isinstance(packets, list):
        raise ObjectRefused(f"the shares of an owner hold a message {kind!r}, which does not belong there")
    if not packets or not all(isinstance(packet, InputPacket) for packet in packets):
        raise ObjectRefused("the shares of an owner hold something else than shares")
    return message


class _Stream:
    """Pieces, read as from a socket."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._left = memoryview(b"")
        self.complete = True

    def at_end(self) -> bool:
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return True
            self._left = memoryview(piece)
        return False

    def recv_into(self, room: memoryview) -> int:
        if self.at_end():
            return 0
        size = min(len(room), len(self._left))
        room[:size] = self._left[:size]
        self._left = self._left[size:]
        return size
