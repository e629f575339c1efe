"""A link: one stream to one peer, read and written frame by frame.

The receiver knows the size of the next frame. It reads header and payload with one call and never reads past the end of
the frame: an early frame of the next round stays in the kernel. A large frame is read into the buffer that is returned
to the caller, with the payload aligned to 16 bytes. A small one is read into a block of the link, which stays in the
cache, and its payload is copied.

A link keeps the rest of a frame that could not be sent or received in one call. In the usual case one call is enough;
it is handled by ``kernels.Wire`` and ``SocketMesh`` and does not use this state. Subclasses implement plain TCP and
TLS.
"""

from __future__ import annotations

import errno
import selectors
import socket
import ssl
import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic
from typing import Any

import numpy as np

from .errors import FrameError, PeerError, TransportError, TruncatedFrameError, server_name
from .frames import (
    ABORT,
    CLOSE,
    HEADER,
    HEADER_SIZE,
    HEADER_WORDS,
    MAX_REASON,
    NO_REASON,
    Buffer,
    abort_frame,
    data_word,
    header_error,
    pack_header,
    peer_aborted,
    peer_closed,
    peer_died,
    size_of,
    unexpected_frame,
)

COPY_LIMIT = 8192
"""Maximum payload in bytes that is copied: up to this size copying is cheaper than returning a view."""

PATIENT_READ_SECONDS = 0.02
"""Seconds that a blocking read waits for one peer before the mesh watches all of them."""

MAX_PARTS = 512
"""Maximum number of buffers in one sendmsg; the kernel accepts 1024."""

_CLOSING_SECONDS = 1.0  # seconds that an orderly end waits for space in the kernel's send buffer
_DRAIN_SIZE = 1 << 16
_JOIN_LIMIT = 1 << 16  # maximum size in bytes of a frame that is joined and encrypted as one part
_PAD = -HEADER_SIZE % 16
_BYTE = np.dtype(np.uint8)
_NOTHING = memoryview(b"")


def empty_block(size: int) -> memoryview:
    """Return a block for a frame with ``size`` bytes of payload, the payload aligned to 16 bytes."""
    return np.empty(_PAD + HEADER_SIZE + size, _BYTE).data[_PAD:]


