"""Decide which job this server works on next, so that all four servers work on the same jobs at the same time.

Every job needs all four servers, and each server has `jobs_at_once` places. The protocol uses signed objects only:

1. **Order.** Server 0 gives every job a place in its offer (`place`, counted up). Jobs for which everything is there
   form the queue. Members take turns: the next job is one of the member that has fewest attempts under way; among
   these, of a member whose attempts have held places for the shortest time, in units of `SERVED_UNIT`; among these, of
   the member whose last start is longest ago; of its jobs, the one with the lowest place. `turn` in a start counts
   starts. Times are what this server has measured since it was started: only server 0 proposes, and the others show
   the same queue but for differences of a unit. A member that had no job in the queue begins with the shortest time of
   those that had one, so it can neither save up time nor pay for time that no other member wanted. A job that several
   members submitted counts for each of them, and takes the first of their turns.
2. **Proposal.** Server 0 publishes `start` (job, attempt, turn) for the first job of the queue if it has a free place
   and no other proposal is open that has not begun.
3. **Reservation.** A server that sees an open attempt reserves one of its places, prepares it (a worker process has
   loaded the program and all inputs) and publishes `ready`. Without a free place it waits; among several it takes
   the lowest turn.
4. **Begin.** A server begins when it has seen `ready` of all four for this job and attempt.
5. **End.** Every server that reserved a place publishes one outcome of the attempt: `finished`, `failed` or
   `withdrawn`. One `failed` or `withdrawn` closes the attempt: a server that sees it stops its own worker at once and
   frees its place. `withdrawn` means that nothing went wrong with the job here (another server was not ready in time,
   or this one shuts down). Such an attempt does not count as a failure.

Why this is correct:

- A place is reserved before work starts and freed after the worker has gone, so there are never more than
  `jobs_at_once` workers.
- No deadlock: an honest server 0 has at most one proposal that has not begun. A server without a free place runs an
  attempt that has begun on all four servers, and that ends after its own limit (`attempt_timeout`) at the latest.
- No livelock: only server 0 proposes. A proposal that does not begin is withdrawn, after a time with a random part, and
  its job pauses at least as long as it kept places from other jobs, while these are proposed.
- Restarts: a server that finds its own `ready` without its own end says `failed`. One that has not said `ready` takes
  part as if it had seen the start only now.
- A server that lies or is ill delays jobs and cannot lose them: false `ready`, no `ready`, or a false end close an
  attempt at most; a server 0 that proposes several jobs at once, or out of order, makes others wait until a reservation
  times out.
- Clocks are not compared. All times here are differences on one server's own clock.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from random import SystemRandom

from ..federation.headers import MAX_NUMBERS
from ..federation.membership import SERVERS, Membership
from ..federation.objects import Header
from ..federation.state import Attempts, Objects

PATIENCE = 60.0
"""Seconds that server 0 waits for the other servers once it is ready, added to twice the time it needed to get ready.

