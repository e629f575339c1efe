"""Decide whether a server takes part in a job, from its operator's policy, its build and the uses of a kept model."""

from __future__ import annotations

from ..federation.build import build
from ..federation.errors import FederationError
from ..federation.proposal import Proposal
from ..federation.serverfile import Policy
from ..federation.times import after, seconds
from ..jobs.infer import UseModel
from ..jobs.kept import NotAllowed, check_allowed
from ..jobs.spec import Data
from .admission import Admission
from .mates import positions
from .time_limits import iterations_of


def refusal_of(proposal: Proposal, policy: Policy, admission: Admission) -> str | None:
    """Return why this server does not take part; None if it does."""
    job = proposal.job
    data, analysis = job.data, job.analysis.NAME
    if proposal.federation != admission.membership.digest:
        return f"the job is for another revision of the federation than {admission.membership.revision}; make it again"
    if proposal.build != build():
        return f"the job is for build {proposal.build}, this server runs {build()}; all servers and the job must have the same"
    if analysis not in policy.analyses:
        return f"this server runs {', '.join(policy.analyses)}, not {analysis} ([policy] analyses)"
    if data.form not in policy.forms:
        return f"this server takes data of the forms {', '.join(policy.forms)}, not {data.form} ([policy] forms)"
    if data.width > policy.columns_at_most:
        return f"{data.width} columns; this server takes at most {policy.columns_at_most}"
    if (iterations := iterations_of(job)) > policy.iterations_at_most:
        return f"{iterations:,} iterations; this server runs at most {policy.iterations_at_most:,} ([policy] iterations_at_most)"
    latest = after(admission.now(), policy.max_job_lifetime)
    if seconds(proposal.erase_after) > seconds(policy.max_job_lifetime) or proposal.expires > latest:
        return f"the job, or its result, would stay longer than this server allows ({policy.max_job_lifetime})"
    until = proposal.kept_until
    if until is not None and until > after(admission.now(), policy.max_model_lifetime):
        return (
            f"the model would be kept until {until:%Y-%m-%d}; this server keeps models for at most "
            f"{policy.max_model_lifetime} ([policy] max_model_lifetime)"
        )
    alone = len(data.owners) == 1 and {*job.receivers, *proposal.approvers} == set(data.owners)
    if policy.rows_at_least is not None and not alone and (data.rows_at_least or 0) < policy.rows_at_least:
        return f"the job accepts fewer rows than this server wants: rows_at_least = {policy.rows_at_least} or more"
    if why := _unchecked_rows(data, policy):
        return why
    if isinstance(job.analysis, UseModel):
        return _refused_use(proposal, job.analysis, admission)
    if len(data.owners) < policy.owners_at_least and not alone:
        return (
            f"{len(data.owners)} owners; this server wants {policy.owners_at_least}, so that no owner learns "
            "another's sums from the result (one owner alone may compute for itself)"
        )
    return None


def _unchecked_rows(data: Data, policy: Policy) -> str | None:
    """Return why the job does not limit single rows as the operator asks for; None if it does, or need not."""
    most = policy.row_share_at_most
    if most is None or data.align is None or data.uses_model or len(data.owners) < 2:
        return None
    share = data.align.row_share_at_most
    if share is not None and share <= most:
        return None
    wide = " (jobs with more columns than rows cannot have it)" if data.is_wide else ""
    return f"the job does not set row_share_at_most to {most} or less, which this server wants of several column owners{wide}"


def _refused_use(proposal: Proposal, use: UseModel, admission: Admission) -> str | None:
    """Return why a kept model may not be used so."""
    try:
        kept = admission.job(use.model).proposal
    except FederationError:
        return f"no model {use.model[:12]} is known here"
    data, fit, until = proposal.job.data, kept.job.data, kept.kept_until
    if kept.job.keep is None or until is None:
        return f"{kept.name!r} kept no model"
    if admission.now() >= until:
        return f"the model of {kept.name!r} was kept until {until:%Y-%m-%d}"
    objects, membership = admission.mailbox.objects(use.model), admission.membership
    for server, operator in membership.operators.items():
        if positions(objects, membership, kept.federation, operator) - {server}:
            return f"{operator} was another server than {server} when the model of {kept.name!r} was made; fit it again"
    if set(use.model_owners) != set(kept.owners):
        return f"the model is that of {', '.join(kept.owners)}; model_owners must be exactly these members"
    if data.standardize != fit.standardize or data.width != fit.width:
        return "standardize and scales are not those of the model; make the job with ppca job use --model"
    if data.by_columns != fit.by_columns or data.column_names != fit.column_names:
        return "the columns, or how owners hold them, are not those of the model"
    try:
        for receiver, parts in proposal.job.receivers.items():
            for part in parts:
                check_allowed(kept.job.keep.allow, part, receiver)
    except NotAllowed as error:
        return f"the model of {kept.name!r}: {error}"
    return None
