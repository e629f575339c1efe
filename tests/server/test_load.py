"""Jobs that become ready together: all are done, and no server runs more of them at a time than its operator allows."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from harness.federation import make
from harness.job_runners import Federation
from ppca.server import scheduler


@pytest.mark.parametrize("places", [1, pytest.param(3, marks=pytest.mark.release)])
def test_jobs_that_become_ready_together_are_all_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, places: int
) -> None:
    federation = Federation(tmp_path, monkeypatch, duration=0.1, jobs_at_once=places)

    async def body() -> None:
        made = await asyncio.gather(*(federation.submit(f"job {number}") for number in range(6)))
        await federation.until(lambda: set(federation.stages(*made)) <= {"done", "failed"})
        assert federation.stages(*made) == ["done"] * 6
        attempts = [federation.server_states[0].admission.job_state(of.id).attempt for of in made]
        assert attempts == [1] * 6, "no attempt collided with another"
        assert max(federation.hall.most.values()) <= places

    federation.run(body)


def test_members_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    federation = Federation(tmp_path, monkeypatch, duration=0.05, jobs_at_once=1)
    federation.hall.held = True

    async def body() -> None:
        many = await asyncio.gather(*(federation.submit(f"job {number}", "spare") for number in range(5)))
        one = await federation.submit("the other", "visitor")
        await federation.until(lambda: one.id in federation.server_states[0].queue)
        federation.hall.let_go()
        await federation.until(lambda: federation.stages(one) == ["done"])
        assert federation.stages(*many).count("done") < 5, "it did not wait for all of them"
        assert federation.server_states[0].mailbox.objects(one.id).starts()[1].about["turn"] == 2
        await federation.until(lambda: federation.stages(*many) == ["done"] * 5)

    federation.run(body)


def test_a_job_that_fails_again_and_again_is_held_and_goes_on_when_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its server is ill: nothing is erased, the state names the cause, and one operator's word lets it go on."""
    monkeypatch.setattr(scheduler, "MAX_RETRY_DELAY", 0.05)
    federation = Federation(tmp_path, monkeypatch, attempts=3)
    federation.hall.failing = lambda seat: "its worker was killed" if seat == 2 else None

    async def body() -> None:
        of = await federation.submit("first")
        job_states = [each.admission.job_state for each in federation.server_states]
        await federation.until(lambda: {job_state(of.id).stage for job_state in job_states} <= {"held", "failed"})
        job_state = federation.server_states[1].admission.job_state(of.id)
        assert (job_state.stage, job_state.attempt) == ("held", 3)
        assert job_state.why.startswith("needs an operator: gamma: the program failed there")
        for each in federation.server_states:
            assert each.mailbox.note(f"erased {of.id}") is None
            assert each.keys.of("job", of.id) is not None
        await asyncio.sleep(0.3)
        assert federation.server_states[0].admission.job_state(of.id).attempt == 3, "it is not tried again"
        federation.hall.failing = lambda seat: None
        federation.tell(make("delta", "resume", of, attempt=3), 3)
        await federation.until(lambda: federation.stages(of) == ["done"])

    federation.run(body)


def test_the_queue_is_the_same_at_all_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    federation = Federation(tmp_path, monkeypatch)
    federation.hall.held = True

    async def body() -> None:
        made = [await federation.submit(f"job {number}") for number in range(4)]
        waiting = {of.id: place for place, of in enumerate(made[1:], 1)}
        await federation.until(lambda: all(each.queue == waiting for each in federation.server_states))

    federation.run(body)


def test_a_server_that_goes_down_withdraws_its_attempts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    federation = Federation(tmp_path, monkeypatch)
    federation.hall.held = True

    async def body() -> None:
        of = await federation.submit("first")
        await federation.until(lambda: bool(federation.hall.order))
        await federation.job_runners[1].stop()
        ended = federation.server_states[1].mailbox.objects(of.id).ended(1)
        assert ended["beta"].about["outcome"] == "withdrawn"

    federation.run(body)
