"""The pages of `ppca ui` and what can be done on them. The process beside the browser holds the keys; no page ever
does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aiohttp import web

from ...federation.approval_text import kept_in_words, readers, scope, terms
from ...federation.errors import FederationError
from ...federation.proposal import ProposedJob
from ...html.formats import size
from ...html.local_site import LocalSite, follow
from ...member import MemberClient
from ...member.contributing import contribute
from ...runtime.files import write_whole
from ..report import opening_lines
from ..report.page import chart_style
from .authorisation import Authorisation
from .job_page import JobPage, parameters_of, standing_of, title_of
from .live_jobs import LiveJobs
from .new_job import ALIGNMENTS, MISSING, NewJob
from .preview import preview
from .results import REPORT, Results
from .tasks import MemberTasks, Told, in_words
from .uploads import READING, Uploads

REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; sandbox"
ROLES = ("owner", "receiver")
QUICK = 20.0
"""Seconds that a request waits for an approval to be with a server; after that the page says that it is under way."""

Fetch = Callable[[MemberClient, ProposedJob, Path], object]
Work = Callable[[MemberClient, Told], str]


def _nothing() -> None:
    """After most tasks there is nothing to clear away."""


class Notifier:
    """Event that any thread can set and that coroutines of the event loop wait for."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()

    def ring(self) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._ring)

    def _ring(self) -> None:
        self._rung.set()
        self._rung = asyncio.Event()

    async def wait(self) -> None:
        await self._rung.wait()


