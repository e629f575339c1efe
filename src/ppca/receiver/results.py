"""The result of a job for one receiver: checked against what the job can give, then an object of its analysis.

All results take this path: those of local jobs, those that `ppca fetch` gets and `ppca verify` computes again, and
those of kept models. An analysis from outside the package registers its reader with `register_reader`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from ..jobs.infer import UseModel
from ..jobs.inference import scale_of
from ..jobs.kept import Allowed
from ..jobs.parts import columns_for, own_columns
from ..jobs.pca import JointPCA, gets_model
from ..jobs.regression import JointRegression
from ..jobs.spec import MEAN, JobSpec
from ..runtime import Account
from .facts import SharedFacts
from .model import PCAModel
from .parts import Parts
from .plausible import check_fit, check_regression, check_uses
from .regression import RegressionModel


@dataclass
class Received:
    """The values that one receiver got of a finished job, and the facts that are needed to read them.

    values: as the servers returned them, joined for this receiver (`unsealing.received`). names: of all columns, None:
    without names. kept: the name under which servers keep a model. unverified: whether a decomposition that was not
    verified on shares is given all the same. The caller reports it.
    """

    job: JobSpec
    receiver: str
    values: dict[str, Any]
    account: Account
    names: list[str] | None
    kept: str | None = None
    unverified: bool = False


class Result(Protocol):
    """The result of a job for one receiver, in the units of the data."""

    def tables(self) -> dict[str, dict[str, Any]]:
        """Return tables by the names of their files: columns by their headings."""
        ...


class NoReader(ValueError):
    """This process does not know the reader of an analysis."""


Reader = Callable[[Received], Result]
READERS: dict[str, Reader] = {}
"""The reader of each analysis by its name. A reader raises `plausible.ImpossibleResult` or another ValueError for
values that the job cannot give."""


def register_reader(name: str, reader: Reader) -> None:
    """Register the reader of an analysis under the name of the analysis."""
    if READERS.setdefault(name, reader) is not reader:
        raise ValueError(f"{name} has a reader already; give the new analysis another name or version")


def result_of(found: Received) -> Any:
    """Return the checked result of a job."""
    name = found.job.analysis.NAME
    if name not in READERS:
        raise NoReader(
            f"a result of the analysis {name} cannot be read here: only those of {', '.join(sorted(READERS))} can. "
            "Import the module of this analysis first, which registers its reader."
        )
    return READERS[name](found)


@dataclass
class PCAResult:
    """The result of a joint PCA: a whole model, parts of one, or only the facts of a kept model.

    width: number of columns; names: of the columns, or None.
    """

    job: JobSpec
    receiver: str
    values: dict[str, Any]
    account: Account
    names: list[str] | None
    kept: str | None = field(default=None)

    @classmethod
    def read(cls, found: Received) -> Self:
        """Check the values of a fit."""
        job, columns = found.job, len(columns_for(found.job, found.receiver))
        check_fit(found.values, columns, standardized=job.data.standardize, unverified=found.unverified)
        return cls(job, found.receiver, found.values, found.account, found.names, found.kept)

    @property
    def analysis(self) -> JointPCA:
        """The parameters of the fit."""
        assert isinstance(self.job.analysis, JointPCA)
        return self.job.analysis

    @property
    def width(self) -> int:
        return self.job.data.width

    @property
    def rows(self) -> int:
        return int(self.values["rows"])

    @property
    def is_wide(self) -> bool:
        """True if the Gram matrix X X' was analysed instead of the covariance."""
        return "summed" in self.values

    @property
    def count(self) -> int:
        """Number of components."""
        return int(min(self.values["count"], self.rows))

    @property
    def scale(self) -> NDArray[np.int64]:
        """Exponents of the columns."""
        return np.broadcast_to(np.asarray(self.values["exponents"], np.int64), (self.width,)).copy()

    @property
    def mean_for_missing(self) -> bool:
        """True if missing values counted as a mean."""
        return self.job.data.missing == MEAN

    @property
    def whole(self) -> bool:
        """True if the receiver got all parts of the model."""
        return gets_model(self.job, self.receiver)

    @property
    def allowed(self) -> Allowed:
        """Allowed uses of the kept model, with the receivers of each."""
        return {} if self.job.keep is None else {use: list(whom) for use, whom in self.job.keep.allow.items()}

    @cached_property
    def model(self) -> PCAModel:
        """The revealed model."""
        if not self.whole:
            raise ValueError("this model was not revealed to anyone")
        return PCAModel.from_result(self.values, scale=self.scale, names=self.names, audit=self.account.audit)

    @property
    def parts(self) -> Parts:
        """The revealed parts."""
        width = len(columns_for(self.job, self.receiver))
        exponents = np.asarray(
            self.values.get("exponents", 0), np.int64
        )  # a receiver of loadings only gets no exponents and does not need them
        return Parts.of(self.values, np.broadcast_to(exponents, (width,)).copy())

    def tables(self) -> dict[str, dict[str, Any]]:
        """See `Result.tables`."""
        return self.parts.tables(columns_for(self.job, self.receiver))

    def without_parts(self) -> Self:
        """Return a copy without revealed values, which the model holds, for pickling."""
        small = {name: value for name, value in self.values.items() if np.ndim(value) == 0 or name == "exponents"}
        found = replace(self, values=small)
        if self.whole:
            vars(found)["model"] = self.model
        return found

    @property
    def shares_facts(self) -> bool:
        """True if servers keep the model and the receiver knows all columns' units, which a user of it needs."""
        return self.job.keep is not None and own_columns(self.job, self.receiver) is None

    @property
    def facts(self) -> SharedFacts:
        """Public facts of the model that the servers keep."""
        if self.kept is None:
            raise ValueError("this model is not kept on servers: fit with keep='name'")
        return SharedFacts(
            name=self.kept,
            scale_exponents=[int(e) for e in self.scale],
            standardized=self.job.data.standardize,
            components=self.count,
            rows=self.rows,
            feature_names=self.names,
            solver=self.values["solver"],
            iterations=self.values["iterations"],
            verified=self.values["verified"],
            tolerance=self.values["tolerance"],
            fell_back=self.values["fell_back"],
            allowed=self.allowed,
            audit=self.account.audit,
        )


