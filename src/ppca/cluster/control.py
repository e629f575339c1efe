"""The control channel between a client and one server: framed messages, JSON plus buffers.

Format: u32 length of the JSON text, the text, then the buffers it announces, back to back. All integers little endian.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from typing import Any

from .codec import CodecError, pack, unpack

HEADER = struct.Struct("<I")
LONGEST_TEXT = 1 << 26
LONGEST_BUFFER = 1 << 36


class ChannelClosed(ConnectionError):
    """The other side ended the conversation."""


class Channel:
    """One end of a control channel. Sending is safe from several threads; receiving is for one."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._lock = threading.Lock()

    def send(self, kind: str, **fields: Any) -> None:
        buffers: list[bytes] = []
        body = pack(fields, buffers)
        text = json.dumps({"kind": kind, "body": body, "sizes": [len(b) for b in buffers]}).encode()
        try:
            with self._lock:
                self._socket.sendall(HEADER.pack(len(text)) + text)
                for buffer in buffers:
                    self._socket.sendall(buffer)
        except OSError as error:
            raise ChannelClosed(str(error)) from None

    def receive(self) -> tuple[str, dict[str, Any]]:
        (length,) = HEADER.unpack(self._exactly(HEADER.size))
        if length > LONGEST_TEXT:
            raise CodecError(f"a control message announces {length} bytes of text, the limit is {LONGEST_TEXT}")
        try:
            message = json.loads(bytes(self._exactly(length)))
            sizes = [int(size) for size in message["sizes"]]
            if any(not 0 <= size <= LONGEST_BUFFER for size in sizes):
                raise CodecError("a control message announces a buffer of impossible size")
            buffers = [bytes(self._exactly(size)) for size in sizes]
            return str(message["kind"]), unpack(message["body"], buffers)
        except (KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise CodecError(f"malformed control message: {error}") from None

    def _exactly(self, size: int) -> bytearray:
        data = bytearray(size)
        view, at = memoryview(data), 0
        while at < size:
            try:
                got = self._socket.recv_into(view[at:])
            except OSError as error:
                raise ChannelClosed(str(error)) from None
            if got == 0:
                raise ChannelClosed("the other side closed the control channel")
            at += got
        return data

    def close(self) -> None:
        self._socket.close()
