"""Registry of analyses, and the openings list of a job."""

from __future__ import annotations

from .infer import UseModel
from .openings import ENOUGH_ROWS, IN_RANGE, MATCHES, ROUNDED, ROW_SHARES, AllowedOpening
from .pca import JointPCA
from .regression import JointRegression
from .spec import NEW_COLUMNS, PSI, USES_SCALES, WIDE_ROWS, Analysis, JobSpec

ANALYSES: dict[str, type[Analysis]] = {}
"""All analyses by name and version."""


def register(analysis: type[Analysis]) -> type[Analysis]:
    """Register an analysis under its name. Can be used as a decorator."""
    if ANALYSES.setdefault(analysis.NAME, analysis) is not analysis:
        raise ValueError(f"{analysis.NAME} is registered already; give the new analysis another name or version")
    return analysis


register(JointPCA)
register(UseModel)
register(JointRegression)


def openings(job: JobSpec) -> list[AllowedOpening]:
    """Return everything that a job opens: while its tables are joined, then by its analysis."""
    return [*_of_data(job), *job.analysis.openings(job)]


def _of_data(job: JobSpec) -> list[AllowedOpening]:
    data, new = job.data, job.data.form in USES_SCALES
    found = []
    if data.align is not None and data.align.alignment == PSI:
        found.append(MATCHES)
    if data.form == WIDE_ROWS:
        found.append(ROUNDED)
    if data.check_inputs and (not new or (data.form == NEW_COLUMNS and len(data.owners) > 1)):
        found.append(IN_RANGE)
    if data.align is not None and data.align.row_share_at_most is not None:
        found.append(ROW_SHARES)
    if data.rows_at_least is not None and not data.by_columns and not new:  # servers see the other numbers of rows
        found.append(ENOUGH_ROWS)
    return [AllowedOpening(what) for what in found]
