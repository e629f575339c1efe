"""What the operator sees on its own machine: health, metrics, and a page of jobs and links. Read only, on loopback only."""

from __future__ import annotations

import shutil
from typing import Any

from aiohttp import web
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from ..federation.build import build
from .api import describe
from .conductor import Conductor
from .office import Office
from .replication import Followers


class LocalPage:
    """Handlers of the local port."""

    def __init__(self, office: Office, conductor: Conductor, followers: Followers) -> None:
        self.office = office
        self.conductor = conductor
        self.followers = followers

    def application(self) -> web.Application:
        app = web.Application()
        app.add_routes(
            [
                web.get("/healthz", self.health),
                web.get("/metrics", self.metrics),
                web.get("/v1/state", self.state),
            ]
        )
        return app

    def facts(self) -> dict[str, Any]:
        """Everything that the page shows."""
        office = self.office
        usage = shutil.disk_usage(office.settings.store)
        return {
            "seat": office.seat,
            "member": office.identity.name,
            "federation": office.roster.name,
            "revision": office.roster.revision,
            "build": build(),
            "jobs": [describe(office, job) for job in reversed(office.mailbox.jobs())],
            "links": {str(seat): dict(link) for seat, link in self.followers.links.items()},
            "store": {
                "bytes": office.mailbox.bytes_of(),
                "disk_free": usage.free,
                "models": len(self.conductor.staging.models()),
            },
        }

    async def health(self, request: web.Request) -> web.Response:
        links = self.followers.links
        return web.json_response({"seat": self.office.seat, "links_up": sum(link["up"] for link in links.values())})

    async def state(self, request: web.Request) -> web.Response:
        return web.json_response(self.facts())

    async def metrics(self, request: web.Request) -> web.Response:
        facts, registry = self.facts(), CollectorRegistry()
        jobs = Gauge("ppca_jobs", "jobs by stage", ["stage"], registry=registry)
        for job in facts["jobs"]:
            jobs.labels(job["stage"]).inc()
        links = Gauge("ppca_link_up", "whether another seat is reached", ["seat"], registry=registry)
        for seat, link in facts["links"].items():
            links.labels(seat).set(int(link["up"]))
        Gauge("ppca_running_attempts", "attempts that run now", registry=registry).set(len(self.conductor.running))
        Gauge("ppca_store_bytes", "bytes of all objects", registry=registry).set(facts["store"]["bytes"])
        Gauge("ppca_disk_free_bytes", "bytes left on the disk of the store", registry=registry).set(
            facts["store"]["disk_free"]
        )
        Gauge("ppca_kept_models", "models kept in shares", registry=registry).set(facts["store"]["models"])
        Gauge("ppca_federation_revision", "revision in force", registry=registry).set(facts["revision"])
        return web.Response(body=generate_latest(registry), content_type="text/plain", charset="utf-8")
