"""The programs that the benchmarks run on the servers: one operation, repeated and timed."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..cluster import PerSeat
from ..protocol import Party, SecretArray
from ..protocol.pending import Pending
from ..protocol.rounds import Round, Step

OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "gt": lambda x, y: x > y,
    "eq": lambda x, y: x == y,
    "sqrt": lambda x, y: x.sqrt(),
    "reciprocal": lambda x, y: x.reciprocal(),
    "rsqrt": lambda x, y: x.rsqrt(),
    "matmul": lambda x, y: x @ y,
}


def _send_all(party: Party, value: int) -> Step[dict[int, int]]:
    """Sends one public number to every peer; returns theirs. Also a barrier."""
    peers = [seat for seat in range(4) if seat != party.seat]
    word = np.asarray([value], np.int64)
    arrived = yield Round([(seat, word) for seat in peers], [(seat, 8) for seat in peers])
    return {seat: int(np.frombuffer(data, np.int64)[0]) for seat, data in zip(peers, arrived, strict=True)}


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
            result = operation(x, y)
            if isinstance(result, Pending):
                result = await result
        seconds.append((time.perf_counter() - start) / inner)
    return {"result": result.reveal(why="benchmark"), "seconds": PerSeat(seconds[1:])}


async def count_operation(party: Party, x: SecretArray, y: SecretArray, *, name: str) -> None:
    """The operation once and nothing else: its rounds and bytes are those of the run."""
    result = OPERATIONS[name](x, y)
    if isinstance(result, Pending):
        await result


def _swap(party: Party, payload: NDArray[np.uint8]) -> Step[None]:
    """A round of the transport that carries zeros to the two mates: what talking costs without computing."""
    mates = (party.row_mate, party.column_mate)
    yield Round([(mate, payload) for mate in mates], [(mate, payload.nbytes) for mate in mates])


async def time_empty_rounds(party: Party, *, sizes: list[int], repeats: int, inner: int) -> dict[str, Any]:
    """Seconds of one round of the transport (frames, checks, counts) by message size, in the pattern of a product."""
    table = {}
    for size in sizes:
        payload = np.zeros(size, np.uint8)
        seconds = []
        for _ in range(repeats + 1):
            await Pending(_send_all(party, 0))
            start = time.perf_counter()
            for _ in range(inner):
                await Pending(_swap(party, payload))
            seconds.append((time.perf_counter() - start) / inner)
        table[str(size)] = seconds[1:]
    return {"seconds": PerSeat(table)}


async def time_raw_rounds(party: Party, *, sizes: list[int], repeats: int, inner: int) -> dict[str, Any]:
    """Seconds of one bare round by message size: plain blocking sockets, no frames, no shares, the pattern of a product.

    Every server sends `size` bytes to its row mate and its column mate and receives as much from both.
    """
    mates = (party.row_mate, party.column_mate)
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=4))
        ports = await Pending(_send_all(party, listener.getsockname()[1]))
        links: dict[int, socket.socket] = {}
        for mate in mates:
            if mate < party.seat:
                links[mate] = socket.create_connection(("127.0.0.1", ports[mate]))
                links[mate].sendall(bytes([party.seat]))
        for _ in range(sum(mate > party.seat for mate in mates)):
            link, _address = listener.accept()
            links[link.recv(1)[0]] = link
        for link in links.values():
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            stack.enter_context(link)
        table = {}
        for size in sizes:
            payload, into = bytes(size), memoryview(bytearray(size))
            seconds = []
            for _ in range(repeats + 1):
                await Pending(_send_all(party, 0))
                start = time.perf_counter()
                for _ in range(inner):
                    for mate in mates:
                        links[mate].sendall(payload)
                    for mate in mates:
                        at = 0
                        while at < size:
                            at += links[mate].recv_into(into[at:])
                seconds.append((time.perf_counter() - start) / inner)
            table[str(size)] = seconds[1:]
    return {"seconds": PerSeat(table)}
