"""Errors in an owner's data or request. Messages say what is wrong, where, and what to do next.

A message does not name options of the command line or keywords of Python. `options` lists the parameters that may help,
and each interface names them in its own way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self


class OwnerError(ValueError):
    """The owner's data cannot be used as they are. Nothing has left the owner. `options`: parameters that may help."""

    def __init__(self, message: str, *, options: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.options = tuple(options)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle all fields, so that the error can come from a Dask worker."""
        return _rebuilt, (type(self), str(self), vars(self))


def _rebuilt(kind: type[OwnerError], message: str, state: dict[str, object]) -> OwnerError:
    error = kind.__new__(kind)
    ValueError.__init__(error, message)
    vars(error).update(state)
    return error


class UnreadableData(OwnerError):
    """The file is missing, damaged, empty, or of an unsupported kind."""


class BadColumns(OwnerError):
    """Column names or counts: duplicate, unknown, missing, or different between owners.

    columns: columns to omit. common: columns that can be chosen instead.
    """

    def __init__(
        self, message: str, *, options: Sequence[str] = (), columns: Sequence[str] = (), common: Sequence[str] = ()
    ) -> None:
        super().__init__(message, options=options)
        self.columns, self.common = tuple(columns), tuple(common)


class NoRows(OwnerError):
    """A table, or a part of one, is empty or has a missing value in every row."""

    @classmethod
    def for_none(cls, label: str) -> Self:
        return cls(f"{label}: the table is empty. An owner needs at least one row.")

    @classmethod
    def for_missing(cls, label: str) -> Self:
        return cls(f"{label}: every row misses a value. Leave out the column in which they are missing.")


class TooFewRows(OwnerError):
    """An owner has fewer rows than its minimum."""

    @classmethod
    def refuse(cls, label: str, rows: int, least: int) -> None:
        """Raise if there are fewer rows than the minimum, before anything is sent."""
        if rows < least:
            raise cls(
                f"{label}: {rows:,} {'row' if rows == 1 else 'rows'}, fewer than the minimum of {least} rows per "
                "owner. Others could compute much about them from the joint result. Nothing was sent. Add "
                "rows, or lower the minimum.",
                options=["min_rows"],
            )


class BadValue(OwnerError):
    """Cells that are not finite numbers: text, missing, NaN, infinite, or too large to square.

    columns: all columns with such cells. row: the first such row, from 1. values: texts that may mean missing values.
    separator: thousands separator in the cells.
    """

    def __init__(
        self,
        message: str,
        *,
        columns: Sequence[str],
        row: int,
        options: Sequence[str] = (),
        values: Sequence[str] = (),
        separator: str = "",
    ) -> None:
        super().__init__(message, options=options)
        self.columns, self.row, self.values, self.separator = tuple(columns), row, tuple(values), separator


class NotANumber(BadValue, TypeError):
    """A cell holds an object that is neither a number nor text."""
