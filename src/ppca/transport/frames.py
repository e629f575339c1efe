"""The frame: the only format that servers send over a link. This page is its specification.

A frame is a header of 24 bytes, little-endian, followed by its payload.

    offset  size  field
    0       2     magic      b"PP"
    2       1     version    1
    3       1     kind       HELLO 1, DATA 2, ABORT 3, CLOSE 4
    4       1     sender     seat of the sender, 0..3 = 2 * row + column
    5       3     reserved   zero
    8       8     step       number of the round, counted from 0 by each mesh
    16      8     length     of the payload in bytes

    HELLO   first frame in each direction; step 0; payload: seat of the addressee (1 byte), then the session id
    DATA    the message of one server to one peer in one round: at most one per round and direction
    ABORT   the sender stops with an error; payload: reason, UTF-8, at most 512 bytes; then the connection ends
    CLOSE   the sender's program has ended; no payload; then the connection ends

Both ends run the same program, so the receiver knows step, sender and length of every DATA frame before it arrives. A
header that differs from this expectation in any field is refused. Memory is allocated from the expectation, never from
received lengths. The header is a multiple of 8 bytes, so that the payload of a frame that is read in one piece stays
aligned.
"""

from __future__ import annotations

import struct
from typing import Any, TypeAlias

from numpy.typing import NDArray

from .errors import FrameError, PeerError, TransportError, server_name

MAGIC = b"PP"
VERSION = 1
HELLO, DATA, ABORT, CLOSE = 1, 2, 3, 4
KIND_NAMES = {HELLO: "HELLO", DATA: "DATA", ABORT: "ABORT", CLOSE: "CLOSE"}

HEADER = struct.Struct("<2sBBBBHQQ")
HEADER_SIZE = HEADER.size

HEADER_WORDS = struct.Struct("<QQQ")
"""The same header as three numbers: constant part of a sender, step, length. Packs and compares faster."""

MAX_REASON = 512
"""Maximum length of the reason of an ABORT frame in bytes."""

MAX_PAYLOAD = 1 << 34
"""Default limit of one payload (16 GiB). A mesh refuses to send, expect or skip more."""

Buffer: TypeAlias = bytes | bytearray | memoryview | NDArray[Any]
"""Data that can be sent: any C-contiguous buffer."""

Payloads: TypeAlias = dict[int, memoryview | bytearray]
"""Result of a round: peer -> payload."""

Fields = tuple[bytes, int, int, int, int, int, int, int]
"""A decoded header: magic, version, kind, sender, two reserved fields, step, length."""


def size_of(buffer: Buffer) -> int:
    """Return the size in bytes."""
    return len(buffer) if isinstance(buffer, (bytes, bytearray)) else buffer.nbytes


def pack_header(kind: int, sender: int, step: int, length: int) -> bytes:
    """Return the header of a frame."""
    return HEADER.pack(MAGIC, VERSION, kind, sender, 0, 0, step, length)


def data_word(sender: int) -> int:
    """Return the first eight bytes of every DATA header of ``sender`` as one number (see ``HEADER_WORDS``)."""
    return int.from_bytes(pack_header(DATA, sender, 0, 0)[:8], "little")


def abort_frame(sender: int, step: int, reason: str) -> bytes:
    """Return an ABORT frame with this reason."""
    payload = reason.encode("utf-8", "replace")[:MAX_REASON]
    return pack_header(ABORT, sender, step, len(payload)) + payload


def header_error(fields: Fields, seat: int, peer: int, step: int) -> FrameError | None:
    """Return the error for a header that cannot come from ``peer`` at all; None if it can."""
    magic, version, kind, sender, flags, reserved, _, _ = fields
    if magic != MAGIC:
        cause = "it does not start with this protocol's magic; another program is using this link"
    elif version != VERSION:
        cause = f"its format version is {version}, this server uses {VERSION}; run the same release on all servers"
    elif kind not in KIND_NAMES:
        cause = f"its kind {kind} is unknown"
    elif sender != peer:
        cause = f"it claims to come from {server_name(sender)}; check the addresses of the servers"
    elif flags or reserved:
        cause = "its reserved bytes are not zero"
    else:
        return None
    here = f"{server_name(seat)} got an alien frame from {server_name(peer)} in step {step}"
    return FrameError(f"{here}: {cause}", seat, peer, step)


def unexpected_frame(
    fields: Fields, seat: int, peer: int, step: int, *, length: int | None, reason: bytes = b""
) -> TransportError:
    """Return the error for a frame whose header is not that of a DATA frame of ``step`` with ``length`` bytes.

    length: None if nothing was expected from this peer. reason: the payload of an ABORT frame.
    """
    fault = header_error(fields, seat, peer, step)
    if fault is not None:
        return fault
    me, them = server_name(seat), server_name(peer)
    _, _, kind, _, _, _, got_step, got_length = fields
    if kind == ABORT:
        return peer_aborted(seat, peer, step, reason)
    if kind == CLOSE:
        return peer_closed(seat, peer, step)
    if kind == HELLO:
        cause = f"{me} got a second HELLO from {them} in step {step}: the peer has restarted; start all servers again"
    elif got_step != step:
        order = "repeated or reordered" if got_step < step else "skipped"
        cause = (
            f"{me} got a frame of step {got_step} from {them} while in step {step}: rounds were {order}; "
            "all servers must run the same program on the same job"
        )
    elif length is None:
        cause = (
            f"{me} got {got_length} bytes from {them} in step {step} and expected none; "
            "all servers must run the same program on the same job"
        )
    else:
        cause = (
            f"{me} got a frame of {got_length} bytes from {them} in step {step} and expected {length}; "
            "all servers must run the same program on inputs of the same shape"
        )
    return FrameError(cause, seat, peer, step)


def peer_aborted(seat: int, peer: int, step: int, reason: bytes | bytearray) -> PeerError:
    """Return the error for a peer that aborted with this reason."""
    text = bytes(reason[:MAX_REASON]).decode("utf-8", "replace")
    said = "".join(c if c.isprintable() else " " for c in text) or "no reason given"
    return PeerError(f"{server_name(peer)} aborted, {server_name(seat)} was in step {step}: {said}", seat, peer, step)


def peer_closed(seat: int, peer: int, step: int) -> PeerError:
    """Return the error for a peer that ended its program too early."""
    return PeerError(
        f"{server_name(peer)} has ended its program and closed, {server_name(seat)} still needs it in step {step}; "
        "all servers must run the same program",
        seat,
        peer,
        step,
    )


NO_REASON = "the connection ended without a reason: the process died or was stopped"
"""Cause of a lost connection without an ABORT or CLOSE frame."""


def peer_died(seat: int, peer: int, step: int, cause: str = NO_REASON) -> PeerError:
    """Return the error for a connection that ended without a frame."""
    return PeerError(
        f"{server_name(seat)} lost {server_name(peer)} in step {step}: {cause}; see the log of that server",
        seat,
        peer,
        step,
    )
