"""Jobs as workers get them: under which names servers keep the models that a job makes or uses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..federation.proposal import ProposedJob
from ..jobs.infer import UseModel
from ..jobs.loading import as_data
from ..jobs.spec import Keep


def kept_name(job: str) -> str:
    """The name under which the model of a fit is kept."""
    return f"model-{job[:32]}"


def job_for_workers(known: ProposedJob) -> dict[str, Any]:
    """Return a job as plain data, with the names under which servers keep the models that it makes or uses."""
    found = known.spec
    if found.keep is not None:
        found = replace(found, keep=Keep(allow=found.keep.allow, name=kept_name(known.id)))
    if isinstance(found.analysis, UseModel):
        found = replace(found, analysis=replace(found.analysis, model=kept_name(found.analysis.model)))
    return as_data(found)
