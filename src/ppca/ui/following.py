"""The jobs of a member as they are now: a thread follows the news of one seat, and goes on with another if that one is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..federation.errors import FederationError, NotReached
from ..federation.job import JobDescription
from ..federation.objects import Header
from ..federation.roster import SEATS
from ..member import Member

PAUSES = (0.2, 0.5, 1, 2, 5)
"""Seconds before the seats are tried again, after all of them failed."""


@dataclass(frozen=True)
class Known:
    """A job, the headers of its objects in the order in which they came, and how far a running attempt is."""

    job: JobDescription
    headers: list[Header]
    progress: dict[str, Any] | None


class Following:
    """open_member: a member with connections of its own. changed: called, in any thread, when something is new."""

    def __init__(self, open_member: Callable[[], Member], changed: Callable[[], None]) -> None:
        self._watching, self._asking = open_member(), open_member()
        self._changed = changed
        self._lock, self._request = threading.Lock(), threading.Lock()
        self._jobs: dict[str, JobDescription] = {}
        self._headers: dict[str, dict[str, Header]] = {}
        self._progress: dict[str, dict[str, Any]] = {}
        self._audits: dict[str, dict[str, Any]] = {}
        self._stopped = threading.Event()
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
        return Known(self._jobs[job], list(self._headers[job].values()), self._progress.get(job))

    def refresh(self, job: str) -> None:
        """What all seats have of a job now: after something was done here."""
        with self._request:
            headers = self._asking.seats.headers(job)
        for header in headers:
            self._take(header)
        self._changed()

    def audits(self, known: Known) -> dict[str, dict[str, Any]]:
        """Operator -> what it signed of the openings."""
        found = {}
        for header in (each for each in known.headers if each.kind == "audit"):
            if header.digest not in self._audits:
                with self._request:
                    self._audits[header.digest] = self._asking.seats.get(header).json()
            found[header.author] = self._audits[header.digest]
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
            seat = SEATS[failed % len(SEATS)]
            try:
                self._follow(seat)
            except (FederationError, ValueError, OSError) as error:
                failed = failed + 1 if self.reached is None else 1 + seat
                self.reached, self.fault = None, str(error)
                self._changed()
            rounds = failed // len(SEATS)
            self._stopped.wait(PAUSES[min(rounds, len(PAUSES) - 1)])

    def _follow(self, seat: int) -> None:
        """From the beginning: what is known already costs nothing."""
        last = 0.0
        for kind, content in self._watching.seats.clients[seat].events():
            if self._stopped.is_set():
                return
            if self.reached is None:
                self.reached, self.fault = seat, ""
            if kind == "object":
                self._take(Header(**{name: value for name, value in content.items() if name != "seq"}))
            elif kind == "progress":
                with self._lock:
                    self._progress[str(content["job"])] = content
            if kind != "object" or time.monotonic() - last > 0.2:
                last = time.monotonic()
                self._changed()
        raise NotReached("the seat ended the conversation")

    def _take(self, header: Header) -> None:
        if header.kind == "job" and header.job not in self._jobs:
            try:
                with self._request:
                    job = JobDescription(self._asking.seats.get(header).payload)
                if job.id != header.job:
                    raise FederationError("it is another file than its name says")
            except FederationError as error:
                self.unreadable[header.job] = str(error)
                return
            with self._lock:
                self._jobs[header.job] = job
                self.unreadable.pop(header.job, None)
        with self._lock:
            self._headers.setdefault(header.job, {}).setdefault(header.digest, header)
