"""Tables of several owners: what they are called, which columns all or each of them give, and how columns are matched
by name.

Which columns are taken, left out, or are the ids is decided here and nowhere else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ...jobs.checks import SpecError
from ..errors import BadColumns, OwnerError
from .addresses import shown
from .opening import Names, check_numeric, chosen, named, opened, stem_of
from .options import DEFAULTS, ReadOptions
from .reading import as_read
from .table import Table, listed, unknown_names

IdNames = str | Sequence[str] | Mapping[str, str] | None
"""The id column: the same name for all owners, one for each in their order, or by the owners' names; None: no ids."""


Collect = Callable[[], AbstractContextManager[object]]
"""Context manager around code that can raise errors about data: `nullcontext` raises the first, `Problems` collects
all."""


class Problems:
    """Errors about owners' data that were found; the work goes on after each of them."""

    def __init__(self) -> None:
        self.found: list[ValueError] = []

    @contextmanager
    def collect(self) -> Iterator[None]:
        """Keep an error that ends the block, once."""
        try:
            yield
        except ValueError as error:
            if str(error) not in map(str, self.found):
                self.found.append(error)


def open_rows(
    owners: Any,
    *,
    columns: Names = None,
    drop: Names = None,
    options: ReadOptions = DEFAULTS,
    collect: Collect = nullcontext,
) -> list[Table]:
    """Tables of owners of different rows: all with the same columns, in the same order."""
    tables = _known(owners, columns, drop, options, collect)
    ready = []
    for table in tables:
        if table is None:
            continue
        taken = _named(table, _wanted(table.held, columns, drop) if drop else columns, None, collect)
        ready += [taken] if taken is not None else []
    return _numeric(check_compatible(ready, collect) if ready else [], collect)


def set_min_rows(tables: Sequence[Table], min_rows: int) -> None:
    """Let each of several owners refuse a table with fewer rows. A single owner does not need a minimum."""
    for table in tables:
        table.min_rows = min_rows if len(tables) > 1 else 1


def open_columns(
    owners: Any,
    id: IdNames,
    *,
    columns: Names = None,
    drop: Names = None,
    options: ReadOptions = DEFAULTS,
    collect: Collect = nullcontext,
) -> list[Table]:
    """Tables of owners of different columns, with their ids: of the named columns each gives those it has."""
    tables = _known(owners, columns, drop, options, collect)
    ids = id_names(id, list(_several(owners)))
    ready = []
    for table, own in zip(tables, ids, strict=True):
        if table is None:
            continue
        with collect():
            wanted = None
            if table.held is not None and (columns is not None or drop is not None):
                known = table.offered or ()
                wanted = [name for name in _wanted(table.held, columns, drop) or [] if name in known and name != own]
                if not wanted:
                    raise BadColumns(
                        f"{table.label}: none of its columns were chosen. Leave this owner out, or choose one of them."
                    )
            taken = _named(table, wanted, own, collect)
            ready += [taken] if taken is not None else []
    return _numeric(ready, collect)


def _named(table: Table, columns: Names, id: str | None, collect: Collect) -> Table | None:
    """The wanted columns of a table. If the error about columns without a name was collected, the others of them."""
    with collect():
        return named(table, columns, id)
    left = [name for name in table.held or () if name not in table.unnamed and name != id]
    with collect():
        return named(table, left, id) if columns is None and table.unnamed and len(left) > len(table.unnamed) else None
    return None


def _known(owners: Any, columns: Names, drop: Names, options: ReadOptions, collect: Collect) -> list[Table | None]:
    """All owners' tables, None for those that cannot be opened. Columns that no owner has are refused if all can be
    opened."""
    tables = _opened(owners, options, collect)
    held = [table for table in tables if table is not None]
    if len(held) == len(tables):
        with collect():
            _check_known(held, columns, drop)
    return tables


def _numeric(tables: list[Table], collect: Collect) -> list[Table]:
    for table in tables:
        with collect():
            check_numeric(table)
    return tables


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
            raise SpecError("id", dict(id), f"names no id column of {listed(absent)}")
        return [id[label] for label in labels]
    names: list[str | None] = list(id)
    if len(names) == 1:
        return names * len(labels)
    if len(names) != len(labels):
        raise SpecError(
            "id", names, f"names {len(names)} id columns for {len(labels)} owners; give one, or one for each"
        )
    return names


