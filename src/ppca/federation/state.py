"""The state of a job: a function of its objects, the federation and the time, the same for every member that has them.

    proposed -> gathering -> ready <-> running -> done
                               ready <-> held
                     any of them -> refused | cancelled | expired | failed;  the end -> erased

No server is trusted to report the state: servers and members compute it themselves. It lists the members that must act
next.

If an attempt fails for a reason outside the job, the job is ready again after a pause. After several failures, or if
the servers' accounts of an attempt contradict each other, the job is held: an operator must find the cause and resume
it. The job is also held if a server says that it has erased its shares before the end. Nothing is erased meanwhile. A
job fails for good only if a server refuses what the job asks for.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from .headers import BROKEN, FINISHED, WITHDRAWN, is_well_formed
from .membership import SERVERS, Membership
from .objects import Header
from .proposal import Proposal

PROPOSED, GATHERING, READY, RUNNING, DONE = "proposed", "gathering", "ready", "running", "done"
HELD = "held"
REFUSED, CANCELLED, EXPIRED, FAILED, ERASED = "refused", "cancelled", "expired", "failed", "erased"
ENDS = frozenset({DONE, REFUSED, CANCELLED, EXPIRED, FAILED, ERASED})


@dataclass(frozen=True)
class Waiting:
    """A member that must act, and what it must do."""

    actor: str
    what: str


@dataclass(frozen=True)
class JobState:
    """The state of a job. stage: see above. attempt: number of the last attempt, 0 before the first. why: cause of a
    failure.

    ended: the final stage of a job that has been erased since.
    """

    stage: str
    attempt: int = 0
    waiting: tuple[Waiting, ...] = ()
    why: str = ""
    ended: str = ""

    @property
    def over(self) -> bool:
        return self.stage in ENDS

    @property
    def done(self) -> bool:
        """Return whether the result was computed."""
        return DONE in (self.stage, self.ended)


@dataclass
class Objects:
    """The objects of one job, by kind. The order in which they arrived does not matter.

    An author states most things once. If it signed different statements for different servers, all members with both
    statements reach the same conclusion: see `ended` and `contradicts_itself`. Objects without the fields of their kind
    are ignored.
    """

    headers: list[Header] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._kinds: dict[str, list[Header]] = {}
        self.count: Counter[str] = Counter(header.author for header in self.headers)
        for header in sorted(self.headers, key=_digest):
            if is_well_formed(header):
                self._kinds.setdefault(header.kind, []).append(header)

    def add(self, header: Header) -> None:
        """Add an object, in constant time."""
        self.headers.append(header)
        self.count[header.author] += 1
        if is_well_formed(header):
            insort(self._kinds.setdefault(header.kind, []), header, key=_digest)

    def of(self, kind: str) -> Iterator[Header]:
        return iter(self._kinds.get(kind, ()))

    def by(self, kind: str, author: str) -> Header | None:
        return next((header for header in self.of(kind) if header.author == author), None)

    def offer(self, author: str, *, of_server: bool) -> Header | None:
        """Return the key that a member offers as operator of a server, or as receiver or owner; the latest after a
        restore."""
        found = [h for h in self.of("offer") if h.author == author and ("server" in h.about) == of_server]
        return max(found, key=times_before, default=None)

    def receipts(self) -> set[tuple[str, str]]:
        """Return (operator, owner) of the receipts for known contributions. Other receipts do not count."""
        known = {(header.author, header.digest) for header in self.of("contribution")}
        said = ((header.author, header.about["owner"], header.about["contribution"]) for header in self.of("receipt"))
        return {(operator, owner) for operator, owner, digest in said if (owner, digest) in known}

    def contradicts_itself(self, owner: str) -> bool:
        """Return whether an owner has signed different contributions."""
        return sum(header.author == owner for header in self.of("contribution")) > 1

    def erased(self) -> set[str]:
        """Return the operators that say that they have erased their shares of the job."""
        return {header.author for header in self.of("erased") if header.about.get("what") == "job"}

    def starts(self) -> dict[int, Header]:
        """Start object by number of the attempt."""
        found: dict[int, Header] = {}
        for header in self.of("start"):
            found.setdefault(header.about["attempt"], header)
        return found

    def ready(self, attempt: int) -> frozenset[str]:
        """Return the operators whose servers have announced that they are ready for an attempt."""
        return frozenset(header.author for header in self.of("ready") if header.about["attempt"] == attempt)

    def ended(self, attempt: int) -> dict[str, Header]:
        """Return the outcome of an attempt by operator.

        If a server has signed different objects, `finished` counts if it is among them, and its account counts no more.
        Otherwise the attempt failed at this server, and an operator must look.
        """
        said: dict[str, list[Header]] = {}
        for header in self._said_of(attempt):
            said.setdefault(header.author, []).append(header)
        return {author: found[0] if len(found) == 1 else _contradiction(found) for author, found in said.items()}

    def refused_for_good(self, attempt: int) -> list[Header]:
        """Return the objects of servers that gave the job up for good in an attempt, whatever else they signed."""
        final = [header for header in self._said_of(attempt) if _class(header) == FINAL]
        return sorted(final, key=lambda header: header.author)

    def _said_of(self, attempt: int) -> Iterator[Header]:
        return (header for header in self.of("ended") if header.about["attempt"] == attempt)

    def alike(self, header: Header) -> list[Header]:
        """Return the objects in which the same author made a statement about the same subject."""
        found = (known for known in self.of(header.kind) if known.author == header.author)
        if header.kind == "ended":
            return [known for known in found if known.about["attempt"] == header.about["attempt"]]
        return list(found)

    def tells_more(self, header: Header) -> bool:
        """Return whether an object that contradicts another one of its author is needed for the state of the job.

        Two different objects prove the contradiction. Of ends of an attempt, one more of each class counts: `finished`,
        given up for good, anything else. Servers that pass on what they take in therefore compute the same state,
        whatever an author signed for which of them and in whichever order it arrives; a server has at most four such
        objects of an author.
        """
        known = self.alike(header)
        if header.kind == "ended":
            return len(known) < 2 or _class(header) not in {_class(each) for each in known}
        return header.kind == "contribution" and len(known) < 2


FINAL, OTHER = "final", "other"
CONTRADICTION = "its server has signed contradicting objects about this attempt"


def _class(ended: Header) -> str:
    """Return the class of an `ended` object: FINISHED, FINAL (the job is given up for good) or OTHER."""
    if ended.about["outcome"] == FINISHED:
        return FINISHED
    return FINAL if ended.about["final"] else OTHER


def _contradiction(found: list[Header]) -> Header:
    """Return the outcome that contradicting objects of one server about one attempt count as, from their classes
    only."""
    outcome = FINISHED if FINISHED in map(_class, found) else BROKEN
    about = {"attempt": found[0].about["attempt"], "outcome": outcome, "final": False, "why": CONTRADICTION}
    return replace(found[0], about=about | {"hold": True, "contradiction": True}, digest="", size=0)


def _digest(header: Header) -> str:
    return header.digest


def may_become_done(objects: Objects, operator: str) -> bool:
    """Return whether a server has finished an attempt. If so, the others may have finished it too, whatever they
    say."""
    ended = (objects.ended(attempt).get(operator) for attempt in objects.starts())
    return any(header is not None and header.about["outcome"] == FINISHED for header in ended)


def times_before(offer: Header) -> int:
    """Return how often the author of an offer had offered a key for this job before."""
    return again if type(again := offer.about.get("again")) is int else 0


def job_state_of(job: Proposal, headers: Iterable[Header] | Objects, membership: Membership, now: datetime) -> JobState:
    """Return the state of a job."""
    objects = headers if isinstance(headers, Objects) else Objects(list(headers))
    end = _end(job, objects, membership, now)
    if end is not None:
        if set(membership.operators.values()) <= objects.erased():
            return JobState(ERASED, end.attempt, why=end.why, ended=end.stage)
        return end
    erased = sorted(objects.erased() & set(membership.operators.values()))
    if erased:  # the job cannot go on without them; the other servers keep theirs
        why = f"{' and '.join(erased)}: the server says that it has erased its shares before the job ended"
        what = "cancel the job (ppca job cancel) and submit it again"
        return JobState(HELD, max(objects.starts(), default=0), (Waiting("an owner", what),), why=why)
    waiting = tuple(missing(job, objects, membership))
    if waiting:
        offers = any(item.what.startswith("offer") for item in waiting)
        return JobState(PROPOSED if offers else GATHERING, waiting=waiting)
    return _under_way(job, objects, membership, now)


def _end(job: Proposal, objects: Objects, membership: Membership, now: datetime) -> JobState | None:
    """Return the final state of the job, or None. A job that is done stays done, whatever arrives later."""
    starts, operators = objects.starts(), set(membership.operators.values())
    last = max(starts, default=0)
    then = membership.of_job(job.federation)  # a later revision may have other operators, or give them other numbers
    # The last attempt that all four servers finished is the one that they published: honest servers begin none after
    # it. An earlier one can look finished later, if one server signs another object about it.
    for attempt in sorted(starts, reverse=True):
        ended = objects.ended(attempt)
        if _all_finished(ended, then.operators.values()) and not _quarrel(ended, then):
            return JobState(DONE, attempt)
    for attempt in sorted(starts):
        said = objects.ended(attempt)
        for header in objects.refused_for_good(attempt):
            if header.author in operators:
                return JobState(FAILED, attempt, why=f"{header.author}: {said[header.author].about['why']}")
    for header in sorted(objects.of("refusal"), key=lambda header: header.author):
        if header.author in operators or header.author in job.members:
            return JobState(REFUSED, last, why=f"{header.author}: {header.about.get('why') or 'no reason given'}")
    for owner in job.owners:
        if objects.contradicts_itself(owner):
            return JobState(REFUSED, last, why=f"{owner} has signed different contributions for different servers")
    submitters = {header.author for header in objects.of("job")}
    for header in sorted(objects.of("cancel"), key=lambda header: header.author):
        if header.author in submitters or header.author in job.owners:
            return JobState(CANCELLED, last, why=f"by {header.author}")
    if now >= job.expires or operators <= objects.erased():
        return JobState(EXPIRED, last, why=f"on {job.expires:%Y-%m-%d %H:%M} UTC")
    return None


def _all_finished(ended: Mapping[str, Header], operators: Collection[str]) -> bool:
    return {name for name, header in ended.items() if header.about["outcome"] == FINISHED} >= set(operators)


def _quarrel(said: Mapping[str, Header], membership: Membership) -> str:
    """Return how the accounts of the four servers contradict each other, or None: audits, or bytes sent and
    received."""
    ended = [said[membership.operators[server]] for server in SERVERS]
    for server in SERVERS:
        for other in range(server):
            a, b = ended[other], ended[server]
            if a.about.get("contradiction") or b.about.get("contradiction"):
                continue
            names = f"{a.author} and {b.author}"
            if (a.about.get("audit"), a.about.get("rounds")) != (b.about.get("audit"), b.about.get("rounds")):
                return f"the audits of {names} differ; the result is not used"
            for x, y, i, j in ((a, b, other, server), (b, a, server, other)):
                if _entry(x.about.get("sent"), j) != _entry(y.about.get("received"), i):
                    return f"{x.author} sent another number of bytes than {y.author} received; the result is not used"
    return ""


def _entry(values: object, server: int) -> object:
    return values[server] if isinstance(values, list) and len(values) == len(SERVERS) else None


def missing(job: Proposal, objects: Objects, membership: Membership) -> Iterator[Waiting]:
    """Yield the members that must act before the servers can start."""
    for server, name in sorted(membership.operators.items()):
        if objects.offer(name, of_server=True) is None:
            yield Waiting(name, f"offer a key (its server, server {server}, does it)")
    for name in job.job.receivers:
        if objects.offer(name, of_server=False) is None:
            yield Waiting(name, "offer a key (ppca approve)")
    for name in job.approvers:
        if objects.by("approval", name) is None:
            yield Waiting(name, "approve (ppca approve)")
        elif name in job.owners and objects.by("contribution", name) is None:
            yield Waiting(name, "contribute (ppca contribute)")
    receipts = objects.receipts()
    for name in job.owners:
        if objects.by("contribution", name) is not None:
            for operator in membership.operators.values():
                if (operator, name) not in receipts:
                    yield Waiting(operator, f"receive and check the shares of {name} (its server does it)")


@dataclass(frozen=True)
class Attempts:
    """Summary of the attempts of a job.

    last: number of the last attempt, 0 before the first. open: no server has ended it. ready: servers that are ready
    for it.
    failures, idle: attempts that failed, and that did not begin on all servers, since an operator last resumed the job.
    why: what servers said of the last one. broke: whether it failed, and not only did not begin. held: whether an
    operator must resume the job.
    """

    last: int = 0
    open: bool = False
    ready: frozenset[str] = frozenset()
    failures: int = 0
    idle: int = 0
    why: str = ""
    broke: bool = False
    held: bool = False

    @classmethod
    def of(cls, objects: Objects, membership: Membership, before: int | None = None) -> Attempts:
        """Summarise the attempts in the objects of a job. before: ignore attempts from this number on."""
        operators = set(membership.operators.values())
        resumed = max((h.about["attempt"] for h in objects.of("resume") if h.author in operators), default=0)
        numbers = sorted(number for number in objects.starts() if before is None or number < before)
        failures = idle = 0
        ended: dict[str, Header] = {}
        broke, quarrel = False, ""
        for number in numbers:
            ended = {name: h for name, h in sorted(objects.ended(number).items()) if name in operators}
            quarrel = _quarrel(ended, membership) if _all_finished(ended, operators) else ""
            said = {header.about["outcome"] for header in ended.values()}
            broke = BROKEN in said or bool(quarrel)
            if number > resumed:
                failures += broke
                idle += not broke and WITHDRAWN in said
        bad = {name: header for name, header in ended.items() if header.about["outcome"] != FINISHED}
        worst = {name: header for name, header in bad.items() if header.about["outcome"] == BROKEN} or bad
        last = max(numbers, default=0)
        still = bool(last) and not bad and not quarrel
        return cls(
            last=last,
            open=still,
            ready=objects.ready(last) if still else frozenset(),
            failures=failures,
            idle=idle,
            why=quarrel or "; ".join(f"{name}: {header.about['why']}" for name, header in worst.items()),
            broke=broke,
            held=last > resumed and (bool(quarrel) or any(h.about.get("hold") is True for h in bad.values())),
        )


def _under_way(job: Proposal, objects: Objects, membership: Membership, now: datetime) -> JobState:
    """Return the state of a job for which all approvals and contributions have arrived."""
    if job.not_before is not None and now < job.not_before:
        return JobState(READY, waiting=(Waiting("the clock", f"reach {job.not_before:%Y-%m-%d %H:%M} UTC"),))
    attempts = Attempts.of(objects, membership)
    number, operators = attempts.last, list(membership.operators.values())
    if attempts.open and attempts.ready >= set(operators):
        ended = objects.ended(number)
        left = [name for name in operators if name not in ended]
        return JobState(
            RUNNING, number, tuple(Waiting(name, f"finish attempt {number} (its server does it)") for name in left)
        )
    if attempts.open:
        late = [name for name in operators if name not in attempts.ready]
        return JobState(
            READY, number, tuple(Waiting(name, f"be ready for attempt {number} (its server does it)") for name in late)
        )
    if attempts.held:
        what = f"find out why attempt {number} failed, then resume the job (ppca job resume)"
        return JobState(HELD, number, (Waiting("an operator", what),), why=f"needs an operator: {attempts.why}")
    first = membership.operators[SERVERS[0]]
    what = f"start attempt {number + 1} (its server does it)"
    if attempts.why:
        how = "failed" if attempts.broke else "did not begin on all servers"
        what += f" after attempt {number} {how} ({attempts.why})"
    return JobState(READY, number, (Waiting(first, what),))
