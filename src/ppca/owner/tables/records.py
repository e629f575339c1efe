"""An owner's rows in memory with their ids: what is aligned with the records of other owners, who hold other columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..errors import OwnerError
from .table import Table, check_present


@dataclass
class Records:
    """One owner's columns: values of shape (rows, columns), names if known, and the id column as it was given (or None)."""

    label: str
    values: NDArray[np.float64]
    names: list[str] | None
    ids: Any

    @classmethod
    def of(cls, table: Table, *, fill: bool = False) -> Self:
        """Reads a table, once. `fill`: missing values may become the mean of their column, if the table is opened so."""
        fill = fill and table.mean_for_missing
        values, ids = table.read(check=not fill)
        if ids is not None and len(ids) != len(values):
            raise OwnerError(f"{table.label}: {len(ids):,} ids for {len(values):,} rows.")
        if fill and len(values):
            _fill_means(table, values)
        if len(values):
            table.refuse_rounded(np.abs(values).max(axis=0), values.std(axis=0))
        return cls(table.label, values, table.names, ids)


def _fill_means(table: Table, values: NDArray[np.float64]) -> None:
    """Puts the mean of the present values of its column (the value itself where they are equal) in place of every missing one."""
    missing = np.isnan(values)
    table.refuse_not_finite(np.where(missing, 0.0, values), 0)
    check_present(table, len(values) - np.count_nonzero(missing, axis=0))
    low, high = np.nanmin(values, axis=0), np.nanmax(values, axis=0)
    mean = np.where(low == high, low, np.nanmean(values, axis=0))
    np.copyto(values, mean, where=missing)


def joint_names(owners: Sequence[Records]) -> list[str] | None:
    """All owners' column names; a name that two owners use is told apart by the owner."""
    if any(owner.names is None for owner in owners):
        return None
    every = [name for owner in owners for name in owner.names or []]
    twice = {name for name in every if every.count(name) > 1}
    return [f"{owner.label}:{name}" if name in twice else name for owner in owners for name in owner.names or []]
