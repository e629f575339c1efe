"""What jobs open, to whom, how often at most, and what it tells. Owners approve this list and servers enforce it."""

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
"""What a receiver of components and variances gets if some are left out: a number that no variance left out exceeds."""


ROWS_TOGETHER = 32
"""A row owner's number of rows in a wide job is rounded up to a multiple of this, and only that is seen."""

BY_COLUMN = {
    "scale exponents": "a power of two above the spread of the columns",
    "means": "the joint mean of every column",
    "scale of the means": "the unit of the means",
    "deviations": "the joint deviation of every column",
    "scale of the deviations": "the unit of the deviations",
}
MEANING = {
    ROW_SHARES: "one bit per owner: whether in each of its columns every row has less than the agreed part of the sum of squares",
    SAME_UNITS: "one bit: whether the units of the new rows are those of the model",
    IN_RANGE: "one bit per owner: whether its numbers are in the range that every unmodified client keeps",
    ENOUGH_ROWS: "one bit: whether all owners together have as many rows as the job asks for",
    "convergence bit": "one bit per iteration: how the eigensolver proceeds",
    "convergence level": "one number per loop: how far the eigensolver's residual is from the tolerance (13 values), whether its "
    "columns are orthonormal, and how many of two eigenvalues are below 1/256 of the first",
    "verification bit": "one bit: whether the decomposition is as accurate as promised",
    "shuffled ranks": "a uniformly random permutation: nothing",
    "number of components": "how many components explain the part of the variance that was asked for",
    MATCHES: "how many rows every owner has, and which pseudonyms all owners have in common",
    ROUNDED: f"how many rows every owner has, rounded up to a multiple of {ROWS_TOGETHER}; all who have a part in the job see "
    "that, too, from the sizes of uploads",
    "verification of components": "one of three values: whether the components are as accurate as promised, at two tolerances",
    "number of rows": "how many rows all owners have together",
    **BY_COLUMN,
    "components": "the principal components: how columns vary together",
    "loadings": "what the principal components say of its own columns; with its own rows it can compute from that where all rows "
    "lie along them, the better the more of the variance they explain",
    "explained variance": "the variance along every component",
    "total variance": "the sum of the variances of all columns",
    "scale of the variance": "the unit of the variances",
    NEXT: "a number that no variance along a component that was left out exceeds, close to the largest of these",
    **{f"own {what}": f"{meaning}, its own columns only" for what, meaning in BY_COLUMN.items()},
    "coordinates": "the coordinates of the new rows along the components",
    "rebuilt rows": "the rows that belong to the coordinates, as far as the components describe them",
    "anomaly scores": "how far every new row is from what the model expects",
    "anomaly flags": "which of the new rows are anomalous",
    TAGS: "which of its own rows all owners have in common",
}
"""What each opening tells its readers, as approvers read it."""


def is_unit(what: str) -> bool:
    """Whether an opening only says in which unit another one is, and nothing that a person would ask for."""
    return what.removeprefix("own ").startswith("scale ")


@dataclass(frozen=True)
class AllowedOpening:
    """One kind of opening. to: "servers" or a receiver. most: the maximum number of times in one attempt."""

    what: str
    to: str = SERVERS
    most: int = 1

    @property
    def meaning(self) -> str:
        """What the opened value tells."""
        return MEANING[self.what]

    def rule(self) -> dict[str, Any]:
        """Return the entry that `protocol.opening.limits` takes."""
        return {"what": self.what, "to": self.to, "most": self.most}
