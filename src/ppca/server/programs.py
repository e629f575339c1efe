"""Jobs as programs: which program of `ppca.jobs` runs a job, with which public parameters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..federation.proposal import ProposedJob
from ..jobs.infer import UseModel
from ..jobs.registry import openings
from ..jobs.spec import JobSpec, Keep
from ..runtime.job_runs import PROGRAMS, public_of
from .work import TABLE


def kept_name(job: str) -> str:
    """The name under which the model of a fit is kept."""
    return f"model-{job[:32]}"


def rules(job: ProposedJob) -> list[dict[str, Any]]:
    """All that the job may open, as the engine enforces it."""
    return [line.rule() for line in openings(job.spec)]


def call(job: ProposedJob) -> tuple[str, dict[str, Any]]:
    """The program, and its public parameters."""
    found = _named(job)
    return PROGRAMS[found.data.form], public_of(found, TABLE)


def _named(job: ProposedJob) -> JobSpec:
    """The job with the names under which servers keep the models that it makes or uses."""
    found = job.spec
    if found.keep is not None:
        found = replace(found, keep=Keep(allow=found.keep.allow, name=kept_name(job.id)))
    if isinstance(found.analysis, UseModel):
        found = replace(found, analysis=replace(found.analysis, model=kept_name(found.analysis.model)))
    return found
