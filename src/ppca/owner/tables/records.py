"""Rows of a column owner with their ids, ready for alignment with the rows of other column owners.

A table is either read into memory, or re-read in two passes (`two_pass`) without being held in memory.
"""

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
"""Maximum number of entries (rows times columns) of a table that is always read into memory: 128 MiB.

A table whose number of rows is known only after reading does not count as one.
"""


@dataclass
class Records:
    """The columns of one owner.

    label: name of the table in messages. values: shape (rows, columns). names: column names; None if unknown. ids: the
    id column as given; None if there is no such column. rest: differences between integers beyond 2^53 and the doubles
    in values, to be added to values; None: no differences.
    """

    label: str
    values: NDArray[np.float64]
    names: list[str] | None
    ids: Any
    rest: Rest | None = None

    @classmethod
    def for_upload(cls, table: Table, *, in_order: bool, columns: int, fill: bool = False) -> Self:
        """Return the records of a table for an upload: in memory, or re-read in two passes (`two_pass`).

        in_order: whether rows are sent in the order of the table. columns: number of columns of all owners. fill: see
        `of`. Two passes are used if all of these conditions hold:

        - Rows are sent in the order of the table.
        - The table is not known to have at most `HELD_NUMBERS` entries.
        - There are at least as many rows as columns of all owners. Otherwise columns are sent, not rows.
        - Doubles hold all its integers exactly, and no missing values are to be replaced by means. Both need the whole
          table.
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
        """Read a table into memory in one pass.

        fill: replace missing values by the mean of their column, if the table was opened with missing="mean".
        """
        fill = fill and table.mean_for_missing
        values, rest, ids = table.read_exactly(check=not fill)
        if not len(values):
            raise NoRows.for_none(table.label)
        TooFewRows.refuse(table.label, len(values), table.min_rows)
        if ids is not None and len(ids) != len(values):
            raise OwnerError(
                f"{table.label}: the id column has {len(ids):,} values, but the table has {len(values):,} rows."
            )
        if fill and len(values):
            rest = _fill_means(table, values, rest)
        return cls(table.label, values, table.names, ids, rest)


def _fill_means(table: Table, values: NDArray[np.float64], rest: Rest | None) -> Rest | None:
    """Replace every missing value in place by the mean of the present values of its column.

    If the present values of a column are equal, the mean is exactly that value. rest: see `Records`. Return the rest
    with the rounding errors of these means added.
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
    """Return the column names of all owners, or None if an owner does not know its names.

    A name that several owners use becomes "owner:name".
    """
    if any(owner.names is None for owner in owners):
        return None
    every = [name for owner in owners for name in owner.names or []]
    twice = {name for name in every if every.count(name) > 1}
    return [f"{owner.label}:{name}" if name in twice else name for owner in owners for name in owner.names or []]
