"""The pages of `ppca ui`: whom they let in, what they say, and what can be done on them."""

from __future__ import annotations

import asyncio
import html
import re
from pathlib import Path

import aiohttp
import pytest

from harness.board import Board
from harness.federation import RECEIVER
from harness.member_pages import HOSTILE, TABLE, desk, visitor, write_result
from harness.waiting import eventually
from ppca.cli.member import show_words
from ppca.federation.proposal import ProposedJob
from ppca.member.fetching import EVIDENCE
from ppca.owner.tables.options import ReadOptions, settable
from ppca.web.member.authorisation import COOKIE
from ppca.web.member.uploads import Form


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
        member.approve(board.job("job of two", owners=("north", "south")))
        job = board.job()
        show_words(member, job)
        printed = capsys.readouterr()
        lines = [line.removeprefix("  - ") for line in printed.out.splitlines() if line.startswith("  - ")]
        notes = [line.removeprefix("note: ") for line in printed.err.splitlines()]
        assert lines
        assert any("can compute from the difference what west alone contributed" in note for note in notes)
        async with desk(board, "north") as here, visitor() as session:
            await here.enter(session)
            await here.heard(job)
            text = _plain(await here.text(session, f"/job/{job.id}"))
            for line in (*lines, *notes, *(line for line in printed.out.splitlines() if line.startswith("of: "))):
                assert line in text

    asyncio.run(body())


def _plain(page: str) -> str:
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
                task = await here.done(job)
                assert not list(state.glob("upload-*"))
                assert bool(task.fault) == (content == b"nonsense")
            assert not (board.folder / "x.csv").exists()

    asyncio.run(body())


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"path": ""}, "choose a file, or type the path"),
        ({"path": "/nowhere/table.csv"}, "/nowhere/table.csv"),
        ({"path": "x.csv", "encoding": "klingon"}, "klingon: is unknown"),
        ({"path": "x.csv", "decimal": ";"}, "must be"),
        ({"path": "x.csv", "thousands": "x"}, "thousands x: must be"),
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


def test_the_form_has_all_options_for_reading(board: Board) -> None:
    given = {"decimal": ",", "thousands": " ", "na_values": 'n/k, "a,b"', "encoding": ""}
    assert Form(reading=given).options() == ReadOptions(",", " ", ("n/k", "a,b"), "utf-8")

    async def body() -> None:
        job = board.job()
        board.member("north").approve(job)
        async with desk(board, "north") as here, visitor() as session:
            await here.enter(session)
            await here.heard(job, lambda known: any(each.kind == "approval" for each in known.headers))
            page = await here.text(session, f"/job/{job.id}")
            for name in settable():
                assert (f'name="{name}"' in page) == (name != "missing"), (
                    name
                )  # the job says what becomes of missing values

    asyncio.run(body())


def test_a_refusal_needs_a_reason_and_ends_the_job(board: Board) -> None:
    async def body() -> None:
        job = board.job()
        async with desk(board, "west") as here, visitor() as session:
            await here.enter(session)
            await here.heard(job)
            assert "say why" in _plain((await here.post(session, f"/job/{job.id}/refuse", {"why": " "}))[1])
            status, text = await here.post(session, f"/job/{job.id}/refuse", {"why": HOSTILE})
            assert (status, HOSTILE in text, HOSTILE in _plain(text)) == (200, False, True)
            assert 'class="badge refused"' in text

    asyncio.run(body())


def test_a_receiver_fetches_and_sees_no_key(board: Board) -> None:
    async def body() -> None:
        job = board.finished()
        async with desk(board, RECEIVER) as here, visitor() as session:
            await here.enter(session)
            await here.heard(job, lambda known: sum(each.kind == "audit" for each in known.headers) == 4)
            assert "fetch the result" in await here.text(session)
            await here.post(session, f"/job/{job.id}/fetch")
            assert str(here.results.place(job)) in (await here.done(job)).said
            page = await here.text(session, f"/job/{job.id}")
            assert page.count("<svg") == 4  # scree, circle, colours, loadings
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
        job = board.finished()
        async with desk(board, RECEIVER) as here, visitor() as session:

            def check(folder: Path, job: ProposedJob) -> list[str]:
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
            await eventually(lambda: here.pages.following.fault)
            assert "No news from the servers: no server is reached" in _plain(await here.text(session))
            status, text = await here.post(session, f"/job/{job.id}/approve")
            assert (status, "Not done: no server is reached" in _plain(text)) == (200, True)
            board.find()
            second = board.job("second job")
            await here.heard(second)
            assert "No news" not in await here.text(session)

    asyncio.run(body())
