"""The openings list of a job: each value that is opened, to whom, how often at most, and its meaning.

Servers enforce this list.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..protocol.opening import SERVERS

IN_RANGE = "inputs in range"
ROW_SHARES = "shares of single rows"
SAME_UNITS = "units of the model"
ROUNDED = "rounded numbers of rows"
MATCHES = "match pattern of pseudonyms"
ENOUGH_ROWS = "enough rows"
TAGS = "tags of common rows"
NEXT = "bound of the next variance"
"""Upper bound of the variances that are left out, for receivers of components and variances if some are left out."""


ROWS_TOGETHER = 32
"""A row owner's number of rows in a wide job is rounded up to a multiple of this; only the rounded number is
visible."""

BY_COLUMN = {
    "scale exponents": "a power of two above the spread of the columns",
    "means": "the joint mean of every column",
    "scale of the means": "the unit of the means",
    "deviations": "the joint deviation of every column",
    "scale of the deviations": "the unit of the deviations",
}
MEANING = {
    ROW_SHARES: "one bit per owner: whether each row has less than the agreed share of the sum of squares of each column",
    SAME_UNITS: "one bit: whether the units of the new rows are those of the model",
    IN_RANGE: "one bit per owner: whether its numbers are in the range that unmodified clients send",
    ENOUGH_ROWS: "one bit: whether all owners together have at least the number of rows that the job requires",
    "convergence bit": "one bit per iteration: whether the eigensolver has converged",
    "convergence level": "one number per loop: how far the eigensolver's residual is from the tolerance (13 values), whether its "
    "columns are orthonormal, and how many of two eigenvalues are below 1/256 of the first",
    "verification bit": "one bit: whether the decomposition or solution is as accurate as promised",
    "condition bit": "one bit: whether the columns are far enough from linearly dependent, and none is constant",
    "shuffled ranks": "a uniformly random permutation: nothing",
    "number of components": "the number of components that explain the requested fraction of the variance",
    MATCHES: "the number of rows of every owner, and which pseudonyms any group of owners has in common",
    ROUNDED: f"the number of rows of every owner, rounded up to a multiple of {ROWS_TOGETHER}; all members of the job "
    "also see it from the sizes of uploads",
    "verification of components": "one of three values: whether the components are as accurate as promised, at two tolerances",
    "number of rows": "the number of rows of all owners together",
    **BY_COLUMN,
    "components": "the principal components: how columns vary together",
    "loadings": "the loadings of its own columns; with its own rows it can estimate the coordinates of all rows, "
    "the more accurately the more of the variance the components explain",
    "explained variance": "the variance along every component",
    "total variance": "the sum of the variances of all columns",
    "scale of the variance": "the unit of the variances",
    NEXT: "an upper bound of the variance along every component that was left out, close to the largest of these",
    **{f"own {what}": f"{meaning}, its own columns only" for what, meaning in BY_COLUMN.items()},
    "coordinates": "the coordinates of the new rows along the components",
    "rebuilt rows": "the rows rebuilt from the coordinates, as far as the components describe them",
    "anomaly scores": "the distance of every new row from the model",
    "anomaly flags": "whether each new row is anomalous",
    "coefficients": "how the target changes with every column while the others are the same",
    "scale of the coefficients": "the unit of the coefficients",
    "intercept": "one number: the mean of the target minus the means of the columns times their coefficients",
    "scale of the intercept": "the unit of the intercept",
    "standard errors": "how uncertain every coefficient is; with the other results it tells the columns' spread",
    "scale of the standard errors": "the unit of the standard errors",
    "unexplained share of the variance": "how much of the target's variance the columns do not explain",
    "residual sum of squares": "how far rows lie from the regression, all together",
    "scale of the residuals": "the unit of the residual sum of squares",
    "correlation matrix": "how strongly every two columns vary together, also columns of different owners; with a column "
    "that marks one person it tells that person's values",
    "variance inflation factors": "how well every column follows from the others",
    TAGS: "which of its own rows all owners have in common",
}
"""The meaning of each opening, as approvers read it."""


def is_unit(what: str) -> bool:
    """Return whether an opening only states the unit of another one."""
    return what.removeprefix("own ").startswith("scale ")


@dataclass(frozen=True)
class AllowedOpening:
    """One kind of opening. to: "servers" or a receiver. most: the maximum number of times in one attempt."""

    what: str
    to: str = SERVERS
    most: int = 1

    @property
    def meaning(self) -> str:
        """The meaning of the opened value."""
        return MEANING[self.what]

    def rule(self) -> dict[str, Any]:
        """Return the entry that `protocol.opening.limits` takes."""
        return {"what": self.what, "to": self.to, "most": self.most}
