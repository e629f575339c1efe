"""What can be wrong with an owner's data. Every message says what is wrong, where, and what to do next."""

from __future__ import annotations


class OwnerError(ValueError):
    """The owner's data cannot be used as they are. Nothing has left the owner."""


class UnreadableData(OwnerError):
    """The file is missing, damaged, empty, or of a kind that is not read."""


class BadColumns(OwnerError):
    """Column names or counts: duplicate, unknown, missing, or different between owners."""


class BadValue(OwnerError):
    """A cell that is not a finite number: text, missing, NaN, infinite, or too large to square. `row` counts from 1."""

    def __init__(self, message: str, *, column: str, row: int) -> None:
        super().__init__(message)
        self.column = column
        self.row = row

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled whole, so that the error reaches the owner from a Dask worker."""
        return _bad_value, (str(self), self.column, self.row)


def _bad_value(message: str, column: str, row: int) -> BadValue:
    return BadValue(message, column=column, row=row)
