"""What all local pages have in common: the host that is asked for, headers, escaping, and news that end when the server does."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import aiohttp
import pytest
from aiohttp import web

from harness.waiting import PATIENCE
from ppca.html.local_site import HEADERS, LocalSite, environment, follow, is_local, moment


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("127.0.0.1:7443", True),
        ("localhost", True),
        ("localhost:1", True),
        ("[::1]", True),
        ("[::1]:80", True),
        ("", False),
        ("localhost:", False),
        ("localhost:80x", False),
        ("localhost.evil.example", False),
        ("evil.example:127.0.0.1", False),
        ("127.0.0.1.evil.example:80", False),
        ("10.0.0.1:80", False),
    ],
)
def test_names_of_this_machine(host: str, local: bool) -> None:
    assert is_local(host) == local


def test_what_is_put_into_a_template_is_escaped_and_must_be_there() -> None:
    made = environment("ppca.web.member")
    assert made.from_string("<b>{{ name }}</b>").render(name="<script>") == "<b>&lt;script&gt;</b>"
    with pytest.raises(Exception, match="'name' is undefined"):
        made.from_string("{{ name }}").render()


def test_moments_are_the_same_as_text_and_as_time() -> None:
    when = datetime(2030, 1, 31, 12, 5, tzinfo=UTC)
    assert moment(when) == moment(when.isoformat()) == "2030-01-31 12:05 UTC"


def test_every_answer_has_the_headers_and_news_end_with_the_server() -> None:
    async def body() -> None:
        site = LocalSite(["ppca.web.member"], ["p.own { color: red }"])
        application = site.application()
        rung = asyncio.Event()

        async def news(request: web.Request) -> web.StreamResponse:
            return await follow(request, rung.wait, site.closing)

        application.add_routes([*site.static_routes("/here"), web.get("/events", news)])
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=10 * PATIENCE)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{url}/here/static/look.css") as answer:
                assert (answer.status, "p.own" in await answer.text()) == (200, True)
                assert {name: answer.headers[name] for name in HEADERS} == HEADERS
            async with session.get(f"{url}/nothing") as answer:
                assert (answer.status, answer.headers["Cache-Control"]) == (404, "no-store")
            async with session.get(f"{url}/events") as answer:
                assert await answer.content.readline() == b"event: changed\n"
                async with asyncio.timeout(PATIENCE):  # it does not wait for the reader to leave
                    await runner.cleanup()
                    await answer.content.read()

    asyncio.run(body())
