"""Approving a job: what a member approved is remembered even if the command does not come to its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.board import Board
from ppca.federation.errors import NotReached
from ppca.federation.objects import Object


def test_an_interrupted_approval_is_compared_with_later_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The servers have the approval, and the client does not learn it. The second `approve` finds it at the servers."""
    board = Board(tmp_path)
    first, second = board.job(), board.job("second job", owners=("north", "south"))
    member = board.member("north")

    def put(item: Object) -> None:
        board.put(item)
        raise NotReached("the answer was lost")

    with monkeypatch.context() as patch:
        patch.setattr(member.servers, "put_everywhere", put)
        with pytest.raises(NotReached):
            member.approve(first)
    assert any("you approved 'first job'" in line for line in board.member("north").words(second)[1])
    board.member("north").approve(first)
    assert [job.id for job in board.member("north").state.approvals()] == [first.id]
