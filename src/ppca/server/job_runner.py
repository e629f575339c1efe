"""Run the jobs of one server, from the offer of a key to the erasure of shares.

The state of a job is a function of its signed objects, so a restarted server continues its jobs.

Attempts. `scheduler` decides which attempt is proposed, prepared, begun and stopped, and when; this module does it.
Each server then publishes one signed outcome:
- `finished`: its part of the result is on its disk. Four of these make the job done, whatever happens next.
- `failed` or `withdrawn`: server 0 proposes a new attempt from the sealed inputs, with new keys. After `attempts`
  failures the job is held until an operator resumes it; its inputs are kept.

Erasure. When a job is over, its key is destroyed and its shares are deleted (see `closing`).
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..federation.errors import FederationError
from ..federation.membership import SERVERS
from ..federation.proposal import ProposedJob
from ..federation.state import (
    DONE,
    EXPIRED,
    READY,
    RUNNING,
    JobState,
    may_become_done,
)
from ..federation.times import seconds
from .attempts import AttemptRunner, StartSignal
from .closing import Closing
from .contributions import Contributions
from .keys import JOB
from .policy import refusal_of
from .router import Router
from .scheduler import BEGIN, PREPARE, PROPOSE, Scheduler, Step, View, last_turn, place_of, submitters
from .server_state import ServerState
from .staging import Staging

log = logging.getLogger("ppca.job_runner")
ATTEMPT, KEY = "attempt", "repair of the key"
STEP_RETRY_SECONDS = 10.0
"""Seconds until a failed step of the scheduler is retried."""

POLL_INTERVAL = 1.0
"""Seconds between passes over open jobs, and the delay after an error."""

SWEEP_SECONDS = 30
"""Seconds within which every open job is advanced at least once, also without events: deadlines can pass."""

MIN_JOBS_PER_PASS = 64
"""Minimum number of open jobs that a pass advances."""

ERASED_POLL_INTERVAL = 600.0
"""Seconds between checks of an erased job, whose kept model or record may still expire."""

STOPPING = "the server is shutting down"
"""Reason published for attempts that `stop` ends."""


class JobRunner:
    """Run the jobs of this server: one `advance` per job and event."""

    def __init__(self, server_state: ServerState, router: Router) -> None:
        self.server_state = server_state
        self.shares = Contributions(server_state)
        self.staging = Staging(server_state.settings.store, server_state.keys)
        self.attempts = AttemptRunner(server_state, router, self.shares, self.staging)
        places = server_state.settings.file.policy.jobs_at_once
        self.scheduler = Scheduler(
            server_state.membership.operators.values(),
            server_state.identity.name,
            proposes=server_state.server == SERVERS[0],
            places=places,
            others=lambda: min(server_state.places.values(), default=None),
        )
        self._start_signals: dict[str, StartSignal] = {}
        self._threads = ThreadPoolExecutor(places, "ppca-attempt")
        self._place = 0
        self._sweep_position = 0
        self._active: set[tuple[str, str]] = set()
        self._next_check_at: dict[str, float] = {}
        self._ready_before_start: dict[str, int] = {}
        self._unchecked_keys: set[str] = set()
        self._checks = ThreadPoolExecutor(1, "checks")  # checks wait for each other
        self._repairs = ThreadPoolExecutor(1, "repairs")
        self._logged_errors: dict[str, str] = {}
        self._closing = Closing(server_state, self.shares, self.staging)
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._next_queue_at = 0.0
        self._last_pass = time.monotonic()

    @property
    def silent(self) -> float:
        """Seconds since the loop made its last pass."""
        return time.monotonic() - self._last_pass

    # -- the loop ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Advance the job of each event, and all open jobs within SWEEP_SECONDS. Runs until cancelled."""
        self._note_earlier_attempts()
        for job in self.server_state.mailbox.jobs():
            self._advance_or_log(job)
            await asyncio.sleep(0)  # reading many large files takes long; the watchdog is told meanwhile
        due = 0.0
        with self.server_state.events() as queue:
            while True:
                jobs: set[str] = set()
                try:
                    async with asyncio.timeout(POLL_INTERVAL):  # wait_for may lose a cancellation
                        events = [await queue.get()]
                    while not queue.empty():
                        events.append(queue.get_nowait())
                    jobs = {event["header"].job for event in events if "header" in event}
                except TimeoutError:
                    pass
                self._last_pass = time.monotonic()
                if time.monotonic() >= due:
                    jobs.update(self._sweep())
                    due = time.monotonic() + POLL_INTERVAL
                for job in jobs:
                    self._advance_or_log(job)
                self._schedule()

    def _sweep(self) -> list[str]:
        """Return the open jobs of this pass. All jobs come up within SWEEP_SECONDS."""
        now = time.monotonic()
        awake = [job for job in self.server_state.mailbox.jobs() if self._next_check_at.get(job, 0.0) <= now]
        count = max(MIN_JOBS_PER_PASS, math.ceil(len(awake) * POLL_INTERVAL / SWEEP_SECONDS))
        start, self._sweep_position = self._sweep_position, self._sweep_position + count
        if self._sweep_position >= len(awake):
            self._sweep_position = 0
        return awake[start : start + count]

    def _advance_or_log(self, job: str) -> None:
        """Advance a job; log errors instead of raising them."""
        try:
            self.advance(job)
            self._logged_errors.pop(job, None)
        except (FederationError, OSError) as error:
            if self._logged_errors.get(job) != str(error):
                log.error("could not advance job", extra={"job": job, "reason": str(error)})
            self._logged_errors[job] = str(error)
        except Exception:
            log.exception("could not advance job", extra={"job": job})

    def _note_earlier_attempts(self) -> None:
        """Record for which attempts this server was ready before this process started. Reads headers only, so that no
        job can make it fail."""
        proposer = self.server_state.membership.operators[SERVERS[0]]
        for job in self.server_state.mailbox.jobs():
            objects = self.server_state.mailbox.objects(job)
            last = max(objects.starts(), default=0)
            self._ready_before_start[job] = last if self.server_state.identity.name in objects.ready(last) else 0
            self._place = max(self._place, place_of(objects, proposer))
            self._unchecked_keys.add(job)
            for member in submitters(objects):
                self.scheduler.started(member, last_turn(objects))

    async def stop(self) -> None:
        """Stop running attempts. Server 0 proposes them again later."""
        self._stopping = True
        for job in list(self._start_signals):
            self._stop(job, STOPPING)
        self.shares.close()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=10)
        self.attempts.forks.close()
        for pool in (self._checks, self._repairs):
            pool.shutdown(wait=False, cancel_futures=True)

    def _run_in_thread(self, job: str, what: str, function: Any, *arguments: Any) -> None:
        """Run a function in a thread, at most once at a time per job and purpose."""
        if (job, what) in self._active or self._stopping:
            return
        self._active.add((job, what))
        attempt = what == ATTEMPT

        async def body() -> None:
            try:
                pools = {ATTEMPT: self._threads, KEY: self._repairs}
                pool = pools.get(what, self._checks if what.startswith("check ") else None)
                await asyncio.get_running_loop().run_in_executor(pool, function, *arguments)
            except (FederationError, OSError) as error:
                log.error(what, extra={"job": job, "reason": str(error)})
                await asyncio.sleep(POLL_INTERVAL)
            except Exception:
                log.exception(what, extra={"job": job})
                await asyncio.sleep(POLL_INTERVAL)
            finally:
                self._active.discard((job, what))
                if attempt:
                    self._start_signals.pop(job, None)
                    self.scheduler.release(job)
            self._advance_or_log(job)
            self._schedule()

        task = asyncio.create_task(body())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- one job -----------------------------------------------------------------------------------------------------

    def advance(self, job: str) -> None:
        """Do the next step of a job on this server; long steps run in a thread."""
        if self._is_erased(job):
            return
        known, job_state = self.server_state.admission.job(job), self.server_state.admission.job_state(job)
        if job_state.over:
            self._unchecked_keys.discard(job)
            self._finish_job(known, job_state)
            return
        if self.server_state.mailbox.note(f"over {job}") is not None:  # by a clock that was wrong
            self.server_state.mailbox.unnote(f"over {job}")
        objects, me = self.server_state.mailbox.objects(job), self.server_state.identity.name
        if objects.offer(me, of_server=True) is None:
            self._offer_or_refuse(known)
            return
        if job in self._unchecked_keys:
            self._run_in_thread(job, KEY, self._check_key, known)
        receipts = objects.receipts()
        for owner in known.proposal.owners:
            contribution = objects.by("contribution", owner)
            if contribution is not None and (me, owner) not in receipts and self.shares.is_due(job, owner):
                self._run_in_thread(job, f"check {owner}", self.shares.check, known, owner, contribution.digest)
        last = max(objects.starts(), default=0)
        unsaid = me in objects.ready(last) and me not in objects.ended(last)
        if unsaid and last <= self._ready_before_start.get(job, 0):
            self.attempts.fail(job, last, "the server was restarted during the attempt")
            return
        startable = job_state.stage in (READY, RUNNING) and all(item.actor != "the clock" for item in job_state.waiting)
        self.scheduler.see(View.of(job, objects, self.server_state.membership, me, startable=startable))

    def _check_key(self, known: ProposedJob) -> None:
        """Repair the key of a job if it was lost. Done once per job after a start; retried if it fails."""
        self.shares.repair_key(known)
        self._unchecked_keys.discard(known.id)

    def _schedule(self) -> None:
        """Take the steps that the scheduler returns."""
        self.scheduler.operators = frozenset(
            self.server_state.membership.operators.values()
        )  # another revision may have others
        well = True
        while well and not self._stopping and (steps := self.scheduler.steps()):
            for step in steps:
                try:
                    self._take_step(step)
                except Exception as error:  # tried again at the next pass; the other jobs go on
                    why = f"{step.what}: {error}" if isinstance(error, FederationError | OSError) else step.what
                    log.error(
                        "scheduler step failed", extra={"job": step.job, "reason": why}, exc_info=why == step.what
                    )
                    self.scheduler.release(step.job)
                    self.scheduler.postpone(step.job, STEP_RETRY_SECONDS)
                    well = False
        self._show_queue()

    def _show_queue(self) -> None:
        """Update the queue shown to people. It takes at most a fiftieth of the time, because all of it is sorted."""
        if time.monotonic() >= self._next_queue_at:
            began = time.thread_time()
            self.server_state.queue = {view.job: place for place, view in enumerate(self.scheduler.queue(), 1)}
            self._next_queue_at = time.monotonic() + 50 * (time.thread_time() - began)

    def _take_step(self, step: Step) -> None:
        job, number = step.job, step.attempt
        if step.what == PROPOSE:
            self.server_state.publish("start", job, attempt=number, turn=step.turn)
            self.advance(job)
        elif step.what == PREPARE:
            known, start = self.server_state.admission.job(job), self.server_state.mailbox.objects(job).starts()[number]
            gate = self._start_signals[job] = StartSignal()
            self._run_in_thread(job, ATTEMPT, self.attempts.run, known, number, start.digest, gate)
        elif step.what == BEGIN:
            self._start_signals[job].begin()
        else:
            self._stop(job, step.why)

    def _stop(self, job: str, why: str) -> None:
        """Stop an attempt on this server, whether it waits or computes."""
        if job in self._start_signals:
            self._start_signals[job].stop(why)
        if job in self.attempts.running:
            self.attempts.running[job].kill(why)

    def _offer_or_refuse(self, known: ProposedJob) -> None:
        """Publish this server's key for the job, or a refusal by its policy. Server 0 also assigns the job's place in
        the queue."""
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

    # -- the end -----------------------------------------------------------------------------------------------------

    def _finish_job(self, known: ProposedJob, job_state: JobState) -> None:
        """Publish the staged results of a done job; erase the job when due."""
        server_state, job = self.server_state, known.id
        now = server_state.clock.now().timestamp()
        noted = server_state.mailbox.note(f"over {job}")
        if noted is None and server_state.clock.agreed:  # not by this server's clock alone: it may be far behind
            noted = server_state.mailbox.note(f"over {job}", str(now))
        since = now if noted is None else float(noted)
        done = job_state.stage == DONE
        self.scheduler.forget(job)
        if not done and job in self._start_signals:
            self._stop(job, f"the job is {job_state.stage}")
            return
        late = now >= since + seconds(known.proposal.erase_after)
        if done and not late and server_state.mailbox.note(f"committed {job}") is None:
            self._closing.publish(known, job_state.attempt)
        awaited = may_become_done(server_state.mailbox.objects(job), server_state.identity.name)
        by_time = late or job_state.stage == EXPIRED
        self._closing.erase(known, (late or not (done or awaited)) and (server_state.clock.agreed or not by_time))
        until = known.proposal.kept_until
        gone = until is not None and now >= until.timestamp() and server_state.clock.agreed
        if gone and self.staging.erase_model(job):
            server_state.publish("erased", job, what="model", server=server_state.server)
        if server_state.mailbox.note(f"erased {job}") is not None:
            self._next_check_at[job] = time.monotonic() + ERASED_POLL_INTERVAL
            kept = since + seconds(server_state.settings.file.store.keep)
            if now >= kept and server_state.clock.agreed and not self.staging.has_model(job):
                server_state.admission.forget(job)

    def _is_erased(self, job: str) -> bool:
        """Return whether a job is erased here and nothing else is due. Does not read the job's file."""
        mailbox, clock = self.server_state.mailbox, self.server_state.clock
        over = mailbox.note(f"over {job}")
        if over is None or mailbox.note(f"erased {job}") is None or self.staging.has_model(job):
            return False
        if clock.agreed and clock.now().timestamp() >= float(over) + seconds(
            self.server_state.settings.file.store.keep
        ):
            return False
        self._unchecked_keys.discard(job)
        self._next_check_at[job] = time.monotonic() + ERASED_POLL_INTERVAL
        return True
