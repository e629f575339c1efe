"""`ppca ui` as it is started, with four real servers and a browser: an owner's visit, the receiver's, the operator's page."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.browser import browser, needs_browser
from ppca.cli.terminal import Terminal
from ppca.cli.trial import RECEIVER, TrialRun
from ppca.cli.walkthrough import Hospitals

pytestmark = [pytest.mark.release, pytest.mark.timeout(900)]
PATIENCE = 180.0


@contextmanager
def pages_of(folder: Path) -> Iterator[str]:
    """`ppca ui` in a member's folder; the link it prints. It must end well when it is interrupted."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "ppca.cli.main", "ui"],
        cwd=folder,
        env=os.environ | {"PPCA_STATE": "state", "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:\d+/enter/\S+", process.stdout.readline())
        assert found is not None
        yield found[0]
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()


@needs_browser
def test_a_job_from_the_approval_to_the_result(tmp_path: Path) -> None:
    stage = TrialRun(tmp_path, Terminal(quiet=True))
    (tmp_path / "data").mkdir()
    owners = {name.lower(): path for name, path in Hospitals().write(tmp_path / "data").items()}
    first, *others = owners
    stage.found(list(owners))
    with stage.serving():
        columns = next(iter(owners.values())).read_text().partition("\n")[0]
        job = [
            "job",
            "new",
            "first",
            "--owner",
            ",".join(owners),
            "--receiver",
            RECEIVER,
            "-k",
            "3",
            "--columns",
            columns,
        ]
        stage.run(RECEIVER, *job)
        stage.run(RECEIVER, "job", "submit", "job.toml")
        for name in others:
            stage.run(name, "approve", "first", "--yes")
            stage.run(name, "contribute", "first", str(owners[name]))
        with pages_of(tmp_path / first) as visit, pages_of(tmp_path / RECEIVER) as fetching:
            operator = f"http://127.0.0.1:{stage.ports[0][2]}/"
            asyncio.run(_visits(operator, visit, fetching, owners[first]))
        (result,) = (tmp_path / RECEIVER / "results").iterdir()
        stage.run(RECEIVER, "verify", str(result))


async def _visits(operator: str, visit: str, fetching: str, table: Path) -> None:
    async with browser() as page:
        await page.go(visit)
        await page.until("document.querySelector('#todo .button')", PATIENCE)
        await page.do("document.querySelector('#todo .button').click()")
        await page.until("document.querySelector('form[action$=approve] button')", PATIENCE)
        await page.do("document.querySelector('form[action$=approve] button').click()")
        await page.until("document.querySelector('#path')", PATIENCE)
        await page.do(f"document.querySelector('#path').value = {str(table)!r}")
        await page.do("document.querySelector('form[action$=check] button').click()")
        await page.until("document.querySelector('form[action$=contribute] button')", PATIENCE)
        await page.do("document.querySelector('form[action$=contribute] button').click()")
        await page.until("document.querySelector('#audit table')", PATIENCE)  # the job is done: the page followed it
        await page.go(operator)
        await page.until("document.querySelector('#over .badge.done')", PATIENCE)
        await page.until("!document.querySelector('#links .bad')", PATIENCE)
        await page.go(fetching)
        await page.until("document.querySelector('#todo .button')", PATIENCE)
        await page.do("document.querySelector('#todo .button').click()")
        await page.until("document.querySelector('form[action$=fetch] button')", PATIENCE)
        await page.do("document.querySelector('form[action$=fetch] button').click()")
        await page.until("document.querySelectorAll('#result svg').length == 4", PATIENCE)
        await page.do("document.querySelector('.files .button').click()")
        await page.until("document.title == 'first' && document.querySelectorAll('svg').length > 3", PATIENCE)
        assert page.problems == []
