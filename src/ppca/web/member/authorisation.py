"""Authorise the browser that opened the one-time link of `ppca ui`; reject requests from other sites.

The link becomes a cookie that scripts cannot read, for a random path: browsers show cookies to every port of
a machine, and this one only below that path. Requests that change anything must come from our own page.
"""

from __future__ import annotations

import secrets

from aiohttp import web

from ...html.local_site import Handler

COOKIE = "ppca-ui"
CLOSED = (
    "This page is not open to this browser: the link that ppca ui prints works once, in the browser that opens it first.\n"
    "For a new link stop ppca ui (Ctrl-C) and start it again.\n"
)
FOREIGN = (
    "This request was not made by the page of ppca ui, and nothing was done. Go back to that page and try again.\n"
)


class Authorisation:
    def __init__(self) -> None:
        self.root = f"/{secrets.token_urlsafe(16)}"
        self._token = secrets.token_urlsafe(24)
        self._cookie = secrets.token_urlsafe(32)

    def link(self, port: int) -> str:
        return f"http://127.0.0.1:{port}/enter/{self._token}"

    async def enter(self, request: web.Request) -> web.StreamResponse:
        """Authorise the browser with the one-time link, once."""
        if not self._token or not _same(request.match_info["token"], self._token):
            return web.Response(status=403, text=CLOSED)
        self._token = ""
        response = web.Response(status=303, headers={"Location": f"{self.root}/"})
        response.set_cookie(COOKIE, self._cookie, path=self.root, httponly=True, samesite="Strict")
        return response

    @web.middleware
    async def guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.method == "GET" and request.path.startswith("/enter/"):
            return await handler(request)
        inside = request.path.startswith(f"{self.root}/")
        if not inside or not _same(request.cookies.get(COOKIE, ""), self._cookie):
            return web.Response(status=403, text=CLOSED)
        if request.method not in ("GET", "HEAD") and not _is_ours(request):
            return web.Response(status=403, text=FOREIGN)
        return await handler(request)


def _is_ours(request: web.Request) -> bool:
    """Return whether the page that made a request is of this server. Browsers state it for every request except plain
    visit."""
    if request.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
        return False
    return request.headers.get("Origin") == f"http://{request.headers.get('Host', '')}"


def _same(a: str, b: str) -> bool:
    return secrets.compare_digest(a.encode(), b.encode())
