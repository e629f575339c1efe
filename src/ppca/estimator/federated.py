"""A federation's finished job as the fit that it is: for results, reports and shared models."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..federation.job import JobDescription
from ..federation.jobfile import whole_parts
from ..member.fetching import Evidence
from ..receiver.parts import Parts
from .choices import Choices
from .columns import ColumnFit, Columns
from .fitting import Fitted


def holds_model(evidence: Evidence) -> bool:
    """Whether the receiver of a fit got all parts of its model."""
    file = evidence.job.file
    return file.fit is not None and not set(whole_parts(file)) - set(file.parts_of(evidence.receiver))


def parts_of(evidence: Evidence) -> Parts:
    """The parts that the receiver of a fit got."""
    result, width = evidence.result(), len(evidence.job.file.columns_of(evidence.receiver))
    exponents = np.asarray(result.get("exponents", 0), np.int64)  # of loadings alone there are none, and none is needed
    return Parts.of(result, np.broadcast_to(exponents, (width,)).copy())


def fitted_of(evidence: Evidence) -> Fitted:
    """What the receiver of a whole model, or who may use a kept one, holds."""
    result, job = evidence.result(), evidence.job
    by_columns = None
    if job.file.by_columns:
        by_columns = ColumnFit(result, job.file.widths, [], [], {}, None)
    return Fitted(
        choices_of(job, evidence.receiver),
        result,
        len(job.file.all_columns),
        job.file.all_columns,
        evidence.account(),
        {} if job.file.keep is None else {name: list(whom) for name, whom in job.file.keep.allow.items()},
        by_columns,
    )


def choices_of(job: JobDescription, receiver: str) -> Choices:
    """The parameters of the fit, as `PCA` has them."""
    fit = job.file.fit
    if fit is None:
        raise ValueError(f"{job.name!r} fits no model")
    partition: Any = "rows"
    if job.file.align is not None:
        align = job.file.align
        partition = Columns(None, align.way, align.namespace, align.minimum, align.fold_case)
    return Choices(
        None if fit.components == "all" else fit.components,
        fit.standardize,
        fit.solver,
        fit.tol,
        fit.fixed_iterations,
        fit.max_iterations,
        None if job.file.keep is None else f"model-{job.id[:32]}",
        not set(whole_parts(job.file)) - set(job.file.parts_of(receiver)),
        (),
        partition,
    )
