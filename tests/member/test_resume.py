"""Resuming a job that is held: an operator does it, once there is something to resume, and everyone sees the state."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import federation
from harness.board import Board
from harness.federation import OPERATORS, OWNERS
from ppca.cli.member import _print_job_state, state_facts
from ppca.federation.errors import FederationError
from ppca.federation.proposal import ProposedJob


def held(board: Board) -> ProposedJob:
    """A job whose attempt failed for the last time that its servers allow."""
    job = board.job()
    for owner in OWNERS:
        board.say(owner, "approval", job)
        board.say(owner, "contribution", job, b"{}")
    board.member("analyst").approve(job)
    board.run(job)
    for name in OPERATORS:
        board.put(federation.ended(job, name, 1, "failed", why="its worker was killed", hold=True))
    return job


def test_an_operator_resumes_a_held_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    board = Board(tmp_path)
    job = held(board)
    operator = board.member("beta")
    job_state = operator.job_state(job)
    assert (job_state.stage, job_state.over) == ("held", False)
    _print_job_state(job, job_state)
    told = capsys.readouterr().out
    assert "held, attempt 1 (needs an operator: alpha: its worker was killed" in told
    assert "waiting for an operator to find out why attempt 1 failed, then resume the job (ppca job resume)" in told
    operator.resume(job)
    assert operator.job_state(job).stage == "ready"
    with pytest.raises(FederationError, match="is ready, not held: there is nothing to resume"):
        operator.resume(job)


def test_an_owner_cannot(tmp_path: Path) -> None:
    board = Board(tmp_path)
    job = held(board)
    with pytest.raises(FederationError, match="north is not an operator in test; only operators resume a job"):
        board.member("north").resume(job)


def test_the_place_in_the_queue_is_shown_while_a_job_waits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    board = Board(tmp_path)
    job = held(board)
    member = board.member("beta")
    member.resume(job)
    job_state = member.job_state(job)
    _print_job_state(job, job_state, 3)
    assert "ready, place 3 in the queue, attempt 1" in capsys.readouterr().out
    assert state_facts(job, job_state, 3)["place"] == 3
