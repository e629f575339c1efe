"""Jobs of a federation for tests and benchmarks: the one place that makes them from fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields as fields_of
from datetime import datetime
from typing import Any

from ppca.federation.membership import Membership
from ppca.federation.proposal import ProposedJob, propose
from ppca.jobs.build import infer_job, pca_job
from ppca.jobs.infer import UseModel
from ppca.jobs.pca import JointPCA
from ppca.jobs.spec import Align, Keep

Columns = Sequence[str] | Mapping[str, Sequence[str]]
PARAMETERS = {field.name for field in fields_of(JointPCA)}


def fit_job(
    membership: Membership,
    name: str,
    owners: Sequence[str],
    columns: Columns,
    receivers: Mapping[str, Sequence[str]],
    *,
    expires: str | datetime = "7d",
    erase_after: str = "7d",
    until_converged: bool = False,
    align: Mapping[str, Any] | None = None,
    keep: Mapping[str, Any] | None = None,
    **fields: Any,
) -> ProposedJob:
    """A joint PCA. fields: of `JointPCA` and of `Data`, and `wide`. align: fields of `Align`. keep: `until` and
    `allow`."""
    analysis = JointPCA(**{name: fields.pop(name) for name in PARAMETERS & set(fields)})
    kept = None
    if keep is not None:
        kept = Keep(until=keep["until"], allow={use: tuple(whom) for use, whom in keep["allow"].items()})
    job = pca_job(
        *(owners, columns, receivers, analysis),
        federated=True,
        fixed=not until_converged,
        align=None if align is None else Align(**align),
        keep=kept,
        **fields,
    )
    return propose(membership.digest, name, job, expires=expires, erase_after=erase_after)


def use_job(
    membership: Membership,
    name: str,
    owners: Sequence[str],
    columns: Columns,
    receivers: Mapping[str, Sequence[str]],
    scales: Sequence[int],
    *,
    model: str = "0" * 64,
    model_owners: Sequence[str] = ("north",),
    align: Mapping[str, Any] | None = None,
    threshold: float | None = None,
    contamination: float | None = None,
    **fields: Any,
) -> ProposedJob:
    """A use of a kept model on new rows. fields: of `Data`. receivers: one, with the parts that it gets."""
    limits = {"threshold": threshold, "contamination": contamination}
    use = UseModel(model=model, model_owners=tuple(model_owners), **limits)
    how = None if align is None else Align(**align)
    job = infer_job(owners, columns, receivers, use, scales, federated=True, align=how, **fields)
    return propose(membership.digest, name, job)
