"""A server that lies below the protocol: for a while, its frames to the other servers are wrong.

The server processes of `ppca bench chaos` load this module when they start (`adversary.altered_servers`). A file says
how a server lies; an empty or missing file means that it does not. Honest servers must refuse such a frame by the
server and the step; the attempt fails and is repeated. Payloads of the right size with other numbers are left out: a
server that changes its messages inside the protocol can falsify a result (docs/security/threat-model.md).
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ppca.transport.frames import ABORT, CLOSE, HEADER, HEADER_SIZE, HELLO
from ppca.transport.link import TlsLink

WAYS = ("length", "step", "sender", "kind", "noise", "cut", "silence")
PART = 0.05
"""The part of all frames that are wrong while a server lies."""

EVERY = 0.1
"""Seconds between two looks at the file."""


def altered(frame: bytes, way: str, draw: random.Random) -> bytes:
    """A frame that is wrong in one way; nothing if the server is silent."""
    if way == "silence":
        return b""
    if way == "noise":
        return draw.randbytes(len(frame))
    if way == "cut":
        return frame[: draw.randrange(len(frame))]
    magic, version, kind, sender, low, high, step, length = HEADER.unpack_from(frame)
    if way == "length":
        length += draw.choice((-1, 1, 8, 1 << 40, (1 << 63) - length))
    elif way == "step":
        step += draw.choice((1, 2, 1 << 32))
    elif way == "sender":
        sender = (sender + draw.randrange(1, 4)) % 4
    else:
        kind = draw.choice((0, HELLO, ABORT, CLOSE, 9))
    return HEADER.pack(magic, version, kind, sender, low, high, step, max(0, length)) + frame[HEADER_SIZE:]


class _Lies:
    """Content of the file, and the count of wrong frames, which is the size of the file beside it."""

    def __init__(self, place: Path) -> None:
        self._place, self._way, self._due = place, "", 0.0
        self._draw = random.Random()  # noqa: S311 - no secret

    def way(self) -> str:
        """Return how to lie about this frame; "" if it is right."""
        now = time.monotonic()
        if now >= self._due:
            with contextlib.suppress(OSError):
                self._way = self._place.read_text()
            self._due = now + EVERY
        return self._way if self._way and self._draw.random() < PART else ""

    def of(self, frame: bytes, way: str) -> bytes:
        with open(counts_of(self._place), "ab", buffering=0) as file:
            file.write(b".")
        return altered(frame, way, self._draw)


def counts_of(place: Path) -> Path:
    return place.with_suffix(".count")


def install(place: str | os.PathLike[str]) -> None:
    """Let this process lie as the file says."""
    lies, real = _Lies(Path(place)), TlsLink.sendmsg

    def sendmsg(self: TlsLink, parts: Sequence[Any], *more: Any) -> int:
        way = lies.way()
        if not way:
            return real(self, parts, *more)
        frame = b"".join(bytes(memoryview(part).cast("B")) for part in parts if memoryview(part).nbytes)
        wrong = lies.of(frame, way)
        with contextlib.suppress(OSError):
            real(self, (wrong,), *more)
            if way == "cut":
                socket.socket.shutdown(self.sock, socket.SHUT_RDWR)
        return len(frame)

    TlsLink.sendmsg = sendmsg  # type: ignore[method-assign]
