"""A joint regression, from opened tables to the receiver's result. It does not need scikit-learn, so the command line
can use it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ..jobs.checks import SpecError, check_choice
from ..jobs.regression import OLS, OLS_ONLY, RESULT, JointRegression
from ..jobs.spec import CLIENT, COLUMNS, MEAN, REFUSE, ROWS, Data, JobSpec
from ..owner.contribute import Source, missing_of
from ..owner.tables.records import joint_names
from ..owner.tables.table import Table, unknown_names
from ..receiver.regression import RegressionModel
from ..receiver.results import Received, result_of
from ..receiver.unsealing import received
from ..runtime import Account
from .job import Job
from .partition import ColumnFit, Columns, fit_columns
from .rows import row_data
from .runs import run

FIRST = "c1"
"""Target of an analysis whose target is not chosen yet: local jobs number their columns."""


@dataclass(frozen=True)
class RegressionPlan:
    """A regression before its data are known. The target of `analysis` is replaced by that of the data."""

    analysis: JointRegression = field(default_factory=lambda: JointRegression(target=FIRST))
    reveal: tuple[str, ...] = (RESULT,)
    partition: str | Columns = "rows"

    def __post_init__(self) -> None:
        if not self.reveal:
            raise SpecError("reveal", self.reveal, "must name at least one part of the result")
        for part in self.reveal:
            check_choice("reveal", part, JointRegression.PARTS)
            if part in OLS_ONLY and self.analysis.method != OLS:
                raise SpecError("reveal", part, "is not possible with ridge regression")
        if not (self.partition == "rows" or isinstance(self.partition, Columns)):
            raise SpecError("partition", self.partition, "is unknown; choose 'rows' or ppca.Columns(id=...)")

    def job(self, data: Data, target: int, receiver: str = CLIENT) -> JobSpec:
        """Return the job for these data. target: position of the target among all columns."""
        names = data.column_names
        name = names[target] if target < len(names) else f"c{target + 1}"  # the job refuses a list of columns
        return JobSpec(
            data=replace(data, standardize=True),
            analysis=replace(self.analysis, target=name),
            receivers={receiver: self.reveal},
        )


@dataclass
class FittedRegression:
    """The result of a regression. names: of all columns, with the target; None: of arrays."""

    model: RegressionModel
    account: Account
    target: int
    names: list[str] | None
    by_columns: ColumnFit | None = None


def target_of(tables: Sequence[Table], target: str | int, *, by_columns: bool) -> int:
    """Return the position of the target among the columns of all owners, from its name, 'owner:name' or position."""
    own = list(tables) if by_columns else list(tables[:1])
    width = sum(table.n_columns for table in own)
    if isinstance(target, int) and not isinstance(target, bool):
        if not -width <= target < width:
            raise SpecError("target", target, f"is not the position of one of {width} columns, counted from 0")
        return target % width
    names = [(table.label, name) for table in own for name in table.names or [""] * table.n_columns]
    found = [at for at, (owner, name) in enumerate(names) if target in ({name, f"{owner}:{name}"} if name else ())]
    if len(found) > 1:
        whose = " and ".join(f"'{names[at][0]}:{names[at][1]}'" for at in found)
        raise SpecError("target", target, f"is a column of several owners; name one of {whose}")
    if not found:
        if any(table.names is None for table in own):
            raise SpecError("target", target, "must be a position, counted from 0: there are columns without names")
        known = [name for _, name in names]
        raise SpecError(
            "target", target, f"is not a column. There is no {unknown_names([str(target)], known).removesuffix('.')}"
        )
    return found[0]


def fit_regression(tables: Sequence[Table], plan: RegressionPlan, target: str | int, job: Job) -> FittedRegression:
    """Fit tables that were opened by `open_rows` or `open_columns`."""
    by_columns = isinstance(plan.partition, Columns)
    place = target_of(tables, target, by_columns=by_columns)
    sources = [Source(table) for table in tables]
    if isinstance(plan.partition, Columns):
        job.start_soon()
        job.progress("owners, reading", None)
        found = fit_columns(
            job,
            sources,
            plan.partition,
            lambda data: plan.job(data, place, job.receiver),
            lambda rows: None,
            form=COLUMNS,
        )
        names = joint_names([source.records() for source in sources])
        return _read(found.job, found.result, names, place, job, found)
    missing = MEAN if missing_of(tables) == MEAN else REFUSE
    data = row_data(ROWS, len(tables), tables[0].n_columns, job.servers.member, missing=missing)
    spec = plan.job(data, place, job.receiver)
    job.start_soon()
    values = received(run(job, spec, sources).answer, job.receiver)
    return _read(spec, values, tables[0].names, place, job)


def _read(
    spec: JobSpec,
    values: dict[str, object],
    names: list[str] | None,
    target: int,
    job: Job,
    found: ColumnFit | None = None,
) -> FittedRegression:
    model: RegressionModel = result_of(Received(spec, job.receiver, values, job.account, names))
    return FittedRegression(model, job.account, target, names, found)
