"""The pages of `ppca ui`: whom they let in, what they say, what can be done on them, and how they look in a real browser."""

from __future__ import annotations

import asyncio
import re
import subprocess  # noqa: F401 - the browser is a process: see tests/conftest.py
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest
from aiohttp import web

from harness.board import OWNERS, RECEIVER, Board
from harness.browser import DESK, PHONE, Page, browser, needs_browser
from ppca.cli.job import show_words
from ppca.federation.job import JobDescription
from ppca.member import Member
from ppca.member.fetching import EVIDENCE
from ppca.receiver import PCAModel
from ppca.ui.door import COOKIE
from ppca.ui.results import Results
from ppca.ui.site import Pages

HOSTILE = "<script>document.title='taken'</script><img src=//evil.example onerror=1>"
LONG = "心臓病の共同研究、第二回、全病院の患者の検査値による主成分分析"
TABLE = "age,cholesterol,oldpeak,thalach\n" + "".join(
    f"{40 + i},{200 + 7 * i % 31},{i % 3},{150 - i}\n" for i in range(30)
)


def write_result(member: Member, job: JobDescription, folder: Path) -> None:
    """Stands for `ppca fetch`: the files of a result, and evidence with a key."""
    (folder / EVIDENCE).mkdir(parents=True)
    (folder / EVIDENCE / "result.key").write_bytes(b"SECRET")
    rng = np.random.default_rng(5)
    components = np.linalg.qr(rng.normal(size=(4, 4)))[0][:2]
    model = PCAModel(
        components=components,
        explained_variance=np.array([3.0, 1.0]),
        explained_variance_ratio=np.array([0.6, 0.2]),
        total_variance=5.0,
        mean=np.zeros(4),
        scale=None,
        fell_back=False,
        resolution=1e-9,
        rows=304,
        solver="allpairs",
        iterations=9,
        verified=True,
        feature_names=[HOSTILE, LONG, "oldpeak", "thalach"],
    )
    model.save(folder / "model.json")
    (folder / "report.html").write_text("<!doctype html><title>report</title><p>the report</p>")


class Desk:
    """`ppca ui` of one member, and everybody else on a board."""

    def __init__(self, board: Board, name: str) -> None:
        self.board = board
        self.name = name
        self.results = Results(
            board.folder / "results", lambda folder, job: ["every signature is that of a pinned key"]
        )
        self.pages = Pages(lambda: board.member(name), self.results, write_result)
        self.origin = self.link = ""

    @property
    def root(self) -> str:
        return self.origin + self.pages.door.root

    async def enter(self, session: aiohttp.ClientSession) -> None:
        async with session.get(self.link) as answer:
            assert (answer.status, str(answer.url)) == (200, f"{self.root}/")

    async def post(
        self, session: aiohttp.ClientSession, path: str, data: Any = None, **headers: str
    ) -> tuple[int, str]:
        headers = {"Origin": self.origin} | headers
        async with session.post(f"{self.root}{path}", data=data, headers=headers) as answer:
            return answer.status, await answer.text()

    async def text(self, session: aiohttp.ClientSession, path: str = "/") -> str:
        async with session.get(f"{self.root}{path}") as answer:
            assert answer.status == 200
            return await answer.text()

    async def heard(self, job: JobDescription, look: Callable[[Any], bool] = lambda known: True) -> None:
        for _ in range(300):
            known = self.pages.following.one(job.id)
            if known is not None and look(known):
                return
            await asyncio.sleep(0.05)
        raise AssertionError("not heard of")

    async def done(self, job: JobDescription) -> Any:
        for _ in range(600):
            errand = self.pages.errands.of(job.id)
            if errand is not None and not errand.under_way:
                return errand
            await asyncio.sleep(0.05)
        raise AssertionError("not done")


@asynccontextmanager
async def desk(board: Board, name: str) -> AsyncIterator[Desk]:
    here = Desk(board, name)
    runner = web.AppRunner(here.pages.application(), access_log=None, shutdown_timeout=2)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    here.origin, here.link = f"http://127.0.0.1:{port}", here.pages.door.link(port)
    here.pages.following.start()
    try:
        yield here
    finally:
        here.pages.following.stop()
        await runner.cleanup()


def visitor() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))  # keeps cookies of addresses


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return Board(tmp_path)


# -- the door ---------------------------------------------------------------------------------------------------------


