"""What a member is told that it may do, at every point of a job."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from harness.board import Board
from harness.federation import MEMBERSHIP, OWNERS, RECEIVER, ended
from ppca.federation.proposal import ProposedJob
from ppca.web.member.job_page import APPROVE, CONTRIBUTE, FETCH, JobPage, standing_of
from ppca.web.member.live_jobs import Known


def standing(board: Board, job: ProposedJob, me: str, fetched: bool = False) -> JobPage:
    known = Known(job, board.member(me).servers.headers(job.id), None)
    return standing_of(known, MEMBERSHIP, me, fetched, datetime.now(UTC))


def states(found: JobPage) -> list[str]:
    return [step["state"] for step in found.steps]


def test_from_the_proposal_to_the_result(tmp_path: Path) -> None:
    board = Board(tmp_path)
    job = board.job()
    assert {standing(board, job, name).todo for name in (*OWNERS, RECEIVER)} == {APPROVE}
    board.member(RECEIVER).approve(job)
    assert standing(board, job, RECEIVER).todo == ""
    board.member("north").approve(job)
    north = standing(board, job, "north")
    assert (north.todo, north.approved, north.contributed, north.may_refuse) == (CONTRIBUTE, True, False, True)
    assert states(north) == ["past", "now", "ahead", "ahead", "ahead"]
    for owner in OWNERS:
        board.say(owner, "approval", job)
        board.say(owner, "contribution", job, b"{}")
    board.run(job)
    assert states(standing(board, job, "north")) == ["past", "past", "past", "now", "ahead"]
    assert {standing(board, job, name).todo for name in (*OWNERS, RECEIVER)} == {""}
    board.end(job)
    assert states(standing(board, job, "north")) == ["past"] * 5
    assert [standing(board, job, RECEIVER, fetched).todo for fetched in (False, True)] == [FETCH, ""]
    assert standing(board, job, "north").todo == ""


def test_a_job_that_ended_badly_asks_for_nothing(tmp_path: Path) -> None:
    board = Board(tmp_path)
    job = board.job()
    board.say("west", "refusal", job, why="no")
    for name in (*OWNERS, RECEIVER):
        found = standing(board, job, name)
        assert (found.todo, found.may_refuse, found.job_state.stage) == ("", False, "refused")
        assert "now" not in states(found)
    failing = board.job("second")
    for owner in OWNERS:
        board.say(owner, "approval", failing)
        board.say(owner, "contribution", failing, b"{}")
    board.member(RECEIVER).approve(failing)
    board.run(failing)
    board.put(ended(failing, "beta", outcome="failed", final=True, why="the disk is full"))
    assert states(standing(board, failing, "north")) == ["past", "past", "past", "ahead", "ahead"]
    assert standing(board, failing, RECEIVER).todo == ""


def test_owners_of_columns_offer_a_key_with_their_approval(tmp_path: Path) -> None:
    board = Board(tmp_path)
    job = board.job(columns={"north": ["a"], "south": ["b"], "west": ["c"]})
    board.say("north", "approval", job)
    assert standing(board, job, "north").todo == APPROVE  # its key is not there
    board.member("north").approve(job)
    assert standing(board, job, "north").todo == CONTRIBUTE
