"""The greeting: the first frames on a new connection, before it becomes a link.

    dialer   -> listener   HELLO (sender: dialer,   payload: seat of the listener, session id)
    listener -> dialer     HELLO (sender: listener, payload: seat of the dialer, session id), or ABORT with the reason

Both ends check that the other has the expected seat and is in the same session, that is, the same run of the same job.
The session id separates runs; it is not secret and proves nothing. Pinned keys decide which member may have a seat
(``pinned``).
"""

from __future__ import annotations

import socket
from time import monotonic

from .errors import SERVERS, FrameError, server_name
from .frames import ABORT, HEADER, HEADER_SIZE, HELLO, MAX_REASON, abort_frame, header_error, pack_header, peer_aborted

MAX_SESSION = 64
"""Maximum length of a session id in bytes."""


def send_hello(sock: socket.socket, seat: int, peer: int, session: bytes) -> None:
    """Send a HELLO frame."""
    sock.sendall(pack_header(HELLO, seat, 0, 1 + len(session)) + bytes([peer]) + session)


def send_refusal(sock: socket.socket, seat: int, reason: str) -> None:
    """Send an ABORT frame with the reason of a refusal."""
    sock.sendall(abort_frame(seat, 0, reason))


def read_hello(sock: socket.socket, seat: int, peer: int | None, session: bytes, deadline: float) -> int:
    """Read the other end's HELLO, check it and return the sender's seat.

    peer: the seat that must answer, or None to accept any higher seat. Raises FrameError for anything except a matching
    HELLO, PeerError if the other end refused, ConnectionError or TimeoutError if it did not answer.
    """
    fields = HEADER.unpack(_read(sock, HEADER_SIZE, deadline))
    kind, sender, length = int(fields[2]), int(fields[3]), int(fields[7])
    claimed = peer if peer is not None else sender
    fault = header_error(fields, seat, claimed, 0)
    if fault is not None:
        raise fault
    if kind == ABORT:
        raise peer_aborted(seat, claimed, 0, _read(sock, min(length, MAX_REASON), deadline))
    if kind != HELLO or not 1 <= length <= 1 + MAX_SESSION:
        raise FrameError(f"{server_name(seat)} got an invalid greeting from {server_name(claimed)}", seat, claimed, 0)
    payload = _read(sock, length, deadline)
    if peer is None and (sender not in SERVERS or sender <= seat):
        cause = f"{server_name(seat)} was dialed by {server_name(sender)}; only higher seats dial lower ones"
    elif payload[0] != seat:
        cause = (
            f"{server_name(claimed)} looked for {server_name(payload[0])} and found {server_name(seat)}; "
            "check the addresses of the servers"
        )
    elif payload[1:] != session:
        cause = (
            f"{server_name(claimed)} and {server_name(seat)} are in different sessions; start all servers for the same "
            "run, and stop servers left over from an earlier one"
        )
    else:
        return sender
    raise FrameError(cause, seat, claimed, 0)


def _read(sock: socket.socket, size: int, deadline: float) -> bytes:
    """Read exactly this number of bytes before the deadline."""
    data = b""
    while len(data) < size:
        remaining = deadline - monotonic()
        if remaining <= 0:
            raise TimeoutError(
                f"greeting timed out: received {len(data)} of {size} bytes. Check that the "
                "peer is a running ppca server."
            )
        sock.settimeout(remaining)
        piece = sock.recv(size - len(data))
        if not piece:
            raise ConnectionError(
                "the other end closed the connection during the greeting; check that both ends use TLS, or neither does"
            )
        data += piece
    return data