def test_the_link_works_once(board: Board) -> None:
    async def body() -> None:
        async with desk(board, "north") as here:
            async with visitor() as second, second.get(f"{here.origin}/enter/wrong") as answer:
                assert answer.status == 403
            async with visitor() as first, visitor() as second:
                await here.enter(first)
                async with second.get(here.link) as answer:
                    assert (answer.status, "works once" in await answer.text()) == (403, True)
                assert "Nothing waits for you" in await here.text(first)

    asyncio.run(body())


def test_nothing_is_shown_without_the_cookie(board: Board) -> None:
    async def body() -> None:
        job = board.job()
        async with desk(board, "north") as here:
            await here.heard(job)
            for path in ("/", "/events", f"/job/{job.id}", "/static/look.css"):
                async with visitor() as stranger, stranger.get(here.root + path) as answer:
                    assert (answer.status, "first job" in await answer.text()) == (403, False)
            async with visitor() as stranger, stranger.get(f"{here.origin}/") as answer:
                assert answer.status == 403
            guess = {"Cookie": f"{COOKIE}=guess"}
            async with visitor() as stranger, stranger.get(f"{here.root}/", headers=guess) as answer:
                assert answer.status == 403

    asyncio.run(body())


def test_the_cookie_is_for_one_path_and_no_script(board: Board) -> None:
    async def body() -> None:
        async with (
            desk(board, "north") as here,
            visitor() as first,
            first.get(here.link, allow_redirects=False) as answer,
        ):
            cookie = answer.headers["Set-Cookie"]
            assert f"Path={here.pages.door.root}" in cookie
            assert "HttpOnly" in cookie
            assert "SameSite=Strict" in cookie

    asyncio.run(body())


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},  # another port of this machine
        {"Host": "evil.example", "Origin": "http://evil.example"},
    ],
)
def test_what_another_page_asks_for_is_not_done(board: Board, headers: dict[str, str]) -> None:
    async def body() -> None:
        job = board.job()
        async with desk(board, "north") as here, visitor() as session:
            await here.enter(session)
            await here.heard(job)
            for verb in ("approve", "refuse", "contribute", "fetch"):
                status, _ = await here.post(session, f"/job/{job.id}/{verb}", {"why": "x"}, **headers)
                assert status in (403, 421)
            async with session.get(f"{here.root}/job/{job.id}/approve") as answer:
                assert answer.status == 405
        assert not [item for item in board.objects.values() if item.header.author == "north"]

    asyncio.run(body())


# -- what is done -----------------------------------------------------------------------------------------------------


def test_an_owner_reads_the_words_of_ppca_approve(board: Board, capsys: pytest.CaptureFixture[str]) -> None:
    async def body() -> None:
        member = board.member("north")
        member.approve(board.job("job of two", owners=("north", "harbour")))
        job = board.job()
        show_words(member, job)
        printed = capsys.readouterr()
        lines = [line.removeprefix("  - ") for line in printed.out.splitlines() if line.startswith("  - ")]
        notes = [line.removeprefix("note: ") for line in printed.err.splitlines()]
        assert lines
        assert "can compute from the difference what hill alone contributed" in notes[0]
        async with desk(board, "north") as here, visitor() as session:
            await here.enter(session)
            await here.heard(job)
            text = _plain(await here.text(session, f"/job/{job.id}"))
            for line in (*lines, *notes, *(line for line in printed.out.splitlines() if line.startswith("of: "))):
                assert line in text

    asyncio.run(body())


def _plain(page: str) -> str:
    import html

    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", "", page)))


def test_approve_then_contribute_from_a_path(board: Board, tmp_path: Path) -> None:
    async def body() -> None:
        job = board.job()
        table = tmp_path / "my table.csv"
        table.write_text(TABLE)
        async with desk(board, "north") as here, visitor() as session:
            await here.enter(session)
            await here.heard(job)
            assert "read and approve" in await here.text(session)
            status, text = await here.post(session, f"/job/{job.id}/approve")
            assert (status, "You have approved exactly this job" in text) == (200, True)
            (approval,) = [item for item in board.objects.values() if item.header.kind == "approval"]
            assert (approval.header.author, approval.header.job) == ("north", job.id)
            form = aiohttp.FormData({"path": str(table)})
            form.add_field("file", b"", filename="", content_type="application/octet-stream")  # as browsers send none
            await here.post(session, f"/job/{job.id}/contribute", form)
            assert "kB in sealed shares" in (await here.done(job)).said
            kinds = [item.header.kind for item in board.objects.values() if item.header.author == "north"]
            assert (kinds.count("contribution"), kinds.count("envelope") >= 4) == (1, True)
            assert "You may leave for good" in await here.text(session, f"/job/{job.id}")

    asyncio.run(body())


