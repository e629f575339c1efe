"""One of the four servers lies in what it signs. The three others lose nothing, agree with each other, and name it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from harness.federation import OPERATORS, make
from harness.job_runners import Federation
from ppca.federation import envelopes
from ppca.federation.objects import Object
from ppca.federation.proposal import ProposedJob
from ppca.federation.state import JobState
from ppca.server.keys import JOB
from ppca.server.server_state import ServerState

DELTA = 3
HONEST = (0, 1, 2)


def job_states(fed: Federation, of: ProposedJob) -> list[JobState]:
    return [fed.server_states[seat].admission.job_state(of.id) for seat in HONEST]


def keys(fed: Federation, of: ProposedJob) -> list[bool]:
    return [fed.server_states[seat].keys.of(JOB, of.id) is not None for seat in HONEST]


def test_a_receipt_for_an_invented_contribution_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fed = Federation(tmp_path, monkeypatch)
    fed.hall.held = True

    async def body() -> None:
        of = await fed.submit("victim")
        await fed.until(lambda: fed.stages(of) == ["running"])
        lie = make("delta", "receipt", of, owner="spare", contribution="0" * 64)
        fed.tell(lie, DELTA)
        await fed.until(lambda: all(fed.server_states[seat].mailbox.has(lie.digest) for seat in HONEST))
        fed.hall.let_go()
        await fed.until(lambda: all(job_state.over for job_state in job_states(fed, of)))
        assert [job_state.stage for job_state in job_states(fed, of)] == ["done"] * 3

    fed.run(body)


def test_a_server_that_says_it_has_erased_a_job_makes_no_other_server_erase_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed = Federation(tmp_path, monkeypatch)

    async def body() -> None:
        of = await fed.submit("victim")
        fed.tell(make("delta", "erased", of, what="job", server=DELTA), DELTA)
        said = [fed.server_states[seat].mailbox.objects for seat in HONEST]
        await fed.until(lambda: all(objects(of.id).erased() == {"delta"} for objects in said))
        for seat in HONEST:
            fed.job_runners[seat].advance(of.id)
        assert not any(job_state.over for job_state in job_states(fed, of)) or all(
            job_state.done for job_state in job_states(fed, of)
        )
        assert all(keys(fed, of))

    fed.run(body)


@pytest.mark.parametrize("lie", [{"final": True}, {"final": False}, {"outcome": "finished", "audit": "0" * 64}])
def test_a_server_that_says_different_things_of_an_attempt_loses_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: dict[str, Any]
) -> None:
    """Delta tells gamma that the attempt failed, or another account of it, and the others that it has finished."""
    fed = Federation(tmp_path, monkeypatch, duration=0.1)
    delta: ServerState = fed.server_states[DELTA]
    publish = delta.publish

    def lying(kind: str, job: str, payload: bytes = b"", **about: Any) -> Object:
        if kind != "ended":
            return publish(kind, job, payload, **about)
        while "gamma" not in fed.server_states[2].mailbox.objects(job).ended(1):
            time.sleep(0.01)  # gamma has finished
        bad = Object.make(delta.identity, kind, job, **(about | {"outcome": "failed", "why": "disk"} | lie))
        good = Object.make(delta.identity, kind, job, **about)

        def tell() -> None:
            for seat, item in ((2, bad), (0, good), (1, good), (DELTA, good)):
                fed.server_states[seat].admit(item, "delta")

        fed.loop.call_soon_threadsafe(tell)  # all of them before any passes it on
        return good

    monkeypatch.setattr(delta, "publish", lying)

    async def body() -> None:
        of = await fed.submit("victim")
        await fed.until(lambda: all(job_state.done for job_state in job_states(fed, of)))
        results = fed.server_states[0].mailbox.objects(of.id)
        await fed.until(lambda: len({header.author for header in results.of("result")}) == 4)
        assert all(keys(fed, of))

    fed.run(body)


def test_a_large_result_is_published_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No one lies. A part of a result that did not fit into one object failed every attempt after the whole computation."""
    monkeypatch.setattr(envelopes, "CHUNK_BYTES", 16)
    fed = Federation(tmp_path, monkeypatch)

    async def body() -> None:
        of = await fed.submit("large")
        await fed.until(lambda: all(job_state.done for job_state in job_states(fed, of)))
        objects = fed.server_states[0].mailbox.objects(of.id)
        await fed.until(lambda: {header.author for header in objects.of("audit")} == set(OPERATORS))
        for header in objects.of("audit"):
            item = fed.server_states[0].mailbox.get(header.digest)
            assert item is not None
            chunks = {h.about["chunk"]: h for h in objects.of("result") if h.author == header.author}
            assert [chunks[chunk].digest for chunk in range(len(chunks))] == item.json()["results"]["spare"]
            assert len(chunks) == chunks[0].about["chunks"] > 1

    fed.run(body)


def test_a_failed_job_is_kept_by_servers_that_have_finished_an_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta gives the job up after the others have finished. It may have told somebody that it has finished, too."""
    fed = Federation(tmp_path, monkeypatch, duration=0.1)
    delta: ServerState = fed.server_states[DELTA]
    publish = delta.publish
    held: list[Object] = []

    def lying(kind: str, job: str, payload: bytes = b"", **about: Any) -> Object:
        if kind == "ended":
            held.append(Object.make(delta.identity, kind, job, payload, **about))
            about |= {"outcome": "failed", "why": "disk", "final": True}
        return publish(kind, job, payload, **about)

    monkeypatch.setattr(delta, "publish", lying)

    async def body() -> None:
        of = await fed.submit("victim")
        said = [fed.server_states[seat].mailbox.objects for seat in HONEST]
        await fed.until(lambda: all(len(objects(of.id).ended(1)) == 4 for objects in said))
        await asyncio.sleep(0.2)
        assert [(job_state.stage, job_state.why) for job_state in job_states(fed, of)] == [
            ("failed", "delta: disk")
        ] * 3
        assert all(keys(fed, of))
        fed.server_states[1].admit(held[0], "gamma")
        await fed.until(lambda: all(job_state.done for job_state in job_states(fed, of)))
        results = fed.server_states[0].mailbox.objects(of.id)
        await fed.until(lambda: len({header.author for header in results.of("result")}) >= 3)

    fed.run(body)