@dataclass
class UseResult:
    """The result of the use of a kept model, in the units of the data; None: not among the parts of the job.

    rebuilt: rows in units of the servers.
    """

    values: dict[str, Any]
    exponent: int

    @classmethod
    def read(cls, found: Received) -> Self:
        """Check the values of the use of a model."""
        assert isinstance(found.job.analysis, UseModel)
        check_uses(found.values)
        return cls(found.values, scale_of(found.job))

    @property
    def coordinates(self) -> NDArray[np.float64] | None:
        return self._scaled("coordinates", self.exponent)

    @property
    def rebuilt(self) -> NDArray[np.float64] | None:
        return self._scaled("rebuilt", 0)

    @property
    def scores(self) -> NDArray[np.float64] | None:
        found = self._scaled("scores", 2 * self.exponent)
        return None if found is None else np.maximum(found, 0.0)

    @property
    def flags(self) -> NDArray[np.bool_] | None:
        return np.asarray(self.values["flags"]).astype(bool) if "flags" in self.values else None

    def _scaled(self, name: str, exponent: int) -> NDArray[np.float64] | None:
        return np.ldexp(np.asarray(self.values[name], np.float64), exponent) if name in self.values else None

    def tables(self) -> dict[str, dict[str, Any]]:
        """See `Result.tables`."""
        found: dict[str, Any] = {}
        if "tags" in self.values:  # whose rows they are, for an owner among the receivers
            tags = np.asarray(self.values["tags"]).tolist()
            found["pseudonym"] = [f"{high:016x}{low:016x}" for high, low in tags]
        if (z := self.coordinates) is not None:
            return {"projected.csv": found | {f"pc{i + 1}": z[:, i] for i in range(z.shape[1])}}
        if self.scores is not None:
            found["score"] = self.scores
        if self.flags is not None:
            found["flag"] = self.flags.astype(np.int64)
        return {"flags.csv": found}


def read_regression(found: Received) -> RegressionModel:
    """Check the values of a regression and put them into the units of the data."""
    analysis, columns = found.job.analysis, found.job.data.column_names
    assert isinstance(analysis, JointRegression)
    check_regression(found.values, len(columns), analysis.parts_of(found.job, found.receiver))
    names = columns if found.names is None else found.names
    named = replace(analysis, target=names[columns.index(analysis.target)])
    return RegressionModel.from_result(found.values, named, names, found.account.audit)


register_reader(JointPCA.NAME, PCAResult.read)
register_reader(UseModel.NAME, UseResult.read)
register_reader(JointRegression.NAME, read_regression)
