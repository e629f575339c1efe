"""The operator's page: what it says, whom it answers, and how it looks in a real browser."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from harness import federation
from harness.browser import DESK, PHONE, Page, browser, needs_browser
from ppca.server.operator_page import MAX_OVER, OperatorPage
from ppca.server.operator_page import facts as found_facts
from ppca.server.replication import Followers

HOSTILE = "<script>document.title='taken'</script><img src=//evil.example onerror=1>"
NAMES = [
    "heart study, 2026",
    HOSTILE,
    "心臓病の共同研究、第二回、全病院の患者の検査値による主成分分析",
    "دراسة القلب المشتركة بين المستشفيات",
    "Herzkreislaufuntersuchungsgemeinschaftsauswertungsauftragsnummer0000000000000001",
]
STAGES = (
    "proposed",
    "gathering",
    "ready",
    "running",
    "held",
    "done",
    "failed",
    "refused",
    "cancelled",
    "expired",
    "erased",
)


def job(number: int, stage: str, name: str = "", **more: Any) -> dict[str, Any]:
    waits = stage in ("proposed", "gathering", "ready")
    found = {
        "id": f"{number:064x}",
        "name": name or f"job {number}",
        "analysis": "pca/1",
        "form": "rows",
        "owners": ["north", "harbour", "hill"],
        "receivers": ["analyst"],
        "expires": "2030-01-31T12:00:00+00:00",
        "stage": stage,
        "attempt": 1 if stage in ("running", "done", "failed") else 0,
        "why": "gamma: the disk is full" if stage == "failed" else "",
        "ended": "done" if stage == "erased" else "",
        "waiting": [{"actor": "hill", "what": "contribute (ppca contribute)"}] if waits else [],
        "progress": None,
        "submitted_by": "analyst",
        "columns": 13,
        "readers": [
            {"name": "analyst", "lines": [("components", "how columns vary")], "units": []},
            {"name": "the four servers", "lines": [("verification bit", "one bit")], "units": []},
        ],
        "erase_after": "7d",
        "failures": [{"attempt": 1, "actor": "gamma", "why": "the disk is full"}] if stage == "failed" else [],
    }
    if stage == "running":
        found["progress"] = {"job": found["id"], "text": "eigendecomposition", "fraction": 0.42, "rounds": 1234}
    return found | more


def facts(*jobs: dict[str, Any], lost: bool = False) -> dict[str, Any]:
    def link(name: str, seconds: float) -> dict[str, Any]:
        place = {"member": name, "api": f"{name}.example:7443"}
        return {**place, "up": True, "why": "", "revision": 3, "build": "0.1.0+abc", "round_trip": seconds}

    links = {"1": link("beta", 0.0123), "2": link("gamma", 0.0412), "3": link("delta", 0.0004)}
    if lost:
        why = "ClientConnectorError: Cannot connect to host gamma.example:7443"
        links["2"] = {"member": "gamma", "api": "gamma.example:7443", "up": False, "why": why}
    return {
        "server": 0,
        "member": "alpha",
        "federation": "heart-study",
        "revision": 3,
        "build": "0.1.0+abc",
        "jobs": list(jobs),
        "links": links,
        "running": sum(one["stage"] == "running" for one in jobs),
        "queue": [one for one in jobs if one["stage"] == "ready"],
        "store": {"bytes": 12_345_678, "at_most": 64 << 30, "disk_free": 98_765_432_100, "models": 2},
    }


class PageServer:
    """A local page whose facts a test changes."""

    def __init__(self, now: dict[str, Any]) -> None:
        self.now = now
        self.queues: set[asyncio.Queue[Any]] = set()
        self.url = ""

    @contextmanager
    def events(self) -> Iterator[asyncio.Queue[Any]]:
        queue: asyncio.Queue[Any] = asyncio.Queue()
        self.queues.add(queue)
        try:
            yield queue
        finally:
            self.queues.discard(queue)

    def tell(self, now: dict[str, Any]) -> None:
        self.now = now
        for queue in self.queues:
            queue.put_nowait("event")


@asynccontextmanager
async def served(now: dict[str, Any]) -> AsyncIterator[PageServer]:
    seat = PageServer(now)
    page = OperatorPage(lambda: json.loads(json.dumps(seat.now)), seat.events, lambda: {"server": 0, "links_up": 3})
    async with served_by(page) as seat.url:
        yield seat


@asynccontextmanager
async def served_by(page: OperatorPage) -> AsyncIterator[str]:
    runner = web.AppRunner(page.application(), access_log=None, shutdown_timeout=2)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def ask(url: str, method: str = "GET", **headers: str) -> tuple[int, str, Any]:
    async with aiohttp.ClientSession() as session, session.request(method, url, headers=headers) as answer:
        return answer.status, await answer.text(), answer.headers


@pytest.mark.parametrize(
    ("stage", "sentence", "command"),
    [
        ("gathering", "Next, hill must act.", "ppca status 000000000000"),
        ("running", "No action is needed.", "ppca status 000000000000"),
        ("held", "then resume the job as root on this server", "ppca job resume 000000000000"),
        ("done", "the receivers fetch their results", "ppca audit 000000000000"),
    ],
)
def test_every_job_says_what_happens_next(stage: str, sentence: str, command: str) -> None:
    async def body() -> None:
        async with served(facts(job(1, stage))) as seat:
            _, text, _ = await ask(seat.url)
        assert sentence in text
        assert f'data-copy="{command}"' in text

    asyncio.run(body())


# -- without a browser ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "10.0.0.1", "x"]
)
def test_another_host_is_not_answered(host: str) -> None:
    async def body() -> None:
        async with served(facts(job(1, "running"))) as seat:
            for path in ("/", "/events", "/metrics", "/healthz", "/v1/state", "/static/look.css"):
                status, text, _ = await ask(seat.url + path, Host=host)
                assert (status, "127.0.0.1" in text, "job 1" in text) == (421, True, False)

    asyncio.run(body())


def test_names_of_this_machine_are_answered_on_any_port() -> None:
    async def body() -> None:
        async with served(facts()) as seat:
            for host in ("127.0.0.1", "localhost:8080", "[::1]:7445"):
                assert (await ask(seat.url + "/", Host=host))[0] == 200

    asyncio.run(body())


def test_it_is_read_only() -> None:
    async def body() -> None:
        async with served(facts()) as seat:
            for method in ("POST", "PUT", "DELETE", "PATCH"):
                for path in ("/", "/v1/state", "/metrics", "/events"):
                    assert (await ask(seat.url + path, method))[0] == 405

    asyncio.run(body())


def test_names_are_escaped_and_nothing_is_loaded_from_elsewhere() -> None:
    async def body() -> None:
        async with served(facts(*(job(i, "gathering", name) for i, name in enumerate(NAMES)))) as seat:
            status, text, headers = await ask(seat.url + "/")
            assert status == 200
            assert HOSTILE not in text
            assert "&lt;script&gt;document.title" in text
            assert not re.search(r'(?:src|href|action)="(?!/)', text)
            assert " style=" not in text  # would need a policy that allows it
            policy = headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert headers["X-Content-Type-Options"] == "nosniff"

    asyncio.run(body())


def test_machines_have_health_state_and_metrics() -> None:
    async def body() -> None:
        async with served(facts(job(1, "done"), job(2, "running"), lost=True)) as seat:
            assert json.loads((await ask(seat.url + "/healthz"))[1]) == {"server": 0, "links_up": 3}
            assert [one["stage"] for one in json.loads((await ask(seat.url + "/v1/state"))[1])["jobs"]] == [
                "done",
                "running",
            ]
            metrics = (await ask(seat.url + "/metrics"))[1]
            assert 'ppca_jobs{stage="running"} 1.0' in metrics
            assert 'ppca_link_up{server="2"} 0.0' in metrics
            assert 'ppca_link_round_trip_seconds{server="1"} 0.0123' in metrics
            assert 'ppca_link_round_trip_seconds{server="2"}' not in metrics

    asyncio.run(body())


def test_every_stage_and_a_thousand_jobs() -> None:
    async def body() -> None:
        jobs = [job(i, stage) for i, stage in enumerate(STAGES)] + [job(i, "done") for i in range(10, 1000)]
        async with served(facts(*jobs)) as seat:
            _, text, _ = await ask(seat.url + "/")
            assert all(f'class="badge {stage}"' in text for stage in STAGES)
            assert text.count('class="job"') == 5 + MAX_OVER
            assert f"{996 - MAX_OVER} older ones are not shown" in text

    asyncio.run(body())


def test_the_facts_of_a_real_server(tmp_path: Path) -> None:
    """All that the page of a real server_state needs is there, for a job that waits, one that failed once, and one
    that is done."""
    server_state = federation.server_state(tmp_path)
    jobs = [federation.job(name=name) for name in ("waits", "fails", "ends", "gone")]
    stories = [federation.story(job) for job in jobs]
    failed = federation.ended(jobs[1], "beta", outcome="failed", why="the disk is full")
    told = [*stories[0][:8], *(item for item in stories[1] if item.header.kind != "ended"), failed, *stories[2]]
    erased = [federation.make(name, "erased", stories[3][0].header.job, what="job") for name in federation.OPERATORS]
    for item in (*told, *stories[3], *erased):
        server_state.admit(item, "beta")
    followers = Followers(server_state)
    followers.links[1] = {"up": True, "why": "", "revision": 1, "build": "x", "round_trip": 0.01}
    job_runner: Any = SimpleNamespace(
        attempts=SimpleNamespace(running={}), staging=SimpleNamespace(models=lambda: ["one"])
    )

    settled: dict[str, Any] = {}

    async def body() -> None:
        page = OperatorPage(
            lambda: found_facts(server_state, job_runner, followers, settled), server_state.events, dict
        )
        async with served_by(page) as url:
            status, text, _ = await ask(url + "/")
            assert status == 200
            assert [re.sub(r"<[^>]+>", "", each) for each in re.findall("<h3.*?</h3>", text) if "dir=" in each] == [
                "fails",
                "waits",
                "gone",
                "ends",
            ]
            assert "1, at beta: the disk is full" in text
            assert "runs another build, x" in text
            state = json.loads((await ask(url + "/v1/state"))[1])
            assert [one["stage"] for one in state["jobs"]] == ["erased", "done", "ready", "gathering"]
            assert [one["name"] for one in settled.values()] == ["gone"]

    asyncio.run(body())
    server_state.mailbox.close()


# -- in a browser -----------------------------------------------------------------------------------------------------


async def clean(page: Page, seat: PageServer) -> None:
    """Nothing was refused by the policy, no script failed, nothing came from elsewhere."""
    assert page.problems == []
    assert [url for url in page.requests if not url.startswith((seat.url, "about:"))] == []


SHOWN = {
    "empty": facts(),
    "one": facts(job(1, "running")),
    "many": facts(
        *(job(i, stage, name) for i, (stage, name) in enumerate(zip(STAGES[:5], NAMES, strict=True))),
        *(job(10 + i, stage) for i, stage in enumerate(STAGES)),
        lost=True,
    ),
}


@needs_browser
def test_it_looks_right(tmp_path: Path) -> None:
    async def body() -> None:
        async with browser() as page:
            for name, now in SHOWN.items():
                async with served(now) as seat:
                    for width in (PHONE, DESK):
                        for dark in (False, True):
                            await page.look(width=width, dark=dark)
                            await page.go(seat.url)
                            assert await page.width() <= width
                            paper = await page.do("getComputedStyle(document.querySelector('section')).backgroundColor")
                            assert paper == ("rgb(26, 34, 41)" if dark else "rgb(255, 255, 255)")
                            assert await page.barriers() == []
                            await page.screenshot(tmp_path / f"{name}-{width}-{'dark' if dark else 'light'}.png")
                    assert await page.do("document.title") == "Server 0 · alpha"
                    await page.go("about:blank")
                    await clean(page, seat)
                    page.requests.clear()

    asyncio.run(body())


@needs_browser
def test_it_follows_what_happens(tmp_path: Path) -> None:
    """Without a reload: a new job, its progress, its end; what the reader has unfolded stays so."""

    async def body() -> None:
        async with browser() as page, served(facts(job(1, "gathering"))) as seat:
            await page.go(seat.url)
            await page.do(f"window.mark = 1; document.querySelector('#about-{1:064x}').open = true")
            seat.tell(facts(job(2, "gathering", HOSTILE), job(1, "running")))
            await page.until("document.querySelectorAll('#open .job').length == 2")
            assert "42 % · 1,234 rounds" in await page.text()
            assert await page.do(f"document.querySelector('#about-{1:064x}').open")
            seat.tell(facts(job(2, "gathering", HOSTILE), job(1, "done")))
            await page.until("document.querySelector('#over .badge.done')")
            assert await page.do("window.mark") == 1
            assert await page.do("document.title") == "Server 0 · alpha"
            await clean(page, seat)

    asyncio.run(body())


@needs_browser
def test_it_says_when_the_server_is_gone() -> None:
    async def body() -> None:
        async with browser() as page:
            async with served(facts(job(1, "gathering"))) as seat:
                await page.go(seat.url)
                assert await page.do("getComputedStyle(document.querySelector('#lost')).display") == "none"
            await page.until("getComputedStyle(document.querySelector('#lost')).display == 'block'")

    asyncio.run(body())


@needs_browser
def test_it_works_without_scripts() -> None:
    async def body() -> None:
        async with browser() as page, served(facts(job(1, "gathering"))) as seat:
            await page.look(scripts=False)
            await page.go(seat.url)
            await page.look(scripts=True)  # to ask the page; what it did not run when it loaded stays undone
            assert "waiting for hill to contribute" in await page.text()
            assert await page.do("document.querySelector('noscript meta[http-equiv=refresh]') !== null")
            assert not [url for url in page.requests if url.endswith("/events")]

    asyncio.run(body())
