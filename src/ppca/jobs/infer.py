"""The analysis "infer/1": the use of a kept model on new rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from ..protocol import Party
from .checks import SpecError, check_name, check_range
from .inference import FLAGS, INVERSE, OPENED, SCORES, TRANSFORM, use
from .new_rows import SharedRows
from .openings import SAME_UNITS, AllowedOpening
from .spec import COORDINATES, NEW_COLUMNS, NEW_ROWS, Analysis, JobSpec

MAX_CONTAMINATION = 0.5
"""Maximum fraction of rows that can be flagged."""


def verdict_parts(threshold: float | None, contamination: float | None, scores: bool) -> list[str]:
    """Return the parts of a verdict on rows: flags if there is a limit, and scores; raise `SpecError` for invalid
    limits."""
    if threshold is not None:
        check_range("analysis.threshold", threshold, 0, math.inf)
    if contamination is not None and not 0 < contamination <= MAX_CONTAMINATION:
        cause = f"must be above 0 and at most {MAX_CONTAMINATION:g}"
        raise SpecError("analysis.contamination", contamination, cause)
    if threshold is not None and contamination is not None:
        raise SpecError("analysis.threshold", threshold, "give either a threshold or a contamination, not both")
    flags = threshold is not None or contamination is not None
    return [*([FLAGS] if flags else []), *([SCORES] if scores else [])]


@dataclass(frozen=True, kw_only=True)
class UseModel(Analysis):
    """Compute coordinates, anomaly scores or flags of new rows, or rebuild rows from coordinates.

    model: the name of the kept model; in a federation the id of the job that made it. model_owners: the owners of the
    model, which must approve.
    threshold: rows with a larger score are flagged, in squared units of the data. contamination: the fraction of
    rows that are flagged: those with the largest scores, and none with a score of zero.
    """

    NAME: ClassVar[str] = "infer/1"
    FORMS: ClassVar[frozenset[str]] = frozenset({NEW_ROWS, NEW_COLUMNS, COORDINATES})
    PARTS: ClassVar[tuple[str, ...]] = (TRANSFORM, SCORES, FLAGS, INVERSE)

    model: str
    model_owners: tuple[str, ...] = ()
    threshold: float | None = None
    contamination: float | None = None

    def check(self, job: JobSpec) -> None:
        """See `Analysis.check`."""
        for owner in self.model_owners:
            check_name("analysis.model_owners", owner)
        if len(job.receivers) != 1 or job.keep is not None:
            raise SpecError(
                "receivers", sorted(job.receivers), "a job that uses a model has exactly one receiver and keeps nothing"
            )
        ((receiver, parts),) = job.receivers.items()
        field = f"receivers.{receiver}"
        if not parts or len(set(parts)) < len(parts):
            raise SpecError(field, parts, "must name at least one part of the result, each once")
        if (job.data.form == COORDINATES) != (INVERSE in parts) or (INVERSE in parts and len(parts) > 1):
            raise SpecError(
                field,
                parts,
                f"'inverse' needs data of the form {COORDINATES!r}, and data of this form allow nothing else",
            )
        if TRANSFORM in parts and len(parts) > 1:
            raise SpecError(
                field, parts, "coordinates cannot be combined with other parts; submit a separate job for them"
            )
        if (FLAGS in parts) != (FLAGS in verdict_parts(self.threshold, self.contamination, SCORES in parts)):
            cause = "flags need either a threshold or a contamination; other parts need neither"
            raise SpecError("analysis.threshold", self.threshold, cause)

    def openings(self, job: JobSpec) -> list[AllowedOpening]:
        """See `Analysis.openings`."""
        found = [AllowedOpening(SAME_UNITS)] if job.data.check_inputs else []
        ((receiver, parts),) = job.receivers.items()
        return found + [AllowedOpening(OPENED[part], receiver) for part in self.PARTS if part in parts]

    async def run(self, party: Party, table: SharedRows, job: JobSpec) -> dict[str, Any]:
        """See `Analysis.run`."""
        limits = {"threshold": self.threshold, "contamination": self.contamination}
        return await use(party, table, job, model=self.model, **limits)

    def terms(self, job: JobSpec) -> list[str]:
        """See `Analysis.terms`."""
        owners, data = ", ".join(self.model_owners), job.data
        found = [f"uses the model of job {self.model[:12]} of {owners} on new rows of {', '.join(data.owners)}"]
        if data.standardize:
            found.append(
                "units: deviations of the columns in the fit; servers compare the scales with those of the model"
            )
        else:
            scale = (data.scales or (0,))[0]
            found.append(f"units: those of the data; servers compare the scale 2^{scale} with that of the model")
        if any(TRANSFORM in parts for parts in job.receivers.values()):
            found.append(
                "coordinates have many digits: if columns take few values, rows can be found from them and the components"
            )
        if self.threshold is not None:
            limit = f"{self.threshold:g}, in these units squared"
            found.append(f"flags: rows whose squared distance from the model is above {limit}")
        if self.contamination is not None:
            share = f"{self.contamination:.4g}"
            found.append(
                f"flags: a fraction of {share} of the new rows, those with the largest distance from the model"
            )
        return found

    @property
    def approvers(self) -> tuple[str, ...]:
        """The owners of the model."""
        return self.model_owners
