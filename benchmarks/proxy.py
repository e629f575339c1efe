"""A link that is slow, narrow or cut: a TCP proxy in user space, for places without netem.

Bytes that enter at time t leave at t + delay, no faster than the rate; both directions alike and apart. `cut` breaks
all connections; while `closed`, new ones are refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import selectors
import threading
import time
from collections.abc import Coroutine
from typing import Any

CHUNK = 1 << 16


class Proxy:
    """Listens on a port of loopback and forwards to another; runs in a thread of its own.

    delay: seconds one way. rate: bits per second of each direction of a connection, 0 for any.
    """

    def __init__(self, target: tuple[str, int], *, delay: float = 0.0, rate: float = 0.0, port: int = 0) -> None:
        self.target, self.delay, self.rate = target, delay, rate
        self.closed = False
        self.bytes = 0
        self._writers: set[asyncio.StreamWriter] = set()
        # epoll rounds waits up to milliseconds, which is more than the delay of a local network; select does not.
        self._loop = asyncio.SelectorEventLoop(selectors.SelectSelector())
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._server = self._call(asyncio.start_server(self._serve, "127.0.0.1", port))
        self.port: int = self._server.sockets[0].getsockname()[1]

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.closed:
            writer.close()
            return
        try:
            there_reader, there_writer = await asyncio.open_connection(*self.target)
        except OSError:
            writer.close()
            return
        both = (writer, there_writer)
        self._writers.update(both)
        pumps = [
            asyncio.create_task(self._pump(reader, there_writer)),
            asyncio.create_task(self._pump(there_reader, writer)),
        ]
        with contextlib.suppress(asyncio.CancelledError):  # by `close`, which cancels the pumps as well
            await asyncio.wait(pumps)
        for each in both:
            self._writers.discard(each)
            each.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one direction; the end of it is forwarded in its turn, too."""
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(1 << 14)
        sender = asyncio.create_task(self._send(queue, writer))
        free = 0.0
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                now = time.monotonic()
                free = max(now, free) + (8 * len(data) / self.rate if self.rate else 0.0)
                await queue.put((free + self.delay, data))
        await queue.put((0.0, b""))
        await sender

    async def _send(self, queue: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while True:
                due, data = await queue.get()
                if not data:
                    break
                wait = due - time.monotonic()
                if wait > 0:
                    await asyncio.sleep(wait)
                writer.write(data)
                self.bytes += len(data)
                await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()

    def cut(self) -> None:
        """Break all connections at once."""

        async def body() -> None:
            for writer in list(self._writers):
                writer.transport.abort()

        self._call(body())

    def close(self) -> None:
        async def body() -> None:
            self._server.close()
            for writer in list(self._writers):
                writer.transport.abort()
            left = asyncio.all_tasks() - {asyncio.current_task()}
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

        self._call(body())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()
