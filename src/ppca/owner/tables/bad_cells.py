"""Cells that are not numbers: what they are, why, and what to do about them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from ..errors import BadValue
from .options import APOSTROPHES, SPACES
from .table import listed


@dataclass
class BadCells:
    """Cells of a column that are not numbers: the first one, and how many of how many there are (0: not counted).

    texts: some of the different texts in these cells. decimal: the decimal separator that is expected.
    """

    name: str
    row: int | None = None
    value: object = None
    kind: Any = None
    count: int = 0
    cells: int = 0
    texts: Sequence[str] = ()
    decimal: str = "."

    @property
    def what(self) -> str:
        if isinstance(self.value, str):
            return f"text {self.value[:40]!r}"
        return f"type {self.kind}" if self.value is None else f"{str(self.value)[:40]} ({self.kind})"

    @property
    def cause(self) -> tuple[str, str, Sequence[str]]:
        """Return why it is not a number, what to do, and which options may help."""
        if not isinstance(self.value, str):
            dated = pa.types.is_temporal(self.kind) if self.kind is not None else False
            return ("a date or time" if dated else "not a number"), LEAVE_OUT, ["drop"]
        text = self.value.strip()
        texts = [text, *self.texts]
        if self.decimal == "," and re.fullmatch(r"[-+]?\d*\.\d+", text):
            return "a number with a decimal point", "Write all files with the same decimal separator.", ["decimal"]
        if any(re.fullmatch(r"[-+]?\d*,\d+", each) and not re.fullmatch(GROUPED_BY_COMMAS, each) for each in texts):
            return "a number with a decimal comma", "", ["decimal"]
        if re.fullmatch(GROUPED_BY_COMMAS, text):
            return "a number with a comma that separates thousands or decimals", "", ["thousands", "decimal"]
        if self.separator:
            comma = ["decimal"] if self.separator != "," and any("," in each for each in texts) else []
            return "a number with separators between thousands", "", ["thousands", *comma]
        if re.fullmatch(r"[-+]?[\d.,\s]+%", text):
            return (
                "a percentage",
                "Remove the % signs (format the cells as numbers), or leave the column out.",
                ["drop"],
            )
        if re.fullmatch(r"\d{4}-\d\d?-\d\d?([ T].*)?|\d\d?[./]\d\d?[./]\d{2,4}([ T].*)?", text):
            return "a date", "Leave the column out, or store it as a number.", ["drop"]
        if re.fullmatch(r"[-+]?[\d.,]+\s*[^\d\s.,]{1,4}|([A-Z]{3}\s|[$€£¥₹])\s*[-+]?[\d.,]+", text):
            return (
                "a number with a unit or currency",
                "Remove the unit from the cells, or leave the column out.",
                ["drop"],
            )
        return "not a number", LEAVE_OUT, ["na_values", "drop"] if self.may_mean_missing else ["drop"]

    @property
    def separator(self) -> str:
        """Return what separates thousands in the first cell; empty if nothing does."""
        found = re.fullmatch(
            rf"[-+]?\d{{1,3}}(?:([{SPACES}{APOSTROPHES}_.,])\d{{3}})+(?:[.,]\d*)?", str(self.value).strip()
        )
        if found is None or (found[1] == "." and "," not in str(self.value) and str(self.value).count(".") == 1):
            return ""
        return next((kind[0] for kind in (SPACES, APOSTROPHES) if found[1] in kind), found[1])

    @property
    def may_mean_missing(self) -> bool:
        """Return whether the texts look like codes for missing values: few texts in a column that is mostly numbers."""
        return 0 < len(self.texts) <= MAX_CODES and 2 * self.count < self.cells


GROUPED_BY_COMMAS = r"[-+]?[1-9]\d{0,2}(,\d{3})+"
LEAVE_OUT = "Leave the column out, or correct the value."
MAX_CODES = 3
"""The largest number of different texts in a column of numbers that are taken for codes of missing values."""


def not_numbers(label: str, found: Sequence[BadCells]) -> BadValue:
    """The error that names all columns with cells that are not numbers."""
    values = list(dict.fromkeys(text for cells in found for text in cells.texts if "na_values" in cells.cause[2]))
    options = list(dict.fromkeys(option for cells in found for option in cells.cause[2]))
    columns, row = [cells.name for cells in found], min(cells.row or 1 for cells in found)
    if len(found) == 1:
        cause, advice, _ = found[0].cause
        others = f" ({found[0].count:,} such cells in all)" if found[0].count > 1 else ""
        where = f"in row {found[0].row or 1:,}{others}, which is {cause}."
        message = f"{label}: column {found[0].name!r} has {found[0].what} {where} {advice}".rstrip()
    else:
        places = [f"{cells.name!r} ({cells.what} in row {cells.row or 1:,}: {cells.cause[0]})" for cells in found]
        message = (
            f"{label}: {len(found):,} columns hold cells that are not numbers: {listed(places, str)}. Leave these "
            "columns out, or correct the values."
        )
    separator = next((cells.separator for cells in found if "thousands" in cells.cause[2]), "")
    return BadValue(message, columns=columns, row=row, options=options, values=values, separator=separator)
