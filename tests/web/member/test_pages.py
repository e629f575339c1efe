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


# -- access -----------------------------------------------------------------------------------------------------------


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
            assert f"Path={here.pages.authorisation.root}" in cookie
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
            for verb in ("approve", "refuse", "check", "discard", "contribute", "fetch"):
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
        opened = [re.fullmatch(r"to [\w ]+: ([\w ]+) \((.*)\)", line) for line in lines]  # grouped on the page
        words = [part for found in opened if found is not None for part in found.groups()]
        lines = [line for line, found in zip(lines, opened, strict=True) if found is None]
        assert len(words) > 20
        notes = [line.removeprefix("note: ") for line in printed.err.splitlines()]
        assert lines
        assert any("can compute from the difference what west alone contributed" in note for note in notes)
        async with desk(board, "north") as here, visitor() as session:
            await here.enter(session)
            await here.heard(job)
            text = _plain(await here.text(session, f"/job/{job.id}"))
            for line in (
                *words,
                *lines,
                *notes,
                *(line for line in printed.out.splitlines() if line.startswith("of: ")),
            ):
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
            await here.post(session, f"/job/{job.id}/check", form)
            assert (await here.done(job)).said == "No problems: this table can be sent."
            page = _plain(await here.text(session, f"/job/{job.id}"))
            assert "my table.csv: 30 rows, 3 columns, 0 missing values" in page
            assert not [item for item in board.objects.values() if item.header.kind == "envelope"]  # nothing was sent
            await here.post(session, f"/job/{job.id}/contribute")
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
                await here.post(session, f"/job/{job.id}/check", form)
                await here.done(job)
                assert len(list(state.glob("upload-*"))) == 1
                await here.post(session, f"/job/{job.id}/contribute")
                assert bool((await here.done(job)).fault) == (content == b"nonsense")
            assert not list(state.glob("upload-*"))
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
            await here.post(session, f"/job/{job.id}/check", form)
            await here.done(job)
            assert said in _plain(await here.text(session, f"/job/{job.id}"))
            assert (await here.post(session, f"/job/{job.id}/check", b"no form"))[0] == 415
            form = aiohttp.FormData({"path": "x" * 5000}, default_to_multipart=True)
            assert (await here.post(session, f"/job/{job.id}/check", form))[0] == 413

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


GAPS = "a,b,c\n" + "".join(f"{40 + i},{'' if i % 7 == 0 else 7 * i % 31},{i % 3}\n" for i in range(30))


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (
            GAPS,
            ["30 rows, 3 columns, 5 missing values", "missing: b (5)", "1 problem: this table cannot be sent as it is"],
        ),
        (TABLE.replace("a,b,c", "a,b,x"), ["no owner has a column 'c'. The columns are 'a', 'b', 'x'."]),
        (TABLE.replace("41,", "forty,"), ["forty"]),
        ("a,b,c\n1,2,3\n2,3,4\n", ["2 rows, 3 columns, 0 missing values", "cannot be sent as it is"]),
    ],
)
def test_a_table_is_shown_before_it_is_sent(board: Board, tmp_path: Path, table: str, said: list[str]) -> None:
    """Rows, columns, missing values and problems; a table with problems is not sent, whatever is asked for."""

    async def body() -> None:
        job = board.job()
        board.member("north").approve(job)
        path = tmp_path / "table.csv"
        path.write_text(table)
        async with desk(board, "north") as here, visitor() as session:
            await here.enter(session)
            await here.heard(job, lambda known: any(each.kind == "approval" for each in known.headers))
            await here.post(
                session, f"/job/{job.id}/check", aiohttp.FormData({"path": str(path)}, default_to_multipart=True)
            )
            await here.done(job)
            page = _plain(await here.text(session, f"/job/{job.id}"))
            for words in said:
                assert words in page
            await here.post(session, f"/job/{job.id}/contribute")
            assert "cannot be sent" in (await here.done(job)).fault
            assert not [item for item in board.objects.values() if item.header.kind == "envelope"]
            await here.post(session, f"/job/{job.id}/discard")
            await here.done(job)
            assert 'name="file"' in await here.text(session, f"/job/{job.id}")

    asyncio.run(body())


NEW = {
    "name": "wave two",
    "form": "rows",
    "missing": "refuse",
    "alignment": "psi",
    "minimum": "10",
    "columns": 'a, b, "c, d"',
}
NEW |= {"components": "2", "standardize": "on", "rows_at_least": "50", "expires": "7d", "erase_after": "7d"}
PEOPLE = [("owners", "north"), ("owners", "west"), ("owners", "south"), ("receivers", RECEIVER)]


