"""What a seat does for its jobs, from the offer to the erasure. All of it follows from the objects: after a restart it goes on.

An attempt ends at every seat with one signed word, `finished` or `failed`. Before it says `finished` a seat has its part of the
result on its disk, so four such words make the job done, whatever happens next; one `failed` makes seat 0 propose a new attempt,
from the sealed inputs and with new keys. A seat that was restarted in the middle of an attempt says `failed`.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

from ..federation.build import build
from ..federation.course import DONE, EXPIRED, FINISHED, READY, RUNNING, Course, may_become_done
from ..federation.errors import FederationError
from ..federation.job import JobDescription
from ..federation.jobfile import COLUMNS, seconds
from ..federation.objects import Object
from ..federation.roster import SEATS, address
from ..federation.sealing import seal
from ..federation.text import plain
from ..jobs.workers import DASK
from ..servers.control import encode
from ..servers.cores import threads_for
from ..servers.failure import Failure
from .attempt import Attempt
from .keys import JOB
from .office import Office
from .policy import refusal_of
from .programs import call, kept_name, rules
from .restoring import Restoring
from .router import Router
from .shares import Shares
from .staging import Staging, audit_digest
from .work import AttemptFailed, Done, Piece, Work

log = logging.getLogger("ppca.conductor")
TICK = 1.0
LONGEST_PAUSE = 30.0
REST = 600.0
"""Seconds between two looks at a job that is over and erased: its model, or its record, may be due."""

GOING = "the server is going down"


class Conductor:
    """Advances every job as far as this seat can."""

    def __init__(self, office: Office, router: Router) -> None:
        self.office = office
        self.router = router
        self.shares = Shares(office)
        self.staging = Staging(office.settings.store, office.keys)
        self.running: dict[str, Attempt] = {}
        self._busy: set[tuple[str, str]] = set()
        self._due: dict[str, float] = {}
        self._resting: dict[str, float] = {}
        self._before: dict[str, int] = {}
        self._checks = ThreadPoolExecutor(1, "checks")
        self._said: dict[str, str] = {}
        self._restoring = Restoring(office, self.shares, self.staging, log.warning)
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._seen = time.monotonic()

    @property
    def silent(self) -> float:
        """Seconds since the loop made its last pass."""
        return time.monotonic() - self._seen

    # -- the loop ----------------------------------------------------------------------------------------------------

    async def conduct(self) -> None:
        """Runs for ever: on every news, and once a second, however many news there are."""
        self._note_starts()
        due = 0.0
        with self.office.news() as queue:
            while True:
                try:
                    async with asyncio.timeout(TICK):  # wait_for may lose a cancellation
                        event = await queue.get()
                    jobs = [event["header"].job] if "header" in event else []
                except TimeoutError:
                    jobs = []
                self._seen = time.monotonic()
                if time.monotonic() >= due:
                    awake = time.monotonic()
                    jobs = [job for job in self.office.mailbox.jobs() if self._resting.get(job, 0.0) <= awake]
                for job in jobs:
                    self._advance_safely(job)
                due = due if time.monotonic() < due else time.monotonic() + TICK

    def _advance_safely(self, job: str) -> None:
        """Goes on with the other jobs if one cannot be advanced now; it is tried again, and logged once."""
        try:
            self.advance(job)
            self._said.pop(job, None)
        except (FederationError, OSError) as error:
            if self._said.get(job) != str(error):
                log.error("job not advanced", extra={"job": job, "why": str(error)})
            self._said[job] = str(error)

    def _note_starts(self) -> None:
        """Notes the attempts that were started before this process. Only headers are read: nothing here can fail for one job."""
        for job in self.office.mailbox.jobs():
            self._before[job] = max(self.office.mailbox.objects(job).starts(), default=0)

    async def stop(self) -> None:
        """Ends attempts that run; they are made again later."""
        self._stopping = True
        for attempt in list(self.running.values()):
            attempt.kill()
        self.shares.close()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=10)
        self._checks.shutdown(wait=False, cancel_futures=True)

    def _spawn(self, job: str, what: str, function: Any, *arguments: Any) -> None:
        """Runs a function in a thread, once at a time for a job and a purpose."""
        if (job, what) in self._busy or self._stopping:
            return
        self._busy.add((job, what))

        async def body() -> None:
            try:
                pool = self._checks if what.startswith("check ") else None  # checks wait for each other
                await asyncio.get_running_loop().run_in_executor(pool, function, *arguments)
            except (FederationError, OSError) as error:
                log.error(what, extra={"job": job, "why": str(error)})
                await asyncio.sleep(TICK)
            except Exception:
                log.exception(what, extra={"job": job})
                await asyncio.sleep(TICK)
            finally:
                self._busy.discard((job, what))
            self._advance_safely(job)

        task = asyncio.create_task(body())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- one job -----------------------------------------------------------------------------------------------------

    def advance(self, job: str) -> None:
        """Does, or starts, what comes next for a job here."""
        known, course = self.office.admission.job(job), self.office.admission.course(job)
        if course.over:
            self._close(known, course)
            return
        if self.office.mailbox.note(f"over {job}") is not None:  # by a clock that was wrong
            self.office.mailbox.unnote(f"over {job}")
        objects, me = self.office.mailbox.objects(job), self.office.identity.name
        if objects.offer(me, of_seat=True) is None:
            self._answer(known)
            return
        receipts = objects.receipts()
        for owner in known.file.owners:
            contribution = objects.by("contribution", owner)
            if contribution is not None and (me, owner) not in receipts:
                self._spawn(job, f"check {owner}", self.shares.check, known, owner, contribution.digest)
        last = max(objects.starts(), default=0)
        if job in self.running:
            return
        if 0 < last <= self._before.get(job, 0) and me not in objects.ended(last):
            self._end(job, last, "failed", "the server was restarted during the attempt")
            return
        if course.stage == RUNNING and me not in objects.ended(last):  # everything is here too: seat 0 only proposes
            if len(self.running) < self.office.settings.file.policy.jobs_at_once:
                self._spawn(job, "attempt", self._attempt, known, last, objects.starts()[last].digest)
        elif self.office.seat == SEATS[0] and course.stage == READY:
            self._propose(job, course)

    def _answer(self, known: JobDescription) -> None:
        """The offer of a key, or a refusal."""
        why = refusal_of(known.file, self.office.settings.file.policy, self.office.admission)
        if why is not None:
            self.office.publish("refusal", known.id, why=why)
        else:
            self.office.publish("offer", known.id, self.office.keys.make(JOB, known.id).public, seat=self.office.seat)

    def _propose(self, job: str, course: Course) -> None:
        """Seat 0 proposes an attempt, some time after the one before."""
        clock_waits = any(item.who == "the clock" for item in course.waiting)
        if clock_waits or len(self.running) >= self.office.settings.file.policy.jobs_at_once:
            return
        pause = min(LONGEST_PAUSE, 2.0 ** (course.attempt - 1)) if course.attempt else 0.0
        due = self._due.setdefault(f"{job} {course.attempt}", time.monotonic() + pause)
        if time.monotonic() >= due:
            self.office.publish("start", job, attempt=course.attempt + 1)

    # -- attempts ----------------------------------------------------------------------------------------------------

    def _attempt(self, known: JobDescription, number: int, start: str) -> None:
        """Runs an attempt, and says what became of it."""
        self.shares.drop_forwarded(known)
        policy = self.office.settings.file.policy
        try:
            self.shares.mend(known)
            attempt = Attempt(self._work(known, start), self.router, lambda *what: self.office.show(known.id, *what))
        except FederationError as error:
            self._end(known.id, number, "failed", str(error), final=number >= policy.attempts)
            return
        self.running[known.id] = attempt
        began = datetime.now(UTC)
        try:
            if self._stopping:
                raise FederationError(GOING)
            done = attempt.run()
            self._finish(known, number, done, began)
        except AttemptFailed as failure:
            why = GOING if self._stopping else failure.failure.reason
            final = (failure.final and not self._stopping) or number >= policy.attempts
            self._end(known.id, number, "failed", why, final=final, failure=failure.failure)
        except (FederationError, OSError) as error:
            self._end(known.id, number, "failed", str(error), final=number >= policy.attempts)
        except Exception as error:
            log.exception("attempt", extra={"job": known.id})
            self._end(known.id, number, "failed", type(error).__name__, final=True)
        finally:
            self.running.pop(known.id, None)
            self.office.progress.pop(known.id, None)

    def _work(self, known: JobDescription, start: str) -> Work:
        office, settings = self.office, self.office.settings.file
        program, public = call(known)
        if settings.workers is not None and known.file.program == COLUMNS:
            public["workers"] = DASK
        kept = {}
        if known.file.infer is not None:
            kept[kept_name(known.file.infer.model)] = self._model(known.file.infer.model)
        packets = [
            packet
            for owner in known.file.owners
            for kind, fields in self.shares.messages_of(known, owner)
            if kind == "packets"
            for packet in fields["packets"]
        ]
        return Work(
            seat=office.seat,
            session=hashlib.sha256(f"ppca session {start}".encode()).digest(),
            addresses={number: address(seat.mesh) for number, seat in office.roster.seats.items()},
            tls=office.tls,
            program=program,
            packets=packets,
            pieces=self._pieces(known),
            public=public,
            openings=rules(known),
            kept=kept,
            timeout=settings.work.timeout,
            threads=settings.work.threads or threads_for(self._seats_here() * settings.policy.jobs_at_once),
            input_bytes=settings.policy.memory,
            start_timeout=settings.work.start_timeout,
            attempt_timeout=settings.work.attempt_timeout,
        )

    def _model(self, job: str) -> dict[str, Any]:
        """A kept model. If the disk has lost or damaged it, it comes back from the mates."""
        try:
            record = self.staging.model(job)
        except (FederationError, OSError):
            record = None
        if record is None:
            self._restoring.restore_model(self.office.admission.job(job))
            record = self.staging.model(job)
        if record is None:
            raise FederationError("this seat does not hold the model any more")
        return record

    def _seats_here(self) -> int:
        """Seats that the federation's file places on this machine: those at the same host as this one."""
        hosts = {number: address(seat.mesh)[0] for number, seat in self.office.roster.seats.items()}
        return list(hosts.values()).count(hosts[self.office.seat])

    def _pieces(self, known: JobDescription) -> Iterator[Piece]:
        """Rows of owners of columns, and of owners of rows that are fewer than columns, piece by piece."""
        if not (known.file.by_columns or known.file.is_wide):
            return
        for number, owner in enumerate(known.file.owners):
            for kind, fields in self.shares.messages_of(known, owner):
                if kind == "rows":
                    table = number + fields.get("part", 0)  # `part`: of a sole owner that acts for several tables
                    yield table, fields["packets"][0], fields.get("tags"), fields.get("order")

    def _finish(self, known: JobDescription, number: int, done: Done, began: datetime) -> None:
        """Seals the parts of the result to their receivers, puts everything on the disk, and says that it is there."""
        office, ran = self.office, done.ran
        if "refused" in ran.result:  # by what all four servers see alike
            self._end(known.id, number, "failed", str(ran.result["refused"]), final=True)
            return
        total = ran.stats["total"]
        results = {}
        for receiver in known.file.receivers:
            offer = office.mailbox.objects(known.id).offer(receiver, of_seat=False)
            item = None if offer is None else office.mailbox.get(offer.digest)
            if item is None:
                raise FederationError(f"the offer of {receiver} is not here")
            mine = {**ran.result, "to": ran.result["to"].get(receiver, {})}
            plain = b"".join(encode("result", result=mine))
            info = {"what": "result", "job": known.id, "receiver": receiver, "seat": office.seat, "attempt": number}
            results[receiver] = Object.make(
                office.identity,
                *("result", known.id, seal(plain, item.payload, **info)),
                receiver=receiver,
                attempt=number,
                seat=office.seat,
            )
        audit = {
            "attempt": number,
            "seat": office.seat,
            "build": build(),
            "federation": office.roster.digest,
            "began": began.isoformat(),
            "ended": datetime.now(UTC).isoformat(),
            "seconds": ran.seconds,
            "stats": ran.stats,
            "audit": ran.audit,
            "results": {receiver: item.digest for receiver, item in results.items()},
            "contributions": {
                owner: header.digest
                for owner in known.file.owners
                if (header := office.mailbox.objects(known.id).by("contribution", owner)) is not None
            },
        }
        account = Object.make(
            office.identity, "audit", known.id, json.dumps(audit).encode(), attempt=number, seat=office.seat
        )
        name = kept_name(known.id)
        self.staging.put(known.id, number, [*results.values(), account], done.kept.get(name))
        self._end(
            known.id,
            number,
            FINISHED,
            "",
            audit=audit_digest(ran.audit),
            rounds=total["rounds"],
            sent=total["sent_to"],
            received=total["received_from"],
        )

    def _end(
        self,
        job: str,
        number: int,
        outcome: str,
        why: str,
        *,
        final: bool = False,
        failure: Failure | None = None,
        **about: Any,
    ) -> None:
        """The one word about an attempt. `failure`: what the log alone says besides, where a program failed here."""
        if outcome != FINISHED:
            named = {} if failure is None else {"error": failure.cause, "at": failure.places}
            known = {name: value for name, value in named.items() if value}
            log.warning("attempt failed", extra={"job": job, "attempt": number, "why": why, **known})
        self.office.publish(
            "ended",
            job,
            attempt=number,
            outcome=outcome,
            why=plain(why)[:1500],
            final=final,
            seat=self.office.seat,
            **about,
        )

    # -- the end -----------------------------------------------------------------------------------------------------

    def _close(self, known: JobDescription, course: Course) -> None:
        """Publishes what was staged, once the job is done; erases, when it is time to."""
        office, job = self.office, known.id
        now = office.clock.now().timestamp()
        since = float(office.mailbox.note(f"over {job}") or office.mailbox.note(f"over {job}", str(now)) or 0)
        done = course.stage == DONE
        if not done and job in self.running:
            self.running[job].kill()
            return
        if done and office.mailbox.note(f"committed {job}") is None:
            self._commit(known, course.attempt)
        late = now >= since + seconds(known.file.erase_after)
        awaited = may_become_done(office.mailbox.objects(job), office.identity.name)
        by_time = late or course.stage == EXPIRED
        self._erase(known, (late or not (done or awaited)) and (office.clock.agreed or not by_time))
        gone = known.file.keep is not None and now >= known.file.keep.until.timestamp() and office.clock.agreed
        if gone and self.staging.erase_model(job):
            office.publish("erased", job, what="model", seat=office.seat)
        if office.mailbox.note(f"erased {job}") is not None:
            self._resting[job] = time.monotonic() + REST
            kept = since + seconds(office.settings.file.store.keep)
            if now >= kept and office.clock.agreed and not self.staging.has_model(job):
                office.admission.forget(job)

    def _commit(self, known: JobDescription, attempt: int) -> None:
        """Publishes what was staged; what the disk has lost of it is noted, and shown to the operator."""
        office, job, me = self.office, known.id, self.office.identity.name
        items, lost = self.staging.items(job, attempt)
        for item in items:
            office.admit(item, me)
        mine = {
            header.about.get("receiver") for header in office.mailbox.objects(job).of("result") if header.author == me
        }
        lacking = sorted(set(known.file.receivers) - mine)
        if lost or lacking:
            why = f"this server's part of the result for {' and '.join(lacking) or 'the audit'} is lost: both copies were damaged"
            office.mailbox.note(f"missing {job}", why)
            log.error("staged result lost", extra={"job": job, "why": why})
        self.staging.commit(job, attempt)
        self.staging.drop(job)
        office.mailbox.note(f"committed {job}", "yes")

    def _erase(self, known: JobDescription, due: bool) -> None:
        """Destroys the key of a job and drops what was sealed to it or by it."""
        office, job = self.office, known.id
        if not due or office.mailbox.note(f"erased {job}") is not None:
            return
        office.keys.destroy(JOB, job)
        self.staging.drop(job)
        self.shares.erase(job)
        office.mailbox.drop(job, ["envelope", "group", "result"])
        office.publish("erased", job, what="job", seat=office.seat)
        office.mailbox.note(f"erased {job}", "yes")
        log.info("erased", extra={"job": job})
