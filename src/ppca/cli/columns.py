"""Choosing columns on the command line, and opening the owners' files with them."""

from __future__ import annotations

import csv
import difflib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pyarrow.csv
import pyarrow.dataset

from ..owner import BadColumns, BadValue, Source, check_compatible, open_source
from ..owner.tables.arrow_tables import pandas_index, sniff_delimiter

ARROW_FORMATS = {".parquet": "parquet", ".arrow": "ipc", ".feather": "ipc"}


def names_in(options: Sequence[str] | None) -> list[str] | None:
    """Column names out of `a,b,c`; the option may be repeated, and a name with a comma be put in double quotes."""
    if not options:
        return None
    return [name.strip() for line in csv.reader(options, skipinitialspace=True) for name in line]


def labels_for(files: Sequence[Path]) -> list[str]:
    """What messages call the owners: file names, or paths where names are not unique."""
    names = Counter(path.name for path in files)
    return [path.name if names[path.name] == 1 else str(path) for path in files]


def open_files(files: Sequence[Path], columns: list[str] | None, drop: list[str] | None) -> list[Source]:
    """One table per owner, all with the same columns."""
    if columns is not None and drop is not None:
        raise BadColumns("--columns and --drop exclude each other: name the columns to take, or those to leave out.")
    labels = labels_for(files)
    if drop is None:
        return check_compatible(
            [open_source(path, columns=columns, label=label) for path, label in zip(files, labels, strict=True)]
        )
    held = [_names(path, label) for path, label in zip(files, labels, strict=True)]
    everything = [name for names in held for name in names]
    for name in drop:
        if name not in everything:
            near = difflib.get_close_matches(name, everything, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise BadColumns(f"--drop: no owner has a column {name!r}.{hint}")
    return check_compatible(
        [
            open_source(path, columns=[name for name in names if name not in drop], label=label)
            for path, label, names in zip(files, labels, held, strict=True)
        ]
    )


def _names(path: Path, label: str) -> list[str]:
    """The columns of a file, including those that are not numeric."""
    try:
        source = open_source(path, label=label)
    except BadValue:  # a column of text, which may be the one to leave out
        return _names_of_any_type(path, label)
    if source.names is None:
        raise BadColumns(f"{label}: the data have no column names, so none can be left out by name.")
    return source.names


def _names_of_any_type(path: Path, label: str) -> list[str]:
    kind = ARROW_FORMATS.get(path.suffix.lower())
    if kind is None:
        parse = pyarrow.csv.ParseOptions(delimiter=sniff_delimiter(label, path))
        with pyarrow.csv.open_csv(path, parse_options=parse) as reader:
            return list(reader.schema.names)
    schema = pyarrow.dataset.dataset(path, format=kind).schema
    return [name for name in schema.names if name not in pandas_index(schema)]