The other servers wait half as long again, so they withdraw only if server 0 does not. The time doubles with each
attempt that did not begin."""

MAX_DOUBLINGS = 4
"""Maximum number of doublings of PATIENCE."""

MAX_RETRY_DELAY = 300.0
"""Seconds until the next attempt of a job, at most, before the random part."""

SERVED_UNIT = 60.0
"""Seconds of served time that count as equal. Members whose jobs take less take turns start by start."""

LAST_TURN = MAX_NUMBERS["turn"] - 1
"""Largest number that a start can have. A former server 0 may have used it: from then on, all starts have it."""

RANDOM = SystemRandom()
PROPOSE, PREPARE, BEGIN, STOP = "propose", "prepare", "begin", "stop"


@dataclass(frozen=True)
class View:
    """Facts about the attempts of one job, from its objects.

    waiting: everything is there, and no attempt is open. ready: servers that have announced the last attempt. ended:
    whether this server has published its outcome. failures, idle: attempts that failed, and that did not begin, since
    the last success or resumption. turn: of the last start. others: further members that have submitted the same job.
    """

    job: str
    member: str
    place: int = 0
    waiting: bool = False
    attempt: int = 0
    open: bool = False
    ready: frozenset[str] = frozenset()
    ended: bool = False
    failures: int = 0
    idle: int = 0
    turn: int = 0
    others: tuple[str, ...] = ()

    @property
    def members(self) -> tuple[str, ...]:
        return (self.member, *self.others)

    @classmethod
    def of(cls, job: str, objects: Objects, membership: Membership, me: str, *, startable: bool) -> View:
        """From the objects of a job. me: this server's operator. startable: whether everything is there and it may run
        now."""
        attempts, members = Attempts.of(objects, membership), submitters(objects)
        return cls(
            job=job,
            member=next(iter(members), ""),
            others=tuple(members[1:]),
            place=place_of(objects, membership.operators[SERVERS[0]]),
            waiting=startable and not attempts.open and not attempts.held,
            attempt=attempts.last,
            open=startable and attempts.open,
            ready=attempts.ready,
            ended=me in objects.ended(attempts.last),
            failures=attempts.failures,
            idle=attempts.idle,
            turn=last_turn(objects),
        )


def place_of(objects: Objects, proposer: str) -> int:
    """The place in the queue that server 0, operated by `proposer`, has given to a job."""
    return _number(objects.offer(proposer, of_server=True), "place")


def submitters(objects: Objects) -> list[str]:
    """The members that submitted a job. Every member with a part in it may: none takes the turn of another one by
    that."""
    return sorted({header.author for header in objects.of("job")})


def last_turn(objects: Objects) -> int:
    """The turn of the last start of a job, 0 if there was none."""
    starts = objects.starts()
    return _number(starts.get(max(starts, default=0)), "turn")


def _number(header: Header | None, name: str) -> int:
    """A number that an object may say; 0 if it does not."""
    value = None if header is None else header.about.get(name)
    return value if type(value) is int else 0


@dataclass(frozen=True)
class Step:
    """One thing to do now: propose an attempt, prepare it, begin it, or stop it and say why."""

    what: str
    job: str
    attempt: int
    turn: int = 0
    why: str = ""


@dataclass
class _Place:
    """A place that is taken. until: when it is given up, once this server is ready."""

    attempt: int
    since: float
    members: tuple[str, ...] = ()
    until: float | None = None
    begun: bool = False
    stopped: bool = False


@dataclass
class _Seen:
    """Time at which a job was seen waiting after its last attempt. factor: random factor of its pause. later: earliest
    start."""

    tried: tuple[int, int, int]
    since: float
    factor: float
    later: float = 0.0


class Scheduler:
    """One server's part of the protocol. Decides only; `job_runner` does what `steps` says and calls `release`
    afterwards.

    Parameters
    ----------
    operators : names of the four servers' operators.
    me : this server's operator.
    proposes : whether this is server 0.
    places : attempts that this server runs at a time.
    others : attempts that each of the other servers runs at a time, as far as known.
    """

    def __init__(
        self,
        operators: Collection[str],
        me: str,
        *,
        proposes: bool,
        places: int,
        others: Callable[[], int | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        random: Callable[[], float] = RANDOM.random,
    ) -> None:
        self.operators = frozenset(operators)
        self.me = me
        self.proposes = proposes
        self.places = places
        self.taken: dict[str, _Place] = {}
        self._others = others
        self._clock = clock
        self._random = random
        self._views: dict[str, View] = {}
        self._open: set[str] = set()
        self._served: Counter[str] = Counter()
        self._seconds: dict[str, float] = {}
        self._queued: frozenset[str] = frozenset()
        self._seen: dict[str, _Seen] = {}
        self._wasted: dict[str, float] = {}
        self._ended_at: dict[str, float] = {}
        self.turn = 0

    # -- what is known -----------------------------------------------------------------------------------------------

    def see(self, view: View) -> None:
        """Take note of where a job stands."""
        job = view.job
        for member in view.members:
            self.started(member, view.turn)
        if not (view.waiting or view.open):
            self.forget(job)
            return
        self._views[job] = view
        if view.open:
            self._open.add(job)
            if view.ended:
                self._ended_at.setdefault(job, self._clock())
        else:
            self._open.discard(job)
            self._ended_at.pop(job, None)
        tried = (view.attempt, view.failures, view.idle)
        if view.waiting and (job not in self._seen or self._seen[job].tried != tried):
            self._seen[job] = _Seen(tried, self._clock(), 0.5 + self._random())

    def started(self, member: str, turn: int) -> None:
        """Take note of the turn of a start of one of a member's jobs."""
        self.turn = max(self.turn, turn)
        self._served[member] = max(self._served[member], turn)

    def forget(self, job: str) -> None:
        """Remove a job that is over, or that cannot run now."""
        for known in (self._views, self._seen, self._ended_at, self._wasted):
            known.pop(job, None)
        self._open.discard(job)

    def _due(self, view: View) -> float:
        """Return the earliest time of the next attempt of a job. The delay grows with each attempt that failed or did
        not begin, and has a random factor.

        An attempt that did not begin kept places from other jobs. Its job then waits at least as long as that took.
        """
        seen, bad = self._seen[view.job], view.failures + view.idle
        pause = min(MAX_RETRY_DELAY, 2.0 ** (bad - 1)) if bad else 0.0
        return max(seen.since + seen.factor * max(pause, self._wasted.get(view.job, 0.0)), seen.later)

    def postpone(self, job: str, seconds: float) -> None:
        """Delay a job that could not be proposed."""
        if job in self._seen:
            self._seen[job].later = self._clock() + seconds

    def release(self, job: str) -> None:
        """Free the place of a job whose worker has ended and whose outcome is published."""
        place = self.taken.pop(job, None)
        if place is not None and place.begun:
            for member in place.members:
                self._seconds[member] = self._seconds.get(member, 0.0) + self._clock() - place.since

    # -- the queue ---------------------------------------------------------------------------------------------------

    def queue(self) -> list[View]:
        """Return the waiting jobs in the order in which they start."""
        under_way = Counter(member for job in self._open for member in self._views[job].members)
        by_member: dict[str, list[View]] = {}
        for view in self._views.values():
            for member in view.members if view.waiting else ():
                by_member.setdefault(member, []).append(view)
        self._join(frozenset(by_member) | under_way.keys())
        ranks: dict[str, tuple[int, int, int, int, str]] = {}
        for member, views in by_member.items():
            views.sort(key=lambda view: (view.place, view.job))
            for rank, view in enumerate(views, under_way[member]):
                units = int(self._seconds[member] // SERVED_UNIT)
                found = (rank, units, self._served[member], view.place, view.job)
                ranks[view.job] = min(found, ranks.get(view.job, found))
        return [self._views[job] for *_, job in sorted(ranks.values())]

    def _join(self, members: frozenset[str]) -> None:
        """Take note of the members with jobs. Those that had none start with the shortest time of those that had."""
        present = [self._seconds[member] for member in members & self._queued]
        start = min(present, default=0.0)
        for member in members - self._queued:
            self._seconds[member] = max(start, self._seconds.get(member, 0.0))
        self._queued = members

    # -- decisions ---------------------------------------------------------------------------------------------------

    def steps(self) -> list[Step]:
        """Return the steps to do now. Every step is returned once."""
        found = [step for job, place in self.taken.items() if (step := self._step(job, place)) is not None]
        found += self._reservations()
        if self.proposes and not found and (proposal := self._proposal()) is not None:
            found.append(proposal)
        return found

    def _step(self, job: str, place: _Place) -> Step | None:
        """Return the next step of an attempt that has a place here."""
        view = self._views.get(job)
        if place.stopped:
            return None
        if view is None or not view.open or view.attempt != place.attempt:
            self._give_up(job, place)
            return Step(STOP, job, place.attempt, why="another server ended the attempt, or the job is over")
        if place.begun:
            return None
        missing = sorted(self.operators - view.ready)
        if not missing:
            place.begun = True
            return Step(BEGIN, job, place.attempt)
        if place.until is None:
            if self.me in view.ready:
                place.until = self._clock() + self._patience(view, self._clock() - place.since)
        elif self._clock() >= place.until:
            self._give_up(job, place)
            return Step(STOP, job, place.attempt, why=f"{' and '.join(missing)} were not ready in time")
        return None

    def _give_up(self, job: str, place: _Place) -> None:
        place.stopped = True
        if job in self._views:
            self._wasted[job] = 0.0 if place.begun else self._clock() - place.since

    def _patience(self, view: View, needed: float) -> float:
        """Seconds to wait for the others. needed: what this server took to get ready; others may be slower."""
        base = PATIENCE * 2.0 ** min(view.idle, MAX_DOUBLINGS) + 2 * needed
        return base * ((1.0 if self.proposes else 1.5) + 0.1 * self._random())

    def _reservations(self) -> list[Step]:
        """Places for open attempts, in the order of their turns."""
        free = self.places - len(self.taken)
        wanted = [self._views[job] for job in self._open if job not in self.taken and not self._views[job].ended]
        found = []
        for view in sorted(wanted, key=lambda view: (view.turn, view.job))[: max(0, free)]:
            self.taken[view.job] = _Place(view.attempt, self._clock(), view.members)
            found.append(Step(PREPARE, view.job, view.attempt))
        return found

    def _proposal(self) -> Step | None:
        now = self._clock()
        places = min([self.places, *([others] if (others := self._others()) is not None else [])])
        under_way = [self._views[job] for job in self._open if now < self._ended_at.get(job, now) + PATIENCE]
        if any(not view.ready >= self.operators for view in under_way) or len(under_way) >= places:
            return None
        if len(self.taken) >= self.places:
            return None
        for view in self.queue():
            if view.job not in self.taken and now >= self._due(view):
                self.turn = min(self.turn + 1, LAST_TURN)
                return Step(PROPOSE, view.job, view.attempt + 1, turn=self.turn)
        return None
