"""Four servers of a federation on loopback: routers, pinned keys, and attempts of the same job in four threads."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from harness.pinned import OPERATOR_OF, Members
from harness.waiting import PATIENCE
from ppca.jobs.chunks import Chunk
from ppca.server.attempt import Attempt
from ppca.server.forking import ForkServer
from ppca.server.router import Router
from ppca.server.work import AttemptFailed, AttemptInput, Done
from ppca.transport import open_listener


class RealServers:
    def __init__(self) -> None:
        self.members = Members()
        self.routers = [Router(open_listener()) for _ in OPERATOR_OF]
        self.forks = ForkServer()
        self.addresses = {server: router.address for server, router in enumerate(self.routers)}

    def close(self) -> None:
        self.forks.close()
        for router in self.routers:
            router.close()

    def work(self, server: int, job: dict[str, Any], chunks: Iterable[Chunk] = (), **fields: Any) -> AttemptInput:
        fields = {"session": b"session", "timeout": PATIENCE, "start_timeout": PATIENCE, **fields}
        return AttemptInput(
            server=server,
            addresses=self.addresses,
            tls=self.members.tls(OPERATOR_OF[server]),
            job=job,
            chunks=(chunk.part(server) for chunk in chunks),
            **fields,
        )

    def start(
        self,
        job: dict[str, Any],
        chunks: Sequence[Chunk] = (),
        *,
        own: Callable[[int], dict[str, Any]] = lambda server: {},
        progress: Any = None,
        **fields: Any,
    ) -> Running:
        """The attempt of a job, at all four servers. `own`: what differs between the servers."""
        fields = {"session": secrets.token_bytes(32), **fields}
        works = [self.work(server, **{"job": job, "chunks": chunks, **fields, **own(server)}) for server in OPERATOR_OF]
        return Running(
            [Attempt(work, router, self.forks, progress) for work, router in zip(works, self.routers, strict=True)]
        )


class Running:
    """Four attempts under way, each in its thread."""

    def __init__(self, attempts: list[Attempt]) -> None:
        self.attempts = attempts
        pool = ThreadPoolExecutor(len(attempts))
        self.futures: list[Future[Done]] = [pool.submit(attempt.run) for attempt in attempts]
        pool.shutdown(wait=False)

    def outcomes(self) -> list[Done | AttemptFailed]:
        """By server what came of it; any other exception fails the test."""

        def outcome(future: Future[Done]) -> Done | AttemptFailed:
            try:
                return future.result(2 * PATIENCE)
            except AttemptFailed as failed:
                return failed

        return [outcome(future) for future in self.futures]

    def done(self) -> list[Done]:
        found = self.outcomes()
        assert all(isinstance(one, Done) for one in found), found
        return [one for one in found if isinstance(one, Done)]

    def failed(self) -> list[AttemptFailed]:
        found = self.outcomes()
        assert all(isinstance(one, AttemptFailed) for one in found), found
        return [one for one in found if isinstance(one, AttemptFailed)]

    @property
    def pids(self) -> list[int]:
        return [attempt._process.pid for attempt in self.attempts if attempt._process is not None]
