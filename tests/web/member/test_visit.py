"""`ppca ui` in a real browser: a whole visit with clicks alone, without scripts, and how it looks."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from harness.board import Board
from harness.browser import DESK, PHONE, Page, browser, needs_browser
from harness.federation import OWNERS, RECEIVER
from harness.member_pages import HOSTILE, LONG, TABLE, MemberPages, desk, write_result
from harness.waiting import eventually


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return Board(tmp_path)


def clean(page: Page, here: MemberPages) -> None:
    """Nothing was refused by the policy, no script failed, nothing came from elsewhere."""
    assert page.problems == []
    assert [url for url in page.requests if not url.startswith((here.origin, "about:"))] == []


@needs_browser
def test_an_owner_s_visit_in_a_browser(board: Board, tmp_path: Path) -> None:
    """From the link to the contribution with clicks alone; the page follows what others do."""

    async def body() -> None:
        table = tmp_path / "table.csv"
        table.write_text(TABLE)
        async with desk(board, "north") as here, browser() as page:
            await page.go(here.link)
            assert await page.do("location.pathname") == f"{here.pages.authorisation.root}/"
            assert await page.do("document.cookie") == ""
            job = board.job(HOSTILE)
            await page.until("document.querySelector('#todo .button')")
            await page.do("document.querySelector('#todo .button').click()")
            await page.until("document.querySelector('form[action$=approve] button')")
            await page.do("document.querySelector('form[action$=approve] button').click()")
            await page.until("document.querySelector('#path')")
            await page.do(f"document.querySelector('#path').value = {str(table)!r}")
            board.say("west", "approval", job)  # the page changes while somebody types
            await page.until("!document.querySelector('#state').innerText.includes('west to approve')")
            assert await page.do("document.querySelector('#path').value") == str(table)
            await page.do("document.querySelector('form[action$=check] button').click()")
            await page.until("document.querySelector('form[action$=contribute] button')")
            assert "30 rows, 3 columns, 0 missing values" in await page.text()
            await page.do("document.querySelector('form[action$=contribute] button').click()")
            await page.until("document.body.innerText.includes('You may leave for good')")
            assert [item.header.author for item in board.objects.values() if item.header.kind == "contribution"] == [
                "north"
            ]
            for owner in OWNERS[1:]:
                if owner != "west":
                    board.say(owner, "approval", job)
                board.say(owner, "contribution", job, b"{}")
            board.member(RECEIVER).approve(job)
            board.run(job)
            board.show(job, "eigendecomposition", 0.42)
            await page.until("document.querySelector('#state progress')?.value == 0.42")
            board.end(job)
            await page.until("document.querySelector('#audit table')")
            assert await page.do("document.title") == f"{HOSTILE} · north"
            clean(page, here)

    asyncio.run(body())


@needs_browser
def test_it_works_without_scripts(board: Board) -> None:
    async def body() -> None:
        job = board.job()
        async with desk(board, "north") as here, browser() as page:
            await here.heard(job)
            await page.look(scripts=False)
            await page.go(here.link)
            await page.go(f"{here.root}/job/{job.id}")
            await page.look(scripts=True)
            assert not [url for url in page.requests if url.endswith("/events")]
            await page.do("document.querySelector('form[action$=approve]').submit()")
            await eventually(lambda: any(item.header.kind == "approval" for item in board.objects.values()))

    asyncio.run(body())


@needs_browser
def test_it_looks_right(board: Board, tmp_path: Path) -> None:
    async def body() -> None:
        done = board.finished("heart study, first wave")
        asked = board.job(LONG)
        board.job(HOSTILE)
        giving = board.job("Herzkreislaufuntersuchungsgemeinschaftsauswertungsauftragsnummer01")
        for owner in ("north", "west"):
            board.member(owner).approve(giving)
        refused = board.job("the fourth one")
        board.say("west", "refusal", refused, why="our ethics board meets in May only")
        async with browser() as page:
            for who, shown in (
                ("north", {"front": None, "approve": asked, "contribute": giving}),
                ("south", {"front": None, "over": refused}),
                (RECEIVER, {"result": done}),
            ):
                async with desk(board, who) as here:
                    await here.heard(refused, lambda known: any(each.kind == "refusal" for each in known.headers))
                    await page.go(here.link)
                    if who == RECEIVER and not here.results.fetched(done):
                        write_result(board.member(who), done, here.results.place(done))
                    for name, job in shown.items():
                        for width, dark in ((PHONE, False), (PHONE, True), (DESK, False), (DESK, True)):
                            await page.look(width=width, dark=dark)
                            await page.go(f"{here.root}/" if job is None else f"{here.root}/job/{job.id}")
                            assert await page.width() <= width
                            assert await page.barriers() == []
                            shot = f"{who}-{name}-{width}-{'dark' if dark else 'light'}.png"
                            await page.screenshot(tmp_path / shot)
                    await page.go("about:blank")
                    clean(page, here)
                    page.requests.clear()

    asyncio.run(body())
