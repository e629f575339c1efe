"""Rounds: how protocols communicate, and how independent protocols share their rounds.

A protocol is a generator. It yields a `Round` (the messages it sends and the sizes it expects) and is resumed with what
arrived: one yield is one communication round. An algorithm is an ordinary ``async def`` that awaits protocols, so every
``await`` in it is communication. `together` runs several of them in lock-step and merges their messages, so that
independent operations take the rounds of the longest one:

    product, smaller = await together(x * y, x < y)          # 2 rounds, not 3

This module is independent of the network. `drive` runs one server's program over a mesh; `run_lockstep` runs all four
programs in one thread, deterministically, for tests.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
"""Bytes of a message to send."""

Received = NDArray[np.uint8] | bytes | bytearray | memoryview
"""A message as the transport delivers it: a contiguous buffer."""

T = TypeVar("T")


class Round:
    """The messages of one server in one round: `sends` is [(peer, array)], `expects` is [(peer, bytes)].

    Messages between the same two servers keep their order, and all four servers run the same program. So the receiver
    can cut a merged frame into its messages.
    """

    __slots__ = ("expects", "sends")

    def __init__(self, sends: list[tuple[int, NDArray[Any]]], expects: list[tuple[int, int]]) -> None:
        self.sends = sends
        self.expects = expects


Step = Generator[Round, list[Bytes], T]
"""A protocol in progress: yields rounds, is resumed with what it expected (in that order), returns its result."""


class Exchange(Protocol):
    """Interface that a round needs from the transport; `ppca.transport.Mesh` implements it."""

    def exchange(self, sends: list[tuple[int, Any]], expects: list[tuple[int, int]], /) -> list[Any]: ...


class _Together(Awaitable[list[Any]]):
    """Awaitables that run in lock-step: round i of each is merged into one round."""

    __slots__ = ("_parts",)

    def __init__(self, parts: Sequence[Awaitable[Any]]) -> None:
        self._parts = parts

    def __await__(self) -> Generator[Round, list[Bytes], list[Any]]:
        results: list[Any] = [None] * len(self._parts)
        running: list[tuple[int, Iterator[Any]]] = [(i, _start(part)) for i, part in enumerate(self._parts)]
        inbox: dict[int, list[Bytes] | None] = {}
        while True:
            waiting: list[tuple[int, Iterator[Any], Round]] = []
            for i, generator in running:
                try:
                    waiting.append((i, generator, generator.send(inbox.get(i))))  # type: ignore[attr-defined]
                except StopIteration as stop:
                    results[i] = stop.value
            if not waiting:
                return results
            if len(waiting) == 1:
                i, generator, only = waiting[0]
                inbox[i] = yield only
            else:
                sends = [message for _, _, part in waiting for message in part.sends]
                expects = [message for _, _, part in waiting for message in part.expects]
                arrived = yield Round(sends, expects)
                position = 0
                for i, _, part in waiting:
                    inbox[i] = arrived[position : position + len(part.expects)]
                    position += len(part.expects)
            running = [(i, generator) for i, generator, _ in waiting]


def _start(part: Awaitable[Any]) -> Any:
    """Return the generator behind an awaitable; a coroutine already is one (it has `send`)."""
    return part if isinstance(part, Coroutine) else part.__await__()


def together(*parts: Awaitable[Any]) -> Awaitable[list[Any]]:
    """Await all `parts` at once: round i of every part is sent in the same round. Return their results in order."""
    return _Together(parts)


def drive(program: Coroutine[Any, Any, T], mesh: Exchange) -> T:
    """Run one server's program to its end: each yielded round is one exchange over `mesh`."""
    send, exchange = program.send, mesh.exchange
    arrived: Any = None
    while True:
        try:
            step: Round = send(arrived)
        except StopIteration as stop:
            result: T = stop.value
            return result
        arrived = exchange(step.sends, step.expects)


@dataclass
class Traffic:
    """Traffic of a lock-step run: number of rounds, and payload bytes sent by each server."""

    rounds: int
    sent: list[int]


class DesynchronisedError(RuntimeError):
    """The programs of the four servers disagree about a round.

    This is a bug in a protocol; it does not depend on data.
    """


def run_lockstep(
    programs: Sequence[Coroutine[Any, Any, T]], tap: Callable[[int, int, Bytes], None] | None = None
) -> tuple[list[T], Traffic]:
    """Run the four servers' programs in one thread without a network. Return their results and the exact traffic.

    `tap(sender, receiver, bytes)` is called with every message: tests use it to examine what one server sees.
    """
    seats = range(len(programs))
    results: list[Any] = [None] * len(programs)
    traffic = Traffic(rounds=0, sent=[0] * len(programs))
    inbox: list[Any] = [None] * len(programs)
    while True:
        steps: list[Round | None] = []
        for seat in seats:
            try:
                steps.append(programs[seat].send(inbox[seat]))
            except StopIteration as stop:
                results[seat] = stop.value
                steps.append(None)
        active = [step for step in steps if step is not None]
        if not active:
            return results, traffic
        if len(active) != len(programs):
            done = [seat for seat in seats if steps[seat] is None]
            raise DesynchronisedError(
                f"programs of servers {done} ended before round {traffic.rounds}, the others did not"
            )
        queues: dict[tuple[int, int], list[Bytes]] = {}
        for seat, step in enumerate(active):
            for peer, buffer in step.sends:
                message = np.frombuffer(np.ascontiguousarray(buffer).tobytes(), np.uint8).copy()
                traffic.sent[seat] += message.size
                if tap is not None:
                    tap(seat, peer, message)
                queues.setdefault((seat, peer), []).append(message)
        for seat, step in enumerate(active):
            arrived = []
            for peer, size in step.expects:
                queue = queues.get((peer, seat))
                if not queue or queue[0].size != size:
                    found = "nothing" if not queue else f"{queue[0].size} bytes"
                    raise DesynchronisedError(
                        f"round {traffic.rounds}: server {seat} expects {size} bytes from server {peer}, found {found}"
                    )
                arrived.append(queue.pop(0))
            inbox[seat] = arrived
        left = {pair: len(queue) for pair, queue in queues.items() if queue}
        if left:
            raise DesynchronisedError(f"round {traffic.rounds}: unexpected messages (sender, receiver): {left}")
        traffic.rounds += 1
