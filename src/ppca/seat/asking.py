"""Who asks: the member at the other end of a request, as TLS has shown it."""

from __future__ import annotations

from aiohttp import web

MEMBER = web.RequestKey("member", str)
