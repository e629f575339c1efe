"""Convert the finished job of a federation to a fit, for results, reports and shared models."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..federation.proposal import ProposedJob
from ..jobs.parts import columns_for
from ..jobs.pca import JointPCA, gets_model
from ..member.fetching import Evidence
from ..receiver.parts import Parts
from .fitting import Fitted
from .partition import ColumnFit, Columns
from .plan import Plan


def holds_model(evidence: Evidence) -> bool:
    """Return whether the receiver of a fit got all parts of its model."""
    return gets_model(evidence.job.spec, evidence.receiver)


def parts_of(evidence: Evidence) -> Parts:
    """Return the parts that the receiver of a fit got."""
    result, width = evidence.result(), len(columns_for(evidence.job.spec, evidence.receiver))
    exponents = np.asarray(
        result.get("exponents", 0), np.int64
    )  # a receiver of loadings only gets no exponents and does not need them
    return Parts.of(result, np.broadcast_to(exponents, (width,)).copy())


def fitted_of(evidence: Evidence) -> Fitted:
    """Return the fit, for the receiver of a whole model or a user of a kept one."""
    result, spec = evidence.result(), evidence.job.spec
    by_columns = None
    if spec.data.by_columns:
        by_columns = ColumnFit(result, spec.data.widths, [], [], {}, None)
    return Fitted(
        plan_of(evidence.job, evidence.receiver),
        result,
        spec.data.width,
        spec.data.column_names,
        evidence.account(),
        {} if spec.keep is None else {name: list(whom) for name, whom in spec.keep.allow.items()},
        by_columns,
    )


def plan_of(job: ProposedJob, receiver: str) -> Plan:
    """Return the parameters of the fit, as in `PCA`."""
    spec, fit = job.spec, job.spec.analysis
    if not isinstance(fit, JointPCA):
        raise ValueError(f"{job.name!r} does not fit a model")
    partition: Any = "rows"
    if spec.data.align is not None:
        align = spec.data.align
        partition = Columns(None, align.alignment, align.namespace, align.minimum, align.fold_case)
    return Plan(
        fit,
        spec.data.standardize,
        None if spec.keep is None else f"model-{job.id[:32]}",
        gets_model(spec, receiver),
        (),
        partition,
    )
