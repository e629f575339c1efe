"""The state of a job for one member: its tasks, and the steps of the job. Pure functions of what is
known."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ...federation.membership import Membership
from ...federation.proposal import ProposedJob
from ...federation.state import (
    CANCELLED,
    DONE,
    ERASED,
    EXPIRED,
    FAILED,
    GATHERING,
    HELD,
    PROPOSED,
    READY,
    REFUSED,
    RUNNING,
    JobState,
    Objects,
    job_state_of,
)
from ...jobs.loading import as_data
from ...jobs.spec import COLUMNS, NEW_COLUMNS, NEW_ROWS, ROWS, WIDE_COLUMNS, WIDE_ROWS, JobSpec
from ...receiver.interpret import listed
from .live_jobs import Known

APPROVE, CONTRIBUTE, FETCH = "approve", "contribute", "fetch"
STEPS = (PROPOSED, GATHERING, READY, RUNNING, DONE)
MEANING = {
    PROPOSED: "servers and receivers answer",
    GATHERING: "owners approve and contribute",
    READY: "everything is there",
    RUNNING: "the servers compute on shares",
    DONE: "receivers fetch their results",
}
YOURS = {
    APPROVE: "Your turn: read what this job reveals, then approve or refuse it.",
    CONTRIBUTE: "Your turn: choose your table, look at what was read, and send it as shares. Afterwards you can go offline.",
    FETCH: "Your turn: fetch the result, which is sealed to your key.",
}
THEIRS = {
    READY: "The servers start the job without further action.",
    RUNNING: "The servers are computing. No action is needed, and this page is updated.",
    HELD: "An operator must find out why the attempts failed, and then run ppca job resume.",
    REFUSED: "The job has ended because a member refused it. Its proposer can submit a changed job.",
    CANCELLED: "The job has ended because it was cancelled. No action is needed.",
    EXPIRED: "The job has ended because it expired. Its proposer can submit it again with a later date.",
    FAILED: "The job has ended without a result. Its proposer can fix the cause and submit it again.",
    ERASED: "The servers have erased this job. No action is needed.",
}
"""Sentence on the next step if other members act, by state of the job. YOURS: the same for this member, by task."""

TITLES = {
    ("pca/1", ROWS): "Joint principal components of the rows of all owners together",
    ("pca/1", COLUMNS): "Joint principal components of the columns of all owners, joined row by row",
    ("pca/1", WIDE_ROWS): "Joint principal components of the rows of all owners together, which are fewer than columns",
    (
        "pca/1",
        WIDE_COLUMNS,
    ): "Joint principal components of the columns of all owners, with fewer rows than columns",
    ("regression/1", ROWS): "Joint linear regression on the rows of all owners together",
    ("regression/1", COLUMNS): "Joint linear regression on the columns of all owners, joined row by row",
    ("infer/1", NEW_ROWS): "Use of a kept model on new rows",
    ("infer/1", NEW_COLUMNS): "Use of a kept model on new rows",
}
"""By analysis and form of data."""


@dataclass(frozen=True)
class JobPage:
    """todo: what the member is waited for to do, or may do now; "" if nothing. may_refuse: whether it still can."""

    job: ProposedJob
    job_state: JobState
    objects: Objects
    progress: dict[str, Any] | None
    roles: tuple[str, ...]
    todo: str
    approved: bool
    contributed: bool
    may_refuse: bool

    @property
    def next_step(self) -> str:
        """Return one sentence: the next step, and the members that must act."""
        stage = self.job_state.stage
        if self.todo:
            return YOURS[self.todo]
        if stage in (PROPOSED, GATHERING):
            actors = listed(list(dict.fromkeys(item.actor for item in self.job_state.waiting)))
            return f"Next, {actors} must act, as listed below. You need not do anything now."
        if stage == DONE and "a receiver" in self.roles:
            return "The job is done, and you have its result. No action is needed."
        if stage == DONE:
            whom = listed(list(self.job.spec.receivers)) if self.job.spec.receivers else ""
            return (
                f"The job is done: {whom} can fetch the result."
                if whom
                else "The job is done: the servers keep the model as shares. No action is needed."
            )
        return THEIRS[stage]

    @property
    def command(self) -> str:
        """The command that does the same as the button."""
        short = self.job.id[:12]
        return {
            APPROVE: f"ppca approve {short}",
            CONTRIBUTE: f"ppca contribute {short} table.csv",
            FETCH: f"ppca fetch {short} -o result",
        }.get(self.todo, "")

    @property
    def steps(self) -> list[dict[str, str]]:
        """Every step with what it means: past, now or ahead."""
        reached = STEPS.index(DONE) + 1 if self.job_state.done else _reached(self)
        states = (
            "past" if i < reached else "now" if i == reached and not self.job_state.over else "ahead" for i in range(5)
        )
        return [
            {"name": name, "meaning": MEANING[name], "state": state} for name, state in zip(STEPS, states, strict=True)
        ]


def title_of(job: JobSpec) -> str:
    """Return what a job computes, in a few words."""
    return TITLES.get((job.analysis.NAME, job.data.form), job.analysis.NAME)


def parameters_of(job: JobSpec) -> dict[str, Any]:
    """The parameters of the analysis that are set, by name."""
    return {name: value for name, value in as_data(job)["analysis"].items() if name != "name"}


def standing_of(known: Known, membership: Membership, me: str, fetched: bool, now: datetime) -> JobPage:
    proposal, objects = known.job.proposal, Objects(known.headers)
    job_state = job_state_of(proposal, known.headers, membership, now)
    owner, receiver = me in proposal.owners, me in proposal.job.receivers
    offers = receiver or (proposal.job.data.by_columns and owner)
    lacks_approval = me in proposal.approvers and objects.by("approval", me) is None
    lacks_offer = offers and objects.offer(me, of_server=False) is None
    contributed = objects.by("contribution", me) is not None
    todo = ""
    if not job_state.over:
        if lacks_approval or lacks_offer:
            todo = APPROVE
        elif owner and not contributed:
            todo = CONTRIBUTE
    elif job_state.stage == DONE and receiver and not fetched:
        todo = FETCH
    roles = [
        name
        for name, has in (
            ("an owner", owner),
            ("a receiver", receiver),
            ("an owner of the model", me in proposal.approvers and not owner),
        )
        if has
    ]
    return JobPage(
        job=known.job,
        job_state=job_state,
        objects=objects,
        progress=known.progress if job_state.stage == RUNNING else None,
        roles=tuple(roles or ["submitter"]),
        todo=todo,
        approved=me in proposal.members and not lacks_approval and not lacks_offer,
        contributed=contributed,
        may_refuse=not job_state.over and me in proposal.members,
    )


def _reached(standing: JobPage) -> int:
    """The step a job is at; of one that ended badly, the step it had come to."""
    job_state = standing.job_state
    if job_state.stage in STEPS:
        return STEPS.index(job_state.stage)
    if job_state.attempt:
        return STEPS.index(RUNNING)
    return STEPS.index(GATHERING if next(standing.objects.of("approval"), None) else PROPOSED)
