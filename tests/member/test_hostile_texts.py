"""Texts of servers and members cannot act on the terminal of a member: nothing moves a cursor, hides or turns a line round."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.progress import Progress

from harness import federation
from harness.board import Board
from ppca.cli import errors
from ppca.cli.member import _audit
from ppca.cli.progress import StageBars, stage_bars
from ppca.federation.errors import FederationError
from ppca.federation.headers import is_well_formed
from ppca.member import connections

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x1b[1;1Happroved\x1b[8m \u202e"


def shown(capsys: pytest.CaptureFixture[str]) -> str:
    """What has reached the terminal; fails if it could act there."""
    found = capsys.readouterr()
    text = found.out + found.err
    assert not {"\x1b", "\x07", "\u202e"} & set(text)
    return text


def test_the_audit_of_a_job_shows_no_hostile_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    board = Board(tmp_path)
    job = board.job()
    board.run(job)
    board.put(federation.ended(job, "beta", outcome="failed", why="its worker was killed"))
    board.put(federation.ended(job, "gamma", outcome="failed", why=HOSTILE))
    board.say("gamma", "erased", job, what=HOSTILE, server=2)
    _audit(board.member("north"), job, False)
    text = shown(capsys)
    assert "attempt 1 failed at beta: its worker was killed" in text
    assert "erased by gamma" in text


@pytest.mark.parametrize("why", [HOSTILE, "x" * 2001, 7, None])
@pytest.mark.parametrize("kind", ["ended", "refusal"])
def test_an_object_with_a_hostile_text_does_not_count(kind: str, why: object) -> None:
    """Servers refuse it; a member does not take it from a lying one either."""
    job = federation.job()
    about = {"attempt": 1, "outcome": "failed", "final": False}
    assert is_well_formed(federation.make("beta", kind, job, **about, why="it is ill").header)
    assert not is_well_formed(federation.make("beta", kind, job, **about, why=why).header)


def test_an_error_shows_no_hostile_text_of_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    def request(method: str, *_: object) -> tuple[int, bytes]:
        return (404, b"") if method == "HEAD" else (409, json.dumps({"error": HOSTILE * 1000}).encode())

    client = SimpleNamespace(name="server 1", number=1, request=request)
    with pytest.raises(FederationError) as caught:
        connections._send(client, federation.make("north", "approval", federation.job()))  # type: ignore[arg-type]
    assert len(str(caught.value)) < 2000
    errors.complain(str(caught.value))
    assert "approved" in shown(capsys)
    errors.complain(f"first line\n{HOSTILE}")
    assert "error: first line\n" in shown(capsys)


def test_a_stage_that_a_server_names_is_shown_as_plain_text(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(disable=True) as bars:
        StageBars(bars)(f"[red]{HOSTILE}", None, 1)
        (task,) = bars.tasks
    assert "\x1b" not in task.description
    assert task.description.startswith("\\[red]")
    with stage_bars() as show:
        show(f"[red]{HOSTILE}", None, 1)
    assert "[red]" in shown(capsys)
