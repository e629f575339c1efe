"""The round over sockets: send and receive at the same time, in one thread.

``exchange`` first offers every frame to the kernel, which nearly always takes it whole, then waits with ``poll`` for
what is expected. If the kernel takes only a part, the rest goes out in the same loop that receives, so two servers that
send each other more than their buffers hold never block each other.

The wait watches all three links. On a link from which nothing more is expected in this round, a frame may already come
early from a fast peer: it stays in the kernel. But if such a peer ends the connection, the reason is read at once; so a
death or an ABORT anywhere stops every waiting server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from os import strerror
from select import POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLRDHUP, poll
from socket import MSG_DONTWAIT, MSG_WAITALL
from time import perf_counter

from ppca.native import kernels
from ppca.transport.errors import PeerTimeout, TransportError, seat_name
from ppca.transport.frames import HEADER_SIZE, MAX_PAYLOAD, WORDS, Buffer, Payloads, data_word
from ppca.transport.link import SMALL, Link, TcpLink, empty_block
from ppca.transport.mesh import DEFAULT_TIMEOUT, Mesh

_LISTEN = POLLIN | POLLRDHUP
_ENDED = POLLRDHUP | POLLHUP | POLLERR | POLLNVAL

_AT_ONCE = int(MSG_DONTWAIT)
_WHOLE = int(MSG_WAITALL)
_PLAIN = (bytes, bytearray)  # buffers without the attribute nbytes


SWIFT = 1 << 16
"""Largest payload of a round that goes through the native call: such frames nearly always go out and come in at one go."""

_pack = WORDS.pack
_unpack = WORDS.unpack_from
swap_frames = kernels.swap_frames


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
        super().__init__(seat, timeout=timeout, max_payload=max_payload)
        self._word = data_word(seat)
        self._swift = max_payload >= SWIFT and all(isinstance(link, TcpLink) for link in links)
        self._links = {link.peer: link for link in links}
        self._by_fd = {link.fd: link for link in links}
        self._poll = poll()
        for link in links:
            self._poll.register(link.fd, _LISTEN)

    def exchange(self, outgoing: Mapping[int, Sequence[Buffer]], incoming: Mapping[int, int]) -> Payloads:
        if self._ended is not None:
            self._check_usable()
        started = perf_counter()
        self._ended = "an exchange failed"  # until this one has succeeded
        step = self.step
        if self._swift and max(incoming.values(), default=0) <= SWIFT:
            received, waiting = self._swap(outgoing, incoming, step)
        else:
            received, waiting = self._one_by_one(outgoing, incoming, step)
        if waiting is not None:
            self._wait(waiting, received, started + self.timeout)
        stage = self.stats.current
        stage.messages_sent += len(outgoing)
        stage.messages_received += len(incoming)
        stage.rounds += 1
        stage.seconds += perf_counter() - started
        self.step = step + 1
        self._ended = None
        return received

    def _swap(
        self, outgoing: Mapping[int, Sequence[Buffer]], incoming: Mapping[int, int], step: int
    ) -> tuple[Payloads, dict[int, Link] | None]:
        """All frames of a small round in one native call; what did not go as usual goes on as in `_one_by_one`."""
        links = self._links
        sends = [(links[peer].fd, buffers) for peer, buffers in outgoing.items()]
        receives = [(links[peer].fd, links[peer].word, size) for peer, size in incoming.items()]
        try:
            answer = swap_frames(self._word, step, sends, receives, self.max_payload)
        except (BufferError, TypeError, ValueError) as error:
            raise self._refuse_buffers(next(iter(outgoing)), error) from error
        if answer is None:
            return self._one_by_one(outgoing, incoming, step)  # it names the frame that is too large
        stage = self.stats.current
        for peer, size in zip(outgoing, answer[0], strict=True):
            stage.sent_to[peer] += size
        for peer, size in incoming.items():
            stage.received_from[peer] += size
        if len(answer) == 2:
            return dict(zip(incoming, answer[1], strict=True)), None
        for (peer, buffers), size, sent in zip(outgoing.items(), *answer[:2], strict=True):
            if sent != HEADER_SIZE + size:
                frame = (_pack(self._word, step, size), *buffers)
                if sent < 0:
                    sent = links[peer].unsendable(frame, step, OSError(-sent, strerror(-sent)))
                links[peer].keep(frame, sent)
        received: Payloads = {}
        waiting: dict[int, Link] = {}
        for (peer, size), (_, read) in zip(incoming.items(), answer[2], strict=True):
            block = bytearray(HEADER_SIZE + size)
            block[: len(read)] = read
            link = links[peer]
            if link.begin(step, size, block, len(read)) or len(read) == len(block):
                received[peer] = link.payload()
            else:
                waiting[link.fd] = link
        return received, waiting

    def _one_by_one(
        self, outgoing: Mapping[int, Sequence[Buffer]], incoming: Mapping[int, int], step: int
    ) -> tuple[Payloads, dict[int, Link] | None]:
        """Offers every frame to the kernel, then reads what has come. Returns the payloads and the links still awaited, or
        None in their place when nothing is left to do."""
        links = self._links
        stage = self.stats.current
        limit = self.max_payload
        patient = True

        for peer, buffers in outgoing.items():
            link = links[peer]
            size = 0
            for buffer in buffers:
                size += len(buffer) if isinstance(buffer, _PLAIN) else buffer.nbytes
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
            stage.sent_to[peer] += size

        received: Payloads = {}
        waiting: dict[int, Link] = {}
        for peer, size in incoming.items():
            link = links[peer]
            if size > limit:
                raise self._refuse_size(peer, size)
            block = link.room if size <= SMALL else empty_block(size)  # sizes from the program, never from the wire
            count = 0
            if patient and link.patient:
                try:
                    count = link.recv_into(block, HEADER_SIZE + size, _WHOLE)
                except OSError:  # nothing yet, or a broken connection: the next read tells
                    patient = False
            if count == HEADER_SIZE + size and _unpack(block) == (link.word, step, size):
                received[peer] = block[HEADER_SIZE:count]
            elif link.begin(step, size, block, count):
                received[peer] = link.payload()
            else:
                waiting[link.fd] = link
                patient = False
            stage.received_from[peer] += size

        return received, None if patient else waiting

    def _wait(self, waiting: dict[int, Link], received: Payloads, deadline: float) -> None:
        """Send what is unsent and receive what is awaited, both as they can, until nothing is left or the deadline."""
        by_fd = self._by_fd
        watch = self._poll
        blocked = {fd for fd, link in by_fd.items() if link.unsent}
        for fd in blocked:
            watch.modify(fd, _LISTEN | POLLOUT)
        quiet: list[int] = []  # links with an early frame: no longer watched for input in this round
        while waiting or blocked:
            events = watch.poll(max(0, ceil((deadline - perf_counter()) * 1000)))
            if not events:
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
        """Name the peer to look at: one that owes a frame, else one that does not read."""
        silent = [link.peer for link in waiting.values()]
        stuck = [link.peer for link in self._links.values() if link.unsent]
        parts = []
        if silent:
            parts.append(f"for a frame from {' and '.join(map(seat_name, silent))}")
        if stuck:
            parts.append(f"for {' and '.join(map(seat_name, stuck))} to read")
        return PeerTimeout(
            f"{seat_name(self.seat)} waited {self.timeout:g} s in step {self.step} {' and '.join(parts)}; check that "
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
        links = list(self._links.values())
        self._links = {}
        self._by_fd = {}
        self._ended = how
        for link in links:
            link.end(self.step, reason)
