"""The jobs of a member as its pages know them: one lying server can neither hide them nor invent many."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.board import Board
from ppca.federation.errors import NotReached
from ppca.member.client import MAX_UNKNOWN
from ppca.web.member.live_jobs import MAX_NEWS, LiveJobs


class Lying:
    """A server whose news say what a test says."""

    def __init__(self, *news: tuple[str, Any]) -> None:
        self.news = news

    def events(self, after: int = 0) -> Iterator[tuple[str, Any]]:
        yield from self.news


def follow(live: LiveJobs, server: Lying) -> None:
    live._watching.servers.clients[0] = server  # type: ignore[assignment]
    with pytest.raises(NotReached, match="ended the conversation"):
        live._follow(0)


def test_a_server_that_tells_nothing_hides_no_job(tmp_path: Path) -> None:
    board = Board(tmp_path)
    job = board.job()
    live = LiveJobs(lambda: board.member("north"), lambda: None)
    follow(live, Lying(("silence", None)))
    assert [known.job.id for known in live.known()] == [job.id]
    assert live.reached is None or live.reached == 0


def test_news_of_jobs_that_do_not_exist_cost_little(tmp_path: Path) -> None:
    """Every such job was asked for at all four servers, kept, and shown."""
    board = Board(tmp_path)
    job, asked = board.job(), 0
    live = LiveJobs(lambda: board.member("north"), lambda: None)
    real = live._asking.servers.headers

    def headers(of: str) -> Any:
        nonlocal asked
        asked += 1
        return real(of)

    live._asking.servers.headers = headers  # type: ignore[method-assign]
    invented = [("object", {"job": hashlib.sha256(b"%d" % number).hexdigest()}) for number in range(MAX_NEWS + 500)]
    follow(live, Lying(*invented, ("object", {"job": job.id}), ("place", 1)))
    assert asked <= MAX_UNKNOWN
    assert [known.job.id for known in live.known()] == [job.id]
    assert len(live.unreadable) <= MAX_UNKNOWN


def test_a_new_job_is_shown_when_news_name_it(tmp_path: Path) -> None:
    board = Board(tmp_path)
    first = board.job("first")
    live = LiveJobs(lambda: board.member("north"), lambda: None)
    follow(live, Lying(("object", {"job": first.id}), ("place", 1)))
    second = board.job("second")
    follow(live, Lying(("object", {"job": second.id}), ("place", 2)))
    assert {known.job.id for known in live.known()} == {first.id, second.id}
