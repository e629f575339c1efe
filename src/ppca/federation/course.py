"""Where a job stands: a pure function of its objects, the federation and the time, the same for every member that has them.

    proposed -> gathering -> ready -> running -> done
                     any of them -> refused | cancelled | expired | failed;  the end -> erased

Nobody's word is taken for it: seats and members compute it themselves, and it always says who is waited for to do what.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

from .jobfile import JobFile
from .objects import Header
from .roster import SEATS, Roster

PROPOSED, GATHERING, READY, RUNNING, DONE = "proposed", "gathering", "ready", "running", "done"
REFUSED, CANCELLED, EXPIRED, FAILED, ERASED = "refused", "cancelled", "expired", "failed", "erased"
ENDS = frozenset({DONE, REFUSED, CANCELLED, EXPIRED, FAILED, ERASED})
FINISHED = "finished"


@dataclass(frozen=True)
class Waiting:
    """Who is waited for, and what it has to do."""

    who: str
    what: str


@dataclass(frozen=True)
class Course:
    """stage: see above. attempt: the number of the last attempt, 0 before the first. why: of a bad end.

    ended: how a job ended that was erased since.
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
        """Whether the result was computed."""
        return DONE in (self.stage, self.ended)


@dataclass
class Objects:
    """The objects of one job, by kind; the first of each author counts where one is enough, of offers the last."""

    headers: list[Header] = field(default_factory=list)

    def of(self, kind: str) -> Iterator[Header]:
        return (header for header in self.headers if header.kind == kind)

    def by(self, kind: str, author: str) -> Header | None:
        found = [header for header in self.of(kind) if header.author == author]
        again = [header for header in found if header.about.get("again") is True]
        return next(iter(again[-1:] or found), None)

    def receipts(self) -> set[tuple[str, str]]:
        """(seat's operator, owner)"""
        return {(header.author, str(header.about.get("owner"))) for header in self.of("receipt")}

    def starts(self) -> dict[int, Header]:
        """Attempt -> its start."""
        found: dict[int, Header] = {}
        for header in self.of("start"):
            found.setdefault(int(header.about["attempt"]), header)
        return found

    def ended(self, attempt: int) -> dict[str, Header]:
        """Operator -> what became of an attempt at its seat."""
        found: dict[str, Header] = {}
        for header in self.of("ended"):
            if header.about["attempt"] == attempt:
                found.setdefault(header.author, header)
        return found


def course_of(job: JobFile, headers: Iterable[Header], roster: Roster, now: datetime) -> Course:
    """Where the job stands."""
    objects = Objects(list(headers))
    end = _end(job, objects, roster, now)
    if end is not None:
        erased = {header.author for header in objects.of("erased") if header.about.get("what") == "job"}
        if set(roster.operators.values()) <= erased:
            return Course(ERASED, end.attempt, why=end.why, ended=end.stage)
        return end
    missing = tuple(_missing(job, objects, roster))
    if missing:
        offers = any(item.what.startswith("offer") for item in missing)
        return Course(PROPOSED if offers else GATHERING, waiting=missing)
    return _under_way(job, objects, roster, now)


def _end(job: JobFile, objects: Objects, roster: Roster, now: datetime) -> Course | None:
    """The end of the job, if it has one."""
    attempt = max(objects.starts(), default=0)
    if attempt:
        ended = objects.ended(attempt)
        operators = set(roster.operators.values())
        if {name for name, header in ended.items() if header.about["outcome"] == FINISHED} >= operators:
            quarrel = _quarrel([ended[roster.operators[seat]] for seat in SEATS])
            return Course(FAILED, attempt, why=quarrel) if quarrel else Course(DONE, attempt)
        final = [header for header in ended.values() if header.about["outcome"] != FINISHED and header.about["final"]]
        if final:
            return Course(FAILED, attempt, why=f"{final[0].author}: {final[0].about['why']}")
    for header in objects.of("refusal"):
        return Course(REFUSED, attempt, why=f"{header.author}: {header.about.get('why') or 'no reason given'}")
    for header in objects.of("cancel"):
        return Course(CANCELLED, attempt, why=f"by {header.author}")
    if now >= job.expires:
        return Course(EXPIRED, attempt, why=f"on {job.expires:%Y-%m-%d %H:%M} UTC")
    return None


def _quarrel(ended: list[Header]) -> str:
    """Where the accounts of the four seats contradict each other: the audits, or what was sent and received."""
    for seat in SEATS:
        for other in range(seat):
            a, b = ended[other], ended[seat]
            names = f"{a.author} and {b.author}"
            if (a.about.get("audit"), a.about.get("rounds")) != (b.about.get("audit"), b.about.get("rounds")):
                return f"the audits of {names} differ; the result is not used"
            for x, y, i, j in ((a, b, other, seat), (b, a, seat, other)):
                if _entry(x.about.get("sent"), j) != _entry(y.about.get("received"), i):
                    return f"{x.author} sent something else than {y.author} received; the result is not used"
    return ""


def _entry(values: object, seat: int) -> object:
    return values[seat] if isinstance(values, list) and len(values) == len(SEATS) else None


def _missing(job: JobFile, objects: Objects, roster: Roster) -> Iterator[Waiting]:
    """Who has not yet done its part before the seats can start."""
    for name in (*roster.operators.values(), *job.receivers):
        if objects.by("offer", name) is None:
            seat = roster.seat_of(name)
            what = "offer a key (ppca approve)" if seat is None else f"offer a key (its server, seat {seat}, does it)"
            yield Waiting(name, what)
    for name in job.approvers:
        if objects.by("approval", name) is None:
            yield Waiting(name, "approve (ppca approve)")
        elif name in job.owners and objects.by("contribution", name) is None:
            yield Waiting(name, "contribute (ppca contribute)")
    receipts = objects.receipts()
    for name in job.owners:
        if objects.by("contribution", name) is not None:
            for operator in roster.operators.values():
                if (operator, name) not in receipts:
                    yield Waiting(operator, f"receive and check the shares of {name} (its server does it)")


def _under_way(job: JobFile, objects: Objects, roster: Roster, now: datetime) -> Course:
    """Everything is there."""
    attempt = max(objects.starts(), default=0)
    if job.not_before is not None and now < job.not_before:
        return Course(READY, waiting=(Waiting("the clock", f"reach {job.not_before:%Y-%m-%d %H:%M} UTC"),))
    ended = objects.ended(attempt) if attempt else {}
    if attempt and not any(header.about["outcome"] != FINISHED for header in ended.values()):
        left = [name for name in roster.operators.values() if name not in ended]
        return Course(
            RUNNING, attempt, tuple(Waiting(name, f"finish attempt {attempt} (its server does it)") for name in left)
        )
    first = roster.operators[SEATS[0]]
    why = "; ".join(f"{name}: {h.about['why']}" for name, h in ended.items() if h.about["outcome"] != FINISHED)
    what = f"start attempt {attempt + 1} (its server does it)" + (
        f" after attempt {attempt} failed ({why})" if why else ""
    )
    return Course(READY, attempt, (Waiting(first, what),))
