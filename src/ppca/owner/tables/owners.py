"""Tables of several owners: what they are called, which columns all or each of them give, and how columns are matched by name.

Which columns are taken, left out, or are the ids is decided here and nowhere else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import BadColumns, OwnerError, ParameterRefused
from .addresses import shown
from .opening import Names, chosen, opened, stem_of
from .options import DEFAULTS, ReadOptions
from .reading import as_read
from .table import Table, listed, near

IdNames = str | Sequence[str] | Mapping[str, str] | None
"""The id column: the same name for all owners, one for each in their order, or by the owners' names; None: no ids."""


def open_rows(
    owners: Any, *, columns: Names = None, drop: Names = None, options: ReadOptions = DEFAULTS
) -> list[Table]:
    """Tables of owners of different rows: all with the same columns, in the same order."""
    tables = all_opened(owners, options)
    _check_known(tables, columns, drop)
    return check_compatible(
        [
            chosen(table, _wanted(table.held, columns, drop), None) if drop else chosen(table, columns, None)
            for table in tables
        ]
    )


def open_columns(
    owners: Any, id: IdNames, *, columns: Names = None, drop: Names = None, options: ReadOptions = DEFAULTS
) -> list[Table]:
    """Tables of owners of different columns, with their ids: of the named columns each gives those it has."""
    tables = all_opened(owners, options)
    _check_known(tables, columns, drop)
    ready = []
    for table, own in zip(tables, id_names(id, [table.label for table in tables]), strict=True):
        wanted = None
        if table.held is not None and (columns is not None or drop is not None):
            known = table.offered or ()
            wanted = [name for name in _wanted(table.held, columns, drop) or [] if name in known and name != own]
            if not wanted:
                raise BadColumns(
                    f"{table.label}: none of its columns were chosen. Leave this owner out, or choose one of them."
                )
        ready.append(chosen(table, wanted, own))
    return ready


def open_like(data: Any, names: Names, width: int, options: ReadOptions = DEFAULTS) -> Table:
    """New rows with the columns of a model: by name where both have names (others are left out), else by position."""
    table = opened(data, None if isinstance(data, str | PathLike) else "the table of new rows", options)
    table = chosen(as_read(table, options), names if table.held is not None else None, None)
    if table.n_columns != width:
        raise BadColumns(f"{table.label} has {table.n_columns} columns, the model {width}. Give the same columns.")
    return table


def id_names(id: IdNames, labels: Sequence[str]) -> list[str | None]:
    """The id column of every owner."""
    if id is None or isinstance(id, str):
        return [id] * len(labels)
    if isinstance(id, Mapping):
        absent = [label for label in labels if label not in id]
        if absent:
            raise ParameterRefused("id", dict(id), f"names no id column of {listed(absent)}")
        return [id[label] for label in labels]
    names: list[str | None] = list(id)
    if len(names) == 1:
        return names * len(labels)
    if len(names) != len(labels):
        raise ParameterRefused(
            "id", names, f"names {len(names)} id columns for {len(labels)} owners; give one, or one for each"
        )
    return names


def _wanted(held: Names, columns: Names, drop: Names) -> Names:
    names = held if columns is None else columns
    return None if names is None else [name for name in names if name not in (drop or ())]


def _check_known(tables: Sequence[Table], columns: Names, drop: Names) -> None:
    """Refuse to take or leave out a column that nobody has."""
    everything = list(dict.fromkeys(name for table in tables for name in table.offered or ()))
    for name in (*(columns or ()), *(drop or ())):
        if name not in everything and any(table.held is not None for table in tables):
            raise BadColumns(f"no owner has a column {name!r}. {near(name, everything)}")
    for table in tables:
        if drop and table.held is None:
            raise BadColumns(f"{table.label}: the data have no column names, so none can be left out by name.")


def all_opened(owners: Any, options: ReadOptions) -> list[Table]:
    """One table per owner, nothing chosen yet. `owners`: a list, or a dictionary by the owners' names; a single table is one."""
    if isinstance(owners, Mapping):
        each, labels = list(owners.values()), [str(name) for name in owners]
        if len(set(labels)) < len(labels):
            raise OwnerError(f"two owners have the same name: {listed(labels)}. Give every owner its own.")
    else:
        each = list(owners) if are_several(owners) else [owners]
        labels = labels_of(each)
    if not each:
        raise OwnerError("no owners: give a list with one array, frame or path per owner.")
    return [as_read(opened(data, label, options), options) for data, label in zip(each, labels, strict=True)]


def are_several(owners: Any) -> bool:
    """Whether this is a list of owners' tables; numbers, or rows of numbers, are one owner's."""
    if not isinstance(owners, list | tuple):
        return False
    first = owners[0] if owners else None
    if isinstance(first, list | tuple):
        return not first or not np.isscalar(first[0])
    return isinstance(first, str) or not np.isscalar(first)


def labels_of(owners: Sequence[Any]) -> list[str]:
    """What messages call the owners, each differently: names of files without their ending, or "owner 1".

    Where these are the same, names with their ending; then paths; then paths with the owner's number.
    """
    labels = [_label(data, number, stem_of) for number, data in enumerate(owners, start=1)]
    for longer in (lambda path: Path(path).name, lambda path: shown(str(path))):
        labels = [
            _label(data, number, longer) if labels.count(label) > 1 else label
            for number, (data, label) in enumerate(zip(owners, labels, strict=True), start=1)
        ]
    twice = Counter(labels)
    return [f"{label} ({number})" if twice[label] > 1 else label for number, label in enumerate(labels, start=1)]


def _label(data: Any, number: int, of_path: Any) -> str:
    if isinstance(data, Table):
        return data.label
    return str(of_path(data)) if isinstance(data, str | PathLike) else f"owner {number}"


def check_compatible(tables: Sequence[Table]) -> list[Table]:
    """The same tables with the same columns in the same order: that of the first owner.

    A table with the same names in another order is reordered; a table without names takes the names of the others by
    position. Both are said in the `notes` of the table returned. Different names or counts raise `BadColumns`.
    """
    if not tables:
        raise OwnerError("there are no owners. Give at least one table.")
    model = next((table for table in tables if table.names is not None), tables[0])
    for table in tables:
        if table.n_columns != model.n_columns and None in (model.names, table.names):
            raise BadColumns(
                f"{model.label} and {table.label} have different numbers of columns: {model.n_columns} and {table.n_columns}. "
                "All owners need the same columns."
            )
    return match_names(tables, model.names, model.label)


def match_names(tables: Sequence[Table], names: Names, whose: str) -> list[Table]:
    """The tables with these columns in this order; `whose` they are is said if a table has others. None: as they are."""
    return list(tables) if names is None else [_matched(table, names, whose) for table in tables]


def _matched(table: Table, names: Sequence[str], whose: str) -> Table:
    if table.names is None:
        note = f"{table.label} has no column names; its columns were taken in the order of {whose}"
        return table.renamed(names, note) if table.n_columns == len(names) else table
    if table.names == list(names):
        return table
    missing = [name for name in names if name not in table.names]
    extra = [name for name in table.names if name not in names]
    if missing or extra:
        differences = [f"only {whose} has {listed(missing)}"] if missing else []
        differences += [f"only {table.label} has {listed(extra)}"] if extra else []
        raise BadColumns(
            f"{whose} and {table.label} have different columns: {'; '.join(differences)}. "
            "Rename the columns, or choose those that all owners have.",
            options=("columns",),
        )
    other = table.choose(names)
    other.notes = (*table.notes, f"the columns of {table.label} were put into the order of {whose}")
    return other