class Link(ABC):
    """One peer's stream. ``seat`` is this server, ``peer`` the other end.

    Attributes read by the mesh --------------------------- small_block : block for small frames; slicing it copies word
    : the first eight bytes of the peer's DATA headers, as a number unsent : the part of the current frame that the
    kernel has not accepted yet; empty between rounds patient : True if ``recv_into`` with MSG_WAITALL waits up to
    PATIENT_READ_SECONDS by itself, which saves a call of ``poll`` buffered : True if bytes may wait above the kernel,
    where ``poll`` does not see them gone : True after the peer's orderly end: frames sent before it can still be read
    """

    def __init__(self, sock: socket.socket, seat: int, peer: int) -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.seat = seat
        self.peer = peer
        self.word = data_word(peer)
        self.small_block = bytearray(HEADER_SIZE + COPY_LIMIT)
        self.unsent: list[memoryview] = []
        self.patient = False
        self.buffered = False
        self.gone = False
        self._backlog = bytearray()
        self._block = _NOTHING
        self._got = 0
        self._size = 0
        self._step = 0
        self._checked = True
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    # Moving bytes, with the signatures of socket.socket

    @abstractmethod
    def sendmsg(self, parts: Sequence[Any], ancillary: tuple[()] = (), flags: int = socket.MSG_DONTWAIT, /) -> int:
        """Send as much as possible without waiting; return the number of bytes, or raise BlockingIOError for none."""

    @abstractmethod
    def recv_into(self, into: memoryview | bytearray, size: int = 0, flags: int = socket.MSG_DONTWAIT, /) -> int:
        """Read available bytes; return their number (0 at the end of the stream).

        Raise BlockingIOError for none yet.
        """

    # Sending a frame in several calls

    def unsendable(self, frame: Sequence[Buffer], step: int, error: OSError) -> int:
        """Handle an error of ``sendmsg``: return the number of bytes sent if it is harmless, else raise the error it
        stands for.
        """
        if isinstance(error, BlockingIOError):
            return 0
        if error.errno == errno.EMSGSIZE:  # too many buffers for one call
            with suppress(BlockingIOError):
                return self.sendmsg(frame[:MAX_PARTS], (), socket.MSG_DONTWAIT)
            return 0
        raise self._lost(step, error) from error

    def keep(self, parts: Sequence[Buffer], sent: int) -> None:
        """Store in ``unsent`` the rest of a frame after its first ``sent`` bytes."""
        self.unsent = [np.frombuffer(part, _BYTE).data for part in parts if size_of(part)]
        self._consume(sent)

    def flush(self, step: int) -> None:
        """Continue sending ``unsent``."""
        frame = self.unsent[:MAX_PARTS]
        try:
            sent = self.sendmsg(frame, (), socket.MSG_DONTWAIT)
        except OSError as error:
            sent = self.unsendable(frame, step, error)
        self._consume(sent)

    def _consume(self, sent: int) -> None:
        """Remove sent bytes from ``unsent``."""
        unsent = self.unsent
        done = 0
        while done < len(unsent) and sent >= len(unsent[done]):
            sent -= len(unsent[done])
            done += 1
        del unsent[:done]
        if sent:
            unsent[0] = unsent[0][sent:]

    # Receiving a frame in several calls

    def begin(self, step: int, size: int, block: memoryview | bytearray, count: int) -> bool:
        """Expect the DATA frame of ``step`` with ``size`` bytes; its first ``count`` bytes are in ``block`` already.

        Return True if bytes that wait above the kernel complete it.
        """
        self._block = memoryview(block)[: HEADER_SIZE + size]
        self._got = count
        self._size = size
        self._step = step
        self._checked = False
        self._check()
        while self.buffered:
            if self.advance():
                return True
        return False

    def advance(self) -> bool:
        """Read available bytes of the expected frame; return True once it is complete."""
        rest = self._block[self._got :]
        try:
            count = self._take(rest) if self._backlog else self.recv_into(rest, 0, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            raise self._ending(f"reading failed ({error.strerror or type(error).__name__})") from error
        if not count:
            raise self._ending()
        self._got += count
        self._check()
        return self._got == len(self._block)

    def payload(self) -> memoryview | bytearray:
        """Return the payload of the complete frame."""
        payload, self._block = self._block[HEADER_SIZE:], _NOTHING
        return bytearray(payload) if self._size <= COPY_LIMIT else payload

    def _check(self) -> None:
        """Raise an error if the header is not the expected one."""
        if not self._checked and self._got >= HEADER_SIZE:
            if HEADER_WORDS.unpack_from(self._block) != (self.word, self._step, self._size):
                raise self._surprise()
            self._checked = True

    def _take(self, into: memoryview) -> int:
        """Take bytes from the backlog."""
        count = min(len(into), len(self._backlog))
        into[:count] = self._backlog[:count]
        del self._backlog[:count]
        return count

    # Explaining unexpected data

    def _surprise(self) -> TransportError:
        """Return the error for a header that is not the expected one."""
        fields = HEADER.unpack_from(self._block)
        reason = b""
        if fields[2] == ABORT:
            length = min(fields[7], MAX_REASON)
            reason = bytes(self._block[HEADER_SIZE : self._got])[:length]
            with suppress(OSError):
                reason += self._more(length - len(reason))
        return unexpected_frame(fields, self.seat, self.peer, self._step, length=self._size, reason=reason)

    def _more(self, count: int) -> bytes:
        """Read up to this number of bytes of the reason of an ABORT."""
        block = memoryview(bytearray(count))
        read = 0
        if count:
            read = self._take(block) if self._backlog else self.recv_into(block, 0, socket.MSG_DONTWAIT)
        return bytes(block[:read])

    def _ending(self, cause: str = NO_REASON) -> TransportError:
        """Return the error for a stream that ended while a frame was expected."""
        where = (self.seat, self.peer, self._step)
        if self._got:
            return TruncatedFrameError(
                f"{server_name(self.seat)} got a truncated frame from {server_name(self.peer)} in step {self._step}: "
                f"the connection ended after {self._got} of {len(self._block)} bytes; see the log of that server",
                *where,
            )
        return peer_closed(*where) if self.gone else peer_died(*where, cause)

    def depart(self, step: int, cause: str = NO_REASON) -> None:
        """Find out why the peer ended the connection while nothing was expected from it.

        Reads the remaining bytes, which the kernel's buffer limits. An orderly CLOSE sets ``gone`` and keeps the frames
        before it for later rounds; anything else raises.
        """
        self._drain()
        where = (self.seat, self.peer, step)
        at = 0
        while len(self._backlog) - at >= HEADER_SIZE:
            fields = HEADER.unpack_from(self._backlog, at)
            fault = header_error(fields, *where)
            if fault is not None:
                raise fault
            start, at = at + HEADER_SIZE, at + HEADER_SIZE + fields[7]
            if fields[2] == ABORT:
                raise peer_aborted(*where, self._backlog[start : min(at, start + MAX_REASON)])
            if fields[2] == CLOSE:
                del self._backlog[start - HEADER_SIZE :]
                self.gone = self.buffered = True
                self.patient = False
                return
        raise peer_died(*where, cause)

    def _lost(self, step: int, error: OSError) -> TransportError:
        """Return the error to raise after a failed send: the peer's own reason if it sent one."""
        cause = f"sending failed ({error.strerror or type(error).__name__})"
        if self._checked and not self.gone:  # between frames, so what is left to read starts with a header
            try:
                self.depart(step, cause)
            except (FrameError, PeerError) as told:
                return told
        where = (self.seat, self.peer, step)
        return peer_closed(*where) if self.gone else peer_died(*where, cause)

    def _drain(self) -> None:
        """Read all available bytes into the backlog."""
        block = memoryview(bytearray(_DRAIN_SIZE))
        with suppress(OSError):
            while count := self.recv_into(block, 0, socket.MSG_DONTWAIT):
                self._backlog += block[:count]

    # Ending

    def end(self, step: int, reason: str | None) -> None:
        """Send CLOSE, or ABORT with a reason, if the peer can still understand it; then close the connection."""
        with suppress(OSError, TransportError):
            if not self.unsent:
                farewell = pack_header(CLOSE, self.seat, step, 0)
                self._send_last(farewell if reason is None else abort_frame(self.seat, step, reason), step)
            self.sock.shutdown(socket.SHUT_WR)
            for _ in range(256):  # unread bytes would make the kernel reset the connection and discard the last frame
                if not self.sock.recv_into(self.small_block, 0, socket.MSG_DONTWAIT):
                    break
        self.sock.close()

    def _send_last(self, frame: bytes, step: int) -> None:
        """Send a last frame, waiting a short time for space in the kernel's send buffer."""
        self.unsent = [memoryview(frame)]
        self.flush(step)
        deadline = monotonic() + _CLOSING_SECONDS
        with selectors.PollSelector() as selector:
            selector.register(self.fd, selectors.EVENT_WRITE)
            while self.unsent and selector.select(max(0.0, deadline - monotonic())):
                self.flush(step)


class TcpLink(Link):
    """A plain TCP connection: the two methods of the socket itself, without a Python call in between."""

    def __init__(self, sock: socket.socket, seat: int, peer: int) -> None:
        super().__init__(sock, seat, peer)
        sock.setblocking(True)  # each call says by its flags whether it waits
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, round(PATIENT_READ_SECONDS * 1e6)))
        self.patient = True
        self.sendmsg = sock.sendmsg  # type: ignore[method-assign]
        self.recv_into = sock.recv_into  # type: ignore[method-assign]

    def sendmsg(self, parts: Sequence[Any], ancillary: tuple[()] = (), flags: int = 0, /) -> int:
        raise NotImplementedError

    def recv_into(self, into: memoryview | bytearray, size: int = 0, flags: int = 0, /) -> int:
        raise NotImplementedError


