"""The analysis "pca/1": joint principal component analysis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ..algorithms.joint_covariance import JointCovariance
from ..algorithms.solvers import AUTO, NAMES, TOLERANCE, TOPK, chosen_solver, max_convergence_bits
from ..algorithms.topk import DEGREES
from ..protocol import Party
from .analysis import analyse
from .checks import SpecError, check_choice, check_range, check_whole
from .openings import BY_COLUMN, NEXT, AllowedOpening
from .parts import LOADINGS, MODEL, PARTS, WHOLE, has_scales, parts_of
from .spec import COLUMNS, ROWS, WIDE_COLUMNS, WIDE_ROWS, Analysis, JobSpec
from .wide import SharedWide, analyse_wide

OPENED = {
    "components": ("components",),
    LOADINGS: ("loadings",),
    "variances": ("explained variance", "total variance", "scale of the variance"),
    "means": ("means", "scale of the means"),
    "deviations": ("deviations", "scale of the deviations"),
}
"""The values that are revealed for each part of the result."""

TOLERANCES = (1e-9, 1e-2)
MAX_ITERATIONS = 100_000
"""Maximum of `fixed_iterations` and `max_iterations`."""


@dataclass(frozen=True, kw_only=True)
class JointPCA(Analysis):
    """Components and variances of the joint covariance, or of the joint correlation if the data are standardized.

    components: number of components; between 0 and 1: fraction of the variance that they explain; None: all. solver:
    one of `solvers.NAMES`. tol: the residual at which the solver stops. fixed_iterations: run this many iterations and
    open no convergence bits. max_iterations: give up after this many (None: the default of the solver).
    """

    NAME: ClassVar[str] = "pca/1"
    FORMS: ClassVar[frozenset[str]] = frozenset({ROWS, COLUMNS, WIDE_ROWS, WIDE_COLUMNS})
    PARTS: ClassVar[tuple[str, ...]] = (*PARTS, MODEL)

    components: int | float | None = None
    solver: str = AUTO
    tol: float = TOLERANCE
    fixed_iterations: int | None = None
    max_iterations: int | None = None

    def __post_init__(self) -> None:
        self._check_components()
        check_choice("analysis.solver", self.solver, NAMES)
        if self.solver == TOPK and not isinstance(self.components, int):
            raise SpecError(
                "analysis.solver", self.solver, "needs a whole number of components; give one, or choose 'allpairs'"
            )
        check_range("analysis.tol", self.tol, *TOLERANCES)
        for name in ("fixed_iterations", "max_iterations"):
            if getattr(self, name) is not None:
                check_whole(f"analysis.{name}", getattr(self, name), 1, MAX_ITERATIONS)

    def _check_components(self) -> None:
        if self.components is None:
            return
        if isinstance(self.components, float):
            if not 0 < self.components < 1:
                cause = "must be a whole number of components, or a fraction of the variance strictly between 0 and 1"
                raise SpecError("analysis.components", self.components, cause)
            return
        check_whole("analysis.components", self.components, 1)

    def check(self, job: JobSpec) -> None:
        """See `Analysis.check`."""
        check_components(self.components, job.data.width)
        for receiver, parts in job.receivers.items():
            if LOADINGS in parts:
                _check_loadings(job, receiver)

    def openings(self, job: JobSpec) -> list[AllowedOpening]:
        """See `Analysis.openings`."""
        return [*self._to_servers(job), *(line for name in job.receivers for line in _to_receiver(job, name))]

    async def run(self, party: Party, table: JointCovariance | SharedWide, job: JobSpec) -> dict[str, Any]:
        """See `Analysis.run`."""
        if isinstance(table, SharedWide):
            return await analyse_wide(party, table, job)
        return await analyse(party, table, job)

    def terms(self, job: JobSpec) -> list[str]:
        """See `Analysis.terms`."""
        width = job.data.width
        if isinstance(self.components, float):
            return [
                f"principal components: the number that explains a fraction {self.components:.4g} of "
                f"the variance, at most {width}"
            ]
        if self.components in (None, width):
            return [f"principal components: all, at most {width}"]
        return [f"principal components: {self.components} of at most {width}"]

    def _to_servers(self, job: JobSpec) -> list[AllowedOpening]:
        # A wide job decomposes products of rows. There are fewer rows than columns, with one row of zeros for each
        # table.
        most = job.data.width + (len(job.data.widths) if job.data.is_wide else 0)
        solver = chosen_solver(self.solver, most, self.components, self.fixed_iterations)
        loops = len(DEGREES) + 1 if solver == TOPK else 0
        found: list[AllowedOpening] = []
        if self.fixed_iterations is None:
            bits = max_convergence_bits(solver, most, self.max_iterations)
            if job.data.is_wide and solver == TOPK:  # with few rows, `auto` takes all-pairs
                bits = max(bits, max_convergence_bits("allpairs", most, self.max_iterations))
            found.append(AllowedOpening("convergence bit", most=bits))
            if loops:
                found.append(AllowedOpening("convergence level", most=loops))
        found.append(AllowedOpening("verification bit", most=3 if loops else 2))
        if most > 1 or loops:
            found.append(AllowedOpening("shuffled ranks", most=2 + loops))
        if isinstance(self.components, float):
            found.append(AllowedOpening("number of components"))
        if job.data.is_wide:
            found.append(AllowedOpening("verification of components"))
        return found


def check_components(components: int | float | None, width: int) -> None:
    """Raise `SpecError` for more components than columns."""
    if isinstance(components, int) and components > width:
        raise SpecError("analysis.components", components, f"must be at most {width}, the number of columns")


def gets_model(job: JobSpec, receiver: str) -> bool:
    """Return whether a receiver gets all parts that make a whole model."""
    whole = {part for part in WHOLE if part != "deviations" or job.data.standardize}
    return isinstance(job.analysis, JointPCA) and not whole - set(parts_of(job, receiver))


def _check_loadings(job: JobSpec, receiver: str) -> None:
    parts = job.receivers[receiver]
    if not job.data.by_columns or receiver not in job.data.owners:
        raise SpecError(f"receivers.{receiver}", LOADINGS, "are for a column owner, of its own columns")
    if {"components", MODEL} & set(parts):
        raise SpecError(f"receivers.{receiver}", LOADINGS, "are given instead of components; name one of the two")


def _to_receiver(job: JobSpec, receiver: str) -> list[AllowedOpening]:
    """Return the openings to a receiver. With loadings it gets no values of others' columns. Raw data have one scale
    exponent."""
    parts, standardized = parts_of(job, receiver), job.data.standardize
    found = [] if job.data.by_columns else ["number of rows"]
    found += ["scale exponents"] if has_scales(parts, standardized) else []
    found += [what for part in parts for what in OPENED[part]]
    if {"components", "variances"} <= set(parts) and _leaves_out(job):
        found.insert(found.index("explained variance") + 1, NEXT)
    if LOADINGS in parts:
        own = set(BY_COLUMN) - (set() if standardized else {"scale exponents"})
        found = [f"own {what}" if what in own else what for what in found]
    return [AllowedOpening(what, receiver) for what in found]


def _leaves_out(job: JobSpec) -> bool:
    """Return whether the result can have fewer components than there are columns (in a wide job: rows)."""
    return isinstance(job.analysis, JointPCA) and job.analysis.components not in (None, job.data.width)