def test_an_uploaded_table_is_deleted_once_it_is_shared(board: Board) -> None:
    async def body() -> None:
        job = board.job()
        board.member("north").approve(job)
        state = board.folder / "north" / "state"
        (state / f"upload-{2**22 + 5}-left").mkdir()  # of a process that was killed
        async with desk(board, "north") as here, visitor() as session:
            assert not list(state.glob("upload-*"))
            await here.enter(session)
            await here.heard(job, lambda known: any(each.kind == "approval" for each in known.headers))
            for content, name in ((b"nonsense", "../../x.csv"), (TABLE.encode(), "../evil/table.csv")):
                form = aiohttp.FormData()
                form.add_field("path", "")
                form.add_field("file", content, filename=name, content_type="text/csv")
                await here.post(session, f"/job/{job.id}/contribute", form)
                errand = await here.done(job)
                assert not list(state.glob("upload-*"))
                assert bool(errand.fault) == (content == b"nonsense")
            assert not (board.folder / "x.csv").exists()

    asyncio.run(body())


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"path": ""}, "choose a file, or type the path"),
        ({"path": "/nowhere/table.csv"}, "/nowhere/table.csv"),
        ({"path": "x.csv", "encoding": "klingon"}, "klingon is unknown"),
        ({"path": "x.csv", "decimal": ";"}, "must be"),
    ],
)
def test_what_is_wrong_with_a_contribution_is_said(board: Board, fields: dict[str, str], said: str) -> None:
    async def body() -> None:
        job = board.job()
        board.member("north").approve(job)
        async with desk(board, "north") as here, visitor() as session:
            await here.enter(session)
            await here.heard(job)
            form = aiohttp.FormData(default_to_multipart=True)
            for name, value in fields.items():
                form.add_field(name, value)
            await here.post(session, f"/job/{job.id}/contribute", form)
            assert said in (await here.done(job)).fault
            assert said in _plain(await here.text(session, f"/job/{job.id}"))
            assert (await here.post(session, f"/job/{job.id}/contribute", b"no form"))[0] == 415
            form = aiohttp.FormData({"path": "x" * 5000}, default_to_multipart=True)
            assert (await here.post(session, f"/job/{job.id}/contribute", form))[0] == 413

    asyncio.run(body())


def test_a_refusal_needs_a_reason_and_ends_the_job(board: Board) -> None:
    async def body() -> None:
        job = board.job()
        async with desk(board, "hill") as here, visitor() as session:
            await here.enter(session)
            await here.heard(job)
            assert "say why" in _plain((await here.post(session, f"/job/{job.id}/refuse", {"why": " "}))[1])
            status, text = await here.post(session, f"/job/{job.id}/refuse", {"why": HOSTILE})
            assert (status, HOSTILE in text, HOSTILE in _plain(text)) == (200, False, True)
            assert 'class="badge refused"' in text

    asyncio.run(body())


def test_a_receiver_fetches_and_sees_no_key(board: Board) -> None:
    async def body() -> None:
        job = finished(board)
        async with desk(board, RECEIVER) as here, visitor() as session:
            await here.enter(session)
            await here.heard(job, lambda known: sum(each.kind == "audit" for each in known.headers) == 4)
            assert "fetch the result" in await here.text(session)
            await here.post(session, f"/job/{job.id}/fetch")
            assert str(here.results.place(job)) in (await here.done(job)).said
            page = await here.text(session, f"/job/{job.id}")
            assert page.count("<svg") == 4
            assert "80.00 %" in page
            assert HOSTILE not in page
            assert "Their lists are equal" in _plain(page)
            assert "SECRET" not in page
            assert EVIDENCE not in page.replace("evidence, equal", "")
            async with session.get(f"{here.root}/job/{job.id}/report") as answer:
                assert (await answer.text()).endswith("<p>the report</p>")
                assert "sandbox" in answer.headers["Content-Security-Policy"]
            async with session.get(f"{here.root}/job/{job.id}/files/model.json") as answer:
                assert answer.headers["Content-Disposition"].startswith("attachment")
            tries = (f"{EVIDENCE}%2Fresult.key", "..%2Fidentity.key", EVIDENCE, "%2e%2e", "nothing.csv")
            for name in tries:
                async with session.get(f"{here.root}/job/{job.id}/files/{name}") as answer:
                    assert answer.status == 404

    asyncio.run(body())


