"""Pages for a browser on the same machine: they load nothing from elsewhere, and answer no request that names another
host."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from importlib import resources
from typing import Any

import jinja2
from aiohttp import web
from markupsafe import Markup

from . import formats

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
MIN_EVENT_SECONDS, MAX_EVENT_SECONDS = 0.5, 5.0
"""Seconds between two events sent to a browser: at least the first number, at most the sum of both."""


class LocalSite:
    """A web application on loopback. packages: Python packages with its templates. styles: CSS texts that are
    appended to the common style.
    """

    def __init__(self, packages: Sequence[str], styles: Sequence[str] = ()) -> None:
        self.pages = environment(*packages)
        self.closing = asyncio.Event()
        self._style = "\n".join([_static("look.css"), _static("pages.css"), *styles])

    def application(self, *middlewares: Any) -> web.Application:
        app = web.Application(middlewares=[local_only, *middlewares])
        app.on_response_prepare.append(_add_security_headers)
        app.on_shutdown.append(self._close)
        return app

    def static_routes(self, root: str = "") -> list[web.RouteDef]:
        return [
            web.get(f"{root}/static/look.css", self._give(self._style, "text/css")),
            web.get(f"{root}/static/live.js", self._give(_static("live.js"), "text/javascript")),
            web.get(f"{root}/static/icon.svg", self._give(_static("icon.svg"), "image/svg+xml")),
        ]

    def render(self, template: str, status: int = 200, **content: Any) -> web.Response:
        text = self.pages.get_template(template).render(**content)
        return web.Response(text=text, status=status, content_type="text/html")

    def _give(self, text: str, kind: str) -> Handler:
        async def give(request: web.Request) -> web.StreamResponse:
            return web.Response(text=text, content_type=kind)

        return give

    async def _close(self, app: web.Application) -> None:
        self.closing.set()


def environment(*packages: str) -> jinja2.Environment:
    """Return the templates of this package and of others. All values in templates are escaped."""
    loader = jinja2.ChoiceLoader([jinja2.PackageLoader(name) for name in (*packages, __package__)])
    found = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    found.filters |= {"size": formats.size, "duration": formats.duration, "moment": moment, "when": when}
    return found


def moment(value: str | datetime) -> str:
    found = datetime.fromisoformat(value) if isinstance(value, str) else value
    return f"{found:%Y-%m-%d %H:%M} UTC"


def when(value: str | datetime) -> Markup:
    """Return a `<time>` element with the time relative to now. Its title has the exact time."""
    found = datetime.fromisoformat(value) if isinstance(value, str) else value
    text = formats.relative((found - datetime.now(UTC)).total_seconds())
    return Markup('<time datetime="{}" title="{}">{}</time>').format(found.isoformat(), moment(found), text)


def is_local(host: str) -> bool:
    """Return whether a Host header is a loopback name. Other names are refused even if they resolve to this machine
    (DNS rebinding). Any port is accepted, because ports may be forwarded.
    """
    name, colon, port = host.rpartition(":")
    if not colon or host.endswith("]"):
        name, port = host, "0"
    return name in LOOPBACK and port.isdigit()


@web.middleware
async def local_only(request: web.Request, handler: Handler) -> web.StreamResponse:
    if not is_local(request.headers.get("Host", "")):
        return web.Response(
            status=421, text="This page answers to 127.0.0.1 and localhost only; open it by that name.\n"
        )
    return await handler(request)


async def _add_security_headers(request: web.Request, response: web.StreamResponse) -> None:
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)


async def follow(
    request: web.Request, wait: Callable[[], Awaitable[object]], closing: asyncio.Event
) -> web.StreamResponse:
    """Send the event `changed` to a browser whenever `wait` returns, and every few seconds in any case, until the
    browser disconnects or `closing` is set.
    """
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    closed = asyncio.ensure_future(closing.wait())
    try:
        with contextlib.suppress(ConnectionResetError):
            while not closing.is_set():
                await response.write(b"event: changed\ndata: now\n\n")
                await asyncio.wait([closed], timeout=MIN_EVENT_SECONDS)
                news = asyncio.ensure_future(wait())
                await asyncio.wait([closed, news], timeout=MAX_EVENT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                news.cancel()
    finally:
        closed.cancel()
    return response


def _static(name: str) -> str:
    return resources.files(__package__).joinpath("static", name).read_text(encoding="utf-8")