def _wanted(held: Names, columns: Names, drop: Names) -> Names:
    names = held if columns is None else columns
    return None if names is None else [name for name in names if name not in (drop or ())]


def _check_known(tables: Sequence[Table], columns: Names, drop: Names) -> None:
    """Refuse to choose or drop a column that no owner has."""
    everything = list(dict.fromkeys(name for table in tables for name in table.offered or ()))
    unknown = [name for name in (*(columns or ()), *(drop or ())) if name not in everything]
    if unknown and any(table.held is not None for table in tables):
        raise BadColumns(f"no owner has a column {unknown_names(unknown, everything)}")
    for table in tables:
        if drop and table.held is None:
            raise BadColumns(f"{table.label}: the data do not have column names, so none can be dropped by name.")


def all_opened(owners: Any, options: ReadOptions) -> list[Table]:
    """One table per owner, nothing chosen yet. `owners`: a list, or a dictionary by the owners' names; a single table
    is one."""
    return [table for table in _opened(owners, options, nullcontext) if table is not None]


def _opened(owners: Any, options: ReadOptions, collect: Collect) -> list[Table | None]:
    found: list[Table | None] = []
    for label, data in _several(owners).items():
        table = None
        with collect():
            table = as_read(opened(data, label, options), options)
        found.append(table)
    return found


def _several(owners: Any) -> dict[str, Any]:
    """The owners' data by the names that messages use."""
    if isinstance(owners, Mapping):
        each, labels = list(owners.values()), [str(name) for name in owners]
    else:
        each = list(owners) if are_several(owners) else [owners]
        labels = labels_of(each)
    if not each:
        raise OwnerError("no owners: give a list with one array, frame or path per owner.")
    if len(set(labels)) < len(labels):
        raise OwnerError(f"two owners have the same name: {listed(labels)}. Give every owner its own.")
    return dict(zip(labels, each, strict=True))


def are_several(owners: Any) -> bool:
    """Return whether this is a list of owners' tables; numbers, or rows of numbers, are one owner's."""
    if not isinstance(owners, list | tuple):
        return False
    first = owners[0] if owners else None
    if isinstance(first, list | tuple):
        return not first or not np.isscalar(first[0])
    return isinstance(first, str) or not np.isscalar(first)


def labels_of(owners: Sequence[Any]) -> list[str]:
    """Return distinct names of the owners for messages: names of files without their ending, or "owner 1".

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


def check_compatible(tables: Sequence[Table], collect: Collect = nullcontext) -> list[Table]:
    """The same tables with the same columns in the same order: that of the first owner.

    A table with the same names in another order is reordered; a table without names takes the names of the others by
    position. Both are said in the `notes` of the table returned. Different names or counts raise `BadColumns`.
    """
    if not tables:
        raise OwnerError("there are no owners. Give at least one table.")
    model = next((table for table in tables if table.names is not None), tables[0])
    for table in tables:
        with collect():
            if table.n_columns != model.n_columns and None in (model.names, table.names):
                raise BadColumns(
                    f"{model.label} and {table.label} have different numbers of columns: {model.n_columns} and "
                    f"{table.n_columns}. All owners need the same columns."
                )
    common = [name for name in model.names or () if all(name in (table.names or [name]) for table in tables)]
    return match_names(tables, model.names, model.label, common, collect)


def match_names(
    tables: Sequence[Table], names: Names, whose: str, common: Sequence[str] = (), collect: Collect = nullcontext
) -> list[Table]:
    """The tables with these columns in this order; `whose` they are is said if a table has others. None: as they are.

    common: columns that all tables have.
    """
    found = list(tables)
    for number, table in enumerate(tables):
        with collect():
            found[number] = table if names is None else _matched(table, names, whose, common)
    return found


def _matched(table: Table, names: Sequence[str], whose: str, common: Sequence[str]) -> Table:
    if table.names is None:
        note = f"{table.label} does not have column names; its columns were taken in the order of {whose}"
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
            common=common,
        )
    other = table.choose(names)
    other.notes = (*table.notes, f"the columns of {table.label} were put into the order of {whose}")
    return other