class Pages:
    """open_member: the member, with connections of its own. fetch: writes a result into a folder."""

    def __init__(self, open_member: Callable[[], MemberClient], results: Results, fetch: Fetch) -> None:
        self.bell = Notifier()
        self.authorisation = Authorisation()
        self.site = LocalSite(["ppca.web.member"], [chart_style()])
        self.member = open_member()
        self.following = LiveJobs(open_member, self.bell.ring)
        self.tasks = MemberTasks(self.bell.ring)
        self.uploads = Uploads(self.member.state.folder)
        self.results = results
        self.drafts: dict[str, ProposedJob] = {}
        self._open_member = open_member
        self._fetch = fetch

    def application(self) -> web.Application:
        app, root = self.site.application(self.authorisation.guard), self.authorisation.root
        job = f"{root}/job/{{job:[0-9a-f]{{64}}}}"
        app.add_routes(
            [
                web.get("/enter/{token}", self.authorisation.enter),
                web.get(f"{root}/", self.front),
                web.get(f"{root}/events", self.events),
                web.get(f"{root}/new", self.new),
                web.post(f"{root}/new", self.make),
                web.post(f"{root}/new/submit", self.submit),
                web.get(job, self.job),
                web.post(f"{job}/approve", self.approve),
                web.post(f"{job}/refuse", self.refuse),
                web.post(f"{job}/check", self.check),
                web.post(f"{job}/discard", self.discard),
                web.post(f"{job}/contribute", self.contribute),
                web.post(f"{job}/fetch", self.fetch),
                web.get(f"{job}/report", self.report),
                web.get(f"{job}/files/{{name}}", self.file),
                *self.site.static_routes(root),
            ]
        )
        return app

    def _standing(self, known: Any) -> JobPage:
        fetched = self.results.fetched(known.job)
        return standing_of(known, self.member.membership, self.member.name, fetched, datetime.now(UTC))

    def _found(self, request: web.Request) -> JobPage:
        known = self.following.one(request.match_info["job"])
        if known is None:
            raise web.HTTPNotFound(text=f"Job not found, or {self.member.name} is not a member of it.\n")
        return self._standing(known)

    def _render(self, template: str, **content: Any) -> web.Response:
        return self.site.render(
            template,
            root=self.authorisation.root,
            me=self.member.name,
            federation=self.member.membership.name,
            fault=self.following.fault,
            reached=self.following.reached,
            **content,
        )

    # -- looking -----------------------------------------------------------------------------------------------------

    async def front(self, request: web.Request) -> web.Response:
        found = [self._standing(known) for known in self.following.known()]
        return self._render(
            "front.html",
            todo=[each for each in found if each.todo],
            open=[each for each in found if not each.todo and not each.job_state.over],
            over=[each for each in found if not each.todo and each.job_state.over],
            unreadable=self.following.unreadable,
        )

    async def events(self, request: web.Request) -> web.StreamResponse:
        return await follow(request, self.bell.wait, self.site.closing)

    async def job(self, request: web.Request) -> web.Response:
        found = self._found(request)
        _, together = await asyncio.to_thread(self.member.words, found.job)
        result = await asyncio.to_thread(self.results.of, found.job)
        audit = await asyncio.to_thread(self._audit, found)
        return self._render(
            "job.html",
            standing=found,
            parameters=parameters_of(found.job.spec),
            program=title_of(found.job.spec),
            scope=scope(found.job.proposal),
            terms=terms(found.job.spec, self.member.name),
            readers=readers(found.job.spec),
            kept=kept_in_words(found.job.spec),
            together=together,
            task=self.tasks.of(found.job.id),
            result=result,
            has_report=result is not None and REPORT in result.files,
            audit=audit,
            here=Path.cwd(),
            reading=READING,
            unsent=self.member.state.outbox(found.job.id).complete,
            preview=self.uploads.previews.get(found.job.id),
            missing=MISSING[found.job.spec.data.missing],
        )

    def _audit(self, found: JobPage) -> dict[str, Any]:
        """Return what was opened, as the servers signed it; whether their lists are equal; what failed; what is
        erased."""
        known = self.following.one(found.job.id)
        assert known is not None
        fault = ""
        audits: dict[str, Any] = {}
        try:
            audits = self.following.audits(known)
        except FederationError as error:
            fault = str(error)
        lists = [each["audit"] for each in audits.values()]
        return {
            "fault": fault,
            "signed": list(audits),
            "lines": opening_lines(lists[0]) if lists else [],
            "equal": all(each == lists[0] for each in lists),
            "failed": [each for each in found.objects.of("ended") if each.about.get("outcome") == "failed"],
            "erased": sorted({(each.author, str(each.about.get("what"))) for each in found.objects.of("erased")}),
        }

    async def report(self, request: web.Request) -> web.StreamResponse:
        return await self._file(request, REPORT, {"Content-Security-Policy": REPORT_POLICY})

    async def file(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        return await self._file(request, name, {"Content-Disposition": f'attachment; filename="{name}"'})

    async def _file(self, request: web.Request, name: str, headers: dict[str, str]) -> web.StreamResponse:
        """A file of a result that stands the check; what it is made from, with the key, is none of them."""
        result = await asyncio.to_thread(self.results.of, self._found(request).job)
        if result is None or name not in result.files:
            raise web.HTTPNotFound(text="There is no such file in this result, or the result was not fetched.\n")
        return web.FileResponse(result.folder / name, headers=headers)

    # -- doing -------------------------------------------------------------------------------------------------------

    async def _do(
        self,
        request: web.Request,
        what: str,
        body: Work,
        *,
        patience: float = 0.0,
        after: Callable[[], None] = _nothing,
    ) -> web.Response:
        """Do it with connections of its own, then show the job again. after: done in any case."""
        job = request.match_info["job"]

        def task(told: Told) -> str:
            try:
                with closing(self._open_member()) as member:
                    said = body(member, told)
                self.following.refresh(job)
                return said
            finally:
                after()

        thread = self.tasks.start(job, what, task)
        if thread is None:
            after()
        elif patience:
            await asyncio.to_thread(thread.join, patience)
        return web.Response(status=303, headers={"Location": f"{self.authorisation.root}/job/{job}"})

    async def approve(self, request: web.Request) -> web.Response:
        job = self._found(request).job

        def body(member: MemberClient, told: Told) -> str:
            member.approve(job)
            return f"You have approved exactly this job, {job.id[:12]}."

        return await self._do(request, "approve", body, patience=QUICK)

    async def refuse(self, request: web.Request) -> web.Response:
        job = self._found(request).job
        why = str((await request.post()).get("why", "")).strip()

        def body(member: MemberClient, told: Told) -> str:
            if not why:
                raise ValueError("no reason given. All members of the job see the reason. Nothing was sent.")
            member.refuse(job, why)
            return "You have refused this job. It has ended for everyone."

        return await self._do(request, "refuse", body, patience=QUICK)

    async def fetch(self, request: web.Request) -> web.Response:
        job = self._found(request).job

        def body(member: MemberClient, told: Told) -> str:
            told("fetching the parts of the four servers, and checking them", None)
            self._fetch(member, job, self.results.place(job))
            return f"The result is in {self.results.place(job)}."

        return await self._do(request, "fetch", body)

    async def check(self, request: web.Request) -> web.Response:
        """Read a table and show what was read. It is kept here, and nothing is sent."""
        job = self._found(request).job
        form = await self.uploads.read(request)
        data, held = job.spec.data, False

        def body(member: MemberClient, told: Told) -> str:
            nonlocal held
            table, label = form.table(needed=True), form.label
            found = preview(data, member.name, table, label, form.id or None, form.options(), told)
            self.uploads.hold(job.id, form, found)
            held = True
            return found.verdict

        def after() -> None:
            if not held:
                form.clear()

        return await self._do(request, "check", body, patience=QUICK, after=after)

    async def discard(self, request: web.Request) -> web.Response:
        job = self._found(request).job

        def body(member: MemberClient, told: Told) -> str:
            self.uploads.discard(job.id)
            return "The table was put away; nothing was sent."

        return await self._do(request, "discard", body, patience=QUICK)

    async def contribute(self, request: web.Request) -> web.Response:
        """Send the table that was checked, or the rest of one that is sealed already."""
        job = self._found(request).job

        def body(member: MemberClient, told: Told) -> str:
            form = self.uploads.checked(job.id)
            data = form.table(needed=not member.state.outbox(job.id).complete)
            sent = contribute(member, job, data, id=form.id or None, options=form.options(), told=told)
            self.uploads.discard(job.id)
            return f"You have contributed: {size(sent)} in sealed shares. Your part is done; you can go offline."

        return await self._do(request, "contribute", body)

    # -- a new job ---------------------------------------------------------------------------------------------------

    async def new(self, request: web.Request) -> web.Response:
        return self._new_page(NewJob())

    async def make(self, request: web.Request) -> web.Response:
        """Make the file of a job, write it here, and show it."""
        form, fault, draft = NewJob(), "", None
        try:
            form = NewJob.of(await request.post())
            draft = form.proposed(self.member.membership)
            await asyncio.to_thread(write_whole, self._file_of(draft), draft.data)
            self.drafts[draft.id] = draft
        except (ValueError, OSError) as error:
            fault, draft = in_words(error), None
        return self._new_page(form, draft, fault)

    async def submit(self, request: web.Request) -> web.Response:
        draft = self.drafts.get(str((await request.post()).get("job", "")))
        if draft is None:
            raise web.HTTPNotFound(text="There is no such job here. Go back, and make it again.\n")

        def send() -> None:
            with closing(self._open_member()) as member:
                member.submit(draft)
            self.following.refresh(draft.id)

        try:
            await asyncio.to_thread(send)
        except (FederationError, ValueError, OSError) as error:
            return self._new_page(NewJob(), draft, str(error))
        return web.Response(status=303, headers={"Location": f"{self.authorisation.root}/job/{draft.id}"})

    def _file_of(self, draft: ProposedJob) -> Path:
        return self.results.folder.parent / f"job-{draft.id[:12]}.toml"

    def _new_page(self, form: NewJob, draft: ProposedJob | None = None, fault: str = "") -> web.Response:
        membership = self.member.membership
        found = {role: [name for name in membership.keys if role in membership.roles(name)] for role in ROLES}
        about: dict[str, Any] = {}
        if draft is not None:
            about = {"path": self._file_of(draft), "text": draft.data.decode(), "readers": readers(draft.spec)}
            about["kept"] = kept_in_words(draft.spec)
        choices = {"missing": MISSING, "alignment": ALIGNMENTS}
        owners, receivers = found["owner"], found["receiver"]
        return self._render(
            "new.html",
            form=form,
            draft=draft,
            wrong=fault,
            owners=owners,
            receivers=receivers,
            choices=choices,
            **about,
        )
