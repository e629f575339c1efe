"""The header of a text file: the separator of columns, and headers that are refused."""

from __future__ import annotations

import re

from ..errors import BadColumns, UnreadableData
from .addresses import Place

MAX_COLUMNS = 1 << 17
"""Columns of a text file; a job has at most 2^16."""


def refuse_wide(label: str, columns: int) -> None:
    """Refuse a header of more columns than can be analysed, before anything is parsed: each takes about 9 kB of
    memory."""
    if columns > MAX_COLUMNS:
        raise BadColumns(
            f"{label}: the first line names {columns:,} columns; at most {MAX_COLUMNS:,} can be read. "
            "Check the separator of the columns and the ends of the lines, or write the columns that you "
            "need into a file of their own."
        )


def is_gzip(path: Place) -> bool:
    return path.suffix.lower() == ".gz"


def delimiter_of(label: str, path: Place, head: str, decimal: str = ".") -> str:
    """Tab for .tsv; else whichever of comma (unless it is the decimal point), semicolon, tab and bar the header has
    most of."""
    header, _, rest = head.partition("\n")
    if not header.strip():
        raise UnreadableData(f"{label}: the file is empty or starts with an empty line; a header line is needed.")
    if ".tsv" in (suffix.lower() for suffix in path.suffixes[-2:]):
        return "\t"
    if re.fullmatch(r"sep=.\s*", header):
        raise UnreadableData(f"{label}: the first line is {header.strip()!r}, which Excel writes. Remove this line.")
    found = max(",;\t|".replace(decimal, ""), key=header.count)
    if header.startswith("#") and header.count(found) != rest.partition("\n")[0].count(found):
        raise UnreadableData(
            f"{label}: the file starts with a comment line (#). Remove comment lines: the first "
            "line holds the column names."
        )
    return found


def refuse_headerless(label: str, names: list[str]) -> None:
    """Refuse a first line of data where the names should be. Names 0, 1, 2, ... or 1, 2, 3, ... are taken as names."""
    try:
        numbers = [float(name) for name in names]
    except ValueError:
        return
    if names and numbers not in (list(range(len(names))), list(range(1, len(names) + 1))):
        raise BadColumns(
            f"{label}: the first line holds numbers ({', '.join(names[:3])}, ...) where column names should be. "
            "Put a line with the names of the columns at the top."
        )
