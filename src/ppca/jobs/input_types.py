"""Number formats of inputs that are not defined in the algorithms."""

from __future__ import annotations

from ..algorithms.second_moments import GRID
from ..protocol import RingType

OWN = RingType(128, 2 * GRID, 40)
"""Format of a column owner's sums of products of its own columns."""

INVERSE = RingType(128, 40, 2)
"""Format of 2^e / deviation of a column, with the exponent e of the deviation, from column owners of a wide table."""

ROW_FRAC = 80
"""Fractional bits of standardised new rows before scaling: small columns must keep their digits."""

RAW = RingType(128, 40, 20)
"""Format of new rows in units of the model's scale."""

STANDARD = RingType(128, ROW_FRAC, 20)
"""Format of new rows of a standardised model, before columns are divided by their deviations."""

COORDINATE = RingType(128, 40, 30)
"""Format of coordinates from which rows are rebuilt."""


def row_type(standardized: bool) -> RingType:
    """Return the format of new rows."""
    return STANDARD if standardized else RAW
