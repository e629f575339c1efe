"""Jobs as programs: which program of `ppca.jobs` a job file names, with which public parameters."""

from __future__ import annotations

from typing import Any

from ..federation.disclosure import disclosures
from ..federation.job import JobDescription
from ..federation.jobfile import INFER, WIDE_ROWS
from ..jobs.analysis import FACTS
from ..jobs.inference import SCORE
from .work import TABLE

HIGHEST = 2.0 ** (SCORE.span - 1)
"""The largest threshold of scores."""


def kept_name(job: str) -> str:
    """The name under which the model of a fit is kept."""
    return f"model-{job[:32]}"


def rules(job: JobDescription) -> list[dict[str, Any]]:
    """All that the job may open, as the engine enforces it."""
    return [line.rule() for line in disclosures(job.file)]


def call(job: JobDescription) -> tuple[str, dict[str, Any]]:
    """The program, and its public parameters."""
    if job.file.program == INFER:
        return _infer(job)
    if job.file.by_columns:
        return _columns(job)
    assert job.file.fit is not None
    public: dict[str, Any] = {"choices": choices(job)} | _checked_owners(job)
    if job.file.rows_at_least is not None:
        public["rows_at_least"] = job.file.rows_at_least
    if job.file.program == WIDE_ROWS:
        return "ppca.jobs.wide_rows:fit", {"table": TABLE, **public}
    return "ppca.jobs.rows:fit", {"mean_for_missing": job.file.fit.missing == "mean", **public}


def _checked_owners(job: JobDescription) -> dict[str, Any]:
    """The owner of every table, if their inputs are checked on shares."""
    return {"owners": list(job.file.owners)} if job.file.checks_inputs else {}


def choices(job: JobDescription) -> dict[str, Any]:
    """The parameters of the analysis."""
    file = job.file
    assert file.fit is not None
    return {
        "components": None if file.fit.components == "all" else file.fit.components,
        "standardize": file.fit.standardize,
        "solver": file.fit.solver,
        "tol": file.fit.tol,
        "fixed_iterations": file.fit.fixed_iterations,
        "max_iterations": file.fit.max_iterations,
        "keep": None if file.keep is None else kept_name(job.id),
        "allow": {} if file.keep is None else {name: list(whom) for name, whom in file.keep.allow.items()},
        "receivers": {name: [FACTS, *file.parts_of(name)] for name in file.receivers},
        "own": {name: list(file.own_columns(name)) for name in file.receivers if file.gets_own_only(name)},
    }


def _columns(job: JobDescription) -> tuple[str, dict[str, Any]]:
    file = job.file
    assert file.align is not None
    public = {"table": TABLE, "widths": file.widths, "minimum": file.align.minimum, "choices": choices(job)}
    public |= {} if file.rows_at_least is None else {"rows_at_least": file.rows_at_least}
    public |= {"own": file.owner_multiplies, **_checked_owners(job)}
    if file.align.row_share_at_most is not None:
        public["row_share_at_most"] = file.align.row_share_at_most
    return f"ppca.jobs.{'wide_columns' if file.is_wide else 'columns'}:fit", public


def _infer(job: JobDescription) -> tuple[str, dict[str, Any]]:
    use = job.file.infer
    assert use is not None
    public: dict[str, Any] = {
        "model": kept_name(use.model),
        "operation": use.operation,
        "threshold": None if use.threshold is None else min(use.threshold / use.unit**2, HIGHEST),
        "contamination": use.contamination,
        "scores": use.scores,
        "scale_exponents": list(use.scale_exponents),
        "rows_at_least": job.file.rows_at_least,
        "receiver": next(iter(job.file.receivers)),
    }
    if job.file.by_columns:
        assert job.file.align is not None
        public |= {"table": TABLE, "minimum": job.file.align.minimum, "standardized": use.standardized}
        public["owners"] = list(job.file.owners)
        return "ppca.jobs.inference:infer_table", public
    return "ppca.jobs.inference:infer", public
