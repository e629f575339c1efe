"""Envelopes: an owner's messages to a server, cut into chunks of at most 16 MiB that are sealed one by one.

Messages are those of the control channel: "blind" (random elements, first), "packets" (secret inputs of the program)
and "rows" (a chunk of a table, with tags).

In its contribution the owner signs the digests of all envelopes, of the four summands R0, R1, C0, C1, and of R0 - C0.
The digests also cover everything else in the messages: kinds, fields, shapes, types and tags. Every server compares
those that it can compute:
- Servers of a row have the same R, servers of a column the same C, and all four the same messages around them.
- Server 0 has R0 - C0, server 3 has C1 - R1. They are equal only if R0 + R1 = C0 + C1: both splits are of the same
  numbers.

All servers see all five digests. A server that holds R0 knows R1 for every guess of the numbers, so a digest of R1
alone would let it test guesses. Therefore the first message shares `BLIND`: 256 random bits that the owner forgets. No
server knows them: it has one summand of each split, and the summands of the difference that it lacks contain them.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..native import ring
from ..protocol import InputPacket, RingType
from ..protocol.inputs import blocks, share_ring, size_of
from ..runtime.codec import CodecError
from ..runtime.control import MAX_BUFFER_BYTES, ChannelClosed, Message, MessageReader, encode
from .errors import ObjectRefused
from .identity import Identity
from .membership import SERVERS
from .objects import CHUNK_BYTES, Object
from .sealing import SealingKey, seal

MAX_TEXT = 1 << 16
"""Maximum size of the text of a message in bytes. Arrays are not text."""

BLIND = (2,), RingType(128, 0, 126)
"""Shape and type of the random elements that every contribution begins with. Programs do not get them."""

SUMMANDS = ("R0", "R1", "C0", "C1")
DIFFERENCE = "R0-C0"

BLOCK_WORDS = 1 << 19
"""Words of 8 bytes of a packet that are expanded and digested at a time: 4 MiB of each split."""


class Envelopes:
    """Seal one owner's contribution. put: called with every envelope as soon as it is full."""

    def __init__(self, identity: Identity, job: str, keys: Sequence[bytes], put: Callable[[Object], Any]) -> None:
        self._identity = identity
        self._job = job
        self._keys = keys
        self._put = put
        self._open = [bytearray() for _ in SERVERS]
        self._chunks: list[list[str]] = [[] for _ in SERVERS]
        self._summands = Summands()
        self.bytes_sent = 0
        self.add("blind", [blind()])

    def add(self, kind: str, packets: Sequence[list[InputPacket]], **fields: Any) -> None:
        """Add a message to every server: its packets of these inputs, and fields that all servers see."""
        for server in SERVERS:
            mine = [each[server] for each in packets]
            text, *buffers = encode(kind, packets=mine, **fields)
            if len(text) > MAX_TEXT:
                raise ObjectRefused(
                    f"{len(packets):,} inputs in one message need more than {MAX_TEXT:,} bytes of text, which servers "
                    f"refuse; send fewer tables"
                )
            for part in (text, *buffers):
                self._open[server] += part
            self._summands.add(kind, {"packets": mine, **fields}, server)
            while len(self._open[server]) >= CHUNK_BYTES:
                self._close(server, CHUNK_BYTES)

    def _close(self, server: int, size: int) -> None:
        chunk = len(self._chunks[server])
        info = envelope_info(self._job, self._identity.name, server, chunk)
        sealed = seal(bytes(self._open[server][:size]), self._keys[server], **info)
        del self._open[server][:size]
        item = Object.make(self._identity, "envelope", self._job, sealed, to=server, chunk=chunk)
        self._chunks[server].append(item.digest)
        self.bytes_sent += len(item.data)
        self._put(item)

    def finish(self) -> Object:
        """Seal the last chunks; return the contribution, which is sent last."""
        for server in SERVERS:
            if self._open[server]:
                self._close(server, len(self._open[server]))
        content = {"chunks": self._chunks, "summands": self._summands.digests()}
        return Object.make(self._identity, "contribution", self._job, json.dumps(content).encode())


def blind() -> list[InputPacket]:
    """Return shares of new random elements, by server."""
    shape, dtype = BLIND
    return share_ring(ring.as_ring(secrets.token_bytes(2 * dtype.itemsize), (*shape, dtype.limbs)), dtype)


def envelope_info(job: str, owner: str, server: int, chunk: int) -> dict[str, Any]:
    """Return the facts to which an envelope is cryptographically bound."""
    return {"what": "envelope", "job": job, "owner": owner, "server": server, "chunk": chunk}


def result_info(job: str, receiver: str, server: int, attempt: int, chunk: int, chunks: int) -> dict[str, Any]:
    """Return the facts to which a chunk of a server's part of a result is cryptographically bound."""
    about = {"receiver": receiver, "server": server, "attempt": attempt, "chunk": chunk, "chunks": chunks}
    return {"what": "result", "job": job, **about}


def chunks_in(data: bytes) -> list[bytes]:
    """Cut bytes into chunks that each fit into one object; return at least one."""
    return [data[start : start + CHUNK_BYTES] for start in range(0, max(1, len(data)), CHUNK_BYTES)]


class Summands:
    """Running digests of an owner's messages: of the four summands R0, R1, C0, C1, and of R0 - C0."""

    def __init__(self) -> None:
        self._hashes = {name: hashlib.sha256(f"ppca {name}\0".encode()) for name in (*SUMMANDS, DIFFERENCE)}

    def add(self, kind: str, fields: Mapping[str, Any], server: int) -> None:
        """Add a server's message. Both servers of a row hold the same R: the one in column 0 is used; for C the one in
        row 0."""
        for name, parts in _digested(kind, fields, server).items():
            if (name[0] == "R" and server % 2 == 0) or (name[0] == "C" and server < 2):
                for part in parts:
                    self._hashes[name].update(part)

    def digests(self) -> dict[str, str]:
        return {name: value.hexdigest() for name, value in self._hashes.items()}


