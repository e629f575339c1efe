"""Bodies of requests on their way into the mailbox: on the disk while they come, in memory only a few at a time."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import IO, TypeVar

from aiohttp import web

from ..federation.errors import FederationError
from ..federation.objects import MAX_BYTES

T = TypeVar("T")
SECONDS = 600.0
"""In which a body must have come."""

PER_MEMBER = 8
IN_MEMORY = 1 << 16
AT_ONCE = 4
"""Bodies that are in memory at the same time."""


class BodyRefused(FederationError):
    """A body is too long, too slow, or one too many."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class ObjectUploads:
    """Receive request bodies. folder: holds them in unnamed files while they arrive."""

    def __init__(self, folder: Path, seconds: float = SECONDS) -> None:
        self._folder = folder
        self._seconds = seconds
        self._of: Counter[str] = Counter()
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def take(self, request: web.Request, member: str, use: Callable[[bytes], T]) -> T:
        """Return the result of `use`, which is called with the whole body in a thread."""
        if (request.content_length or 0) > MAX_BYTES:
            raise BodyRefused(413, f"an object has at most {MAX_BYTES:,} bytes")
        if self._of[member] >= PER_MEMBER:
            raise BodyRefused(429, f"{member} sends {PER_MEMBER} objects already; one after the other")
        self._of[member] += 1
        try:
            with tempfile.SpooledTemporaryFile(IN_MEMORY, dir=str(self._folder)) as file:
                await self._receive(request, file)
                async with self._slots:
                    return await asyncio.to_thread(_used, file, use)
        finally:
            self._of[member] -= 1

    async def _receive(self, request: web.Request, file: IO[bytes]) -> None:
        size = 0
        try:
            async with asyncio.timeout(self._seconds):
                async for chunk in request.content.iter_chunked(1 << 18):
                    size += len(chunk)
                    if size > MAX_BYTES:
                        raise BodyRefused(413, f"an object has at most {MAX_BYTES:,} bytes")
                    file.write(chunk)
        except TimeoutError:
            raise BodyRefused(408, f"the object did not come within {self._seconds:g} s; send it again") from None


def _used(file: IO[bytes], use: Callable[[bytes], T]) -> T:
    file.seek(0)
    return use(file.read())
