"""Types of errors between servers.

Every error names the seat that raised it, the peer concerned and the step (round), as attributes and in its message,
and says what to do next. Messages describe frames (kind, step, length) and never contain payload.

    TransportError
     +-- FrameError        the bytes are not the expected frame
     |    +-- TruncatedFrameError  ... because the connection ended inside it (also a PeerError)
     +-- PeerError         the peer died, closed or aborted; ``str`` contains its reason
     +-- PeerTimeout       the peer was silent for longer than the timeout
     +-- CertificateError  a certificate or key is missing, expired, of another seat or of another authority
"""

from __future__ import annotations

SERVERS = (0, 1, 2, 3)
"""Numbers of the four servers: 2 * row + column."""


def server_name(seat: int | None) -> str:
    """Return the name of a server as texts show it: ``server_name(2) == "server 2"``."""
    return f"server {seat}" if seat in SERVERS and seat is not None else f"unknown server {seat}"


class TransportError(Exception):
    """Base of all errors of this layer. After one of them a mesh is unusable: abort or close it."""

    def __init__(self, message: str, seat: int | None = None, peer: int | None = None, step: int | None = None) -> None:
        super().__init__(message, seat, peer, step)  # all arguments, so that the error survives pickling
        self.message = message
        self.seat = seat
        self.peer = peer
        self.step = step

    def __str__(self) -> str:
        return self.message


class FrameError(TransportError):
    """A malformed frame, or a valid one that is not expected here (wrong step, sender or size)."""


class PeerError(TransportError):
    """The peer is lost: it died, closed its mesh, or aborted with a reason."""


class TruncatedFrameError(FrameError, PeerError):
    """The connection ended in the middle of a frame: a malformed frame and a lost peer."""


class PeerTimeout(TransportError):
    """Data from the peer did not arrive completely, or could not be sent to it, within the timeout."""


class CertificateError(TransportError):
    """A certificate or key cannot be loaded, or does not prove the expected identity."""
