"""A mesh: one server's links to its three peers. Rounds are the only way to communicate.

In each round a server sends at most one frame to each peer and receives at most one from each. The program, which is
the same on all servers, determines the senders and sizes. So ``exchange`` needs no queues and no threads: it sends,
waits for the expected frames, and returns. Two implementations exist, TCP and TCP with mutual TLS (``tcp``); tests have
a third one, in memory.

    with mesh.stage("covariance"):
        c, d = mesh.exchange([(row_mate, a), (column_mate, b)], [(row_mate, 2048), (column_mate, 2048)])
        words = numpy.frombuffer(c, numpy.uint64)

After an error a mesh cannot be used, because rounds cannot be repeated. Call ``abort`` with the reason: the peers then
stop at once and report it, instead of running into their timeouts. ``with mesh:`` does this.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from .errors import SERVERS, FrameError, TransportError, server_name
from .frames import MAX_PAYLOAD, Buffer, Payloads
from .stats import Stats

DEFAULT_TIMEOUT = 60.0
"""Timeout of one exchange in seconds."""


class Stage:
    """Result of ``Mesh.stage``. At the end of a ``with`` block the previous stage is current again."""

    def __init__(self, stats: Stats, name: str) -> None:
        self._stats = stats
        self._former = stats.enter(name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stats.leave(self._former)


Messages = list[tuple[int, Buffer]]
"""Messages to send: (peer, buffer)."""

Sizes = list[tuple[int, int]]
"""Expected messages: (peer, size in bytes)."""


def merge_messages(sends: Messages, expects: Sizes) -> tuple[dict[int, list[Buffer]], dict[int, int]]:
    """Return messages by peer: the buffers of each outgoing frame, and the size of each incoming one."""
    outgoing: dict[int, list[Buffer]] = {}
    incoming: dict[int, int] = {}
    for peer, buffer in sends:
        outgoing.setdefault(peer, []).append(buffer)
    for peer, size in expects:
        incoming[peer] = incoming.get(peer, 0) + size
    return outgoing, incoming


def split_frames(expects: Sizes, payloads: Payloads) -> list[memoryview | bytearray]:
    """Cut each peer's payload into the messages that were expected from it, in the order of ``expects``."""
    position = dict.fromkeys(payloads, 0)
    pieces = []
    for peer, size in expects:
        start = position[peer]
        position[peer] = start + size
        payload = payloads[peer]
        pieces.append(payload if size == len(payload) else payload[start : start + size])
    return pieces


class Mesh(ABC):
    """One server's links to its peers.

    Attributes
    ----------
    seat : 0..3, the number of this server, 2 * row + column
    step : number of the next round, from 0
    stats : bytes, messages, rounds and seconds by stage
    timeout : seconds that one exchange may take as a whole
    max_payload : maximum payload in bytes that is sent or received
    """

    def __init__(
        self,
        seat: int,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        max_payload: int = MAX_PAYLOAD,
        stats: Stats | None = None,
    ) -> None:
        if seat not in SERVERS:
            raise ValueError(f"invalid seat: {seat!r}. It must be one of {SERVERS}.")
        if not timeout > 0:
            raise ValueError(f"timeout must be a positive number of seconds, got {timeout!r}")
        self.seat = seat
        self.step = 0
        self.stats = stats or Stats()
        self.timeout = timeout
        self.max_payload = max_payload
        self._ended: str | None = None

    @abstractmethod
    def exchange(self, sends: Messages, expects: Sizes) -> list[memoryview | bytearray]:
        """Run one round. Messages to (or from) the same peer are sent in one frame and keep their order.

        Parameters ---------- sends : (peer, C-contiguous buffer: array, bytes or memoryview). Buffers may be changed
        after the call. An empty buffer that is the
            only one to its peer makes a frame without payload.
        expects : (peer, exact size in bytes) of every message that peers send in this round.

        Returns ------- The expected messages in that order, in new writable buffers that belong to the caller. The
        first message of each peer is aligned to 16 bytes.

        Raises
        ------
        FrameError, PeerError, PeerTimeout : see ``errors``; the mesh cannot be used any more.
        """

    @abstractmethod
    def abort(self, reason: str) -> None:
        """Send all peers an ABORT with a short reason that must not contain data, then close. Never raises."""

    @abstractmethod
    def close(self) -> None:
        """End in an orderly way: peers that still expect data from this server get a PeerError. Never raises."""

    def stage(self, name: str) -> Stage:
        """Count the following rounds under ``name``: until the next call, or in ``with`` until the end of the block."""
        return Stage(self.stats, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if error is None:
            self.close()
        else:  # only messages of this layer are certain to contain no data
            self.abort(str(error) if isinstance(error, TransportError) else f"{type(error).__name__} in the program")

    def _check_usable(self) -> None:
        """Raise an error if the mesh has ended."""
        if self._ended is not None:
            raise TransportError(
                f"the mesh of {server_name(self.seat)} cannot be used in step {self.step}: {self._ended}; "
                "connect a new one",
                self.seat,
                None,
                self.step,
            )

    def _refuse_buffers(self, peer: int, error: Exception) -> ValueError:
        """Return the error for a buffer that cannot be sent."""
        here = f"{server_name(self.seat)} to {server_name(peer)} in step {self.step}"
        return ValueError(f"{here}: only C-contiguous buffers can be sent, use numpy.ascontiguousarray ({error})")

    def _refuse_size(self, peer: int, size: int) -> TransportError:
        """Return the error for a payload above the limit."""
        return FrameError(
            f"{server_name(self.seat)} refuses a payload of {size} bytes with {server_name(peer)} in step {self.step}: "
            f"the limit is {self.max_payload} bytes; send in smaller pieces or raise max_payload",
            self.seat,
            peer,
            self.step,
        )
