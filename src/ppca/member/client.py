"""Client of a federation member: the operations of owners and receivers.

Everything is checked here. The client relies only on what a server has signed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self, TypeVar

from ..federation.approval_text import in_words, nature_in_words
from ..federation.earlier_jobs import together
from ..federation.errors import FederationError, NotReached, ObjectRefused
from ..federation.identity import Identity
from ..federation.membership import SERVERS, Membership
from ..federation.objects import Header, Object, sha256
from ..federation.proposal import ProposedJob
from ..federation.sealing import seal
from ..federation.state import HELD, JobState, Objects, job_state_of
from ..jobs.checks import is_digest
from .connections import ServerConnections
from .local_state import MemberState, default_folder

T = TypeVar("T")
MAX_UNKNOWN = 20
"""Maximum number of ids without a job in the list of a server. The rest of the list is then ignored."""

Told = Callable[[str, float | None], None]


class MemberClient:
    """One member of a federation, with its identity and what it remembers."""

    def __init__(self, membership: Membership, identity: Identity, state: Path | None = None) -> None:
        membership.check_identity(identity)
        self.membership = membership
        self.identity = identity
        self.servers = ServerConnections(membership, identity)
        self.state = MemberState(state or default_folder(membership.name, identity.name))
        self.state.revisions.take(membership)

    @classmethod
    def open(cls, federation: Path | str, identity: Path | str, state: Path | None = None) -> Self:
        return cls(Membership.trusted(Path(federation)), Identity.load(Path(identity)), state)

    @property
    def name(self) -> str:
        return self.identity.name

    def close(self) -> None:
        self.servers.close()

    # -- jobs --------------------------------------------------------------------------------------------------------

    def find(self, what: str | Path) -> ProposedJob:
        """Return a job by its file, its id, the beginning of its id, or its name (the last job of that name)."""
        path = Path(what)
        if path.is_file() or (path / "job.toml").is_file():
            return ProposedJob.load(path)
        text = str(what)
        if is_digest(text):  # whatever servers list, a job is found by its whole id
            return self.description(text)
        found = [
            job for job, _ in self.jobs(lambda told: told["id"].startswith(text) or told["name"] == text)
            if job.id.startswith(text) or job.name == text
        ]  # fmt: skip
        if not found:
            raise FederationError(
                f"there is no job {text!r} that {self.name} has a part in, and no such file. Give "
                "its whole id if you have it."
            )
        if len(found) > 1:
            named = ", ".join(sorted(job.id[:12] for job in found))
            raise FederationError(f"several jobs are called {text!r}: {named}. Give the id.")
        return found[0]

    def jobs(
        self, wanted: Callable[[dict[str, Any]], bool] = lambda told: True
    ) -> Iterator[tuple[ProposedJob, dict[str, Any]]]:
        """Yield the jobs of this member, each with the description by a server (`ServerConnections.jobs`).

        Ids that stand for no job are left out. After several of them the rest of the list is, too.
        """
        unknown = 0
        for told in filter(wanted, self.servers.jobs()):
            try:
                yield self.description(told["id"]), told
            except NotReached:
                raise
            except FederationError:
                unknown += 1
                if unknown == MAX_UNKNOWN:
                    return

    def description(self, job: str) -> ProposedJob:
        """Return the file of a job, as its submitter signed it."""
        headers = [h for h in self.servers.headers(job) if h.kind == "job"] if is_digest(job) else []
        files = (self.servers.get(header).payload for header in headers)
        found = next((data for data in files if sha256(data) == job), None)
        if found is None:
            raise FederationError(f"job {job[:12]} is not known to the servers")
        return ProposedJob(found)

    def first(self, headers: Iterable[Header], *, present: bool = False) -> Object | None:
        """Return the first object of several headers that a server has and its author signed. Headers can be invented.

        present: only objects that the author signed with its present key.
        """
        for header in headers:
            with suppress(NotReached, ObjectRefused):
                return self._present(header) if present else self.servers.get(header)
        return None

    def audits(self, job: ProposedJob, headers: Iterable[Header], attempt: int) -> dict[str, dict[str, Any]]:
        """Return the signed audit of an attempt by operator. Malformed audits are left out."""
        mine = [header for header in headers if header.kind == "audit" and header.about.get("attempt") == attempt]
        found = {}
        for operator in self.membership.of_job(job.proposal.federation).operators.values():
            item = self.first(header for header in mine if header.author == operator)
            with suppress(ObjectRefused):
                if item is not None and is_audit(content := item.json()):
                    found[operator] = content
        return found

    def objects(self, job: ProposedJob) -> Objects:
        return Objects(self.servers.headers(job.id))

    def job_state(self, job: ProposedJob, headers: list[Header] | None = None) -> JobState:
        """Return the state of a job, computed here from its objects."""
        found = self.servers.headers(job.id) if headers is None else headers
        return job_state_of(job.proposal, found, self.membership, datetime.now(UTC))

    def _make(self, kind: str, job: str, payload: bytes = b"", **about: Any) -> Object:
        return Object.make(self.identity, kind, job, payload, **about)

    # -- verbs -------------------------------------------------------------------------------------------------------

    def submit(self, job: ProposedJob) -> None:
        """Submit a job to all members. Can be repeated."""
        if job.proposal.federation != self.membership.digest:
            raise FederationError(
                f"{job.name!r} is for another revision of the federation; make it again with ppca job new."
            )
        self.servers.put_everywhere(self._make("job", job.id, job.data))
        if self.name in job.spec.receivers:
            self._offer(job)

    def _offer(self, job: ProposedJob) -> None:
        if self.objects(job).offer(self.name, of_server=False) is not None:
            return
        try:
            public = self.state.make_key(job.id).public
            self.servers.put_everywhere(self._make("offer", job.id, public, receiver=self.name))
        except ObjectRefused:
            if not self.job_state(job).over:  # servers may have refused the job by now, which `status` tells
                raise

    def words(self, job: ProposedJob) -> tuple[list[str], list[str]]:
        """Return the openings list of a job, and what it reveals together with jobs that this member approved
        before."""
        earlier = [(old.name, old.spec) for old in self.state.approvals() if old.id != job.id]
        return in_words(job.spec), [*nature_in_words(job.spec), *together(job.spec, earlier, self.name)]

    def approve(self, job: ProposedJob) -> None:
        """Approve exactly this file. A receiver also offers its key for the result."""
        self._check_revision(job)
        if self.name not in job.proposal.members:
            raise FederationError(f"{self.name} is not an approver of {job.name!r}; there is nothing to approve.")
        headers = self.objects(job)
        if next(headers.of("job"), None) is None:
            raise FederationError(f"{job.name!r} was not submitted yet, or was changed since: ppca job submit.")
        if self.name in job.proposal.approvers:
            self.state.approved(job)  # first: later jobs are compared with it even if this command is interrupted
            if headers.by("approval", self.name) is None:
                self.servers.put_everywhere(self._make("approval", job.id))
        if self.name in job.spec.receivers or (job.spec.data.by_columns and self.name in job.proposal.owners):
            self._offer(job)

    def _check_revision(self, job: ProposedJob) -> None:
        """Refuse a job of a revision of the federation that is newer than this member's file, or that it has never
        used.

        An old file can hold keys of operators that were replaced because they were stolen.
        """
        if not self.state.revisions.has_used(job.proposal.federation):
            raise FederationError(
                f"{job.name!r} is for a revision of the federation that you have not used; your file has revision "
                f"{self.membership.revision}. Get the present file from an operator, or have the job proposed again."
            )

    def refuse(self, job: ProposedJob, why: str) -> None:
        self.servers.put_everywhere(self._make("refusal", job.id, why=why))

    def cancel(self, job: ProposedJob) -> None:
        self.servers.put_everywhere(self._make("cancel", job.id))

    def resume(self, job: ProposedJob) -> None:
        """Resume a job that is held. For operators."""
        if self.membership.server_of(self.name) is None:
            raise FederationError(
                f"{self.name} is not an operator in {self.membership.name}; only operators resume a job."
            )
        job_state = self.job_state(job)
        if job_state.stage != HELD:
            raise FederationError(f"{job.name!r} is {job_state.stage}, not held: there is nothing to resume.")
        self.servers.put_everywhere(self._make("resume", job.id, attempt=job_state.attempt))

    # -- contributing ------------------------------------------------------------------------------------------------

    def server_keys(self, job: ProposedJob) -> list[bytes]:
        """Return the keys that the four servers offer for this job."""
        objects = self.objects(job)
        keys = []
        for server in SERVERS:
            header = objects.offer(self.membership.operators[server], of_server=True)
            if header is None:
                why = self.job_state(job).why or "it has not answered yet"
                raise FederationError(
                    f"server {server} ({self.membership.operators[server]}) offers no key for {job.name!r}: {why}."
                )
            keys.append(self._present(header).payload)
        return keys

    def check_may_contribute(self, job: ProposedJob) -> None:
        """Reject impossible contributions before a table is read."""
        self._check_revision(job)
        if self.name not in job.proposal.owners:
            raise FederationError(f"{self.name} is not an owner of {job.name!r}.")
        objects = self.objects(job)
        if objects.by("approval", self.name) is None:
            raise FederationError(
                f"{self.name} has not approved {job.name!r}: read and approve it first (ppca approve)."
            )
        job_state = self.job_state(job, objects.headers)
        if job_state.over:
            raise FederationError(f"{job.name!r} is over: {job_state.stage} {job_state.why}".rstrip() + ".")
        if objects.by("contribution", self.name) is not None:
            self.state.outbox(job.id).clear()  # all of it has arrived: the contribution goes last
            raise FederationError(f"{self.name} has contributed to {job.name!r} already.")
        signed = self.state.contribution(job.id)
        if (
            signed is not None
            and signed.is_signed_by(self.membership.signers)
            and not self.state.outbox(job.id).complete
        ):
            self.servers.put_everywhere(signed)
            raise FederationError(
                f"{self.name} has contributed to {job.name!r} already. The servers that were reached did not list the "
                "contribution, and have it again now."
            )

    def group_key(self, job: ProposedJob, patience: float, told: Told | None = None) -> bytes:
        """Return the key of the tags of column owners. The first owner makes it and seals it to each other owner."""
        owners = job.proposal.owners
        if self.name == owners[0]:
            return self._make_group_key(job, patience, told)
        key = self.state.key(job.id)
        if key is None:
            raise FederationError(
                f"the key of {self.name} for {job.name!r} is not in {self.state.folder}; approve again."
            )
        item = self._await(
            lambda: self._group_for(job, self.name),
            patience,
            f"{owners[0]}, the first owner, to contribute: it makes the key that ids are joined by",
            told,
        )
        return key.open(item.payload, **_group_info(job, self.name))

    def _present(self, header: Header) -> Object:
        """Return an object that its author signed with its present key. Objects that carry keys need that."""
        item = self.servers.get(header)
        item.check_author(self.membership.present)
        return item

    def _group_for(self, job: ProposedJob, owner: str) -> Object | None:
        """Return the object in which the first owner has sealed the key for another owner, or None."""
        found = (h for h in self.servers.headers(job.id) if (h.kind, h.author) == ("group", job.proposal.owners[0]))
        return self.first((h for h in found if h.about.get("to") == owner), present=True)

    def _make_group_key(self, job: ProposedJob, patience: float, told: Told | None) -> bytes:
        import secrets

        stored = self.state.folder / f"{job.id}.group"
        if not stored.exists():
            from ..runtime.files import write_whole

            write_whole(stored, secrets.token_bytes(16), 0o600)
        group = stored.read_bytes()
        for other in job.proposal.owners[1:]:
            header = self._await(
                lambda other=other: self.objects(job).offer(other, of_server=False),  # type: ignore[misc]
                patience,
                f"{other} to approve: the key that ids are joined by is sealed to its offer",
                told,
            )
            public = self._present(header).payload
            if self._group_for(job, other) is None:
                sealed = seal(group, public, **_group_info(job, other))
                self.servers.put_everywhere(self._make("group", job.id, sealed, to=other))
        return group

    def _await(self, look: Callable[[], T | None], patience: float, what: str, told: Told | None) -> T:
        deadline = time.monotonic() + patience
        while True:
            found = look()
            if found is not None:
                return found
            if time.monotonic() > deadline:
                raise FederationError(f"still waiting for {what}. Run the command again later.")
            if told is not None:
                told(f"waiting for {what}", None)
            time.sleep(0.5)

    def send(self, job: ProposedJob, told: Told | None = None) -> int:
        """Send the outbox of a job, continuing an interrupted upload; return its bytes.

        The contribution goes to every server, so that no server alone can hold it back. It is kept, and no other one is
        signed: a server that held it back could show both, and the job would end by the name of this owner.
        """
        outbox = self.state.outbox(job.id)
        total, done = outbox.bytes(), 0
        for item in outbox.items():
            if item.header.kind == "envelope":
                self.servers.put(item, item.header.about["to"])
            else:
                self.state.contributed(job.id, item)
                self.servers.put_everywhere(item)
            done += len(item.data)
            if told is not None:
                told("upload", min(1.0, done / total))
        outbox.clear()
        return done

    # -- watching ----------------------------------------------------------------------------------------------------

    def watch(
        self, job: ProposedJob, patience: float | None = None
    ) -> Iterator[tuple[JobState, dict[str, Any] | None]]:
        """Yield the state of a job whenever it changes, with the progress of a running attempt, until the job ends."""
        deadline = None if patience is None else time.monotonic() + patience
        last: tuple[JobState, Any] | None = None
        while True:
            try:
                job_state = self.job_state(job)
                progress = self._progress(job) if job_state.stage == "running" else None
            except NotReached:
                if deadline is not None and time.monotonic() > deadline:
                    raise
                time.sleep(1)
                continue
            if (job_state, progress) != last:
                last = (job_state, progress)
                yield job_state, progress
            if job_state.over:
                return
            if deadline is not None and time.monotonic() > deadline:
                raise FederationError(f"{job.name!r} is still {job_state.stage}; `ppca status` shows what is missing.")
            time.sleep(0.3)

    def _progress(self, job: ProposedJob) -> dict[str, Any] | None:
        for each in self.servers.jobs():
            if each.get("id") == job.id:
                return each.get("progress")
        return None


def is_audit(content: Any) -> bool:
    """Return whether an audit is a list of openings with all fields."""
    lines = content.get("audit") if isinstance(content, dict) else None
    return isinstance(lines, list) and all(
        isinstance(line, dict)
        and all(isinstance(line.get(name), str) for name in ("what", "to", "why"))
        and isinstance(line.get("shape"), list)
        for line in lines
    )


def _group_info(job: ProposedJob, to: str) -> dict[str, Any]:
    return {"what": "group", "job": job.id, "to": to}
