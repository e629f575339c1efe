"""The programs that the benchmarks run on the servers: one operation, repeated and timed."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.newton import newton_reciprocal, newton_sqrt
from ppca.protocol import Party, SecretArray
from ppca.protocol.pending import Pending
from ppca.protocol.rounds import Round, Step
from ppca.runtime import PerServer

OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "gt": lambda x, y: x > y,
    "eq": lambda x, y: x == y,
    "sqrt": lambda x, y: x.sqrt(),
    "reciprocal": lambda x, y: x.reciprocal(),
    "rsqrt": lambda x, y: x.rsqrt(),
    "matmul": lambda x, y: x @ y,
    "newton_sqrt": lambda x, y: newton_sqrt(x),
    "newton_reciprocal": lambda x, y: newton_reciprocal(x),
}


def _send_all(party: Party, value: int) -> Step[dict[int, int]]:
    """Send one public number to every peer; return theirs. Also a barrier."""
    peers = [server for server in range(4) if server != party.seat]
    word = np.asarray([value], np.int64)
    arrived = yield Round([(server, word) for server in peers], [(server, 8) for server in peers])
    return {server: int(np.frombuffer(data, np.int64)[0]) for server, data in zip(peers, arrived, strict=True)}


async def time_operation(
    party: Party, x: SecretArray, y: SecretArray, *, name: str, repeats: int, inner: int
) -> dict[str, Any]:
    """Seconds per operation, in `repeats` blocks of `inner` operations, and the last result for the error column."""
    operation = OPERATIONS[name]
    seconds = []
    result: Any = None
    for _ in range(repeats + 1):  # the first block warms up
        await Pending(_send_all(party, 0))
        start = time.perf_counter()
        for _ in range(inner):
            result = await finished(operation(x, y))
        seconds.append((time.perf_counter() - start) / inner)
    return {"result": result.reveal(why="benchmark"), "seconds": PerServer(seconds[1:])}


async def count_operation(party: Party, x: SecretArray, y: SecretArray, *, name: str) -> None:
    """The operation once and nothing else: its rounds and bytes are those of the run."""
    await finished(OPERATIONS[name](x, y))


async def finished(result: Any) -> Any:
    """The result of an operation: additions have it at once, others talk first."""
    return await result if isinstance(result, Awaitable) else result


def _swap(party: Party, payload: NDArray[np.uint8]) -> Step[None]:
    """A round of the transport that carries zeros to the two mates: what talking costs without computing."""
    mates = (party.row_mate, party.column_mate)
    yield Round([(mate, payload) for mate in mates], [(mate, payload.nbytes) for mate in mates])


async def _bare_links(party: Party, stack: contextlib.ExitStack) -> list[socket.socket]:
    """Plain blocking sockets to the row mate and the column mate, apart from those of the transport."""
    mates = (party.row_mate, party.column_mate)
    listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=4))
    ports = await Pending(_send_all(party, listener.getsockname()[1]))
    links: dict[int, socket.socket] = {}
    for mate in mates:
        if mate < party.seat:
            links[mate] = stack.enter_context(socket.create_connection(("127.0.0.1", ports[mate])))
            links[mate].sendall(bytes([party.seat]))
    for _ in range(sum(mate > party.seat for mate in mates)):
        link, _address = listener.accept()
        stack.enter_context(link)
        links[link.recv(1)[0]] = link
    for link in links.values():
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return [links[mate] for mate in mates]


def _bare_round(links: list[socket.socket], payload: bytes, into: memoryview) -> None:
    """Send `payload` over every link and receives as much from each: no frames, no checks, no shares."""
    for link in links:
        link.sendall(payload)
    for link in links:
        at = 0
        while at < len(payload):
            at += link.recv_into(into[at:])


async def time_beside_rounds(
    party: Party, x: SecretArray, y: SecretArray, *, name: str, size: int, repeats: int, inner: int
) -> dict[str, Any]:
    """Seconds of an operation, of a bare round and of an empty round of the transport, both with `size` bytes to each
    of two mates. The three take turns block by block, so that what else the machine does disturbs all of them alike."""
    operation = OPERATIONS[name]
    payload, into = bytes(size), memoryview(bytearray(size))
    zeros = np.zeros(size, np.uint8)
    seconds: dict[str, list[float]] = {"operation": [], "bare": [], "transport": []}
    with contextlib.ExitStack() as stack:
        links = await _bare_links(party, stack)
        for _ in range(repeats + 1):  # the first block of each warms up
            for kind, times in seconds.items():
                await Pending(_send_all(party, 0))
                start = time.perf_counter()
                if kind == "operation":
                    for _ in range(inner):
                        await operation(x, y)
                elif kind == "bare":
                    for _ in range(inner):
                        _bare_round(links, payload, into)
                else:
                    for _ in range(inner):
                        await Pending(_swap(party, zeros))
                times.append((time.perf_counter() - start) / inner)
    return {"seconds": PerServer({kind: times[1:] for kind, times in seconds.items()})}