def summands_at(server: int, messages: Iterable[Message]) -> dict[str, str]:
    """Return the digests that a server can compute: of its two summands and, on servers 0 and 3, of the difference."""
    row, column = divmod(server, 2)
    names = [f"R{row}", f"C{column}", *([DIFFERENCE] if row == column else [])]
    hashes = {name: hashlib.sha256(f"ppca {name}\0".encode()) for name in names}
    for kind, fields in messages:
        _digest(hashes, kind, fields, server)
        del fields  # one message is in memory at a time
    return {name: value.hexdigest() for name, value in hashes.items()}


def _digest(hashes: Mapping[str, Any], kind: str, fields: Mapping[str, Any], server: int) -> None:
    """Add a message to the digests that a server can compute."""
    for name, parts in _digested(kind, fields, server).items():
        for part in parts:
            hashes[name].update(part)


def _digested(kind: str, fields: Mapping[str, Any], server: int) -> dict[str, Iterator[Any]]:
    """Return the bytes that a message adds to each digest that a server can compute: all fields, one summand of each
    packet."""
    row, column = divmod(server, 2)
    packets: list[InputPacket] = fields["packets"]
    around = {name: _plain(value) for name, value in fields.items() if name != "packets"}
    shapes = [[list(p.shape), [p.dtype.bits, p.dtype.frac, p.dtype.span]] for p in packets]
    head = json.dumps([kind, around, shapes], sort_keys=True).encode()

    def whole(payloads: Iterable[tuple[int, Iterable[Any]]]) -> Iterator[Any]:
        for length, parts in ((len(head), [head]), *payloads):
            yield length.to_bytes(8, "big")
            yield from parts

    found = {
        f"R{row}": whole((len(p.row), [p.row]) for p in packets),
        f"C{column}": whole((len(p.column), [p.column]) for p in packets),
    }
    if row == column:
        found[DIFFERENCE] = whole((size_of(packet) // 2, _difference(packet, row)) for packet in packets)
    return found


def _difference(packet: InputPacket, row: int) -> Iterator[bytes]:
    """Yield R0 - C0 on server 0 and C1 - R1 on server 3, in blocks: a key of 16 bytes represents any shape."""
    for rows, columns in blocks(packet, row, row, BLOCK_WORDS):
        yield (ring.sub(rows, columns) if row == 0 else ring.sub(columns, rows)).tobytes()


def _plain(value: Any) -> Any:
    """Return a field of a message as JSON; an array as its type, shape and digest."""
    if isinstance(value, np.ndarray):
        return [
            "array",
            value.dtype.str,
            list(value.shape),
            hashlib.sha256(np.ascontiguousarray(value).data).hexdigest(),
        ]
    return value


def opened(items: Iterable[Object], key: SealingKey, server: int) -> Iterator[bytes]:
    """Yield the decrypted chunks of one owner's envelopes, in order."""
    for number, item in enumerate(items):
        yield key.open(item.payload, **envelope_info(item.header.job, item.header.author, server, number))


def messages(chunks: Iterable[bytes], longest: int = MAX_BUFFER_BYTES) -> Iterator[Message]:
    """Yield the messages in a stream of chunks. Raise ObjectRefused if the stream is truncated or malformed.

    longest: maximum size of the buffers of one message in bytes.
    """
    stream, reader = _Stream(chunks), MessageReader(longest, MAX_TEXT)
    try:
        while not stream.at_end():
            message = reader.read(stream)  # type: ignore[arg-type]
            if message is not None:
                yield _checked(message)
                del message  # before the next one is read
                stream.complete = True
            else:
                stream.complete = False
    except ChannelClosed:
        raise ObjectRefused("the shares of an owner are truncated; the owner must contribute again") from None
    except CodecError as error:
        raise ObjectRefused(f"the shares of an owner are malformed: {error}") from None
    if not stream.complete:
        raise ObjectRefused("the shares of an owner are truncated; the owner must contribute again")


def message_of(data: bytes, kind: str) -> dict[str, Any]:
    """Return the fields of the single message in these bytes."""
    stream, reader = _Stream([data]), MessageReader()
    try:
        message = None
        while message is None and not stream.at_end():
            message = reader.read(stream)  # type: ignore[arg-type]
        if message is not None and message[0] == kind and stream.at_end():
            return message[1]
    except (ChannelClosed, CodecError):
        pass
    raise ObjectRefused(f"not a valid {kind}")


def _checked(message: Message) -> Message:
    kind, fields = message
    packets = fields.get("packets")
    if kind not in ("blind", "packets", "rows") or not isinstance(packets, list):
        raise ObjectRefused(f"the shares of an owner contain an unexpected message {kind!r}")
    if not packets or not all(isinstance(packet, InputPacket) for packet in packets):
        raise ObjectRefused("the shares of an owner contain a packet that is not a share")
    return message


class _Stream:
    """Chunks that can be read like a socket."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._left = memoryview(b"")
        self.complete = True

    def at_end(self) -> bool:
        while not self._left:
            chunk = next(self._chunks, None)
            if chunk is None:
                return True
            self._left = memoryview(chunk)
        return False

    def recv_into(self, room: memoryview) -> int:
        if self.at_end():
            return 0
        size = min(len(room), len(self._left))
        room[:size] = self._left[:size]
        self._left = self._left[size:]
        return size
