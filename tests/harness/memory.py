"""Four meshes in one process, for threads: the same rounds and the same errors as over sockets, without a network.

Each server has an inbox per peer. A frame is the tuple (header fields, payload); the payload is copied when it is sent,
so no thread sees later changes of another thread's arrays.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from threading import Condition
from time import perf_counter

import numpy as np

from ppca.transport.errors import SERVERS, PeerTimeout, TransportError, server_name
from ppca.transport.frames import (
    ABORT,
    CLOSE,
    DATA,
    MAGIC,
    MAX_PAYLOAD,
    MAX_REASON,
    VERSION,
    Buffer,
    Fields,
    Payloads,
    peer_aborted,
    peer_closed,
    size_of,
    unexpected_frame,
)
from ppca.transport.mesh import DEFAULT_TIMEOUT, Mesh, Messages, Sizes, merge_messages, split_frames


def data_fields(sender: int, step: int, length: int) -> Fields:
    """The decoded header that a DATA frame must have."""
    return (MAGIC, VERSION, DATA, sender, 0, 0, step, length)


class MemoryMesh(Mesh):
    """One server of an in-memory mesh; made by ``memory_meshes``, used by one thread."""

    def __init__(self, seat: int, *, timeout: float = DEFAULT_TIMEOUT, max_payload: int = MAX_PAYLOAD) -> None:
        super().__init__(seat, timeout=timeout, max_payload=max_payload)
        self._peers: dict[int, MemoryMesh] = {}
        self._inbox: dict[int, deque[tuple[Fields, memoryview]]] = {p: deque() for p in SERVERS if p != seat}
        self._farewells: dict[int, tuple[Fields, memoryview]] = {}
        self._arrived = Condition()

    def exchange(self, sends: Messages, expects: Sizes) -> list[memoryview | bytearray]:
        self._check_usable()
        outgoing, incoming = merge_messages(sends, expects)
        started = perf_counter()
        self._ended = "an exchange failed"  # until this one has succeeded
        self._send(outgoing)
        received = self._receive(incoming, started + self.timeout)
        self.step += 1
        stage = self.stats.current
        stage.rounds += 1
        stage.messages_sent += len(outgoing)
        stage.messages_received += len(incoming)
        stage.seconds += perf_counter() - started
        self._ended = None
        return split_frames(expects, received)

    def _send(self, outgoing: Mapping[int, Sequence[Buffer]]) -> None:
        stage = self.stats.current
        for peer, buffers in outgoing.items():
            try:
                payload = _copy(buffers)
            except (BufferError, TypeError, ValueError) as error:
                raise self._refuse_buffers(peer, error) from error
            size = len(payload)
            if size > self.max_payload:
                raise self._refuse_size(peer, size)
            with self._arrived:
                if peer in self._farewells:
                    raise self._parted(peer)
            self._peers[peer]._deliver(self.seat, data_fields(self.seat, self.step, size), payload)
            stage.sent_to[peer] += size

    def _receive(self, incoming: Mapping[int, int], deadline: float) -> Payloads:
        stage = self.stats.current
        received: Payloads = {}
        for peer, size in incoming.items():
            if size > self.max_payload:
                raise self._refuse_size(peer, size)
            fields, payload = self._next(peer, deadline)
            if fields != data_fields(peer, self.step, size):
                raise unexpected_frame(fields, self.seat, peer, self.step, length=size)
            received[peer] = payload
            stage.received_from[peer] += size
        return received

    def _next(self, peer: int, deadline: float) -> tuple[Fields, memoryview]:
        inbox = self._inbox[peer]
        with self._arrived:
            while not inbox:
                for other, (fields, _) in self._farewells.items():
                    if other == peer or fields[2] == ABORT:
                        raise self._parted(other)
                if not self._arrived.wait(deadline - perf_counter()) and not inbox:
                    raise self._timed_out(peer)
            return inbox.popleft()

    def _parted(self, peer: int) -> TransportError:
        fields, reason = self._farewells[peer]
        if fields[2] == ABORT:
            return peer_aborted(self.seat, peer, self.step, bytes(reason))
        return peer_closed(self.seat, peer, self.step)

    def _timed_out(self, peer: int) -> TransportError:
        return PeerTimeout(
            f"{server_name(self.seat)} waited {self.timeout:g} s in step {self.step} for a frame from "
            f"{server_name(peer)}; "
            "check that this server runs, or raise the timeout",
            self.seat,
            peer,
            self.step,
        )

    def _deliver(self, sender: int, fields: Fields, payload: memoryview) -> None:
        with self._arrived:
            if fields[2] in (ABORT, CLOSE):
                self._farewells.setdefault(sender, (fields, payload))
            else:
                self._inbox[sender].append((fields, payload))
            self._arrived.notify()

    def abort(self, reason: str) -> None:
        self._end("it was aborted", ABORT, reason.encode("utf-8", "replace")[:MAX_REASON])

    def close(self) -> None:
        self._end("it was closed", CLOSE, b"")

    def _end(self, how: str, kind: int, payload: bytes) -> None:
        self._ended = how
        for peer in self._peers.values():
            fields = (MAGIC, VERSION, kind, self.seat, 0, 0, self.step, len(payload))
            peer._deliver(self.seat, fields, memoryview(payload))
        self._peers = {}


def _copy(buffers: Sequence[Buffer]) -> memoryview:
    frame = np.empty(sum(map(size_of, buffers)), np.uint8)
    at = 0
    for buffer in buffers:
        if size := size_of(buffer):
            frame[at : at + size] = np.frombuffer(buffer, np.uint8)
            at += size
    return frame.data


def memory_meshes(timeout: float = DEFAULT_TIMEOUT, *, max_payload: int = MAX_PAYLOAD) -> list[Mesh]:
    """Four connected meshes, server by server; give each to its own thread."""
    meshes = [MemoryMesh(seat, timeout=timeout, max_payload=max_payload) for seat in SERVERS]
    for mesh in meshes:
        mesh._peers = {peer.seat: peer for peer in meshes if peer is not mesh}
    return list(meshes)
