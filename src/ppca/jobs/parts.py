"""Parts of the result of a joint PCA: which receiver gets which part, and of which columns."""

from __future__ import annotations

from collections.abc import Collection

from .spec import JobSpec

MODEL = "model"
"""All parts that make a whole model."""

LOADINGS = "loadings"
"""For a column owner, instead of components: the rows of the components that belong to its own columns. It then also
gets means and deviations of its own columns only."""

PARTS = ("components", LOADINGS, "variances", "means", "deviations")
"""Parts that a receiver can get, besides the facts: number of rows and, if `has_scales`, scale exponents."""

WHOLE = tuple(part for part in PARTS if part != LOADINGS)
"""The parts of a whole model."""


def parts_of(job: JobSpec, receiver: str) -> list[str]:
    """Return the parts that a receiver gets, in the order of `PARTS`, a whole model as its parts."""
    named = job.receivers[receiver]
    wanted = WHOLE if MODEL in named else tuple(part for part in PARTS if part in named)
    return [part for part in wanted if part != "deviations" or job.data.standardize]


def parts_by_receiver(job: JobSpec) -> dict[str, list[str]]:
    """Return the parts of every receiver."""
    return {receiver: parts_of(job, receiver) for receiver in job.receivers}


def own_columns(job: JobSpec, receiver: str) -> slice | None:
    """Return the columns of a receiver of loadings; None: the receiver gets values of all columns."""
    return job.data.columns_of(receiver) if LOADINGS in job.receivers[receiver] else None


def columns_for(job: JobSpec, receiver: str) -> list[str]:
    """Return the names of the columns in a receiver's result."""
    own, names = own_columns(job, receiver), job.data.column_names
    return names if own is None else names[own]


def has_scales(parts: Collection[str], standardized: bool) -> bool:
    """Return whether a receiver of these parts gets scale exponents: a receiver of loadings only if it needs them."""
    return LOADINGS not in parts or ("deviations" if standardized else "variances") in parts
