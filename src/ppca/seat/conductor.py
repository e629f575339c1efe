"""What a server does for its jobs, from the offer to the erasure. All of it follows from the objects: after a restart it goes on.

`scheduler` decides when which attempt is proposed, prepared, begun and stopped; this module does it. An attempt ends at every
server with one signed object: `finished`, `failed` or `withdrawn`. Before a server says `finished`, its part of the result is on
its disk, so four such objects make the job done, whatever happens next. Otherwise server 0 proposes a new attempt, from the
sealed inputs and with new keys. After `attempts` failures the job is held until an operator resumes it; its inputs are kept.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

from ..federation.build import build
from ..federation.course import (
    BROKEN,
    DONE,
    EXPIRED,
    FINISHED,
    READY,
    RUNNING,
    WITHDRAWN,
    Attempts,
    Course,
    may_become_done,
)
from ..federation.errors import FederationError
from ..federation.objects import Object
from ..federation.parcels import pieces_in, result_info
from ..federation.proposal import ProposedJob
from ..federation.roster import SEATS, address
from ..federation.sealing import seal
from ..federation.text import plain
from ..federation.times import seconds
from ..jobs.infer import UseModel
from ..jobs.spec import COLUMNS
from ..jobs.workers import DASK
from ..servers.control import encode
from ..servers.cores import threads_for
from ..servers.failure import CONSEQUENCE, SUSPECT, Failure
from .attempt import Attempt
from .forking import ForkServer
from .keys import JOB
from .office import Office
from .policy import refusal_of
from .programs import call, kept_name, rules
from .restoring import Restoring
from .router import Router
from .scheduler import BEGIN, PREPARE, PROPOSE, Scheduler, Step, View, last_turn, place_of
from .shares import Shares
from .staging import Staging, audit_digest
from .work import AttemptFailed, Done, Piece, Work

log = logging.getLogger("ppca.conductor")
ATTEMPT, KEY = "attempt", "repair of the key"
REPEAT = 10.0
"""Seconds until a step is tried again that could not be taken."""

TICK = 1.0
SWEEP = 30
"""Seconds in which every open job is looked at, also if nothing is heard of it: clocks and pauses go on."""

SLICE = 64
"""Jobs that are looked at every second at least."""

PUBLISHING = 1.0
"""Seconds of one pass of the loop for what an attempt produced; at least one object is published."""

REST = 600.0
"""Seconds between two looks at a job that is over and erased: its model, or its record, may be due."""

GOING = "the server is going down"


class Withdrawn(FederationError):
    """This server gives an attempt up for a reason that has nothing to do with the job."""


class Gate:
    """Where the thread of an attempt waits until all servers are ready, or the attempt is stopped."""

    def __init__(self) -> None:
        self.why = ""
        self._open = threading.Event()

    def begin(self) -> None:
        self._open.set()

    def stop(self, why: str) -> None:
        self.why = self.why or why
        self._open.set()

    def check(self) -> None:
        """Raise Withdrawn if the attempt was stopped."""
        if self.why:
            raise Withdrawn(self.why)

    def wait(self) -> None:
        """Return when the attempt begins. Raises Withdrawn if it was stopped."""
        self._open.wait()
        self.check()


class Conductor:
    """Advance every job as far as this server can."""

    def __init__(self, office: Office, router: Router) -> None:
        self.office = office
        self.router = router
        self.forks = ForkServer()
        self.shares = Shares(office)
        self.staging = Staging(office.settings.store, office.keys)
        self.running: dict[str, Attempt] = {}
        places = office.settings.file.policy.jobs_at_once
        self.scheduler = Scheduler(
            office.roster.operators.values(),
            office.identity.name,
            proposes=office.seat == SEATS[0],
            places=places,
            others=lambda: min(office.places.values(), default=None),
        )
        self._gates: dict[str, Gate] = {}
        self._threads = ThreadPoolExecutor(places, "ppca-attempt")
        self._place = 0
        self._position = 0
        self._busy: set[tuple[str, str]] = set()
        self._resting: dict[str, float] = {}
        self._before: dict[str, int] = {}
        self._unmended: set[str] = set()
        self._checks = ThreadPoolExecutor(1, "checks")  # checks wait for each other
        self._repairs = ThreadPoolExecutor(1, "repairs")
        self._said: dict[str, str] = {}
        self._restoring = Restoring(office, self.shares, self.staging, log.warning)
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._queue_due = 0.0
        self._seen = time.monotonic()

    @property
    def silent(self) -> float:
        """Seconds since the loop made its last pass."""
        return time.monotonic() - self._seen

    # -- the loop ----------------------------------------------------------------------------------------------------

    async def conduct(self) -> None:
        """Run for ever: on every event, and once a second, however many events there are."""
        self._note_starts()
        for job in self.office.mailbox.jobs():
            self._advance_safely(job)
            await asyncio.sleep(0)  # reading many large files takes long; the watchdog is told meanwhile
        due = 0.0
        with self.office.news() as queue:
            while True:
                jobs: set[str] = set()
                try:
                    async with asyncio.timeout(TICK):  # wait_for may lose a cancellation
                        events = [await queue.get()]
                    while not queue.empty():
                        events.append(queue.get_nowait())
                    jobs = {event["header"].job for event in events if "header" in event}
                except TimeoutError:
                    pass
                self._seen = time.monotonic()
                if time.monotonic() >= due:
                    jobs.update(self._sweep())
                    due = time.monotonic() + TICK
                for job in jobs:
                    self._advance_safely(job)
                self._schedule()

    def _sweep(self) -> list[str]:
        """Some jobs at a time, so that all are looked at within SWEEP seconds: clocks go on without events."""
        now = time.monotonic()
        awake = [job for job in self.office.mailbox.jobs() if self._resting.get(job, 0.0) <= now]
        count = max(SLICE, math.ceil(len(awake) * TICK / SWEEP))
        start, self._position = self._position, self._position + count
        if self._position >= len(awake):
            self._position = 0
        return awake[start : start + count]

    def _advance_safely(self, job: str) -> None:
        """Advance a job. Whatever is wrong with it, the others go on."""
        try:
            self.advance(job)
            self._said.pop(job, None)
        except (FederationError, OSError) as error:
            if self._said.get(job) != str(error):
                log.error("job not advanced", extra={"job": job, "why": str(error)})
            self._said[job] = str(error)
        except Exception:
            log.exception("job not advanced", extra={"job": job})

    def _note_starts(self) -> None:
        """Note the attempts for which this server was ready before this process. Reads headers only: no job can make it fail."""
        proposer = self.office.roster.operators[SEATS[0]]
        for job in self.office.mailbox.jobs():
            objects = self.office.mailbox.objects(job)
            last = max(objects.starts(), default=0)
            self._before[job] = last if self.office.identity.name in objects.ready(last) else 0
            self._place = max(self._place, place_of(objects, proposer))
            self._unmended.add(job)
            self.scheduler.started(*last_turn(objects))

    async def stop(self) -> None:
        """Ends attempts that run; they are made again later."""
        self._stopping = True
        for job in list(self._gates):
            self._stop(job, GOING)
        self.shares.close()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=10)
        self.forks.close()
        for pool in (self._checks, self._repairs):
            pool.shutdown(wait=False, cancel_futures=True)

    def _spawn(self, job: str, what: str, function: Any, *arguments: Any) -> None:
        """Run a function in a thread, once at a time for a job and a purpose."""
        if (job, what) in self._busy or self._stopping:
            return
        self._busy.add((job, what))
        attempt = what == ATTEMPT

        async def body() -> None:
            try:
                pools = {ATTEMPT: self._threads, KEY: self._repairs}
                pool = pools.get(what, self._checks if what.startswith("check ") else None)
                await asyncio.get_running_loop().run_in_executor(pool, function, *arguments)
            except (FederationError, OSError) as error:
                log.error(what, extra={"job": job, "why": str(error)})
                await asyncio.sleep(TICK)
            except Exception:
                log.exception(what, extra={"job": job})
                await asyncio.sleep(TICK)
            finally:
                self._busy.discard((job, what))
                if attempt:
                    self._gates.pop(job, None)
                    self.scheduler.release(job)
            self._advance_safely(job)
            self._schedule()

        task = asyncio.create_task(body())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- one job -----------------------------------------------------------------------------------------------------

    def advance(self, job: str) -> None:
        """Does, or starts, what comes next for a job here."""
        known, course = self.office.admission.job(job), self.office.admission.course(job)
        if course.over:
            self._unmended.discard(job)
            self._close(known, course)
            return
        if self.office.mailbox.note(f"over {job}") is not None:  # by a clock that was wrong
            self.office.mailbox.unnote(f"over {job}")
        objects, me = self.office.mailbox.objects(job), self.office.identity.name
        if objects.offer(me, of_seat=True) is None:
            self._answer(known)
            return
        if job in self._unmended:
            self._spawn(job, KEY, self._mend_key, known)
        receipts = objects.receipts()
        for owner in known.proposal.owners:
            contribution = objects.by("contribution", owner)
            if contribution is not None and (me, owner) not in receipts:
                self._spawn(job, f"check {owner}", self.shares.check, known, owner, contribution.digest)
        last = max(objects.starts(), default=0)
        unsaid = me in objects.ready(last) and me not in objects.ended(last)
        if unsaid and last <= self._before.get(job, 0):
            self._fail(job, last, "the server was restarted during the attempt")
            return
        startable = course.stage in (READY, RUNNING) and all(item.who != "the clock" for item in course.waiting)
        self.scheduler.see(View.of(job, objects, self.office.roster, me, startable=startable))

    def _mend_key(self, known: ProposedJob) -> None:
        """Look once after a start whether the key of a job is still there; again later if that is not possible now."""
        self.shares.mend_key(known)
        self._unmended.discard(known.id)

    def _schedule(self) -> None:
        """Do what the scheduler says."""
        self.scheduler.operators = frozenset(self.office.roster.operators.values())  # another revision may have others
        well = True
        while well and not self._stopping and (steps := self.scheduler.steps()):
            for step in steps:
                try:
                    self._do(step)
                except Exception as error:  # tried again at the next pass; the other jobs go on
                    why = f"{step.what}: {error}" if isinstance(error, FederationError | OSError) else step.what
                    log.error("step not taken", extra={"job": step.job, "why": why}, exc_info=why == step.what)
                    self.scheduler.release(step.job)
                    self.scheduler.postpone(step.job, REPEAT)
                    well = False
        self._show_queue()

    def _show_queue(self) -> None:
        """Renew the queue that people see, in a fiftieth of the time at most: it is sorted as a whole."""
        if time.monotonic() >= self._queue_due:
            began = time.thread_time()
            self.office.queue = {view.job: place for place, view in enumerate(self.scheduler.queue(), 1)}
            self._queue_due = time.monotonic() + 50 * (time.thread_time() - began)

    def _do(self, step: Step) -> None:
        job, number = step.job, step.attempt
        if step.what == PROPOSE:
            self.office.publish("start", job, attempt=number, turn=step.turn)
            self.advance(job)
        elif step.what == PREPARE:
            known, start = self.office.admission.job(job), self.office.mailbox.objects(job).starts()[number]
            gate = self._gates[job] = Gate()
            self._spawn(job, ATTEMPT, self._attempt, known, number, start.digest, gate)
        elif step.what == BEGIN:
            self._gates[job].begin()
        else:
            self._stop(job, step.why)

    def _stop(self, job: str, why: str) -> None:
        """Stop an attempt here, wherever it is."""
        if job in self._gates:
            self._gates[job].stop(why)
        if job in self.running:
            self.running[job].kill(why)

    def _answer(self, known: ProposedJob) -> None:
        """Offer a key, or refuse the job. Server 0 gives the job its place in the queue."""
        why = refusal_of(known.proposal, self.office.settings.file.policy, self.office.admission)
        if why is not None:
            self.office.publish("refusal", known.id, why=why)
        else:
            place = {}
            if self.office.seat == SEATS[0]:
                self._place += 1
                place = {"place": self._place}
            public = self.office.keys.make(JOB, known.id).public
            self.office.publish("offer", known.id, public, seat=self.office.seat, **place)

    # -- attempts ----------------------------------------------------------------------------------------------------

    def _attempt(self, known: ProposedJob, number: int, start: str, gate: Gate) -> None:
        """Prepare an attempt, run it when all servers are ready, and say what became of it."""
        job, attempt = known.id, None
        try:
            self.shares.drop_forwarded(known)
            self.shares.mend(known)
            gate.check()
            work = self._work(known, start)
            attempt = Attempt(work, self.router, self.forks, lambda *what: self.office.show(job, *what))
            self.running[job] = attempt
            began = datetime.now(UTC)
            done = attempt.run(lambda: self._announce(job, number, gate))
            self._finish(known, number, done, began)
        except Withdrawn as error:
            self._end(job, number, WITHDRAWN, str(error))
        except AttemptFailed as failed:
            failure = failed.failure
            if gate.why:
                self._end(job, number, WITHDRAWN, gate.why)
            elif attempt is not None and not attempt.begun and failure.rank in (SUSPECT, CONSEQUENCE):
                self._end(job, number, WITHDRAWN, f"it did not begin: {failure.reason}")
            else:
                self._fail(job, number, failure.reason, final=failed.final, failure=failure)
        except (FederationError, OSError) as error:
            self._fail(job, number, str(error))
        except Exception as error:
            log.exception("attempt", extra={"job": job})
            self._fail(job, number, type(error).__name__)
        finally:
            self.running.pop(job, None)
            self.office.progress.pop(job, None)

    def _announce(self, job: str, number: int, gate: Gate) -> None:
        """Say that this server is ready, and wait until all are."""
        gate.check()
        if self.office.identity.name not in self.office.mailbox.objects(job).ready(number):
            self.office.publish("ready", job, attempt=number, seat=self.office.seat)
        gate.wait()

    def _work(self, known: ProposedJob, start: str) -> Work:
        office, settings = self.office, self.office.settings.file
        program, public = call(known)
        if settings.workers is not None and known.spec.data.form == COLUMNS:
            public["workers"] = DASK
        kept = {}
        if isinstance(known.spec.analysis, UseModel):
            kept[kept_name(known.spec.analysis.model)] = self._model(known.spec.analysis.model)
        packets = [
            packet
            for owner in known.proposal.owners
            for kind, fields in self.shares.messages_of(known, owner)
            if kind == "packets"
            for packet in fields["packets"]
        ]
        return Work(
            seat=office.seat,
            session=hashlib.sha256(f"ppca session {start}".encode()).digest(),
            addresses={number: address(seat.mesh) for number, seat in office.roster.seats.items()},
            tls=office.mesh_tls,
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

    def _pieces(self, known: ProposedJob) -> Iterator[Piece]:
        """Rows of owners of columns, and of owners of rows that are fewer than columns, piece by piece."""
        data = known.spec.data
        if not (data.by_columns or data.is_wide or data.uses_model):
            return
        for number, owner in enumerate(known.proposal.owners):
            for kind, fields in self.shares.messages_of(known, owner):
                if kind == "rows":
                    table = number + fields.get("part", 0)  # `part`: of a sole owner that acts for several tables
                    yield table, fields["packets"][0], fields.get("tags"), fields.get("order")

    def _finish(self, known: ProposedJob, number: int, done: Done, began: datetime) -> None:
        """Seals the parts of the result to their receivers, puts everything on the disk, and says that it is there."""
        office, ran = self.office, done.ran
        if "refused" in ran.result:  # by what all four servers see alike
            self._fail(known.id, number, str(ran.result["refused"]), final=True)
            return
        total = ran.stats["total"]
        results: dict[str, list[Object]] = {}
        for receiver in known.spec.receivers:
            offer = office.mailbox.objects(known.id).offer(receiver, of_seat=False)
            item = None if offer is None else office.mailbox.get(offer.digest)
            if item is None:
                raise FederationError(f"the offer of {receiver} is not here")
            mine = {**ran.result, "to": {receiver: ran.result["to"].get(receiver, {})}}
            plain = b"".join(encode("result", result=mine))
            pieces = pieces_in(plain)
            results[receiver] = []
            for piece, data in enumerate(pieces):
                info = result_info(known.id, receiver, office.seat, number, piece, len(pieces))
                about = {name: info[name] for name in ("receiver", "attempt", "seat", "piece", "pieces")}
                sealed = seal(data, item.payload, **info)
                results[receiver].append(Object.make(office.identity, "result", known.id, sealed, **about))
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
            "results": {receiver: [item.digest for item in items] for receiver, items in results.items()},
            "contributions": {
                owner: header.digest
                for owner in known.proposal.owners
                if (header := office.mailbox.objects(known.id).by("contribution", owner)) is not None
            },
        }
        account = Object.make(
            office.identity, "audit", known.id, json.dumps(audit).encode(), attempt=number, seat=office.seat
        )
        name = kept_name(known.id)
        self.staging.put(
            known.id, number, [*(item for items in results.values() for item in items), account], done.kept.get(name)
        )
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

    def _fail(self, job: str, number: int, why: str, *, final: bool = False, failure: Failure | None = None) -> None:
        """Publish that an attempt failed here. After as many failures as the operator allows, the job is held."""
        before = Attempts.of(self.office.mailbox.objects(job), self.office.roster, before=number).failures
        hold = before + 1 >= self.office.settings.file.policy.attempts
        self._end(job, number, BROKEN, why, final=final, failure=failure, hold=hold)

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
        """Publish what became of an attempt. `failure`: what only the log says besides, if a program failed here."""
        if outcome != FINISHED:
            named = {} if failure is None else {"error": failure.cause, "at": failure.places}
            known = {name: value for name, value in named.items() if value}
            log.warning(f"attempt {outcome}", extra={"job": job, "attempt": number, "why": why, **known})
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

    def _close(self, known: ProposedJob, course: Course) -> None:
        """Publishes what was staged, once the job is done; erases, when it is time to."""
        office, job = self.office, known.id
        now = office.clock.now().timestamp()
        noted = office.mailbox.note(f"over {job}")
        if noted is None and office.clock.agreed:  # not by this server's clock alone: it may be far behind
            noted = office.mailbox.note(f"over {job}", str(now))
        since = now if noted is None else float(noted)
        done = course.stage == DONE
        self.scheduler.forget(job)
        if not done and job in self._gates:
            self._stop(job, f"the job is {course.stage}")
            return
        late = now >= since + seconds(known.proposal.erase_after)
        if done and not late and office.mailbox.note(f"committed {job}") is None:
            self._commit(known, course.attempt)
        awaited = may_become_done(office.mailbox.objects(job), office.identity.name)
        by_time = late or course.stage == EXPIRED
        self._erase(known, (late or not (done or awaited)) and (office.clock.agreed or not by_time))
        until = known.proposal.kept_until
        gone = until is not None and now >= until.timestamp() and office.clock.agreed
        if gone and self.staging.erase_model(job):
            office.publish("erased", job, what="model", seat=office.seat)
        if office.mailbox.note(f"erased {job}") is not None:
            self._resting[job] = time.monotonic() + REST
            kept = since + seconds(office.settings.file.store.keep)
            if now >= kept and office.clock.agreed and not self.staging.has_model(job):
                office.admission.forget(job)

    def _commit(self, known: ProposedJob, attempt: int) -> None:
        """Publishes what was staged; what the disk has lost of it is noted, and shown to the operator.

        This happens in the event loop. A large result is published in parts, one at each pass of the loop; the server goes on
        meanwhile.
        """
        office, job, me = self.office, known.id, self.office.identity.name
        lost, until = 0, time.monotonic() + PUBLISHING
        for digest in self.staging.staged(job, attempt):
            if office.mailbox.knows(digest):
                continue
            item = self.staging.item(job, attempt, digest)
            if item is None:
                lost += 1
                continue
            office.admit(item, me)
            if time.monotonic() > until:
                return
        mine = [header.about for header in office.mailbox.objects(job).of("result") if header.author == me]
        count = Counter(about["receiver"] for about in mine)
        whole = {about["receiver"] for about in mine if count[about["receiver"]] == about.get("pieces")}
        lacking = sorted(set(known.spec.receivers) - whole)
        if lost or lacking:
            why = f"this server's part of the result for {' and '.join(lacking) or 'the audit'} is lost: both copies were damaged"
            office.mailbox.note(f"missing {job}", why)
            log.error("staged result lost", extra={"job": job, "why": why})
        self.staging.commit(job, attempt)
        self.staging.drop(job)
        office.mailbox.note(f"committed {job}", "yes")

    def _erase(self, known: ProposedJob, due: bool) -> None:
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
