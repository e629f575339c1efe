"""The control channel between a server process and its parent: framed messages, JSON plus buffers.

Format: u32 length of the JSON text, the text, then the buffers it announces, back to back. All integers little endian.
The text is {"kind": ..., "body": ..., "sizes": [...]}; `codec` encodes values as body and buffers.

`worker` lists the messages.

The channel is also the leash: a server ends when its parent's end closes, whatever it is doing.
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
MAX_TEXT = 1 << 26
MAX_BUFFER_BYTES = 1 << 34
"""Default maximum of the bytes of all buffers of a message."""

MAX_BUFFERS = 1 << 16
COPIED = 1 << 12

Message = tuple[str, dict[str, Any]]


class ChannelClosed(ConnectionError):
    """The other side closed the channel."""


def encode(kind: str, **fields: Any) -> list[bytes]:
    """Return a message as the chunks to send. Raise CodecError for values that cannot be sent, before anything is
    sent."""
    buffers: list[bytes] = []
    body = {name: pack(value, buffers, name) for name, value in fields.items()}
    text = json.dumps({"kind": kind, "body": body, "sizes": [len(b) for b in buffers]}).encode()
    if len(text) > MAX_TEXT:
        raise CodecError(
            f"{len(text):,} bytes of lists and strings exceed the {MAX_TEXT:,} of a message; use NumPy arrays"
        )
    return [HEADER.pack(len(text)) + text, *(buffer for buffer in buffers if buffer)]


class MessageReader:
    """Assemble messages from a byte stream, however its bytes are split."""

    def __init__(self, longest: int = MAX_BUFFER_BYTES, longest_text: int = MAX_TEXT) -> None:
        self._longest, self._longest_text = longest, longest_text
        self._begin()

    def _begin(self) -> None:
        self._part: bytearray | memoryview
        self._parts = _message(self._longest, self._longest_text)
        self._expect(next(self._parts))

    def _expect(self, size: int) -> None:
        try:
            # Large parts are not zeroed first, because touching memory twice is slow.
            self._part = bytearray(size) if size <= COPIED else np.empty(size, np.uint8).data
        except MemoryError:
            raise CodecError(f"not enough memory for a part of {size:,} bytes of a control message") from None
        self._at = 0

    def read(self, connection: socket.socket) -> Message | None:
        """Read once from `connection`; return the message if it is complete. Raise BlockingIOError without data."""
        try:
            got = connection.recv_into(memoryview(self._part)[self._at :])
        except BlockingIOError:
            raise
        except OSError as error:
            raise ChannelClosed(str(error)) from None
        if got == 0:
            raise ChannelClosed("the other side closed the control channel")
        self._at += got
        while self._at == len(self._part):  # repeated if empty parts follow
            try:
                self._expect(self._parts.send(self._part))
            except StopIteration as complete:
                message: Message = complete.value
                self._begin()
                return message
        return None


def _message(longest: int, longest_text: int) -> Generator[int, bytearray | memoryview, Message]:
    """Yield the size of each part of a message, receive the part, and return the message.

    longest: maximum bytes of all buffers together. longest_text: maximum bytes of the text.
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
    if len(sizes) > MAX_BUFFERS or not all(type(n) is int and n >= 0 for n in sizes) or sum(sizes) > longest:
        raise CodecError(f"a control message announces wrong buffer sizes, or more than {longest:,} bytes")
    buffers: list[bytes] = []
    for size in sizes:
        part = yield size
        # Keys must be bytes. Arrays, which may be large, stay views, which saves a copy.
        buffers.append(bytes(part) if size <= COPIED else cast(bytes, part))
    return kind, unpack(body, buffers)


class Channel:
    """A server's end of the channel. Several threads can send; one thread can receive. Both block."""

    def __init__(self, connection: socket.socket, longest: int = MAX_BUFFER_BYTES) -> None:
        self._socket = connection
        self._lock = threading.Lock()
        self._reader = MessageReader(longest)

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, kind: str, **fields: Any) -> None:
        chunks = encode(kind, **fields)
        try:
            with self._lock:
                for chunk in chunks:
                    self._socket.sendall(chunk)
        except OSError as error:
            raise ChannelClosed(str(error)) from None

    def read(self) -> Message | None:
        """Wait for bytes; return the message if they complete one."""
        return self._reader.read(self._socket)
