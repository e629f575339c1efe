"""An owner's rows in memory with their ids: what is aligned with the records of other owners, who hold other columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..errors import OwnerError
from .integers import Rest
from .table import Table


@dataclass
class Records:
    """One owner's columns: values of shape (rows, columns), names if known, and the id column as it was given (or None).

    rest: what rounding integers beyond 2^53 left of the values, to be added; None: nothing.
    """

    label: str
    values: NDArray[np.float64]
    names: list[str] | None
    ids: Any
    rest: Rest | None = None

    @classmethod
    def of(cls, table: Table) -> Self:
        """Reads a table, once."""
        values, rest, ids = table.read_exactly()
        if ids is not None and len(ids) != len(values):
            raise OwnerError(f"{table.label}: {len(ids):,} ids for {len(values):,} rows.")
        return cls(table.label, values, table.names, ids, rest)


def joint_names(owners: Sequence[Records]) -> list[str] | None:
    """All owners' column names; a name that two owners use is told apart by the owner."""
    if any(owner.names is None for owner in owners):
        return None
    every = [name for owner in owners for name in owner.names or []]
    twice = {name for name in every if every.count(name) > 1}
    return [f"{owner.label}:{name}" if name in twice else name for owner in owners for name in owner.names or []]
