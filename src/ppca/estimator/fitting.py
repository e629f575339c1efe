"""A joint fit, from opened tables to the receiver's result. It does not need scikit-learn, so the command line can use
it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..jobs.spec import MEAN, REFUSE, ROWS, WIDE_ROWS, JobSpec
from ..owner.contribute import Source, form_of, missing_of
from ..owner.tables.records import joint_names
from ..owner.tables.table import Table
from ..receiver.results import PCAResult, Received, result_of
from ..receiver.unsealing import received
from .job import Job
from .partition import ColumnFit, Columns, fit_columns
from .plan import Plan
from .rows import row_data
from .runs import run


def fit_tables(tables: Sequence[Table], plan: Plan, job: Job) -> tuple[PCAResult, ColumnFit | None]:
    """Fit tables that were opened by `open_rows` or `open_columns`. Of column owners the details are returned, too."""
    if isinstance(plan.partition, Columns):
        return _fit_columns(tables, plan, plan.partition, job)
    return add_tables(tables, plan, job), None


def add_tables(tables: Sequence[Table], plan: Plan, job: Job, former: PCAResult | None = None) -> PCAResult:
    """Fit row owners. former: the fit to whose kept sums they are added."""
    width = tables[0].n_columns
    plan.check_width(width)
    plan.allowed()  # raises for uses that a model cannot have, before servers start
    if former is not None and former.width != width:
        raise ValueError(f"X has {width} features, but PCA is expecting {former.width} features as input")
    sources = [Source(table) for table in tables]
    missing = MEAN if missing_of(tables) == MEAN else REFUSE
    if former is not None and former.job.data.missing != missing:
        counted = "did not count" if missing == MEAN else "counted"
        raise ValueError(
            f"missing values {counted} as the joint mean in the fit to which these rows are to be added: open the "
            "tables with ppca.open_table(data, missing=...) as in that fit"
        )
    if former is not None and former.is_wide:
        raise ValueError(
            "partial_fit: a fit with more columns than rows keeps no sums to which rows could be "
            "added; fit all owners again"
        )
    job.start_soon()
    form = form_of(sources) if former is None else ROWS
    more = {"missing": missing, "add_to": None if former is None else plan.keep}
    data = row_data(form, len(tables), width, job.servers.member, **more)
    spec = plan.job(data, without=("partial_fit",) if form == WIDE_ROWS else (), receiver=job.receiver)
    return _read(received(run(job, spec, sources).answer, job.receiver), spec, plan, job, tables[0].names)


def _read(values: dict[str, Any], spec: JobSpec, plan: Plan, job: Job, names: list[str] | None) -> PCAResult:
    plan.check_rows(int(values["rows"]), spec.data.width)
    here = job.servers.member is None
    found: PCAResult = result_of(Received(spec, job.receiver, values, job.account, names, plan.keep, unverified=here))
    return found


def _fit_columns(tables: Sequence[Table], plan: Plan, partition: Columns, job: Job) -> tuple[PCAResult, ColumnFit]:
    width = sum(table.n_columns for table in tables)
    plan.check_width(width)
    plan.allowed(len(tables))
    job.start_soon()
    job.progress("owners, reading", None)
    sources = [Source(table) for table in tables]
    found = fit_columns(
        job,
        sources,
        partition,
        lambda data: plan.job(data, len(tables), receiver=job.receiver),
        lambda rows: plan.check_rows(rows, width),
    )
    names = joint_names([source.records() for source in sources])
    return _read(found.result, found.job, plan, job, names), found
