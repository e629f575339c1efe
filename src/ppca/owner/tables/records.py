"""An owner's rows in memory with their ids: what is aligned with the records of other owners, who hold other columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..errors import OwnerError
from .table import Table


@dataclass
class Records:
    """One owner's columns: values of shape (rows, columns), names if known, and the id column as it was given (or None)."""

    label: str
    values: NDArray[np.float64]
    names: list[str] | None
    ids: Any

    @classmethod
    def of(cls, table: Table) -> Self:
        """Reads a table, once."""
        values, ids = table.read()
        if ids is not None and len(ids) != len(values):
            raise OwnerError(f"{table.label}: {len(ids):,} ids for {len(values):,} rows.")
        if len(values):
            table.refuse_rounded(np.abs(values).max(axis=0), values.std(axis=0))
        return cls(table.label, values, table.names, ids)


def joint_names(owners: Sequence[Records]) -> list[str] | None:
    """All owners' column names; a name that two owners use is told apart by the owner."""
    if any(owner.names is None for owner in owners):
        return None
    every = [name for owner in owners for name in owner.names or []]
    twice = {name for name in every if every.count(name) > 1}
    return [f"{owner.label}:{name}" if name in twice else name for owner in owners for name in owner.names or []]
