"""The round over sockets: sends and receives at the same time, in one thread.

A round of small frames over plain TCP is one native call (``kernels.Wire``). For large frames, TLS and incomplete
transfers the round continues here. Every frame is offered to the kernel, which nearly always takes all of it; then
``poll`` waits for the expected frames. If the kernel takes only a part, the rest is sent in the same loop that
receives. So two servers that send each other more than their buffers hold never block each other.

The wait watches all three links. On a link from which no more is expected in this round, a fast peer may already send a
frame of the next one: it stays in the kernel. If such a peer ends the connection, the reason is read at once. So a
death or an ABORT on any server stops every waiting server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from os import strerror
from select import POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLRDHUP, poll
from socket import MSG_DONTWAIT, MSG_WAITALL
from time import perf_counter

import numpy as np

from ..native import kernels
from .errors import PeerTimeout, TransportError, server_name
from .frames import HEADER_SIZE, HEADER_WORDS, MAX_PAYLOAD, Buffer, Payloads, data_word, size_of
from .link import COPY_LIMIT, Link, TcpLink, empty_block
from .mesh import DEFAULT_TIMEOUT, Mesh, Messages, Sizes, merge_messages, split_frames
from .stats import Stats

_LISTEN = POLLIN | POLLRDHUP
_ENDED = POLLRDHUP | POLLHUP | POLLERR | POLLNVAL

_AT_ONCE = int(MSG_DONTWAIT)
_WHOLE = int(MSG_WAITALL)
_FAILED = "an exchange failed"


MIN_BYTES_PER_SECOND = 1 << 17
"""Minimum rate in bytes per second at which a server must receive and send.

