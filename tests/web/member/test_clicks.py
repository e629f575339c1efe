"""What members do on the pages of `ppca ui`, with clicks in a browser, on a telephone and on a desk; no page has a barrier."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from harness.board import Board
from harness.browser import DESK, PHONE, Page, browser, needs_browser
from harness.federation import RECEIVER
from harness.member_pages import TABLE, MemberPages, desk
from harness.waiting import eventually
from ppca.federation.proposal import ProposedJob

WIDTHS = pytest.mark.parametrize("width", [PHONE, DESK])


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return Board(tmp_path)


async def usable(page: Page, width: int, shot: Path) -> None:
    """The page fits the screen and axe-core finds nothing, in light and dark colours."""
    for dark in (True, False):
        await page.look(width=width, dark=dark)
        assert await page.width() <= width
        assert await page.barriers() == [], shot.name
        await page.screenshot(shot.with_suffix(f".{'dark' if dark else 'light'}.png"))


async def click(page: Page, selector: str) -> None:
    await page.until(f"document.querySelector({selector!r})")
    await page.do(f"document.querySelector({selector!r}).click()")


def said(board: Board, kind: str) -> list[str]:
    return [item.header.author for item in board.objects.values() if item.header.kind == kind]


async def open_job(page: Page, here: MemberPages, job: ProposedJob) -> None:
    await page.go(here.link)
    await here.heard(job)
    await page.go(f"{here.root}/job/{job.id}")


@needs_browser
@WIDTHS
def test_an_owner_approves_and_uploads_a_wrong_and_a_right_file(board: Board, tmp_path: Path, width: int) -> None:
    async def body() -> None:
        wrong, right = tmp_path / "wrong.csv", tmp_path / "right.csv"
        wrong.write_text(TABLE.replace("a,b,c", "a,b,x"))
        right.write_text(TABLE)
        job = board.job()
        async with desk(board, "north") as here, browser() as page:
            await page.look(width=width)
            await open_job(page, here, job)
            await usable(page, width, tmp_path / "approve")
            await click(page, "form[action$=approve] button")
            await page.until("document.querySelector('#file')")
            await page.choose("#file", wrong)
            await click(page, "form[action$=check] button")
            await page.until("document.querySelector('#contribute [role=alert]')")
            assert "no owner has a column 'c'" in await page.text()
            assert not await page.do("document.querySelector('form[action$=contribute]')")
            assert not await page.do("document.querySelector('.success')"), "a problem is not shown as a success"
            assert "0 rows" not in await page.text()
            await usable(page, width, tmp_path / "wrong")
            await click(page, "form[action$=discard] button")
            await page.until("document.querySelector('#file')")
            await page.choose("#file", right)
            await click(page, "form[action$=check] button")
            await page.until("document.querySelector('form[action$=contribute] button')")
            assert "30 rows, 3 columns, 0 missing values" in await page.text()
            await usable(page, width, tmp_path / "preview")
            assert said(board, "contribution") == []
            await click(page, "form[action$=contribute] button")
            await page.until("document.body.innerText.includes('You may leave for good')")
            assert said(board, "contribution") == ["north"]
            assert page.problems == []

    asyncio.run(body())


@needs_browser
@WIDTHS
def test_an_owner_refuses(board: Board, tmp_path: Path, width: int) -> None:
    async def body() -> None:
        job = board.job()
        async with desk(board, "west") as here, browser() as page:
            await page.look(width=width)
            await open_job(page, here, job)
            await click(page, "#refusal summary")
            await usable(page, width, tmp_path / "refuse")
            await click(page, "form[action$=refuse] button")  # without a reason the browser does not send it
            assert said(board, "refusal") == []
            await page.do("document.querySelector('#why').value = 'too few rows'")
            await click(page, "form[action$=refuse] button")
            await page.until("document.querySelector('#state .badge.refused')")
            assert "too few rows" in await page.text()
            assert said(board, "refusal") == ["west"]
            await usable(page, width, tmp_path / "refused")

    asyncio.run(body())


@needs_browser
@WIDTHS
def test_a_receiver_fetches(board: Board, tmp_path: Path, width: int) -> None:
    async def body() -> None:
        job = board.finished()
        async with desk(board, RECEIVER) as here, browser() as page:
            await page.look(width=width)
            await page.go(here.link)
            await here.heard(job, lambda known: sum(each.kind == "audit" for each in known.headers) == 4)
            await page.go(f"{here.root}/")
            await usable(page, width, tmp_path / "front")
            await click(page, "#todo .button")
            await click(page, "form[action$=fetch] button")
            await page.until("document.querySelectorAll('#result svg').length == 4")
            await page.until("document.body.innerText.includes('you have its result')")
            await usable(page, width, tmp_path / "result")
            assert page.problems == []

    asyncio.run(body())


@needs_browser
@WIDTHS
def test_a_receiver_makes_a_new_job(board: Board, tmp_path: Path, width: int) -> None:
    async def body() -> None:
        async with desk(board, RECEIVER) as here, browser() as page:
            await page.look(width=width)
            await page.go(here.link)
            await click(page, "a[href$='/new']")
            await page.until("document.querySelector('#names')")
            await usable(page, width, tmp_path / "new")
            await page.do("document.querySelector('#name').value = 'wave two'")
            await page.do("document.querySelector('#names').value = 'a, b, c'")
            await page.do("document.querySelector('#components').value = '9'")
            await page.do(
                "document.querySelectorAll('[name=owners], [name=receivers]').forEach(each => each.checked = true)"
            )
            await click(page, "form[action$='/new'] button")
            await page.until("document.querySelector('[role=alert]')")
            assert "components 9" in await page.text()
            await page.do("document.querySelector('#components').value = '2'")
            await click(page, "form[action$='/new'] button")
            await page.until("document.querySelector('form[action$=submit] button')")
            await usable(page, width, tmp_path / "draft")
            assert not board.objects
            await click(page, "form[action$=submit] button")
            await eventually(lambda: "job" in {item.header.kind for item in board.objects.values()})
            await page.until("document.querySelector('#state .badge')")
            assert page.problems == []

    asyncio.run(body())


@needs_browser
def test_barriers_are_found(tmp_path: Path) -> None:
    """So that the tests above can fail."""

    async def body() -> None:
        path = tmp_path / "bad.html"
        path.write_text(
            "<!doctype html><title>x</title><main><h1>x</h1><img src='x.png'><p style='color: #ccc'>pale</p></main>"
        )
        async with browser() as page:
            await page.go(path.as_uri())
            found = {line.partition(":")[0] for line in await page.barriers()}
        assert {"html-has-lang", "image-alt", "color-contrast"} <= found

    asyncio.run(body())
