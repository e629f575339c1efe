"""The control channel between a client and one server: framed messages, JSON plus buffers.

Format: u32 length of the JSON text, the text, then the buffers it announces, back to back. All integers little endian.
The text is {"kind": ..., "body": ..., "sizes": [...]}; the codec says how values become body and buffers.

    client -> server    connect   session, addresses, TLS files, timeout
                        run       program name, this server's packets, public parameters
                        go, drop  start what `run` prepared, or forget it
                        commit, drop  after `done` with keeps: keep what the program wants to keep, or not
                        reconnect after a failed run: drop the links, listen anew
    server -> client    listening, connected      while starting
                        ready or refused          after `run`; nothing has been computed yet
                        progress, done            after `go`; committed after `commit`
                        failed                    at any time: server, step and reason; after a failed run the server waits for
                                                  `reconnect`, else it ends

The channel is also the leash: a server ends when the client's end closes, whatever it is doing.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Generator
from typing import Any, cast

import numpy as np

from .codec import CodecError, pack, unpack

HEADER = struct.Struct("<I")
LONGEST_TEXT = 1 << 26
LONGEST_BUFFERS = 1 << 34
"""Bytes of all buffers of a message, unless the reader was given another limit."""

MOST_BUFFERS = 1 << 16
COPIED = 1 << 12

Message = tuple[str, dict[str, Any]]


class ChannelClosed(ConnectionError):
    """The other side ended the conversation."""


def encode(kind: str, **fields: Any) -> list[bytes]:
    """A message as the pieces to send. Raises CodecError for what cannot travel, before anything is sent."""
    buffers: list[bytes] = []
    body = {name: pack(value, buffers, name) for name, value in fields.items()}
    text = json.dumps({"kind": kind, "body": body, "sizes": [len(b) for b in buffers]}).encode()
    if len(text) > LONGEST_TEXT:
        raise CodecError(
            f"{len(text):,} bytes of lists and strings exceed the {LONGEST_TEXT:,} of a message; use NumPy arrays"
        )
    return [HEADER.pack(len(text)) + text, *(buffer for buffer in buffers if buffer)]


class MessageReader:
    """Puts messages together from a stream, whatever pieces its bytes come in."""

    def __init__(self, longest: int = LONGEST_BUFFERS, longest_text: int = LONGEST_TEXT) -> None:
        self._longest, self._longest_text = longest, longest_text
        self._begin()

    def _begin(self) -> None:
        self._part: bytearray | memoryview
        self._parts = _message(self._longest, self._longest_text)
        self._expect(next(self._parts))

    def _expect(self, size: int) -> None:
        try:
            # Large parts are not cleared first: touching memory twice is what costs.
            self._part = bytearray(size) if size <= COPIED else np.empty(size, np.uint8).data
        except MemoryError:
            raise CodecError(f"no memory for a part of {size:,} bytes of a control message") from None
        self._at = 0

    def read(self, connection: socket.socket) -> Message | None:
        """Reads once from `connection`; the message if that completed it. BlockingIOError if nothing is there."""
        try:
            got = connection.recv_into(memoryview(self._part)[self._at :])
        except BlockingIOError:
            raise
        except OSError as error:
            raise ChannelClosed(str(error)) from None
        if got == 0:
            raise ChannelClosed("the other side closed the control channel")
        self._at += got
        while self._at == len(self._part):  # more than once if empty parts follow
            try:
                self._expect(self._parts.send(self._part))
            except StopIteration as complete:
                message: Message = complete.value
                self._begin()
                return message
        return None


def _message(longest: int, longest_text: int) -> Generator[int, bytearray | memoryview, Message]:
    """Yields the size of each part of a message, is resumed with the part, and returns the message.

    longest: bytes that its buffers may have together. longest_text: bytes of its text.
    """
    (length,) = HEADER.unpack((yield HEADER.size))
    if length > longest_text:
        raise CodecError(f"a control message announces {length} bytes of text, the limit is {longest_text}")
    text = yield length
    try:
        message = json.loads(bytes(text))
        kind, body = message["kind"], message["body"]
        sizes = message["sizes"]
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise CodecError(f"malformed control message ({type(error).__name__})") from None
    if not isinstance(kind, str) or not isinstance(body, dict) or not isinstance(sizes, list):
        raise CodecError("malformed control message: wrong kind, body or buffer sizes")
    if len(sizes) > MOST_BUFFERS or not all(type(n) is int and n >= 0 for n in sizes) or sum(sizes) > longest:
        raise CodecError(f"a control message announces wrong buffer sizes, or more than {longest:,} bytes")
    buffers: list[bytes] = []
    for size in sizes:
        part = yield size
        # Keys must be bytes; of arrays, which may be large, a view serves as well and saves a copy.
        buffers.append(bytes(part) if size <= COPIED else cast(bytes, part))
    return kind, unpack(body, buffers)


class Channel:
    """A server's end. Sending is safe from several threads and waits; receiving is for one thread and waits."""

    def __init__(self, connection: socket.socket, longest: int = LONGEST_BUFFERS) -> None:
        self._socket = connection
        self._lock = threading.Lock()
        self._reader = MessageReader(longest)

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, kind: str, **fields: Any) -> None:
        pieces = encode(kind, **fields)
        try:
            with self._lock:
                for piece in pieces:
                    self._socket.sendall(piece)
        except OSError as error:
            raise ChannelClosed(str(error)) from None

    def read(self) -> Message | None:
        """Waits for some bytes; the message if they completed one."""
        return self._reader.read(self._socket)
