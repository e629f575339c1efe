"""An analysis from outside the package, as an example: one class. `harness.outside_registered` registers it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ppca.algorithms.joint_covariance import JointCovariance
from ppca.algorithms.scales import floating
from ppca.jobs.checks import SpecError, check_switch
from ppca.jobs.openings import AllowedOpening
from ppca.jobs.spec import ROWS, Analysis, JobSpec
from ppca.protocol import Party


@dataclass(frozen=True, kw_only=True)
class JointMeans(Analysis):
    """The joint mean of every column. with_rows: also the number of rows of all owners together."""

    NAME: ClassVar[str] = "means/1"
    FORMS: ClassVar[frozenset[str]] = frozenset({ROWS})
    PARTS: ClassVar[tuple[str, ...]] = ("means",)

    with_rows: bool = False

    def check(self, job: JobSpec) -> None:
        check_switch("analysis.with_rows", self.with_rows)
        if job.keep is not None:
            raise SpecError("keep", job.keep.name, "means are no model that servers can keep")

    def openings(self, job: JobSpec) -> list[AllowedOpening]:
        whats = ["means", "scale of the means", *(["number of rows"] if self.with_rows else [])]
        return [AllowedOpening(what, receiver) for receiver in job.receivers for what in whats]

    def terms(self, job: JobSpec) -> list[str]:
        return [f"means of {job.data.width} columns" + (", and the number of rows" if self.with_rows else "")]

    async def run(self, party: Party, table: JointCovariance, job: JobSpec) -> dict[str, Any]:
        mean, exponent = await floating(table.mean_mantissa, table.mean_exponent)
        to: dict[str, Any] = {}
        for name in job.receivers:
            to[name] = {
                "mean": mean.reveal(name, what="means", why="agreed result"),
                "exponents": exponent.reveal(name, what="scale of the means", why="agreed result"),
            }
            if self.with_rows:
                to[name]["rows"] = table.n_rows.reveal(name, what="number of rows", why="agreed result")
        return {"to": to}
