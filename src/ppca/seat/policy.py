"""Whether a seat takes part in a job: its operator's policy, its build, and what a kept model was kept for."""

from __future__ import annotations

from ..federation.build import build
from ..federation.errors import FederationError
from ..federation.jobfile import JobFile, after, seconds
from ..federation.serverfile import Policy
from .admission import Admission


def refusal_of(job: JobFile, policy: Policy, admission: Admission) -> str | None:
    """Why this seat does not take part; None if it does."""
    if job.federation != admission.roster.digest:
        return f"the job is for another revision of the federation than {admission.roster.revision}; make it again"
    if job.build != build():
        return f"the job is for build {job.build}, this seat runs {build()}; all seats and the job must have the same"
    if job.program not in policy.programs:
        return f"this seat runs {', '.join(policy.programs)}, not {job.program}"
    if len(job.all_columns) > policy.columns_at_most:
        return f"{len(job.all_columns)} columns; this seat takes at most {policy.columns_at_most}"
    if seconds(job.erase_after) > seconds(policy.longest) or job.expires > after(admission.now(), policy.longest):
        return f"the job, or its result, would stay longer than this seat allows ({policy.longest})"
    if job.keep is not None and job.keep.until > after(admission.now(), policy.models_longest):
        return (
            f"the model would be kept until {job.keep.until:%Y-%m-%d}; this server keeps models for at most "
            f"{policy.models_longest} ([policy] models_longest)"
        )
    alone = len(job.owners) == 1 and {*job.receivers, *job.approvers} == set(job.owners)
    if policy.rows_at_least is not None and not alone and (job.rows_at_least or 0) < policy.rows_at_least:
        return f"the job accepts fewer rows than this seat wants: rows_at_least = {policy.rows_at_least} or more"
    if job.infer is not None:
        return _refused_use(job, admission)
    if len(job.owners) < policy.owners_at_least and not alone:
        return (
            f"{len(job.owners)} owners; this seat wants {policy.owners_at_least}, so that no owner learns another's sums from "
            "the result (one owner alone may compute for itself)"
        )
    return None


def _refused_use(job: JobFile, admission: Admission) -> str | None:
    """Why a kept model may not be used so."""
    assert job.infer is not None
    use = job.infer
    try:
        fit = admission.job(use.model).file
    except FederationError:
        return f"no model {use.model[:12]} is known here"
    if fit.keep is None or fit.fit is None:
        return f"{fit.name!r} kept no model"
    if admission.now() >= fit.keep.until:
        return f"the model of {fit.name!r} was kept until {fit.keep.until:%Y-%m-%d}"
    if set(use.model_owners) != set(fit.owners):
        return f"the model is that of {', '.join(fit.owners)}; all of them, and nobody else, are model_owners"
    if use.standardized != fit.fit.standardize or len(use.scale_exponents) != len(fit.all_columns):
        return "standardized and scale_exponents are not those of the model; make the job with ppca job new --model"
    if (use.model_columns == "columns") != fit.by_columns or job.all_columns != fit.all_columns:
        return "the columns, or how owners hold them, are not those of the model"
    wanted = ["transform"] if use.operation == "transform" else []
    wanted += ["scores"] if use.scores else []
    wanted += ["flags"] if use.threshold is not None or use.contamination is not None else []
    for operation in wanted:
        for receiver in job.receivers:
            if receiver not in fit.keep.allow.get(operation, ()):
                return f"{fit.name!r} was kept without {operation!r} for {receiver}"
    return None
