"""The loop of a server ends when it is told to, whatever happens in the same moment."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from harness import federation
from harness.waiting import PATIENCE
from ppca.server.job_runner import JobRunner
from ppca.server.router import Router
from ppca.transport import open_listener


@pytest.mark.parametrize("steps", range(4))
def test_it_ends_though_news_come_in_the_same_moment(tmp_path: Path, steps: int) -> None:
    """steps: how far the news have come when it is cancelled. At one of them `asyncio.wait_for` of Python 3.11 goes on."""
    server_state, router = federation.server_state(tmp_path), Router(open_listener())

    async def body() -> None:
        running = asyncio.create_task(JobRunner(server_state, router).run())
        await asyncio.sleep(0.05)
        server_state._spread({})
        for _ in range(steps):
            await asyncio.sleep(0)
        running.cancel()
        done, _ = await asyncio.wait([running], timeout=PATIENCE)
        assert done, "it goes on"
        assert running.cancelled()

    try:
        asyncio.run(body())
    finally:
        router.close()
        server_state.mailbox.close()
