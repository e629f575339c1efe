"""A joint fit, from opened tables to the receiver's result. It does not need scikit-learn, so the command line can use
it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..jobs.kept import Allowed
from ..jobs.spec import MEAN, REFUSE, ROWS, WIDE_ROWS, JobSpec
from ..owner.contribute import Source, form_of, missing_of
from ..owner.tables.records import joint_names
from ..owner.tables.table import Table
from ..receiver import PCAModel, SharedFacts
from ..receiver.unsealing import received
from ..runtime import Account
from .job import Job
from .partition import ColumnFit, Columns, fit_columns
from .plan import Plan
from .rows import row_data
from .runs import run


@dataclass
class Fitted:
    """The result of a fit.

    result: the answer of the servers; width: number of columns; names: of the columns, or None.
    allowed: allowed uses of a kept model, with the receivers of each.
    by_columns: details of a fit of column owners, and a hint for the user.
    mean_for_missing: whether missing values counted as a mean.
    """

    plan: Plan
    result: dict[str, Any]
    width: int
    names: list[str] | None
    account: Account
    allowed: Allowed
    by_columns: ColumnFit | None = None
    mean_for_missing: bool = False

    def __post_init__(self) -> None:
        self.plan.check_rows(self.rows, self.width)

    @property
    def rows(self) -> int:
        return int(self.result["rows"])

    @property
    def is_wide(self) -> bool:
        """True if the Gram matrix X X' was analysed instead of the covariance."""
        return "summed" in self.result

    @property
    def count(self) -> int:
        """Number of components."""
        return int(min(self.result["count"], self.rows))

    @property
    def scale(self) -> NDArray[np.int64]:
        """Exponents of the columns."""
        return np.broadcast_to(np.asarray(self.result["exponents"], np.int64), (self.width,)).copy()

    @cached_property
    def model(self) -> PCAModel:
        """The revealed model."""
        if not self.plan.reveal:
            raise ValueError("this model was not revealed to anyone")
        return PCAModel.from_result(self.result, scale=self.scale, names=self.names, audit=self.account.audit)

    def without_parts(self) -> Self:
        """Return a copy without revealed values, which the model holds, for pickling."""
        small = {name: value for name, value in self.result.items() if np.ndim(value) == 0 or name == "exponents"}
        found = replace(self, result=small)
        if self.plan.reveal:
            vars(found)["model"] = self.model
        return found

    @property
    def facts(self) -> SharedFacts:
        """Public facts of the model that the servers keep."""
        if self.plan.keep is None:
            raise ValueError("this model is not kept on servers: fit with keep='name'")
        return SharedFacts(
            name=self.plan.keep,
            scale_exponents=[int(e) for e in self.scale],
            standardized=bool(self.plan.standardize),
            components=self.count,
            rows=self.rows,
            feature_names=self.names,
            solver=self.result["solver"],
            iterations=self.result["iterations"],
            verified=self.result["verified"],
            tolerance=self.result["tolerance"],
            fell_back=self.result["fell_back"],
            allowed=self.allowed,
            audit=self.account.audit,
        )


def fit_tables(tables: Sequence[Table], plan: Plan, job: Job) -> Fitted:
    """Fit tables that were opened by `open_rows` or `open_columns`."""
    if isinstance(plan.partition, Columns):
        return _fit_columns(tables, plan, plan.partition, job)
    return add_tables(tables, plan, job)


def add_tables(tables: Sequence[Table], plan: Plan, job: Job, former: Fitted | None = None) -> Fitted:
    """Fit row owners. former: the fit to whose kept sums they are added."""
    width = tables[0].n_columns
    plan.check_width(width)
    plan.allowed()  # raises for uses that a model cannot have, before servers start
    if former is not None and former.width != width:
        raise ValueError(f"X has {width} features, but PCA is expecting {former.width} features as input")
    sources = [Source(table) for table in tables]
    means = missing_of(tables) == MEAN
    if former is not None and former.mean_for_missing != means:
        raise ValueError(
            f"missing values {'counted' if former.mean_for_missing else 'did not count'} as the joint mean in the "
            "fit to which these rows are to be added: open the tables with ppca.open_table(data, missing=...) as in "
            "that fit"
        )
    if former is not None and former.is_wide:
        raise ValueError(
            "partial_fit: a fit with more columns than rows keeps no sums to which rows could be added; fit all "
            "owners again"
        )
    job.start_soon()
    form = form_of(sources) if former is None else ROWS
    more = {"missing": MEAN if means else REFUSE, "add_to": None if former is None else plan.keep}
    data = row_data(form, len(tables), width, job.servers.member, **more)
    spec = plan.job(data, without=("partial_fit",) if form == WIDE_ROWS else (), receiver=job.receiver)
    result = received(run(job, spec, sources).answer, job.receiver)
    return Fitted(plan, result, width, tables[0].names, job.account, _allowed(spec), mean_for_missing=means)


def _allowed(job: JobSpec) -> Allowed:
    return {} if job.keep is None else {use: list(whom) for use, whom in job.keep.allow.items()}


def _fit_columns(tables: Sequence[Table], plan: Plan, partition: Columns, job: Job) -> Fitted:
    width = sum(table.n_columns for table in tables)
    plan.check_width(width)
    allowed = plan.allowed(len(tables))
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
    means = missing_of(tables) == MEAN
    return Fitted(plan, found.result, width, names, job.account, allowed, found, means)
