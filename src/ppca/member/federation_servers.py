"""A federation instead of four local processes: `PCA(servers=Federation.open(...))` computes on the servers of four
organisations.

One person acts here for all owners, with one identity that is owner and receiver of its jobs. Other members do not
contribute data, so they are not asked for approval. Owners of different organisations each contribute on their own
machine instead (`ppca contribute`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from ..federation.envelopes import Envelopes
from ..federation.errors import FederationError
from ..federation.identity import Identity
from ..federation.membership import Membership
from ..federation.proposal import USES, ProposedJob, propose
from ..federation.state import JobState
from ..federation.times import moment
from ..jobs.build import checks_inputs
from ..jobs.chunks import Chunk
from ..jobs.infer import UseModel
from ..jobs.spec import COORDINATES, NEW_COLUMNS, JobSpec, Keep
from ..runtime import Outcome, ProgramError, ServersFailed
from ..runtime.files import write_whole
from ..runtime.servers import Progress
from .client import MemberClient
from .contributing import add
from .fetching import Evidence

LASTS, KEEP_FOR = {"expires": "1d", "erase_after": "1h"}, "365d"
PATIENCE = 3600.0
"""Seconds to wait for the servers to finish a job."""


@dataclass(eq=False)
class Federation:
    """Four servers as `PCA` uses servers. Kept models are found again by the same identity under their names."""

    client: MemberClient
    patience: float = PATIENCE

    @classmethod
    def open(cls, federation: Path | str, identity: Path | str, state: Path | None = None) -> Self:
        """federation: federation.toml, signed by its operators. identity: the key of a member that is owner and
        receiver."""
        member = MemberClient(Membership.trusted(Path(federation)), Identity.load(Path(identity)), state)
        lacking = [role for role in ("owner", "receiver") if role not in member.membership.roles(member.name)]
        if lacking:
            raise FederationError(
                f"{member.name} does not have the role {' and '.join(lacking)} in {member.membership.name}. A member "
                "that acts for all owners needs both."
            )
        return cls(member)

    @property
    def member(self) -> str:
        """See `Servers.member`."""
        return self.client.name

    @property
    def running(self) -> bool:
        return True

    def start(self) -> Self:
        return self

    def stop(self) -> None:
        self.client.close()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    # -- jobs --------------------------------------------------------------------------------------------------------

    def run_job(self, job: JobSpec, chunks: Iterable[Chunk], progress: Progress | None = None) -> Outcome:
        """See `Servers.run_job`. This member proposes the job, approves it and contributes all tables."""
        if job.data.add_to is not None:
            raise ProgramError("partial_fit does not run on a federation: fit all tables together")
        if job.data.form == COORDINATES:
            raise ProgramError("a federation rebuilds no rows from coordinates: its kept models allow other uses")
        if job.data.form == NEW_COLUMNS:
            raise ProgramError("new columns of several tables are used by jobs of their owners: ppca job use")
        name = f"{'fit' if job.analysis.NAME.startswith('pca') else 'use'}-{time.time_ns():x}"
        known = propose(self.client.membership.digest, name, self._named(job), **LASTS)
        outcome = self._run(known, chunks, job.data.tables is not None, progress)
        if job.keep is not None and job.keep.name is not None:
            self._remember(job.keep.name, known)
        return outcome

    def erase(self, model: str) -> None:
        """Refused: the servers of a federation erase a kept model at its date."""
        raise ProgramError(f"the servers of a federation erase the model {model!r} at the date of its job, not before")

    def _named(self, job: JobSpec) -> JobSpec:
        """The job as members propose it: names of columns in full, kept models with a date, used ones by their jobs."""
        data, me = job.data, self.client.name
        names = tuple(f"c{number + 1}" for number in range(data.width))
        columns = {me: names} if data.by_columns else names
        data = replace(data, columns=columns, check_inputs=checks_inputs(data.form, 1))
        analysis, keep = job.analysis, job.keep
        if isinstance(analysis, UseModel):
            analysis = replace(analysis, model=self._recall(analysis.model), model_owners=(me,))
        if keep is not None:
            keep = Keep(until=moment(KEEP_FOR), allow={use: (me,) for use in keep.allow if use in USES})
        return replace(job, data=data, analysis=analysis, keep=keep)

    # -- one job -----------------------------------------------------------------------------------------------------

    def _run(
        self,
        job: ProposedJob,
        chunks: Iterable[Chunk],
        tables: bool,
        progress: Progress | None,
    ) -> Outcome:
        member = self.client
        member.submit(job)
        member.approve(job)
        self._await_offers(job)
        envelopes = Envelopes(
            member.identity,
            job.id,
            member.server_keys(job),
            lambda item: member.servers.put(item, item.header.about["to"]),
        )
        for chunk in chunks:
            add(envelopes, chunk, tables=tables)
        member.servers.put_everywhere(envelopes.finish())
        for _, told in member.watch(job, self.patience):
            if progress is not None and told is not None:
                progress(told["text"], told["fraction"], told["rounds"])
        job_state = member.job_state(job)
        if not job_state.done:
            raise ServersFailed(f"the servers did not finish {job.name}: {_in_words(job_state)}")
        evidence = Evidence.gather(member, job)
        evidence.check()
        return Outcome(evidence.parts(), evidence.account())

    def _await_offers(self, job: ProposedJob) -> None:
        """The servers answer within a moment."""
        deadline = time.monotonic() + 60
        while True:
            job_state = self.client.job_state(job)
            if job_state.over:
                raise ServersFailed(f"the servers do not run {job.name}: {_in_words(job_state)}")
            if not any(item.what.startswith("offer") for item in job_state.waiting):
                return
            if time.monotonic() > deadline:
                raise ServersFailed(f"no offer within a minute: {_in_words(job_state)}")
            time.sleep(0.1)

    # -- kept models -------------------------------------------------------------------------------------------------

    def _remember(self, name: str, job: ProposedJob) -> None:
        write_whole(self._models() / f"{name}.json", json.dumps({"job": job.id}).encode(), 0o600)

    def _recall(self, name: str) -> str:
        """The id of the job that made a kept model."""
        path = self._models() / f"{name}.json"
        if not path.exists():
            raise ProgramError(
                f"{self.client.name} has kept no model {name!r} on this federation; fit one with keep={name!r}"
            )
        return str(json.loads(path.read_text())["job"])

    def _models(self) -> Path:
        folder = self.client.state.folder / "models"
        folder.mkdir(exist_ok=True, mode=0o700)
        return folder


def _in_words(job_state: JobState) -> str:
    waiting = [f"waiting for {item.actor} to {item.what}" for item in job_state.waiting]
    return "; ".join([job_state.stage, *([job_state.why] if job_state.why else []), *waiting])
