"""What is chosen of a joint fit, refused before tables are read or servers started if it cannot be."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real

import numpy as np

from ..algorithms.solvers import AUTO, NAMES, TOLERANCE, TOPK
from ..jobs.kept import Allowed, allowance
from ..jobs.parts import MODEL
from ..jobs.pca import TOLERANCES, JointPCA
from ..jobs.spec import CLIENT, Data, JobSpec, Keep
from ..owner.errors import ParameterRefused
from .columns import Columns


@dataclass(frozen=True)
class Choices:
    """The parameters of a fit, by the names and with the meaning that `PCA` gives them."""

    n_components: int | float | None = None
    standardize: bool = False
    solver: str = AUTO
    tol: float = TOLERANCE
    fixed_iterations: int | None = None
    max_iterations: int | None = None
    keep: str | None = None
    reveal: bool = True
    allow: Sequence[str] | Mapping[str, Sequence[str]] = ("transform", "flags", "partial_fit")
    partition: str | Columns = "rows"

    def __post_init__(self) -> None:
        self._check_components()
        for name in ("standardize", "reveal"):
            check_switch(name, getattr(self, name))
        if not isinstance(self.solver, str) or self.solver not in NAMES:
            raise ParameterRefused("solver", self.solver, f"is unknown; choose from {', '.join(NAMES)}")
        if self.solver == TOPK and not _is_whole(self.n_components):
            raise ParameterRefused("solver", self.solver, "needs n_components as a whole number, or take 'allpairs'")
        low, high = TOLERANCES
        if isinstance(self.tol, bool) or not isinstance(self.tol, Real) or not low <= float(self.tol) <= high:
            raise ParameterRefused("tol", self.tol, f"must lie between {low:g} and {high:g}")
        for name in ("fixed_iterations", "max_iterations"):
            count = getattr(self, name)
            if count is not None and not (_is_whole(count) and count >= 1):
                raise ParameterRefused(name, count, "must be a whole number, at least 1")
        if self.keep is not None and not (isinstance(self.keep, str) and self.keep):
            raise ParameterRefused("keep", self.keep, "must be a name, under which the servers keep the model, or None")
        if not self.reveal and self.keep is None:
            raise ParameterRefused(
                "reveal", False, "needs a name under which the servers keep the model: nobody would have it"
            )
        if not (self.partition == "rows" or isinstance(self.partition, Columns)):
            raise ParameterRefused("partition", self.partition, "is unknown; choose 'rows' or ppca.Columns(id=...)")

    def _check_components(self) -> None:
        k = self.n_components
        if k is None or (_is_whole(k) and int(k) >= 1):
            return
        if not _is_whole(k) and isinstance(k, Real) and not isinstance(k, bool | np.bool_):
            if 0 < float(k) < 1:
                return
            cause = "must lie strictly between 0 and 1 to mean a part of the variance; a number of components is a whole one"
            raise ParameterRefused("n_components", k, cause)
        if _is_whole(k):
            raise ParameterRefused("n_components", k, "must be at least 1")
        cause = (
            "is no number of components: give a whole number, a part of the variance between 0 and 1, or None for all"
        )
        raise ParameterRefused("n_components", k, cause)

    def check_width(self, width: int) -> None:
        """Refuses more components than columns, before a table is read."""
        if _is_whole(self.n_components) and int(self.n_components or 0) > width:
            cause = f"must be between 1 and {width}, the number of columns"
            raise ParameterRefused("n_components", self.n_components, cause)

    def check_rows(self, rows: int, width: int) -> None:
        """Refuses what so few rows cannot give."""
        if rows < 2:
            raise ValueError(f"all owners together have {rows} row (n_samples={rows}); a covariance needs at least 2")
        if _is_whole(self.n_components) and int(self.n_components or 0) > min(rows, width):
            cause = f"must be at most min(rows, columns) = {min(rows, width)}"
            raise ParameterRefused("n_components", self.n_components, cause)

    def allowed(self, column_owners: int = 0) -> Allowed:
        """What the kept model may be used for, in full."""
        return {} if self.keep is None else allowance(self.allow, column_owners)

    def job(self, data: Data, column_owners: int = 0, without: Collection[str] = ()) -> JobSpec:
        """Return the job that fits these data. without: uses that a kept model of this form cannot have."""
        count = self.n_components
        components = None if count is None else int(count) if _is_whole(count) else float(count)
        allow = {use: tuple(whom) for use, whom in self.allowed(column_owners).items() if use not in without}
        return JobSpec(
            data=replace(data, standardize=bool(self.standardize)),
            analysis=JointPCA(
                components=components,
                solver=self.solver,
                tol=float(self.tol),
                fixed_iterations=None if self.fixed_iterations is None else int(self.fixed_iterations),
                max_iterations=None if self.max_iterations is None else int(self.max_iterations),
            ),
            receivers={CLIENT: (MODEL,) if self.reveal else ()},
            keep=None if self.keep is None else Keep(name=self.keep, allow=allow),
        )


def check_switch(name: str, value: object) -> None:
    if not isinstance(value, bool | np.bool_):
        raise ParameterRefused(name, value, "must be True or False")


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)