def test_a_result_that_fails_the_check_is_not_shown(board: Board) -> None:
    async def body() -> None:
        job = finished(board)
        async with desk(board, RECEIVER) as here, visitor() as session:

            def check(folder: Path, job: JobDescription) -> list[str]:
                raise ValueError("model.json was changed: it is not what the evidence gives.")

            here.results._check = check
            write_result(board.member(RECEIVER), job, here.results.place(job))
            await here.enter(session)
            await here.heard(job)
            page = await here.text(session, f"/job/{job.id}")
            assert "model.json was changed" in page
            assert "<svg" not in page
            async with session.get(f"{here.root}/job/{job.id}/files/model.json") as answer:
                assert answer.status == 404

    asyncio.run(body())


def test_seats_that_are_lost_and_found_again(board: Board) -> None:
    async def body() -> None:
        job = board.job()
        async with desk(board, "north") as here, visitor() as session:
            await here.enter(session)
            await here.heard(job)
            board.lose()
            await until(lambda: bool(here.pages.following.fault))
            assert "No news from the seats: no seat is reached" in _plain(await here.text(session))
            status, text = await here.post(session, f"/job/{job.id}/approve")
            assert (status, "Not done: no seat is reached" in _plain(text)) == (200, True)
            board.find()
            second = board.job("second job")
            await here.heard(second)
            assert "No news" not in await here.text(session)

    asyncio.run(body())


async def until(look: Callable[[], bool]) -> None:
    for _ in range(300):
        if look():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it did not happen")


def finished(board: Board, name: str = "first job") -> JobDescription:
    job = board.job(name)
    for owner in OWNERS:
        board.say(owner, "approval", job)
        board.say(owner, "contribution", job, b"{}")
    board.member(RECEIVER).approve(job)
    board.receive(job)
    board.say("alpha", "start", job, attempt=1)
    board.end(job)
    return job


# -- in a browser -----------------------------------------------------------------------------------------------------


def clean(page: Page, here: Desk) -> None:
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
            assert await page.do("location.pathname") == f"{here.pages.door.root}/"
            assert await page.do("document.cookie") == ""
            job = board.job(HOSTILE)
            await page.until("document.querySelector('#todo .button')")
            await page.do("document.querySelector('#todo .button').click()")
            await page.until("document.querySelector('form[action$=approve] button')")
            await page.do("document.querySelector('form[action$=approve] button').click()")
            await page.until("document.querySelector('#path')")
            await page.do(f"document.querySelector('#path').value = {str(table)!r}")
            board.say("hill", "approval", job)  # the page changes while somebody types
            await page.until("!document.querySelector('#state').innerText.includes('hill to approve')")
            assert await page.do("document.querySelector('#path').value") == str(table)
            await page.do("document.querySelector('form[action$=contribute] button').click()")
            await page.until("document.body.innerText.includes('You may leave for good')")
            assert [item.header.author for item in board.objects.values() if item.header.kind == "contribution"] == [
                "north"
            ]
            for owner in OWNERS[1:]:
                if owner != "hill":
                    board.say(owner, "approval", job)
                board.say(owner, "contribution", job, b"{}")
            board.member(RECEIVER).approve(job)
            board.receive(job)
            board.say("alpha", "start", job, attempt=1)
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
            await until(lambda: any(item.header.kind == "approval" for item in board.objects.values()))

    asyncio.run(body())


@needs_browser
def test_it_looks_right(board: Board, tmp_path: Path) -> None:
    async def body() -> None:
        done = finished(board, "heart study, first wave")
        asked = board.job(LONG)
        board.job(HOSTILE)
        giving = board.job("Herzkreislaufuntersuchungsgemeinschaftsauswertungsauftragsnummer01")
        for owner in ("north", "hill"):
            board.member(owner).approve(giving)
        refused = board.job("the fourth one")
        board.say("hill", "refusal", refused, why="our ethics board meets in May only")
        async with browser() as page:
            for who, shown in (
                ("north", {"front": None, "approve": asked, "contribute": giving}),
                ("harbour", {"front": None, "over": refused}),
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
                            shot = f"{who}-{name}-{width}-{'dark' if dark else 'light'}.png"
                            await page.screenshot(tmp_path / shot)
                    await page.go("about:blank")
                    clean(page, here)
                    page.requests.clear()

    asyncio.run(body())
