"""Options for reading an owner's data, shared by all commands, the form of `ppca ui` and Python.

A field of `ReadOptions` is one option. Its metadata hold the help text (`help`), a short label for forms (`label`) and,
if only some values are allowed, these (`choices`). The command line and the form are built from the fields, so a new
option is added here and, for Python, as a parameter of `open_table`.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...jobs.checks import SpecError

SPACES = " \N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}\N{THIN SPACE}"
"""Spaces that separate thousands. A file may mix them, so one stands for all."""

APOSTROPHES = "'\N{RIGHT SINGLE QUOTATION MARK}"
"""Apostrophes that separate thousands."""

MISSING = ("refuse", "drop", "mean")


def _option(default: Any, label: str, help: str, choices: Sequence[str] = ()) -> Any:
    return field(default=default, metadata={"label": label, "help": help, "choices": tuple(choices)})


@dataclass(frozen=True)
class ReadOptions:
    """Options for reading tables.

    Parameters
    ----------
    decimal : decimal separator of text files, "." or ","
    thousands : separator of thousands in text files: ",", ".", "'", "_" or " " (which also stands for no-break spaces);
        "" for none. Only complete groups are accepted: "1,234.5" is 1234.5, and "1,5" is refused.
    na_values : values that count as missing, besides "", "NA", "NaN", "null" and similar ones in text files. Texts are
        compared with the cells of text files; numbers, such as "-999", with the numbers of any table.
    encoding : encoding of text files
    missing : "refuse" a table with missing values, "drop" its rows that have one, or count them as the "mean" of the
        column
    dask : whether the workers of the Dask client in use read the files
    """

    decimal: str = _option(".", "decimal separator", "Decimal separator of text files: '.' or ','.", (".", ","))
    thousands: str = _option(
        "", "thousands separator", "Thousands separator of text files: ',', '.', \"'\" or ' ' (any kind of space)."
    )
    na_values: tuple[str, ...] = _option(
        (), "values that count as missing", "Values that count as missing, such as n/k,-999. Repeatable."
    )
    encoding: str = _option("utf-8", "encoding", "Encoding of text files, such as utf-8, latin-1 or utf-16.")
    missing: str = _option(
        "refuse",
        "missing values",
        "Missing values: 'refuse' the table, 'drop' the rows, or count them as the 'mean' of the column. The mean is "
        "over all owners' values, on shares; with --vertical, over all rows of the column's owner.",
        MISSING,
    )
    dask: bool = False

    def __post_init__(self) -> None:
        if self.decimal not in (".", ","):
            raise SpecError("decimal", self.decimal, "must be '.' or ','")
        object.__setattr__(self, "thousands", self.thousands or "")
        if self.thousands and self.thousands not in (",", ".", "_", *APOSTROPHES, *SPACES):
            raise SpecError("thousands", self.thousands, "must be ',', '.', '_', an apostrophe or a space")
        if self.thousands == self.decimal:
            other = "." if self.decimal == "," else ","
            raise SpecError(
                "thousands", self.thousands, f"is the decimal separator, too; set the decimal separator to {other!r}"
            )
        object.__setattr__(self, "na_values", tuple(str(value).strip() for value in self.na_values))
        if self.missing not in MISSING:
            raise SpecError("missing", self.missing, "must be 'refuse', 'drop' or 'mean'")
        try:
            codecs.lookup(self.encoding)
        except LookupError:
            raise SpecError(
                "encoding", self.encoding, "is unknown; give utf-8, latin-1, utf-16, or another name that Python knows"
            ) from None

    @property
    def na_numbers(self) -> tuple[float, ...]:
        """The values that count as missing and are numbers."""
        return tuple(number for number in map(_number, self.na_values) if number is not None)

    @property
    def grouped(self) -> tuple[str, str] | None:
        """Regular expressions of a number with separated thousands, and of the separator; None if there is no
        separator.

        The last group has three digits, others two or three: 12,34,567 is common in India.
        """
        if not self.thousands:
            return None
        alike = next((kind for kind in (SPACES, APOSTROPHES) if self.thousands in kind), self.thousands)
        mark = f"[{alike}]"
        digits = rf"\d{{1,3}}(?:{mark}\d{{2,3}})*{mark}\d{{3}}"
        return rf"^[+-]?{digits}(?:[{self.decimal}]\d*)?(?:[eE][+-]?\d+)?$", mark


DEFAULTS = ReadOptions()


def settable(*, without: Sequence[str] = ()) -> Mapping[str, Mapping[str, Any]]:
    """Name, and default, label, help and choices, of the options that a user sets by themselves."""
    return {
        name: {"default": each.default, **each.metadata}
        for name, each in ReadOptions.__dataclass_fields__.items()
        if each.metadata and name not in without
    }


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
