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
from ..federation.envelopes import chunks_in, result_info
from ..federation.errors import FederationError
from ..federation.membership import SERVERS, address
from ..federation.objects import Object
from ..federation.proposal import ProposedJob
from ..federation.sealing import seal
from ..federation.state import (
    BROKEN,
    DONE,
    EXPIRED,
    FINISHED,
    READY,
    RUNNING,
    WITHDRAWN,
    Attempts,
    JobState,
    may_become_done,
)
from ..federation.text import plain
from ..federation.times import seconds
from ..jobs.chunks import Part
from ..jobs.infer import UseModel
from ..jobs.pools import DASK
from ..jobs.spec import COLUMNS
from ..runtime.control import encode
from ..runtime.cores import threads_for
from ..runtime.failure import CONSEQUENCE, SUSPECT, Failure
from .attempt import Attempt
from .contributions import Contributions
from .forking import ForkServer
from .keys import JOB
from .policy import refusal_of
from .programs import job_for_workers, kept_name
from .restoring import Restoring
from .router import Router
from .scheduler import BEGIN, PREPARE, PROPOSE, Scheduler, Step, View, last_turn, place_of, submitters
from .server_state import ServerState
from .staging import Staging, audit_digest
from .work import AttemptFailed, Done, Work

log = logging.getLogger("ppca.job_runner")
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


