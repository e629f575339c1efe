"""The jobs of a member as they are now: a thread follows the news of one server, and goes on with another if that one
is lost.

News only tell which jobs to look at again. What counts is what all servers have of them, with signatures checked
(`ServerConnections.headers`). Which jobs there are follows from the lists of all servers, as for commands: one server
can neither hide a job nor have the others asked for many that do not exist.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from ...federation.errors import FederationError, NotReached
from ...federation.membership import SERVERS
from ...federation.objects import Header
from ...federation.proposal import ProposedJob
from ...jobs.checks import is_digest
from ...member import MemberClient
from ...member.client import MAX_UNKNOWN
from ...member.connections import progress_of

LIST_EVERY, LIST_PAUSE = 60.0, 1.0
"""Seconds after which the lists of all servers are read again: without news, and if news name an unknown job."""

MAX_NEWS = 1000
"""Jobs of one batch of news."""

PAUSES = (0.2, 0.5, 1, 2, 5)
"""Seconds before the servers are tried again, after all of them failed."""


@dataclass(frozen=True)
class Known:
    """A job, the headers of its objects, and how far a running attempt is."""

    job: ProposedJob
    headers: list[Header]
    progress: dict[str, Any] | None


class LiveJobs:
    """open_member: a member with connections of its own. changed: called, in any thread, when something is new."""

    def __init__(self, open_member: Callable[[], MemberClient], changed: Callable[[], None]) -> None:
        self._watching, self._asking = open_member(), open_member()
        self._changed = changed
        self._lock, self._request = threading.Lock(), threading.Lock()
        self._jobs: dict[str, ProposedJob] = {}
        self._headers: dict[str, list[Header]] = {}
        self._progress: dict[str, dict[str, Any]] = {}
        self._audits: dict[tuple[str, int], dict[str, dict[str, Any]]] = {}
        self._stopped = threading.Event()
        self._listed: set[str] = set()
        self._read_at = -LIST_EVERY
        self.fault = ""
        self.unreadable: dict[str, str] = {}
        self.reached: int | None = None

    # -- what is known -----------------------------------------------------------------------------------------------

    def known(self) -> list[Known]:
        """All jobs, the newest first."""
        with self._lock:
            return [self._known(job) for job in reversed(self._jobs)]

    def one(self, job: str) -> Known | None:
        with self._lock:
            return self._known(job) if job in self._jobs else None

    def _known(self, job: str) -> Known:
        return Known(self._jobs[job], self._headers[job], self._progress.get(job))

    def refresh(self, job: str) -> None:
        """Return what all servers have of a job now."""
        with self._request:
            headers = self._asking.servers.headers(job)
            described = self._jobs.get(job) or self._description(job, headers)
        with self._lock:
            if described is not None:
                self._jobs.setdefault(job, described)
                self._headers[job] = headers
        self._changed()

    def _description(self, job: str, headers: list[Header]) -> ProposedJob | None:
        header = next((each for each in headers if each.kind == "job"), None)
        try:
            if header is None:
                raise FederationError("its file is not there")
            found = ProposedJob(self._asking.servers.get(header).payload)
            if found.id != job:
                raise FederationError("it is another file than its name says")
        except NotReached:
            raise
        except FederationError as error:
            if len(self.unreadable) < MAX_UNKNOWN:
                self.unreadable[job] = str(error)
            return None
        self.unreadable.pop(job, None)
        return found

    def audits(self, known: Known) -> dict[str, dict[str, Any]]:
        """Operator -> what it signed of the openings."""
        attempt = self._asking.job_state(known.job, known.headers).attempt
        found = self._audits.get((known.job.id, attempt), {})
        if len(found) < len(SERVERS):
            with self._request:
                found = self._asking.audits(known.job, known.headers, attempt)
            self._audits[known.job.id, attempt] = found
        return found

    # -- the thread --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        threading.Thread(target=self._run, name="following", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()
        self._asking.close()

    def _run(self) -> None:
        failed = 0
        while not self._stopped.is_set():
            server = SERVERS[failed % len(SERVERS)]
            try:
                self._follow(server)
            except (FederationError, ValueError, OSError) as error:
                failed = failed + 1 if self.reached is None else 1 + server
                self.reached, self.fault = None, str(error)
                self._changed()
            rounds = failed // len(SERVERS)
            self._stopped.wait(PAUSES[min(rounds, len(PAUSES) - 1)])

    def _follow(self, server: int) -> None:
        """From the beginning: what is known already is not asked for again."""
        dirty: dict[str, None] = {}
        for kind, content in self._watching.servers.clients[server].events():
            if self._stopped.is_set():
                return
            if kind == "object" and isinstance(content, dict) and is_digest(content.get("job")):
                dirty[content["job"]] = None
            elif kind == "progress" and isinstance(content, dict):
                self._show(content)
            if kind != "object" or len(dirty) >= MAX_NEWS:  # the end of a batch
                self._refresh_all(dirty)
                dirty.clear()
                if self.reached is None:
                    self.reached, self.fault = server, ""
                    self._changed()
        raise NotReached("the server ended the conversation")

    def _refresh_all(self, dirty: Collection[str]) -> None:
        """Look again at jobs that have news, and at those that the lists of the servers name for the first time."""
        unknown = [job for job in dirty if job not in self._listed]
        if unknown:
            self._stopped.wait(max(0.0, self._read_at + LIST_PAUSE - time.monotonic()))
        new: set[str] = set()
        if unknown or time.monotonic() >= self._read_at + LIST_EVERY:
            with self._request:
                listed = {each["id"] for each in self._asking.servers.jobs()}
            new, self._listed, self._read_at = listed - self._listed, listed, time.monotonic()
        for job in dict.fromkeys([*(job for job in dirty if job in self._listed), *new]):
            self.refresh(job)

    def _show(self, told: dict[str, Any]) -> None:
        """Note the progress of a running job, as a server tells it."""
        progress = progress_of(told)
        if progress is not None and is_digest(told.get("job")):
            with self._lock:
                self._progress[told["job"]] = progress
            self._changed()
