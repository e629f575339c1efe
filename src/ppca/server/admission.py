"""Admission of objects to a server's mailbox: the author must be a member, have signed it, and be allowed to write its
kind."""

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
MAX_JOB_BYTES, MAX_OPEN_BYTES = 1 << 28, 1 << 23
"""Bytes of the job files of one member, all of them and those of jobs that are not over, which a server parses now and
then."""

MAX_CONTRIBUTION = 1 << 20
MAX_OBJECTS = 1 << 14
"""Objects of one author for one job: an owner's envelopes are 16 MiB each."""


BARE = ("receipt", "start", "ready", "ended", "resume", "erased", "cancel")
"""Kinds that say everything in their header."""

MAX_ABOUT = 256
"""Characters of what a member's object says in its header, other than a refusal."""

PARSED_JOBS = 2048
"""Jobs that stay parsed, and"""

PARSED_BYTES = 64 << 20
"""the bytes of their files together: what is parsed takes more."""

DAY = 86400.0
ONCE = ("approval", "refusal", "contribution", "ended")
"""An author says these once; an `ended` once for each attempt."""


class Admission:
    """Checks objects one at a time, from any thread; jobs it has read lately stay parsed."""

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
        """The federation as it is now."""
        return self._membership()

    def job(self, job: str) -> ProposedJob:
        """Return a job whose object is stored here."""
        with self._lock:
            known = self._jobs.pop(job, None)
            if known is not None:
                self._jobs[job] = known  # the last one in order is the one used last
        if known is None:
            found = (self.mailbox.get(header.digest) for header in self.mailbox.objects(job).of("job"))
            item = next((item for item in found if item is not None), None)
            if item is None:
                raise NotNow(f"job {job[:12]} is not known here; submit it first")
            known = ProposedJob(item.payload)
            with self._lock:
                if job not in self._jobs:
                    self._parsed += len(known.data)
                self._jobs[job] = known
                while len(self._jobs) > PARSED_JOBS or (self._parsed > PARSED_BYTES and len(self._jobs) > 1):
                    self._parsed -= len(self._jobs.pop(next(iter(self._jobs))).data)
        return known

    def jobs(self) -> tuple[list[str], list[str]]:
        """The jobs whose files are here, and those whose files the disk is known to have lost: other servers have
        them."""
        found = self.mailbox.job_files()
        return [job for job, here in found if here], [job for job, here in found if not here]

    def forget(self, job: str) -> None:
        """A job that is over, erased, and not to be known any more."""
        with self._lock:
            if (known := self._jobs.pop(job, None)) is not None:
                self._parsed -= len(known.data)
            self.mailbox.forget(job)

    def job_state(self, job: str) -> JobState:
        return job_state_of(self.job(job).proposal, self.mailbox.objects(job), self._membership(), self.now())

    def admit(self, item: Object, carrier: str) -> bool:
        """Store an object that may be here; False if it is here already. `carrier`: the member that brought it."""
        header, membership = item.header, self._membership()
        state = self.mailbox.state(header.digest)
        if state == LOST:
            return self.mailbox.put(item)  # it has this digest, so it is what was admitted before
        if state is not None:
            return False
        if carrier != header.author and membership.server_of(carrier) is None:
            raise ObjectRefused(f"{carrier} brings an object of {header.author}: members bring their own, servers any")
        self._check_author(item, membership, carrier)
        job = self._read(item, carrier)
        with self._lock:  # what was checked still holds when it is stored
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
        """Refuse what the author did not sign with its present key.

        A former key counts for records of servers only, in jobs of an earlier revision, and only if a server brings
        them. A key that was replaced because it was stolen can then not agree to anything, or offer a key, any more.
        """
        known = membership.present
        if item.header.kind in RECORDS and membership.server_of(carrier) is not None:
            known = membership.signers_for(self.job(item.header.job).proposal.federation)
        item.check_author(known)

    def check_copied(self, item: Object) -> None:
        """Refuse an object that another server gives back, if its author may not have written it.

        The rules of revision and time are left out: the other server admitted it in its time.
        """
        header = item.header
        refuse_unless(is_well_formed(header), header, "it does not say what it must")
        if header.kind == "job":
            refuse_unless(sha256(item.payload) == header.job, header, "its name is not the digest of its file")
            return
        job, server = self.job(header.job).proposal, self._membership().server_of(header.author)
        if header.kind == "envelope":  # one server has some of an owner's envelopes, another one the others
            refuse_unless(header.author in job.owners, header, "its author is not an owner of this job")
        elif header.kind in WRITERS:
            WRITERS[header.kind](header, item.payload, job, server, self.mailbox.objects(header.job))

    def members(self, job: str) -> frozenset[str]:
        """The members that have a part in a job, or submitted it. A large file is not parsed again for this."""
        noted = self.mailbox.note(f"members {job}")
        if noted is None:
            noted = self.mailbox.note(f"members {job}", " ".join(self.job(job).proposal.members))
        return frozenset(str(noted).split()) | self.mailbox.submitters(job)

    def name(self, job: str) -> str:
        """The name of a job, for people."""
        noted = self.mailbox.note(f"name {job}")
        if noted is None:
            self.mailbox.note(f"name {job}", noted := self.job(job).name)
        return noted

    def _read(self, item: Object, carrier: str) -> ProposedJob | None:
        """Parse a payload before the lock is taken: the job of a job object; what a contribution lists is only checked.

        A member that brings files that are refused has spent them: they count as jobs of its day.
        """
        header = item.header
        if header.kind == "contribution":
            refuse_unless(len(item.payload) <= MAX_CONTRIBUTION, header, "it is too long")
            chunks_of(item)
            summands_of(item)
        if header.kind != "job":
            return None
        if self._refusals(header.author) >= self._policy.jobs_per_day:
            raise NotNow(f"{header.author} has reached this server's daily maximum of invalid job files")
        try:
            if sha256(item.payload) != header.job:
                raise ObjectRefused("the job's name is not the digest of its file")
            if len(item.payload) > MAX_JOB:
                raise ObjectRefused(
                    f"the file of the job has {len(item.payload):,} bytes; at most {MAX_JOB:,} are read"
                )
            return ProposedJob(item.payload)
        except Exception as error:
            if carrier == header.author:
                self._refused[header.author].append(time.monotonic())
            if isinstance(error, FederationError):
                raise
            raise ObjectRefused(f"the file of the job cannot be read ({type(error).__name__})") from error

    def _refusals(self, author: str) -> int:
        """Files of a member that were refused in the last day."""
        times = self._refused.setdefault(author, deque(maxlen=self._policy.jobs_per_day))
        while times and times[0] < time.monotonic() - DAY:
            times.popleft()
        return len(times)

    def check_quota(self, author: str, size: int) -> None:
        """Refuse for now what does not fit into the store.

        A full store still takes small objects of operators, up to the bytes that every member may store. Large ones do
        not count for that: results are large because members ask for them, and must not keep a server from saying what
        it does.
        """
        small = size <= SMALL and self._membership().server_of(author) is not None
        if not small and self.mailbox.bytes_of() + size > self._at_most:
            raise NotNow("the store of this server is full; its operator must free space or raise [store] at_most")
        if self.mailbox.bytes_of(author, small=small) + size > self._policy.bytes_per_member:
            raise NotNow(f"{author} has stored as much as this server allows a member; wait for erasures")

    def _check_job(self, item: Object, job: ProposedJob, membership: Membership, *, passed_on: bool) -> None:
        """passed_on: by another server, which may have taken it under a revision that was in force here, too,
        before."""
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
            raise ObjectRefused(
                f"{author} is not a member of the job; only an owner, a receiver or an operator can submit it"
            )
        if author in self.mailbox.submitters(job.id):
            raise ObjectRefused(f"{author} has submitted this job already")
        if job.proposal.federation == membership.digest:
            check_members(job.proposal, membership)

    def _check_rate(self, author: str) -> None:
        pending = [known for known in self.mailbox.open_jobs_of(author) if not self.job_state(known).over]
        if len(pending) >= self._policy.jobs_per_member:
            raise NotNow(f"{author} has {len(pending)} jobs under way, as many as this server allows")
        if self.mailbox.job_bytes_of(author, still_open=True) > MAX_OPEN_BYTES:
            raise NotNow(
                f"the files of {author}'s open jobs take more than {MAX_OPEN_BYTES:,} bytes here; wait until some end"
            )
        if self.mailbox.job_bytes_of(author) > MAX_JOB_BYTES:
            raise NotNow(f"the files of {author}'s jobs take more than {MAX_JOB_BYTES:,} bytes here; wait for erasures")
        if self.mailbox.submitted(author, time.time() - DAY) + self._refusals(author) >= self._policy.jobs_per_day:
            raise NotNow(f"{author} has submitted as many jobs as this server allows in a day")

    def _check_place(self, item: Object, job: Proposal, membership: Membership, carrier: str) -> None:
        header = item.header
        headers = self.mailbox.objects(header.job)
        refuse_unless(is_well_formed(header), header, "it does not say what it must")
        if headers.count[header.author] >= MAX_OBJECTS:
            raise ObjectRefused(f"{header.author} has left as many objects as there may be for one job")
        proves = carrier != header.author and headers.tells_more(header)  # from another server: both must know it
        if header.kind in ONCE and headers.alike(header) and not proves:
            raise ObjectRefused(
                f"duplicate {header.kind} from {header.author}: already received. A member sends one {header.kind} per job"
            )
        server = membership.server_of(header.author)
        brief = server is not None or header.kind == "refusal" or len(json.dumps(header.about)) <= MAX_ABOUT
        refuse_unless(brief, header, f"its header says more than {MAX_ABOUT} characters")
        refuse_unless(header.kind not in BARE or not item.payload, header, "it has a payload")
        if header.kind in WRITERS:
            WRITERS[header.kind](header, item.payload, job, server, headers)
        if header.kind not in ("erased", "audit", "result", "ended") and self.job_state(header.job).over:
            raise ObjectRefused(f"job {job.name!r} is over")


def check_members(job: Proposal, membership: Membership) -> None:
    """Refuse a job of members that there are not, or in roles that they do not have."""
    for name in job.owners:
        if "owner" not in membership.roles(name):
            raise ObjectRefused(f"{name} is not an owner in {membership.name}, revision {membership.revision}")
    for name in job.job.receivers:
        if "receiver" not in membership.roles(name):
            raise ObjectRefused(f"{name} is not a receiver in {membership.name}, revision {membership.revision}")
    for name in job.approvers:
        if name not in membership.keys:
            raise ObjectRefused(
                f"{name} must approve and is not a member of {membership.name}, revision {membership.revision}"
            )
