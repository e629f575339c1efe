"""Health, metrics and the operator page (jobs and links), read-only and on loopback only."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from aiohttp import web
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from ..federation.approval_text import readers
from ..federation.build import build
from ..federation.errors import FederationError
from ..federation.headers import FINISHED
from ..federation.state import (
    CANCELLED,
    DONE,
    ENDS,
    ERASED,
    EXPIRED,
    FAILED,
    HELD,
    READY,
    REFUSED,
    RUNNING,
)
from ..html.local_site import LocalSite, follow
from .job_runner import JobRunner
from .replication import Followers
from .server_state import ServerState

Facts = dict[str, Any]
Events = Callable[[], AbstractContextManager[asyncio.Queue[Any]]]
MAX_OVER = 50
"""Jobs that are over and shown; /v1/state has all."""

NEXT = {
    READY: "Next, the servers start the job without further action, in the order of the queue.",
    RUNNING: "The servers are computing. No action is needed.",
    HELD: "Next, an operator must find out why the attempts failed, and then resume the job as root on this server.",
    DONE: "Next, the receivers fetch their results. No action of an operator is needed.",
    REFUSED: "The job has ended because a member refused it. Its proposer can submit a changed job.",
    CANCELLED: "The job has ended because it was cancelled. No action is needed.",
    EXPIRED: "The job has ended because it expired. Its proposer can submit it again with a later date.",
    FAILED: "The job has ended without a result. Its proposer can fix the cause and submit it again.",
    ERASED: "The servers have erased this job. No action is needed.",
}
"""Sentence on the next step, by state of the job."""

MAX_ACTORS = 6
"""Members that the sentence names; the list below it has up to twelve."""


def local_page(
    server_state: ServerState, job_runner: JobRunner, followers: Followers, faults: Callable[[], list[str]] = list
) -> web.Application:
    """The local port of a server. faults: what does not work any more in this process."""

    def health() -> Facts:
        up = sum(link["up"] for link in followers.links.values())
        return {"server": server_state.server, "links_up": up, "faults": faults()}

    settled: dict[str, Facts] = {}
    return OperatorPage(
        lambda: facts(server_state, job_runner, followers, settled), server_state.events, health
    ).application()


def facts(server_state: ServerState, job_runner: JobRunner, followers: Followers, settled: dict[str, Facts]) -> Facts:
    """Everything that the page shows. settled: jobs that are erased, of which nothing changes any more."""
    usage = shutil.disk_usage(server_state.settings.store)
    links = {}
    for server, link in list(followers.links.items()):
        links[str(server)] = {
            "member": server_state.membership.operators[server],
            "api": server_state.membership.servers[server].api,
            **link,
        }
    known, lost = server_state.admission.jobs()
    jobs: list[Facts] = []
    for job in reversed(known):
        try:
            jobs.append(settled.get(job) or job_facts(server_state, job))
        except FederationError:
            lost.append(job)
    missing = {job: "its file is damaged here, and is fetched from the other servers" for job in lost}
    found: Facts = {
        "server": server_state.server,
        "member": server_state.identity.name,
        "federation": server_state.membership.name,
        "revision": server_state.membership.revision,
        "build": build(),
        "jobs": jobs,
        "missing": missing | server_state.mailbox.noted("missing "),
        "links": links,
        "running": len(job_runner.attempts.running),
        "queue": [],
        "store": {
            "bytes": server_state.mailbox.bytes_of(),
            "at_most": server_state.settings.file.store.at_most,
            "disk_free": usage.free,
            "models": len(job_runner.staging.models()),
        },
    }
    places = dict(server_state.queue)
    found["queue"] = sorted((job for job in found["jobs"] if job["id"] in places), key=lambda job: places[job["id"]])
    settled.update({job["id"]: job for job in found["jobs"] if job["stage"] == ERASED})
    return found


def job_facts(server_state: ServerState, job: str) -> Facts:
    """Return a job with its state, its openings and its failed attempts."""
    known, objects = server_state.admission.job(job), server_state.mailbox.objects(job)
    job_state = server_state.admission.job_state(job)
    return {
        "id": job,
        "name": known.name,
        "analysis": known.spec.analysis.NAME,
        "form": known.spec.data.form,
        "owners": list(known.proposal.owners),
        "receivers": list(known.spec.receivers),
        "expires": known.proposal.expires.isoformat(),
        "stage": job_state.stage,
        "attempt": job_state.attempt,
        "why": job_state.why,
        "ended": job_state.ended,
        "waiting": [{"actor": item.actor, "what": item.what} for item in job_state.waiting],
        "progress": server_state.progress.get(job) if job_state.stage == RUNNING else None,
        "place": server_state.queue.get(job),
        "submitted_by": next((header.author for header in objects.of("job")), ""),
        "columns": len(known.spec.data.column_names),
        "readers": [{"name": each.name, "lines": each.lines, "units": each.units} for each in readers(known.spec)],
        "erase_after": known.proposal.erase_after,
        "failures": [
            {"attempt": header.about["attempt"], "actor": header.author, "why": header.about["why"]}
            for header in objects.of("ended")
            if header.about["outcome"] != FINISHED
        ],
    }


def next_step(job: Facts) -> tuple[str, str, bool]:
    """Return the sentence on the next step of a job, the command that shows or resumes it, and whether it is over."""
    short, stage, over = job["id"][:12], job["stage"], job["stage"] in ENDS
    command = "job resume" if stage == HELD else "audit" if over else "status"
    said = NEXT.get(stage, "")
    if not said:
        actors = list(dict.fromkeys(item["actor"] for item in job["waiting"]))
        shown = ", ".join(actors[:MAX_ACTORS])
        shown += f" and {len(actors) - MAX_ACTORS} more" if actors[MAX_ACTORS:] else ""
        said = f"Next, {shown} must act. " if actors else ""
        said += "The job starts by itself when everything is there."
    return said, f"ppca {command} {short}", over


class OperatorPage:
    """Handlers of the local port. facts: everything the page shows. events: a queue with an item for each change."""

    def __init__(self, facts: Callable[[], Facts], events: Events, health: Callable[[], Facts]) -> None:
        self.facts = facts
        self.new_events = events
        self.health_facts = health
        self.site = LocalSite(["ppca.server"])
        self.site.pages.globals["next_step"] = next_step

    def application(self) -> web.Application:
        app = self.site.application()
        app.add_routes(
            [
                web.get("/", self.page),
                web.get("/events", self.events),
                web.get("/healthz", self.health),
                web.get("/metrics", self.metrics),
                web.get("/v1/state", self.state),
                *self.site.static_routes(),
            ]
        )
        return app

    async def page(self, request: web.Request) -> web.Response:
        found = await asyncio.to_thread(self.facts)
        over = [job for job in found["jobs"] if job["stage"] in ENDS]
        found |= {
            "open": [job for job in found["jobs"] if job["stage"] not in ENDS],
            "over": over[:MAX_OVER],
            "left_out": len(over[MAX_OVER:]),
            "done": sum("done" in (job["stage"], job["ended"]) for job in over),
        }
        return self.site.render("operator.html", root="", **found)

    async def events(self, request: web.Request) -> web.StreamResponse:
        with self.new_events() as queue:

            async def wait() -> None:
                await queue.get()
                while not queue.empty():
                    queue.get_nowait()

            return await follow(request, wait, self.site.closing)

    async def health(self, request: web.Request) -> web.Response:
        found = self.health_facts()
        return web.json_response(found, status=503 if found.get("faults") else 200)

    async def state(self, request: web.Request) -> web.Response:
        return web.json_response(await asyncio.to_thread(self.facts))

    async def metrics(self, request: web.Request) -> web.Response:
        found, registry = await asyncio.to_thread(self.facts), CollectorRegistry()
        jobs = Gauge("ppca_jobs", "Number of jobs by state.", ["stage"], registry=registry)
        for job in found["jobs"]:
            jobs.labels(job["stage"]).inc()
        links = Gauge("ppca_link_up", "1 if another server is reached, else 0.", ["server"], registry=registry)
        trips = Gauge(
            "ppca_link_round_trip_seconds",
            "Seconds of one round trip to another server.",
            ["server"],
            registry=registry,
        )
        for server, link in found["links"].items():
            links.labels(server).set(int(link["up"]))
            if link["up"]:
                trips.labels(server).set(link["round_trip"])
        store = found["store"]
        for name, about, value in (
            ("ppca_running_attempts", "attempts that run now", found["running"]),
            ("ppca_queue_length", "jobs that wait for their turn", len(found.get("queue", ()))),
            ("ppca_store_bytes", "bytes of all objects", store["bytes"]),
            ("ppca_disk_free_bytes", "bytes left on the disk of the store", store["disk_free"]),
            ("ppca_kept_models", "models kept in shares", store["models"]),
            ("ppca_federation_revision", "revision in force", found["revision"]),
        ):
            Gauge(name, about, registry=registry).set(value)
        return web.Response(body=generate_latest(registry), content_type="text/plain", charset="utf-8")
