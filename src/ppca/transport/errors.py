"""What can go wrong between servers, as types.

Every error names the seat that raised it, the peer it is about and the step (round) it happened in, both as attributes
and in its message, and says what to do next. Messages describe frames (kind, step, length) and never quote payload.

    TransportError
     +-- FrameError        the bytes are not the frame that the program expects here
     |    +-- TruncatedFrameError  ... because the connection ended inside it (also a PeerError)
     +-- PeerError         the peer died, closed or aborted; ``str`` carries its reason
     +-- PeerTimeout       the peer is silent for longer than the timeout
     +-- CertificateError  a certificate or key is missing, expired, of another seat or of another authority
"""

from __future__ import annotations

SEATS = (0, 1, 2, 3)


def seat_name(seat: int | None) -> str:
    """Seats are numbered 0..3 on the wire and spoken of as (row, column): ``seat_name(2) == "seat (1,0)"``."""
    return f"seat ({seat >> 1},{seat & 1})" if seat in SEATS and seat is not None else f"unknown seat {seat}"


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
    """A malformed frame, or a well-formed one that does not belong here (wrong step, sender or size)."""


class PeerError(TransportError):
    """The peer is gone: it died, closed its mesh, or aborted with a reason."""


class TruncatedFrameError(FrameError, PeerError):
    """The connection ended in the middle of a frame: a malformed frame and a lost peer at once."""


class PeerTimeout(TransportError):
    """Nothing (or not everything) came from the peer, or could be sent to it, within the timeout."""


class CertificateError(TransportError):
    """A certificate or key cannot be loaded, or does not prove what it should."""
