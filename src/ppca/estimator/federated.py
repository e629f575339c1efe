"""A federation's finished job as the fit that it is: for results, reports and shared models."""

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
    """Whether the receiver of a fit got all parts of its model."""
    return gets_model(evidence.job.spec, evidence.receiver)


def parts_of(evidence: Evidence) -> Parts:
    """The parts that the receiver of a fit got."""
    result, width = evidence.result(), len(columns_for(evidence.job.spec, evidence.receiver))
    exponents = np.asarray(result.get("exponents", 0), np.int64)  # of loadings alone there are none, and none is needed
    return Parts.of(result, np.broadcast_to(exponents, (width,)).copy())


def fitted_of(evidence: Evidence) -> Fitted:
    """What the receiver of a whole model, or who may use a kept one, holds."""
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
    """The parameters of the fit, as `PCA` has them."""
    spec, fit = job.spec, job.spec.analysis
    if not isinstance(fit, JointPCA):
        raise ValueError(f"{job.name!r} fits no model")
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
