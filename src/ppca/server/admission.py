"""Admission of objects to a server's mailbox.

An object is admitted if its author is a member, has signed it, and may write objects of its kind. An object belongs to
one job and has one kind, such as "approval"; see `federation.objects`.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime

from ..federation.errors import FederationError, NotNow, ObjectRefused
from ..federation.headers import is_well_formed
from ..federation.membership import Membership
from ..federation.objects import RECORDS, Object, sha256
from ..federation.proposal import Proposal, ProposedJob
from ..federation.serverfile import Policy
from ..federation.state import JobState, job_state_of
from .mailbox import LOST, SMALL, Mailbox
from .object_rules import WRITERS, chunks_of, refuse_unless, summands_of

MAX_JOB = 1 << 20
"""Maximum number of bytes of a job file."""

MAX_JOB_BYTES, MAX_OPEN_BYTES = 1 << 28, 1 << 23
"""Maximum number of bytes of the job files that one member submitted: of all jobs, and of jobs that are not over.

A server may have to parse the files of jobs that are not over again.
"""

MAX_CONTRIBUTION = 1 << 20
"""Maximum number of bytes of the payload of a contribution, which lists envelopes."""

MAX_OBJECTS = 1 << 14
"""Maximum number of objects of one author for one job. An owner's envelopes have up to 16 MiB each."""

BARE = ("receipt", "start", "ready", "ended", "resume", "erased", "cancel")
"""Kinds of objects without a payload: the header has all their content."""

MAX_ABOUT = 256
"""Maximum number of characters of the field `about` in the header of a member's object. Refusals are exempt."""

PARSED_JOBS = 2048
"""Maximum number of jobs that stay parsed in memory."""

PARSED_BYTES = 64 << 20
"""Maximum number of bytes of the files of the jobs that stay parsed. The parsed jobs take more memory."""

DAY = 86400.0
"""Seconds of a day."""

ONCE = ("approval", "refusal", "contribution", "ended")
"""Kinds of which an author may send one object per job; of `ended`, one per attempt."""