def test_a_new_job_is_shown_as_a_file_and_then_submitted(board: Board) -> None:
    """The same file as that of `ppca job new`; nothing is sent before the member has seen it."""

    async def body() -> None:
        async with desk(board, RECEIVER) as here, visitor() as session:
            await here.enter(session)
            assert "New job" in await here.text(session)
            status, page = await here.post(session, "/new", [*NEW.items(), *PEOPLE])
            assert status == 200
            assert not board.objects
            (file,) = board.folder.glob("job-*.toml")
            job = ProposedJob(file.read_bytes())
            assert (job.name, job.proposal.owners, list(job.spec.receivers)) == (
                "wave two",
                ("north", "west", "south"),
                [RECEIVER],
            )
            assert list(job.spec.data.column_names) == ["a", "b", "c, d"]
            assert (job.spec.analysis.components, job.spec.data.standardize, job.spec.data.rows_at_least) == (
                2,
                True,
                50,
            )
            assert (
                html.escape(file.read_text(), quote=True).replace("&#x27;", "&#39;").replace("&quot;", "&#34;") in page
            )
            assert (await here.post(session, "/new/submit", {"job": "0" * 64}))[0] == 404
            assert not board.objects
            status, page = await here.post(session, "/new/submit", {"job": job.id})
            assert (status, "wave two" in page) == (200, True)
            assert {item.header.kind for item in board.objects.values()} == {"job", "offer"}
            for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
                for path in ("/new", "/new/submit"):
                    assert (await here.post(session, path, {"job": job.id}, **headers))[0] == 403

    asyncio.run(body())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": " "}, "Give the job a name"),
        ({"columns": ""}, "columns: name the columns"),
        ({"columns": "a, a"}, "columns"),
        ({"components": "many"}, "components: 'many'"),
        ({"components": "9"}, "components 9"),
        ({"rows_at_least": "-1"}, "minimum number of rows: '-1' is not a whole number"),
        ({"form": "columns"}, "is not 'owner: a, b, c'"),
        ({"form": "pie"}, "form is 'pie'"),
        ({"expires": HOSTILE}, "time: write a span such as 7d"),
    ],
)
def test_what_is_wrong_with_a_new_job_is_said(board: Board, changes: dict[str, str], said: str) -> None:
    async def body() -> None:
        async with desk(board, RECEIVER) as here, visitor() as session:
            await here.enter(session)
            status, page = await here.post(session, "/new", [*(NEW | changes).items(), *PEOPLE])
            assert status == 200
            assert said in _plain(page).partition("Not made:")[2]
            assert HOSTILE not in page
            assert not list(board.folder.glob("job-*.toml"))
            assert not board.objects

    asyncio.run(body())


def test_a_new_job_of_column_owners(board: Board) -> None:
    async def body() -> None:
        async with desk(board, RECEIVER) as here, visitor() as session:
            await here.enter(session)
            fields = NEW | {"form": "columns", "columns": "north: a, b\nwest: c\nsouth: d", "minimum": "25"}
            await here.post(session, "/new", [*fields.items(), *PEOPLE])
            (file,) = board.folder.glob("job-*.toml")
            data = ProposedJob(file.read_bytes()).spec.data
            assert data.by_columns
            assert data.columns == {"north": ("a", "b"), "west": ("c",), "south": ("d",)}
            assert data.align is not None
            assert data.align.minimum == 25

    asyncio.run(body())


def test_a_refusal_needs_a_reason_and_ends_the_job(board: Board) -> None:
    async def body() -> None:
        job = board.job()
        async with desk(board, "west") as here, visitor() as session:
            await here.enter(session)
            await here.heard(job)
            assert "no reason given" in _plain((await here.post(session, f"/job/{job.id}/refuse", {"why": " "}))[1])
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


def test_servers_that_are_lost_and_found_again(board: Board) -> None:
    async def body() -> None:
        job = board.job()
        async with desk(board, "north") as here, visitor() as session:
            await here.enter(session)
            await here.heard(job)
            board.lose()
            await eventually(lambda: here.pages.following.fault)
            assert "No news from the servers: could not reach any server" in _plain(await here.text(session))
            status, text = await here.post(session, f"/job/{job.id}/approve")
            assert (status, "Not done: could not reach any server" in _plain(text)) == (200, True)
            board.find()
            second = board.job("second job")
            await here.heard(second)
            assert "No news" not in await here.text(session)

    asyncio.run(body())
