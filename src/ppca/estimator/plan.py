"""Parameters of a joint fit, checked before its tables are read and before servers start."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..jobs.checks import SpecError, check_switch
from ..jobs.kept import Allowed, allowance
from ..jobs.parts import MODEL
from ..jobs.pca import JointPCA, check_components
from ..jobs.spec import CLIENT, Data, JobSpec, Keep
from .partition import Columns


@dataclass(frozen=True)
class Plan:
    """A fit before its data are known: the analysis, what the servers keep, and the partition of the data."""

    analysis: JointPCA = field(default_factory=JointPCA)
    standardize: bool = False
    keep: str | None = None
    reveal: bool = True
    allow: Sequence[str] | Mapping[str, Sequence[str]] = ("transform", "flags", "partial_fit")
    partition: str | Columns = "rows"

    def __post_init__(self) -> None:
        for name in ("standardize", "reveal"):
            value = getattr(self, name)
            check_switch(name, bool(value) if isinstance(value, np.bool_) else value)
        if self.keep is not None and not (isinstance(self.keep, str) and self.keep):
            raise SpecError("keep", self.keep, "must be a name, under which the servers keep the model, or None")
        if not self.reveal and self.keep is None:
            raise SpecError(
                "reveal",
                False,
                "needs keep, a name under which the servers keep the model: otherwise the result would be lost",
            )
        if not (self.partition == "rows" or isinstance(self.partition, Columns)):
            raise SpecError("partition", self.partition, "is unknown; choose 'rows' or ppca.Columns(id=...)")

    def check_width(self, width: int) -> None:
        """Raise for more components than columns, before a table is read."""
        check_components(self.analysis.components, width)

    def check_rows(self, rows: int, width: int) -> None:
        """Raise for parameters that this number of rows does not allow."""
        if rows < 2:
            raise ValueError(f"all owners together have {rows} row (n_samples={rows}); a covariance needs at least 2")
        components = self.analysis.components
        if isinstance(components, int) and components > min(rows, width):
            cause = f"must be at most min(rows, columns) = {min(rows, width)}"
            raise SpecError("analysis.components", components, cause)

    def allowed(self, column_owners: int = 0) -> Allowed:
        """Return the allowed receivers of each allowed use of the kept model."""
        return {} if self.keep is None else allowance(self.allow, column_owners)

    def job(self, data: Data, column_owners: int = 0, without: Collection[str] = (), receiver: str = CLIENT) -> JobSpec:
        """Return the job that fits these data. without: uses that a kept model of this form cannot have."""
        allow = {use: tuple(whom) for use, whom in self.allowed(column_owners).items() if use not in without}
        return JobSpec(
            data=replace(data, standardize=bool(self.standardize)),
            analysis=self.analysis,
            receivers={receiver: (MODEL,) if self.reveal else ()},
            keep=None if self.keep is None else Keep(name=self.keep, allow=allow),
        )


def plain(value: Any) -> Any:
    """Convert NumPy numbers to Python numbers; return anything else unchanged."""
    return value.item() if isinstance(value, np.number) else value
