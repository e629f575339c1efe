"""An owner's rows with their ids, read or passed over: what is aligned with the records of owners of other columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from ..errors import NoRows, OwnerError, TooFewRows
from .integers import Rest
from .table import Table, check_present
from .two_pass import TwoPassValues

HELD_NUMBERS = 1 << 24
"""Numbers of a table that is held in memory, if their number is known before it is read: 128 MB."""


@dataclass
class Records:
    """One owner's columns: values of shape (rows, columns), names if known, and the id column as it was given (or
    None).

    rest: what rounding integers beyond 2^53 left of the values, to be added; None: nothing.
    """

    label: str
    values: NDArray[np.float64]
    names: list[str] | None
    ids: Any
    rest: Rest | None = None

    @classmethod
    def for_upload(cls, table: Table, *, in_order: bool, columns: int, fill: bool = False) -> Self:
        """A table whose rows are to be sent: read, or, if they leave in its order and are many, passed over (see
        `passed`).

        columns: of all owners; if there are fewer rows than that, columns are sent instead. Integers that doubles
        round, and missing values that become means, are known only when the whole table is, so such tables are read.
        """
        fill = fill and table.mean_for_missing
        few = table.rows is not None and (table.rows * table.n_columns <= HELD_NUMBERS or table.rows < columns)
        if in_order and not fill and not few:
            passed = TwoPassValues(table)
            if not passed.rounded and len(passed) >= columns:
                TooFewRows.refuse(table.label, len(passed), table.min_rows)
                return cls(table.label, cast(Any, passed), table.names, passed.ids)
        return cls.of(table, fill=fill)

    @classmethod
    def of(cls, table: Table, *, fill: bool = False) -> Self:
        """Read a table, once. `fill`: missing values may become the mean of their column, if the table is opened
        so."""
        fill = fill and table.mean_for_missing
        values, rest, ids = table.read_exactly(check=not fill)
        if not len(values):
            raise NoRows.for_none(table.label)
        TooFewRows.refuse(table.label, len(values), table.min_rows)
        if ids is not None and len(ids) != len(values):
            raise OwnerError(f"{table.label}: {len(ids):,} ids for {len(values):,} rows.")
        if fill and len(values):
            rest = _fill_means(table, values, rest)
        return cls(table.label, values, table.names, ids, rest)


def _fill_means(table: Table, values: NDArray[np.float64], rest: Rest | None) -> Rest | None:
    """Replace every missing value by the mean of the present values of its column (the value itself if they are equal).

    Returns the rest, with the rounding errors of these means.
    """
    missing = np.isnan(values)
    if np.isinf(values).any():
        table.refuse_values(missing=False)
    check_present(table, len(values) - np.count_nonzero(missing, axis=0))
    low, high = np.nanmin(values, axis=0), np.nanmax(values, axis=0)
    mean = np.where(low == high, low, np.nanmean(values, axis=0))
    if rest is not None:
        away = (values - mean) + rest
        low, high = np.nanmin(away, axis=0), np.nanmax(away, axis=0)
        fine = np.where(low == high, low, np.nanmean(away, axis=0))
        rest = np.where(missing, np.where(rest.any(axis=0), fine, 0.0), rest)
    np.copyto(values, mean, where=missing)
    return rest


def joint_names(owners: Sequence[Records]) -> list[str] | None:
    """All owners' column names; a name that two owners use is told apart by the owner."""
    if any(owner.names is None for owner in owners):
        return None
    every = [name for owner in owners for name in owner.names or []]
    twice = {name for name in every if every.count(name) > 1}
    return [f"{owner.label}:{name}" if name in twice else name for owner in owners for name in owner.names or []]
