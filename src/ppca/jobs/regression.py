"""The analysis "regression/1": joint linear regression of one column on all others.

Servers solve on shares and open two bits: whether the columns are far enough from linearly dependent, then whether the
solution is as accurate as promised. If one of them is 0, the job ends and nothing else is opened. See
`algorithms.regression`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Any, ClassVar

from ..algorithms import regression
from ..algorithms.joint_covariance import JointCovariance
from ..algorithms.linear_system import is_acceptable, is_solved
from ..algorithms.regression import Regression, regress
from ..protocol import Party, SecretArray, ready, together
from .checks import SpecError, check_choice, check_range, check_switch
from .errors import Refusal
from .openings import AllowedOpening
from .spec import COLUMNS, ROWS, Analysis, JobSpec

OLS, RIDGE = "ols", "ridge"
METHODS = (OLS, RIDGE)

RESULT = "result"
"""All parts that a receiver gets unless it is said otherwise."""

CORRELATION, INFLATION = "correlation", "vif"
OPENED = {
    "coefficients": ("coefficients", "scale of the coefficients"),
    "intercept": ("intercept", "scale of the intercept"),
    "errors": ("standard errors", "scale of the standard errors"),
    "r2": ("unexplained share of the variance",),
    "residuals": ("residual sum of squares", "scale of the residuals"),
    CORRELATION: ("correlation matrix",),
    INFLATION: ("variance inflation factors",),
}
"""The values that are revealed for each part of the result."""

WHOLE = ("coefficients", "intercept", "errors", "r2", "residuals")
"""The parts of `RESULT`."""

OLS_ONLY = frozenset({"errors", CORRELATION, INFLATION})

MAX_ALPHA = 1e8


@dataclass(frozen=True, kw_only=True)
class JointRegression(Analysis):
    """Coefficients of a regression of the column `target` on all other columns, with an intercept.

    method: one of `METHODS`. alpha: the penalty of ridge. scaled: the penalty is for columns divided by their
    deviation.
    """

    NAME: ClassVar[str] = "regression/1"
    FORMS: ClassVar[frozenset[str]] = frozenset({ROWS, COLUMNS})
    PARTS: ClassVar[tuple[str, ...]] = (RESULT, *OPENED)

    target: str
    method: str = OLS
    alpha: float = 0.0
    scaled: bool = False

    def __post_init__(self) -> None:
        check_choice("analysis.method", self.method, METHODS)
        check_switch("analysis.scaled", self.scaled)
        check_range("analysis.alpha", self.alpha, 0, MAX_ALPHA)
        if (self.method == RIDGE) != (self.alpha > 0):
            raise SpecError(
                "analysis.alpha", self.alpha, "is the penalty of ridge: above 0 for it, 0 for other methods"
            )

    def check(self, job: JobSpec) -> None:
        """See `Analysis.check`."""
        names = job.data.column_names
        if len(names) < job.data.width:
            raise SpecError(
                "data.columns",
                "a digest",
                "columns must be listed by name for a regression: at most 1,024 on local servers",
            )
        if self.target not in names:
            raise SpecError("analysis.target", self.target, "is not a column of the job")
        if len(names) < 2:
            raise SpecError("data.columns", names, "a regression needs at least one column beside the target")
        if not job.data.standardize:
            cause = "must be true for a regression: every column then has a unit of its own, and keeps its digits"
            raise SpecError("data.standardize", False, cause)
        if job.keep is not None or job.data.add_to is not None:
            raise SpecError("keep", "a name", "servers keep no regressions")
        for receiver, parts in job.receivers.items():
            for part in OLS_ONLY & set(parts):
                if self.method != OLS:
                    raise SpecError(f"receivers.{receiver}", part, f"is not possible with method {self.method!r}")

    def parts_of(self, job: JobSpec, receiver: str) -> list[str]:
        """Return the parts that a receiver gets, in the order of `OPENED`."""
        named = set(job.receivers[receiver])
        if RESULT in named:
            named |= {part for part in WHOLE if part not in OLS_ONLY or self.method == OLS}
        if "errors" in named:  # standard errors of an almost exact fit are noise, and only this number tells
            named.add("r2")
        return [part for part in OPENED if part in named]

    def openings(self, job: JobSpec) -> list[AllowedOpening]:
        """See `Analysis.openings`."""
        found = [AllowedOpening("condition bit"), AllowedOpening("verification bit")]
        for receiver in job.receivers:
            whats = [] if job.data.by_columns else ["number of rows"]
            whats += [what for part in self.parts_of(job, receiver) for what in OPENED[part]]
            found += [AllowedOpening(what, receiver) for what in whats]
        return found

    def terms(self, job: JobSpec) -> list[str]:
        """See `Analysis.terms`."""
        how = "by least squares"
        if self.method == RIDGE:
            units = "columns divided by their deviation" if self.scaled else "columns in their units"
            how = f"by ridge regression, alpha = {self.alpha:g} for {units}"
        return [f"linear regression of {self.target!r} on {job.data.width - 1} columns, {how}"]

    async def run(self, party: Party, table: JointCovariance, job: JobSpec) -> dict[str, Any]:
        """See `Analysis.run`."""
        rows = table.n_rows
        with party.stage("regression"):
            party.progress("regression", 0.0)
            found = await regress(table, job.data.column_names.index(self.target), self.alpha, self.scaled)
            await _check(found, self.method)
        with party.stage("result"):
            parts = {receiver: self.parts_of(job, receiver) for receiver in job.receivers}
            values = await _values(found, {part for named in parts.values() for part in named})
            to = {receiver: _revealed(receiver, named, values, rows) for receiver, named in parts.items()}
            party.progress("result", 1.0)
        public = {"rows": rows, "share": table.n_rows_scaled / rows} if isinstance(rows, int) else {}
        return public | {"resolution": table.column_error, "to": to}


async def _check(found: Regression, method: str) -> None:
    """Open the condition bit, then the verification bit, and refuse the job if one of them is 0."""
    acceptable, solved = await together(
        is_acceptable(found.system.varies, found.solution.inflation), is_solved(found.solution)
    )
    why = "are the columns far enough from linearly dependent"
    if not await acceptable.open(what="condition bit", why=why):
        advice = {
            OLS: "Leave out constant columns and columns that follow from others (all of a set of 0/1 columns but one), "
            "or use ridge regression",
            RIDGE: "Choose a penalty that is larger, or smaller if it outweighs the data by far, or leave out columns",
        }[method]
        raise Refusal(
            "the regression does not have a reliable solution: a column is constant, or columns are (nearly) "
            f"linearly dependent (their variance inflation factors sum to more than 2^20). {advice}. Nothing but "
            "this bit was opened."
        )
    if not await solved.open(what="verification bit", why="is the solution as accurate as promised"):
        raise Refusal(
            "the check on shares failed: the solution is less accurate than promised, and was not revealed. Run the "
            "job again; if it fails again, leave out columns that depend on others."
        )


async def _values(found: Regression, parts: Collection[str]) -> dict[str, tuple[SecretArray, ...]]:
    """The values of all parts that some receiver gets, computed together."""
    ways: dict[str, Callable[[Regression], Awaitable[Any]]] = {
        "coefficients": regression.coefficients,
        "intercept": regression.intercept,
        "errors": regression.standard_errors,
        "r2": regression.unexplained,
        "residuals": regression.residuals,
        CORRELATION: regression.correlation,
        INFLATION: lambda found: ready(found.solution.inflation),
    }
    names = [part for part in ways if part in parts]
    values = await together(*(ways[part](found) for part in names))
    return {part: value if isinstance(value, tuple) else (value,) for part, value in zip(names, values, strict=True)}


def _revealed(
    receiver: str, parts: Collection[str], values: dict[str, tuple[SecretArray, ...]], rows: Any
) -> dict[str, Any]:
    """Return what one receiver gets, by the name of the opening."""
    why = "agreed result"
    found = {} if isinstance(rows, int) else {"rows": rows.reveal(receiver, what="number of rows", why=why)}
    for part in parts:
        for what, array in zip(OPENED[part], values[part], strict=True):
            found[what] = array.reveal(receiver, what=what, why=why)
    return found