class Admission:
    """Checks objects and stores the admitted ones. Safe for several threads. Recently used jobs stay parsed.

    mailbox: the store of objects. membership: returns the current federation. policy: limits of the operator. at_most:
    maximum number of bytes of the store. now: the clock.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        membership: Callable[[], Membership],
        policy: Policy,
        at_most: int,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.mailbox = mailbox
        self.now = now
        self._membership = membership
        self._policy = policy
        self._at_most = at_most
        self._jobs: dict[str, ProposedJob] = {}
        self._parsed = 0
        self._refused: dict[str, deque[float]] = {}
        self._lock = threading.RLock()

    @property
    def membership(self) -> Membership:
        """The federation in its current revision."""
        return self._membership()

    def job(self, job: str) -> ProposedJob:
        """Return the job with this id. Raise `NotNow` if its file is not stored here."""
        with self._lock:
            known = self._jobs.pop(job, None)
            if known is not None:
                self._jobs[job] = known  # moved to the end: the first job in order is the least recently used one
        if known is None:
            found = (self.mailbox.get(header.digest) for header in self.mailbox.objects(job).of("job"))
            item = next((item for item in found if item is not None), None)
            if item is None:
                raise NotNow(f"job {job[:12]} is not known here. Submit it first.")
            known = ProposedJob(item.payload)
            with self._lock:
                if job not in self._jobs:
                    self._parsed += len(known.data)
                self._jobs[job] = known
                while len(self._jobs) > PARSED_JOBS or (self._parsed > PARSED_BYTES and len(self._jobs) > 1):
                    self._parsed -= len(self._jobs.pop(next(iter(self._jobs))).data)
        return known

    def jobs(self) -> tuple[list[str], list[str]]:
        """Return two lists of job ids: jobs whose files are here, and jobs whose files the disk has lost.

        Other servers still have the lost files.
        """
        found = self.mailbox.job_files()
        return [job for job, here in found if here], [job for job, here in found if not here]

    def forget(self, job: str) -> None:
        """Remove all data about a job that is over and erased."""
        with self._lock:
            if (known := self._jobs.pop(job, None)) is not None:
                self._parsed -= len(known.data)
            self.mailbox.forget(job)

    def job_state(self, job: str) -> JobState:
        """Return the state of a job, computed from the objects stored here."""
        return job_state_of(self.job(job).proposal, self.mailbox.objects(job), self._membership(), self.now())

    def admit(self, item: Object, carrier: str) -> bool:
        """Store an object if it is admissible. Return False if it is here already, or if its job is forgotten.

        carrier: the member or server that sent it. Raise `ObjectRefused`, or `NotNow` if it may be admitted later.
        """
        header, membership = item.header, self._membership()
        state = self.mailbox.state(header.digest)
        if state == LOST:
            return self.mailbox.put(item)  # the digest is equal, so this is the object that was admitted before
        if state is not None:
            return False
        if carrier != header.author and membership.server_of(carrier) is None:
            raise ObjectRefused(
                f"{carrier} sent an object of {header.author}. A member may send its own objects only; a server may send any."
            )
        self._check_author(item, membership, carrier)
        job = self._read(item, carrier)
        with self._lock:  # the checks below still hold when the object is stored
            if self.mailbox.knows(header.digest) or self.mailbox.note(f"forgotten {header.job}") is not None:
                return False
            self.check_quota(header.author, header.size)
            if job is not None:
                self._check_job(item, job, membership, passed_on=membership.server_of(carrier) is not None)
                self._check_rate(header.author)
                self.mailbox.note(f"members {job.id}", " ".join(job.proposal.members))
                self.mailbox.note(f"name {job.id}", job.name)
            else:
                self._check_place(item, self.job(header.job).proposal, membership, carrier)
            return self.mailbox.put(item)

    def _check_author(self, item: Object, membership: Membership, carrier: str) -> None:
        """Refuse an object that the author did not sign with its present key.

        A former key counts only if three conditions hold: the object is a record of a server, its job is of an earlier
        revision, and a server sent it. A stolen key that was replaced can therefore no longer approve or offer a key.
        """
        known = membership.present
        if item.header.kind in RECORDS and membership.server_of(carrier) is not None:
            known = membership.signers_for(self.job(item.header.job).proposal.federation)
        item.check_author(known)

    def check_copied(self, item: Object) -> None:
        """Refuse an object that another server returns after a loss, if its author was not allowed to write it.

        Rules about revisions and time are not applied: the other server applied them when it admitted the object.
        """
        header = item.header
        refuse_unless(is_well_formed(header), header, "it does not say what it must")
        if header.kind == "job":
            refuse_unless(sha256(item.payload) == header.job, header, "its name is not the digest of its file")
            return
        job, server = self.job(header.job).proposal, self._membership().server_of(header.author)
        if header.kind == "envelope":  # each server has only the envelopes that are addressed to it
            refuse_unless(header.author in job.owners, header, "its author is not an owner of this job")
        elif header.kind in WRITERS:
            WRITERS[header.kind](header, item.payload, job, server, self.mailbox.objects(header.job))

    def members(self, job: str) -> frozenset[str]:
        """Return the members that take part in a job or submitted it. The job file is parsed at most once for this."""
        noted = self.mailbox.note(f"members {job}")
        if noted is None:
            noted = self.mailbox.note(f"members {job}", " ".join(self.job(job).proposal.members))
        return frozenset(str(noted).split()) | self.mailbox.submitters(job)

    def name(self, job: str) -> str:
        """Return the name of a job."""
        noted = self.mailbox.note(f"name {job}")
        if noted is None:
            self.mailbox.note(f"name {job}", noted := self.job(job).name)
        return noted

    def _read(self, item: Object, carrier: str) -> ProposedJob | None:
        """Parse or check a payload before the lock is taken. Return the job of a job object, otherwise None.

        The list of a contribution is only checked. An invalid job file counts towards the daily maximum of jobs of its
        author, if the author sent it itself.
        """
        header = item.header
        if header.kind == "contribution":
            refuse_unless(len(item.payload) <= MAX_CONTRIBUTION, header, "it is too long")
            chunks_of(item)
            summands_of(item)
        if header.kind != "job":
            return None
        if self._refusals(header.author) >= self._policy.jobs_per_day:
            raise NotNow(
                f"{header.author} has reached this server's daily maximum of invalid job files. Wait up to 24 hours."
            )
        try:
            if sha256(item.payload) != header.job:
                raise ObjectRefused("the job's name is not the digest of its file")
            if len(item.payload) > MAX_JOB:
                raise ObjectRefused(
                    f"the job file is too large: {len(item.payload):,} bytes. The maximum is {MAX_JOB:,}."
                )
            return ProposedJob(item.payload)
        except Exception as error:
            if carrier == header.author:
                self._refused[header.author].append(time.monotonic())
            if isinstance(error, FederationError):
                raise
            raise ObjectRefused(f"the file of the job cannot be read ({type(error).__name__})") from error

    def _refusals(self, author: str) -> int:
        """Return the number of a member's job files that were refused in the last 24 hours."""
        times = self._refused.setdefault(author, deque(maxlen=self._policy.jobs_per_day))
        while times and times[0] < time.monotonic() - DAY:
            times.popleft()
        return len(times)

    def check_quota(self, author: str, size: int) -> None:
        """Raise `NotNow` if an object of this size does not fit into the store, or exceeds the limit of its author.

        A full store still takes small objects of operators (at most SMALL bytes), up to the limit per member. Large
        objects of operators do not count towards this limit: members request large results, and these must not prevent
        a server from reporting its state.
        """
        small = size <= SMALL and self._membership().server_of(author) is not None
        if not small and self.mailbox.bytes_of() + size > self._at_most:
            raise NotNow("the store of this server is full. Its operator must free space or raise [store] at_most.")
        if self.mailbox.bytes_of(author, small=small) + size > self._policy.bytes_per_member:
            raise NotNow(
                f"{author} has stored as much as this server allows a member. Wait until finished jobs are erased."
            )

    def _check_job(self, item: Object, job: ProposedJob, membership: Membership, *, passed_on: bool) -> None:
        """Refuse a job of another revision, an expired one, and one that its author may not submit.

        passed_on: another server sent the job. It may have admitted the job before its expiry, and under an earlier
        revision. The earlier revision counts if it was in force here, too.
        """
        before = passed_on and self.mailbox.note(f"federation {job.proposal.federation}") is not None
        if job.proposal.federation != membership.digest and not before:
            raise ObjectRefused(
                f"the job is for another revision of the federation; this server has {membership.name}, revision "
                f"{membership.revision} ({membership.digest[:12]})"
            )
        if job.proposal.expires <= self.now() and not passed_on:
            raise ObjectRefused("the job has expired")
        author = item.header.author
        if author not in job.proposal.members and membership.server_of(author) is None:
            raise ObjectRefused(f"{author} is not a member of the job. Only its members and operators can submit it.")
        if author in self.mailbox.submitters(job.id):
            raise ObjectRefused(f"{author} has submitted this job already")
        if job.proposal.federation == membership.digest:
            check_members(job.proposal, membership)

    def _check_rate(self, author: str) -> None:
        """Raise `NotNow` if a member has reached a limit on the number or on the bytes of its jobs."""
        pending = [known for known in self.mailbox.open_jobs_of(author) if not self.job_state(known).over]
        if len(pending) >= self._policy.jobs_per_member:
            raise NotNow(
                f"{author} has {len(pending)} jobs that are not over, the maximum of this server. Wait until one ends."
            )
        if self.mailbox.job_bytes_of(author, still_open=True) > MAX_OPEN_BYTES:
            raise NotNow(
                f"the files of {author}'s jobs that are not over exceed {MAX_OPEN_BYTES:,} bytes. Wait until some end."
            )
        if self.mailbox.job_bytes_of(author) > MAX_JOB_BYTES:
            raise NotNow(f"the files of {author}'s jobs exceed {MAX_JOB_BYTES:,} bytes. Wait until some are erased.")
        if self.mailbox.submitted(author, time.time() - DAY) + self._refusals(author) >= self._policy.jobs_per_day:
            raise NotNow(f"{author} has submitted the daily maximum of jobs of this server. Wait up to 24 hours.")

    def _check_place(self, item: Object, job: Proposal, membership: Membership, carrier: str) -> None:
        """Refuse an object that does not fit the job: its header, its author, its number, or the state of the job."""
        header = item.header
        headers = self.mailbox.objects(header.job)
        refuse_unless(is_well_formed(header), header, "it does not say what it must")
        if headers.count[header.author] >= MAX_OBJECTS:
            raise ObjectRefused(f"{header.author} has sent the maximum of {MAX_OBJECTS:,} objects for this job")
        proves = carrier != header.author and headers.tells_more(
            header
        )  # two contradicting objects: every server needs both
        if header.kind in ONCE and headers.alike(header) and not proves:
            unit = "attempt" if header.kind == "ended" else "job"
            raise ObjectRefused(
                f"duplicate {header.kind} from {header.author}: one was received already. An author sends one "
                f"{header.kind} per {unit}."
            )
        server = membership.server_of(header.author)
        brief = server is not None or header.kind == "refusal" or len(json.dumps(header.about)) <= MAX_ABOUT
        refuse_unless(brief, header, f"the field about of its header has more than {MAX_ABOUT} characters")
        refuse_unless(header.kind not in BARE or not item.payload, header, "it must not have a payload")
        if header.kind in WRITERS:
            WRITERS[header.kind](header, item.payload, job, server, headers)
        if header.kind not in ("erased", "audit", "result", "ended") and self.job_state(header.job).over:
            raise ObjectRefused(f"job {job.name!r} is over")


def check_members(job: Proposal, membership: Membership) -> None:
    """Refuse a job with a name that is not a member, or with a member in a role that it does not have."""
    for name in job.owners:
        if "owner" not in membership.roles(name):
            raise ObjectRefused(f"{name} is not an owner in {membership.name}, revision {membership.revision}")
    for name in job.job.receivers:
        if "receiver" not in membership.roles(name):
            raise ObjectRefused(f"{name} is not a receiver in {membership.name}, revision {membership.revision}")
    for name in job.approvers:
        if name not in membership.keys:
            raise ObjectRefused(
                f"{name} must approve the job, but is not a member of {membership.name}, revision {membership.revision}"
            )