class TlsLink(Link):
    """A TLS connection after its handshake, with the interface of a non-blocking socket."""

    def __init__(self, sock: ssl.SSLSocket, seat: int, peer: int) -> None:
        super().__init__(sock, seat, peer)
        sock.setblocking(False)
        self._tls = sock

    def sendmsg(self, parts: Sequence[Any], ancillary: tuple[()] = (), flags: int = socket.MSG_DONTWAIT, /) -> int:
        """Encrypt and send part by part; small frames are joined first and sent as one packet."""
        if len(parts) > 1 and sum(map(size_of, parts)) <= _JOIN_LIMIT:
            parts = (b"".join(parts),)
        sent = 0
        for part in parts:
            size = size_of(part)
            if not size:
                continue
            try:
                count = self._tls.send(part)
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError) as blocked:
                if sent:
                    return sent
                raise BlockingIOError from blocked
            except ssl.SSLError as error:
                raise ConnectionError(error.errno, f"TLS: {error.reason}") from error
            sent += count
            if count < size:
                break
        return sent

    def recv_into(self, into: memoryview | bytearray, size: int = 0, flags: int = socket.MSG_DONTWAIT, /) -> int:
        """Decrypt until ``into`` is full or no more bytes are available, so that none stay where ``poll`` cannot see
        them.
        """
        wanted = size or len(into)
        block = memoryview(into)[:wanted]
        got = 0
        try:
            while got < wanted:
                count = self._tls.recv_into(block[got:])
                if not count:
                    break
                got += count
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as blocked:
            if not got:
                self.buffered = False
                raise BlockingIOError from blocked
        except ssl.SSLError as error:
            if not got:
                raise ConnectionError(error.errno, f"TLS: {error.reason}") from error
        self.buffered = self.gone or self._tls.pending() > 0
        return got
