"""Jobs as programs: which program of `ppca.jobs` runs a job, with which public parameters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..federation.proposal import ProposedJob
from ..jobs import spec
from ..jobs.infer import UseModel
from ..jobs.loading import as_data
from ..jobs.registry import openings
from ..jobs.spec import JobSpec, Keep
from .work import TABLE

PROGRAMS = {
    spec.ROWS: "ppca.jobs.rows:fit",
    spec.COLUMNS: "ppca.jobs.columns:fit",
    spec.WIDE_ROWS: "ppca.jobs.wide_rows:fit",
    spec.WIDE_COLUMNS: "ppca.jobs.wide_columns:fit",
    spec.NEW_ROWS: "ppca.jobs.inference:infer",
    spec.NEW_COLUMNS: "ppca.jobs.inference:infer_table",
}
"""The program of each form of data."""


def kept_name(job: str) -> str:
    """The name under which the model of a fit is kept."""
    return f"model-{job[:32]}"


def rules(job: ProposedJob) -> list[dict[str, Any]]:
    """All that the job may open, as the engine enforces it."""
    return [line.rule() for line in openings(job.spec)]


def call(job: ProposedJob) -> tuple[str, dict[str, Any]]:
    """The program, and its public parameters."""
    found = _named(job)
    public: dict[str, Any] = {"job": as_data(found)}
    if found.data.by_columns or found.data.is_wide:
        public["table"] = TABLE
    return PROGRAMS[found.data.form], public


def _named(job: ProposedJob) -> JobSpec:
    """The job with the names under which servers keep the models that it makes or uses."""
    found = job.spec
    if found.keep is not None:
        found = replace(found, keep=Keep(allow=found.keep.allow, name=kept_name(job.id)))
    if isinstance(found.analysis, UseModel):
        found = replace(found, analysis=replace(found.analysis, model=kept_name(found.analysis.model)))
    return found
