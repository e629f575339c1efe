"""Four servers in this process, with a clock that the test moves: jobs that expire, and jobs whose time to be erased has come.

tests/end_to_end/test_expiry.py and test_disks.py assert the same of server processes, in real time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness import federation
from harness.federation import MEMBERSHIP, OPERATORS, OWNERS, RECEIVER, contribution, ended, make, server_state
from ppca.federation.errors import ObjectRefused
from ppca.federation.objects import Object
from ppca.federation.proposal import ProposedJob
from ppca.federation.state import JobState
from ppca.server.job_runner import JobRunner
from ppca.server.keys import JOB
from ppca.server.router import Router
from ppca.transport import open_listener


class Clock:
    """The wall clocks of all servers, moved by the test. Timeouts are not affected."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._later = timedelta()
        seconds = SimpleNamespace(**vars(time) | {"time": lambda: time.time() + self._later.total_seconds()})
        monkeypatch.setattr("ppca.server.clock.time", seconds)

    def move(self, four: Four, later: timedelta) -> None:
        """Moves all clocks; every server hears of the others'."""
        self._later = later
        for each in four.server_states:
            for other in four.server_states:
                if other is not each:
                    each.clock.heard(other.server, (datetime.now(UTC) + later).isoformat())


class Four:
    """Four servers that exchange objects when the test says so."""

    def __init__(self, folder: Path, job: ProposedJob) -> None:
        self.job = job
        self.server_states = [server_state(folder / name, MEMBERSHIP, seat) for seat, name in enumerate(OPERATORS)]
        self.routers = [Router(open_listener()) for _ in OPERATORS]
        self.job_runners = [JobRunner(*both) for both in zip(self.server_states, self.routers, strict=True)]
        self.keys = [folder / name / "store" / "keys" / f"job-{job.id}.key" for name in OPERATORS]
        self.tell(make(RECEIVER, "job", job, job.data))
        for seat, each in enumerate(self.server_states):
            self.tell(make(OPERATORS[seat], "offer", job, each.keys.make(JOB, job.id).public, server=seat))

    def tell(self, *items: Object) -> None:
        for item in items:
            for each in self.server_states:
                each.admit(item, item.header.author)

    def advance(self) -> None:
        """Every server does what is next; then all have the objects of all."""
        for job_runner in self.job_runners:
            job_runner.advance(self.job.id)
        for item in [
            each.mailbox.get(h.digest) for each in self.server_states for h in each.mailbox.headers(self.job.id)
        ]:
            if item is not None and item.header.author in OPERATORS:
                self.tell(item)

    def job_states(self) -> list[JobState]:
        return [each.admission.job_state(self.job.id) for each in self.server_states]

    def stored(self, digests: set[str]) -> list[Path]:
        stores = [each.settings.store for each in self.server_states]
        return [path for store in stores for path in store.rglob("*") if path.name.partition(".")[0] in digests]

    def close(self) -> None:
        for router, each in zip(self.routers, self.server_states, strict=True):
            router.close()
            each.mailbox.close()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def four(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Four]:
    options: dict[str, Any] = getattr(request, "param", {})
    made = Four(tmp_path, federation.job(**options))
    yield made
    made.close()


def contributed(four: Four, owner: str) -> set[str]:
    """Let an owner approve and contribute; the digests of its envelopes."""
    sent = contribution(four.job, owner)
    four.tell(make(owner, "approval", four.job), *sent)
    return {item.digest for item in sent if item.header.kind == "envelope"}


@pytest.mark.parametrize("four", [{"expires": "1h"}], indirect=True)
def test_a_job_that_expires_is_erased_by_all(four: Four, clock: Clock) -> None:
    envelopes = contributed(four, "north")
    assert envelopes
    assert len(four.stored(envelopes)) >= len(envelopes)
    assert all(key.exists() for key in four.keys)
    clock.move(four, timedelta(minutes=59))
    assert not any(job_state.over for job_state in four.job_states())
    clock.move(four, timedelta(minutes=61))
    four.advance()
    for job_state in four.job_states():
        assert (job_state.stage, job_state.ended) == ("erased", "expired")
    assert not any(key.exists() for key in four.keys)
    assert four.stored(envelopes) == []
    with pytest.raises(ObjectRefused, match="is over"):
        four.tell(make("south", "approval", four.job))


@pytest.mark.parametrize("four", [{"erase_after": "2h"}], indirect=True)
def test_a_finished_job_is_erased_when_its_time_has_come(four: Four, clock: Clock) -> None:
    envelopes = {digest for owner in OWNERS for digest in contributed(four, owner)}
    four.tell(make(RECEIVER, "offer", four.job, federation.RECEIVER_KEY.public, receiver=RECEIVER))
    for owner in OWNERS:
        sent = next(
            h
            for h in four.server_states[0].mailbox.headers(four.job.id)
            if (h.kind, h.author) == ("contribution", owner)
        )
        four.tell(*(make(name, "receipt", four.job, owner=owner, contribution=sent.digest) for name in OPERATORS))
    four.tell(make("alpha", "start", four.job, attempt=1), *(ended(four.job, name) for name in OPERATORS))
    clock.move(four, timedelta())
    four.advance()
    clock.move(four, timedelta(minutes=119))
    four.advance()
    assert all(job_state.stage == "done" for job_state in four.job_states())
    assert all(key.exists() for key in four.keys)
    assert four.stored(envelopes)
    clock.move(four, timedelta(minutes=121))
    four.advance()
    assert all(job_state.stage == "erased" for job_state in four.job_states())
    assert not any(key.exists() for key in four.keys)
    assert four.stored(envelopes) == []