class JobRunner:
    """Advance every job as far as this server can."""

    def __init__(self, server_state: ServerState, router: Router) -> None:
        self.server_state = server_state
        self.router = router
        self.forks = ForkServer()
        self.shares = Contributions(server_state)
        self.staging = Staging(server_state.settings.store, server_state.keys)
        self.running: dict[str, Attempt] = {}
        places = server_state.settings.file.policy.jobs_at_once
        self.scheduler = Scheduler(
            server_state.membership.operators.values(),
            server_state.identity.name,
            proposes=server_state.server == SERVERS[0],
            places=places,
            others=lambda: min(server_state.places.values(), default=None),
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
        self._restoring = Restoring(server_state, self.shares, self.staging, log.warning)
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
        for job in self.server_state.mailbox.jobs():
            self._advance_safely(job)
            await asyncio.sleep(0)  # reading many large files takes long; the watchdog is told meanwhile
        due = 0.0
        with self.server_state.news() as queue:
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
        awake = [job for job in self.server_state.mailbox.jobs() if self._resting.get(job, 0.0) <= now]
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
        proposer = self.server_state.membership.operators[SERVERS[0]]
        for job in self.server_state.mailbox.jobs():
            objects = self.server_state.mailbox.objects(job)
            last = max(objects.starts(), default=0)
            self._before[job] = last if self.server_state.identity.name in objects.ready(last) else 0
            self._place = max(self._place, place_of(objects, proposer))
            self._unmended.add(job)
            for member in submitters(objects):
                self.scheduler.started(member, last_turn(objects))

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
        if self._rests(job):
            return
        known, job_state = self.server_state.admission.job(job), self.server_state.admission.job_state(job)
        if job_state.over:
            self._unmended.discard(job)
            self._close(known, job_state)
            return
        if self.server_state.mailbox.note(f"over {job}") is not None:  # by a clock that was wrong
            self.server_state.mailbox.unnote(f"over {job}")
        objects, me = self.server_state.mailbox.objects(job), self.server_state.identity.name
        if objects.offer(me, of_server=True) is None:
            self._answer(known)
            return
        if job in self._unmended:
            self._spawn(job, KEY, self._mend_key, known)
        receipts = objects.receipts()
        for owner in known.proposal.owners:
            contribution = objects.by("contribution", owner)
            if contribution is not None and (me, owner) not in receipts and self.shares.is_due(job, owner):
                self._spawn(job, f"check {owner}", self.shares.check, known, owner, contribution.digest)
        last = max(objects.starts(), default=0)
        unsaid = me in objects.ready(last) and me not in objects.ended(last)
        if unsaid and last <= self._before.get(job, 0):
            self._fail(job, last, "the server was restarted during the attempt")
            return
        startable = job_state.stage in (READY, RUNNING) and all(item.who != "the clock" for item in job_state.waiting)
        self.scheduler.see(View.of(job, objects, self.server_state.membership, me, startable=startable))

    def _mend_key(self, known: ProposedJob) -> None:
        """Look once after a start whether the key of a job is still there; again later if that is not possible now."""
        self.shares.mend_key(known)
        self._unmended.discard(known.id)

    def _schedule(self) -> None:
        """Do what the scheduler says."""
        self.scheduler.operators = frozenset(
            self.server_state.membership.operators.values()
        )  # another revision may have others
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
            self.server_state.queue = {view.job: place for place, view in enumerate(self.scheduler.queue(), 1)}
            self._queue_due = time.monotonic() + 50 * (time.thread_time() - began)

    def _do(self, step: Step) -> None:
        job, number = step.job, step.attempt
        if step.what == PROPOSE:
            self.server_state.publish("start", job, attempt=number, turn=step.turn)
            self.advance(job)
        elif step.what == PREPARE:
            known, start = self.server_state.admission.job(job), self.server_state.mailbox.objects(job).starts()[number]
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
        why = refusal_of(known.proposal, self.server_state.settings.file.policy, self.server_state.admission)
        if why is not None:
            self.server_state.publish("refusal", known.id, why=why)
        else:
            place = {}
            if self.server_state.server == SERVERS[0]:
                self._place += 1
                place = {"place": self._place}
            public = self.server_state.keys.make(JOB, known.id).public
            self.server_state.publish("offer", known.id, public, server=self.server_state.server, **place)

    # -- attempts ----------------------------------------------------------------------------------------------------

    def _attempt(self, known: ProposedJob, number: int, start: str, gate: Gate) -> None:
        """Prepare an attempt, run it when all servers are ready, and say what became of it."""
        job, attempt = known.id, None
        try:
            self.shares.drop_forwarded(known)
            self.shares.mend(known)
            gate.check()
            work = self._work(known, start)
            attempt = Attempt(work, self.router, self.forks, lambda *what: self.server_state.show(job, *what))
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
            self.server_state.progress.pop(job, None)

    def _announce(self, job: str, number: int, gate: Gate) -> None:
        """Say that this server is ready, and wait until all are."""
        gate.check()
        if self.server_state.identity.name not in self.server_state.mailbox.objects(job).ready(number):
            self.server_state.publish("ready", job, attempt=number, server=self.server_state.server)
        gate.wait()

    def _work(self, known: ProposedJob, start: str) -> Work:
        server_state, settings = self.server_state, self.server_state.settings.file
        kept = {}
        if isinstance(known.spec.analysis, UseModel):
            kept[kept_name(known.spec.analysis.model)] = self._model(known.spec.analysis.model)
        return Work(
            server=server_state.server,
            session=hashlib.sha256(f"ppca session {start}".encode()).digest(),
            addresses={number: address(server.mesh) for number, server in server_state.membership.servers.items()},
            tls=server_state.mesh_tls,
            job=job_for_workers(known),
            chunks=self._chunks(known),
            workers=DASK if settings.workers is not None and known.spec.data.form == COLUMNS else 0,
            kept=kept,
            timeout=settings.work.timeout,
            threads=settings.work.threads or threads_for(self._servers_here() * settings.policy.jobs_at_once),
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
            self._restoring.restore_model(self.server_state.admission.job(job))
            record = self.staging.model(job)
        if record is None:
            raise FederationError("this server does not hold the model any more")
        return record

    def _servers_here(self) -> int:
        """Servers that the federation's file places on this machine: those at the same host as this one."""
        hosts = {number: address(server.mesh)[0] for number, server in self.server_state.membership.servers.items()}
        return list(hosts.values()).count(hosts[self.server_state.server])

    def _chunks(self, known: ProposedJob) -> Iterator[Part]:
        """What the owners have sent, owner by owner."""
        for number, owner in enumerate(known.proposal.owners):
            for kind, fields in self.shares.messages_of(known, owner):
                table = number + fields.get("part", 0)  # `part`: of a sole owner that acts for several tables
                order = fields.get("order")
                order = None if order is None else bytes.fromhex(order)
                yield Part(table, fields["packets"], kind == "rows", fields.get("tags"), order)

    def _finish(self, known: ProposedJob, number: int, done: Done, began: datetime) -> None:
        """Seals the parts of the result to their receivers, puts everything on the disk, and says that it is there."""
        server_state, ran = self.server_state, done.ran
        total = ran.stats["total"]
        results: dict[str, list[Object]] = {}
        for receiver in known.spec.receivers:
            offer = server_state.mailbox.objects(known.id).offer(receiver, of_server=False)
            item = None if offer is None else server_state.mailbox.get(offer.digest)
            if item is None:
                raise FederationError(f"the offer of {receiver} is not here")
            mine = {**ran.result, "to": {receiver: ran.result["to"].get(receiver, {})}}
            plain = b"".join(encode("result", result=mine))
            chunks = chunks_in(plain)
            results[receiver] = []
            for chunk, data in enumerate(chunks):
                info = result_info(known.id, receiver, server_state.server, number, chunk, len(chunks))
                about = {name: info[name] for name in ("receiver", "attempt", "server", "chunk", "chunks")}
                sealed = seal(data, item.payload, **info)
                results[receiver].append(Object.make(server_state.identity, "result", known.id, sealed, **about))
        audit = {
            "attempt": number,
            "server": server_state.server,
            "build": build(),
            "federation": server_state.membership.digest,
            "began": began.isoformat(),
            "ended": datetime.now(UTC).isoformat(),
            "seconds": ran.seconds,
            "stats": ran.stats,
            "audit": ran.audit,
            "results": {receiver: [item.digest for item in items] for receiver, items in results.items()},
            "contributions": {
                owner: header.digest
                for owner in known.proposal.owners
                if (header := server_state.mailbox.objects(known.id).by("contribution", owner)) is not None
            },
        }
        account = Object.make(
            server_state.identity,
            "audit",
            known.id,
            json.dumps(audit).encode(),
            attempt=number,
            server=server_state.server,
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
        before = Attempts.of(
            self.server_state.mailbox.objects(job), self.server_state.membership, before=number
        ).failures
        hold = before + 1 >= self.server_state.settings.file.policy.attempts
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
        self.server_state.publish(
            "ended",
            job,
            attempt=number,
            outcome=outcome,
            why=plain(why)[:1500],
            final=final,
            server=self.server_state.server,
            **about,
        )

    # -- the end -----------------------------------------------------------------------------------------------------

    def _close(self, known: ProposedJob, job_state: JobState) -> None:
        """Publishes what was staged, once the job is done; erases, when it is time to."""
        server_state, job = self.server_state, known.id
        now = server_state.clock.now().timestamp()
        noted = server_state.mailbox.note(f"over {job}")
        if noted is None and server_state.clock.agreed:  # not by this server's clock alone: it may be far behind
            noted = server_state.mailbox.note(f"over {job}", str(now))
        since = now if noted is None else float(noted)
        done = job_state.stage == DONE
        self.scheduler.forget(job)
        if not done and job in self._gates:
            self._stop(job, f"the job is {job_state.stage}")
            return
        late = now >= since + seconds(known.proposal.erase_after)
        if done and not late and server_state.mailbox.note(f"committed {job}") is None:
            self._commit(known, job_state.attempt)
        awaited = may_become_done(server_state.mailbox.objects(job), server_state.identity.name)
        by_time = late or job_state.stage == EXPIRED
        self._erase(known, (late or not (done or awaited)) and (server_state.clock.agreed or not by_time))
        until = known.proposal.kept_until
        gone = until is not None and now >= until.timestamp() and server_state.clock.agreed
        if gone and self.staging.erase_model(job):
            server_state.publish("erased", job, what="model", server=server_state.server)
        if server_state.mailbox.note(f"erased {job}") is not None:
            self._resting[job] = time.monotonic() + REST
            kept = since + seconds(server_state.settings.file.store.keep)
            if now >= kept and server_state.clock.agreed and not self.staging.has_model(job):
                server_state.admission.forget(job)

    def _rests(self, job: str) -> bool:
        """Whether there is nothing to do for a job that is over and erased here; its file is not read for this."""
        mailbox, clock = self.server_state.mailbox, self.server_state.clock
        over = mailbox.note(f"over {job}")
        if over is None or mailbox.note(f"erased {job}") is None or self.staging.has_model(job):
            return False
        if clock.agreed and clock.now().timestamp() >= float(over) + seconds(
            self.server_state.settings.file.store.keep
        ):
            return False
        self._unmended.discard(job)
        self._resting[job] = time.monotonic() + REST
        return True

    def _commit(self, known: ProposedJob, attempt: int) -> None:
        """Publishes what was staged; what the disk has lost of it is noted, and shown to the operator.

        This happens in the event loop. A large result is published in parts, one at each pass of the loop; the server goes on
        meanwhile.
        """
        server_state, job, me = self.server_state, known.id, self.server_state.identity.name
        lost, until = 0, time.monotonic() + PUBLISHING
        for digest in self.staging.staged(job, attempt):
            if server_state.mailbox.knows(digest):
                continue
            item = self.staging.item(job, attempt, digest)
            if item is None:
                lost += 1
                continue
            server_state.admit(item, me)
            if time.monotonic() > until:
                return
        mine = [header.about for header in server_state.mailbox.objects(job).of("result") if header.author == me]
        count = Counter(about["receiver"] for about in mine)
        whole = {about["receiver"] for about in mine if count[about["receiver"]] == about.get("chunks")}
        lacking = sorted(set(known.spec.receivers) - whole)
        if lost or lacking:
            why = f"this server's part of the result for {' and '.join(lacking) or 'the audit'} is lost: both copies were damaged"
            server_state.mailbox.note(f"missing {job}", why)
            log.error("staged result lost", extra={"job": job, "why": why})
        self.staging.commit(job, attempt)
        self.staging.drop(job)
        server_state.mailbox.note(f"committed {job}", "yes")

    def _erase(self, known: ProposedJob, due: bool) -> None:
        """Destroys the key of a job and drops what was sealed to it or by it."""
        server_state, job = self.server_state, known.id
        if not due or server_state.mailbox.note(f"erased {job}") is not None:
            return
        server_state.keys.destroy(JOB, job)
        self.staging.drop(job)
        self.shares.erase(job)
        server_state.mailbox.drop(job, ["envelope", "group", "result"])
        server_state.publish("erased", job, what="job", server=server_state.server)
        server_state.mailbox.note(f"erased {job}", "yes")
        log.info("erased", extra={"job": job})