It limits a round with a steady flow of data.
"""

MAX_NATIVE_FRAME = 1 << 16
"""Maximum size in bytes of a frame in a native round: such frames nearly always need one call each."""

_pack = HEADER_WORDS.pack
_unpack = HEADER_WORDS.unpack_from


def _culprit(sends: Messages) -> int:
    """Return the first peer whose message is not a contiguous buffer, else the first peer."""
    for peer, buffer in sends:
        try:
            np.frombuffer(buffer, np.uint8)
        except (BufferError, TypeError, ValueError):
            return peer
    return sends[0][0] if sends else 0


class SocketMesh(Mesh):
    """A mesh over three stream links, TCP or TLS; made by ``connect_mesh``."""

    def __init__(
        self,
        seat: int,
        links: Sequence[Link],
        *,
        timeout: float = DEFAULT_TIMEOUT,
        max_payload: int = MAX_PAYLOAD,
    ) -> None:
        self._word = data_word(seat)
        self._wire = kernels.Wire(
            self._word, [(link.peer, link.fd, link.word) for link in links], min(MAX_NATIVE_FRAME, max_payload)
        )
        if not all(isinstance(link, TcpLink) for link in links):
            self._wire.close()
        super().__init__(seat, timeout=timeout, max_payload=max_payload, stats=Stats(self._wire.take_counts))
        self._links = {link.peer: link for link in links}
        self._by_fd = {link.fd: link for link in links}
        self._poll = poll()
        for link in links:
            self._poll.register(link.fd, _LISTEN)

    @property
    def step(self) -> int:
        number: int = self._wire.step
        return number

    @step.setter
    def step(self, number: int) -> None:
        self._wire.step = number

    def exchange(self, sends: Messages, expects: Sizes) -> list[memoryview | bytearray]:
        if self._ended is not None:
            self._check_usable()
        started = perf_counter()
        try:
            answer = self._wire.swap(sends, expects)
        except (BufferError, TypeError, ValueError, OverflowError) as error:  # nothing was sent
            self._ended = _FAILED
            raise self._refuse_buffers(_culprit(sends), error) from error
        if type(answer) is list:
            return answer
        self._ended = _FAILED  # until this round has succeeded
        outgoing, incoming = merge_messages(sends, expects)
        received, waiting = (
            self._offer(outgoing, incoming) if answer is None else self._go_on(outgoing, incoming, *answer)
        )
        if waiting or any(link.unsent for link in self._by_fd.values()):
            size = sum(incoming.values()) + sum(size_of(buffer) for buffers in outgoing.values() for buffer in buffers)
            self._wait(waiting, received, started + self.timeout, size / MIN_BYTES_PER_SECOND)
        stage = self.stats.current
        stage.messages_sent += len(outgoing)
        stage.messages_received += len(incoming)
        for peer, buffers in outgoing.items():
            stage.sent_to[peer] += sum(map(size_of, buffers))
        for peer, size in incoming.items():
            stage.received_from[peer] += size
        stage.rounds += 1
        stage.seconds += perf_counter() - started
        self.step += 1
        self._ended = None
        return split_frames(expects, received)

    def _go_on(
        self,
        outgoing: Mapping[int, Sequence[Buffer]],
        incoming: Mapping[int, int],
        sent: Mapping[int, int],
        read: Mapping[int, bytes],
    ) -> tuple[Payloads, dict[int, Link]]:
        """Continue a round of the native call that was incomplete. Return the payloads and the links still awaited.

        sent: bytes sent to each peer (or minus an error number). read: bytes read from each.
        """
        step, links = self.step, self._links
        broken: list[tuple[Link, Sequence[Buffer], int]] = []
        for peer, buffers in outgoing.items():
            size, count = sum(map(size_of, buffers)), sent[peer]
            if count != HEADER_SIZE + size:
                frame = (_pack(self._word, step, size), *buffers)
                links[peer].keep(frame, max(count, 0))
                if count < 0:
                    broken.append((links[peer], frame, -count))
        # Raise errors only now that every link knows its unsent bytes: the mesh then ends all links in an orderly way.
        for link, unsent, number in broken:
            link.unsendable(unsent, step, OSError(number, strerror(number)))
        received: Payloads = {}
        waiting: dict[int, Link] = {}
        for peer, size in incoming.items():
            block = empty_block(size)
            block[: len(read[peer])] = read[peer]
            link = links[peer]
            if link.begin(step, size, block, len(read[peer])) or len(read[peer]) == len(block):
                received[peer] = link.payload()
            else:
                waiting[link.fd] = link
        return received, waiting

    def _offer(
        self, outgoing: Mapping[int, Sequence[Buffer]], incoming: Mapping[int, int]
    ) -> tuple[Payloads, dict[int, Link]]:
        """Offer every frame to the kernel, then read what has arrived.

        Return the payloads and the links still awaited.
        """
        step, links = self.step, self._links
        limit = self.max_payload
        patient = True

        for peer, buffers in outgoing.items():
            link = links[peer]
            size = sum(map(size_of, buffers))
            if size > limit:
                raise self._refuse_size(peer, size)
            frame = (_pack(self._word, step, size), *buffers)
            try:
                sent = link.sendmsg(frame, (), _AT_ONCE)
            except OSError as error:
                sent = link.unsendable(frame, step, error)
            except (BufferError, TypeError, ValueError) as error:
                raise self._refuse_buffers(peer, error) from error
            if sent != HEADER_SIZE + size:
                link.keep(frame, sent)
                patient = False

        received: Payloads = {}
        waiting: dict[int, Link] = {}
        for peer, size in incoming.items():
            link = links[peer]
            if size > limit:
                raise self._refuse_size(peer, size)
            block = (
                link.small_block if size <= COPY_LIMIT else empty_block(size)
            )  # sizes come from the program, never from received data
            count = 0
            if patient and link.patient:
                try:
                    count = link.recv_into(block, HEADER_SIZE + size, _WHOLE)
                except OSError:  # nothing yet, or a broken connection: the next read shows which
                    patient = False
            if count == HEADER_SIZE + size and _unpack(block) == (link.word, step, size):
                received[peer] = block[HEADER_SIZE:count]
            elif link.begin(step, size, block, count):
                received[peer] = link.payload()
            else:
                waiting[link.fd] = link
                patient = False

        return received, waiting

    def _wait(self, waiting: dict[int, Link], received: Payloads, deadline: float, more: float) -> None:
        """Send unsent bytes and receive awaited frames until all are done or the deadline has passed.

        While data arrive without a pause, the round may take ``more`` seconds beyond the deadline, a time that depends
        on its size. A peer that keeps its socket readable cannot prolong it further.
        """
        by_fd = self._by_fd
        watch = self._poll
        blocked = {fd for fd, link in by_fd.items() if link.unsent}
        for fd in blocked:
            watch.modify(fd, _LISTEN | POLLOUT)
        quiet: list[int] = []  # links with an early frame: not watched for input in this round
        while waiting or blocked:
            left = deadline - perf_counter()
            events = watch.poll(max(0, ceil(left * 1000)))
            if not events or left < -more:
                raise self._timed_out(waiting)
            for fd, event in events:
                link = by_fd[fd]
                if event & POLLOUT and fd in blocked:
                    link.flush(self.step)
                    if not link.unsent:
                        blocked.remove(fd)
                        watch.modify(fd, _LISTEN)
                if fd in waiting:
                    if event != POLLOUT and link.advance():
                        received[link.peer] = link.payload()
                        del waiting[fd]
                elif event & _ENDED:
                    link.depart(self.step)
                    watch.unregister(fd)
                elif event & POLLIN:
                    quiet.append(fd)
                    watch.modify(fd, POLLRDHUP | POLLOUT if fd in blocked else POLLRDHUP)
        for fd in quiet:
            if not by_fd[fd].gone:
                watch.modify(fd, _LISTEN)

    def _timed_out(self, waiting: Mapping[int, Link]) -> TransportError:
        """Return the error with the peer to examine: one that owes a frame, else one that does not read."""
        silent = [link.peer for link in waiting.values()]
        stuck = [link.peer for link in self._links.values() if link.unsent]
        parts = []
        if silent:
            parts.append(f"for a frame from {' and '.join(map(server_name, silent))}")
        if stuck:
            parts.append(f"for {' and '.join(map(server_name, stuck))} to read")
        return PeerTimeout(
            f"{server_name(self.seat)} waited {self.timeout:g} s in step {self.step} {' and '.join(parts)}; check that "
            "this server runs and can be reached, or raise the timeout",
            self.seat,
            (silent or stuck)[0],
            self.step,
        )

    def abort(self, reason: str) -> None:
        self._end("it was aborted", reason)

    def close(self) -> None:
        self._end("it was closed", None)

    def _end(self, how: str, reason: str | None) -> None:
        """End all links."""
        self._wire.close()
        links = list(self._links.values())
        self._links = {}
        self._by_fd = {}
        self._ended = how
        for link in links:
            link.end(self.step, reason)
