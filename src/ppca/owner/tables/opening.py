"""Opening owners' data, whatever they are: one table each, its schema only, then the columns that all or each of them give.

Which columns are taken, left out, or are the ids is decided here and nowhere else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ..errors import BadColumns, OwnerError, UnreadableData
from .arrays import MemoryTable, NpyTable, NpzTable
from .arrow import FrameTable, IpcTable, PandasTable, ParquetTable
from .dask import DaskTable
from .files import FilesTable, files_of, is_pattern
from .table import Table, listed, near, reading
from .text import CsvTable

ENDINGS = (".csv", ".tsv", ".parquet", ".arrow", ".feather", ".npy", ".npz")
FILE_KINDS = ", ".join(ENDINGS)

Names = Sequence[str] | None


def open_table(data: Any, *, columns: Names = None, id: str | None = None, label: str | None = None) -> Table:
    """One owner's table, ready to be streamed.

    Parameters
    ----------
    data : path of a .csv or .tsv (optionally .gz), .parquet, .arrow or .feather, .npy, or .npz file; a folder of such files, or a
        pattern like "north/*.parquet"; or a NumPy array, pandas, polars or Dask frame, Dask array, or PyArrow table in memory.
        The first line of CSV holds the column names.
    columns : names of the columns to take, in this order; None takes all. Arrays have no names.
    id : name of the column that identifies the rows; it is not a column of numbers
    label : what messages call the table; the file's name, or "owner 1"

    Raises `OwnerError` with the cause and the next step.
    """
    return _chosen(_opened(data, label), [columns] if isinstance(columns, str) else columns, id)


def open_rows(owners: Any, *, columns: Names = None, drop: Names = None) -> list[Table]:
    """Tables of owners of different rows: all with the same columns, in the same order."""
    tables = _all_opened(owners)
    _check_known(tables, columns, drop)
    return check_compatible(
        [
            _chosen(table, _wanted(table.held, columns, drop), None) if drop else _chosen(table, columns, None)
            for table in tables
        ]
    )


def open_columns(owners: Any, id: str | None, *, columns: Names = None, drop: Names = None) -> list[Table]:
    """Tables of owners of different columns, with their ids: of the named columns each gives those it has."""
    tables = _all_opened(owners)
    _check_known(tables, columns, drop)
    chosen = []
    for table in tables:
        wanted = None
        if table.held is not None and (columns is not None or drop is not None):
            wanted = [name for name in _wanted(table.held, columns, drop) or [] if name in table.held and name != id]
            if not wanted:
                raise BadColumns(
                    f"{table.label}: none of its columns were chosen. Leave this owner out, or choose one of them."
                )
        chosen.append(_chosen(table, wanted, id))
    return chosen


def _wanted(held: Names, columns: Names, drop: Names) -> Names:
    names = held if columns is None else columns
    return None if names is None else [name for name in names if name not in (drop or ())]


def _check_known(tables: Sequence[Table], columns: Names, drop: Names) -> None:
    """Refuse to take or leave out a column that nobody has."""
    everything = list(dict.fromkeys(name for table in tables for name in table.held or ()))
    for name in (*(columns or ()), *(drop or ())):
        if name not in everything and any(table.held is not None for table in tables):
            raise BadColumns(f"no owner has a column {name!r}. {near(name, everything)}")
    for table in tables:
        if drop and table.held is None:
            raise BadColumns(f"{table.label}: the data have no column names, so none can be left out by name.")


def _all_opened(owners: Any) -> list[Table]:
    """One table per owner, nothing chosen yet. `owners`: a list, or a dictionary by the owners' names; a single table is one."""
    if isinstance(owners, Mapping):
        return [_opened(data, str(name)) for name, data in owners.items()]
    several = isinstance(owners, list | tuple) and not (
        owners and np.isscalar(owners[0]) and not isinstance(owners[0], str)
    )
    each = list(owners) if several else [owners]
    if not each:
        raise OwnerError("no owners: give a list with one array, frame or path per owner.")
    return [_opened(data, label) for data, label in zip(each, labels_of(each), strict=True)]


def labels_of(owners: Sequence[Any]) -> list[str]:
    """What messages call the owners: names of files (paths where names are not unique, and patterns), or their numbers."""
    names = Counter(Path(data).name for data in owners if isinstance(data, str | PathLike))
    return [_label(data, number, names) for number, data in enumerate(owners, start=1)]


def _label(data: Any, number: int, names: Mapping[str, int]) -> str:
    if isinstance(data, Table):
        return data.label
    if not isinstance(data, str | PathLike):
        return f"owner {number}"
    name = Path(data).name
    return name if names[name] == 1 and not is_pattern(data) else str(data)


def _opened(data: Any, label: str | None) -> Table:
    """The schema of an owner's data; nothing is chosen."""
    if isinstance(data, Table):
        return data
    if not isinstance(data, str | PathLike):
        return _open_memory(label or "owner 1", data)
    path = Path(data)
    title = label or _label(path, 1, {path.name: 1})
    files = files_of(path, ENDINGS)
    if files is None:
        return _open_file(title, path)
    if not files:
        what = f"the folder {path} holds" if path.is_dir() else f"the pattern {path} finds"
        raise UnreadableData(f"{what} no data files ({FILE_KINDS}).")
    return FilesTable(title, [_open_file(f"{title}: {file.name}", file) for file in files])


def _chosen(table: Table, columns: Names, id: str | None) -> Table:
    if table.chosen and columns is None and id == table.id:
        return table
    with reading(table.label):
        chosen = table.choose(columns, id)
    if chosen.n_columns == 0:
        raise BadColumns(f"{chosen.label}: there are no columns. Give a table with at least one numeric column.")
    if chosen.rows == 0:
        raise OwnerError(f"{chosen.label}: the table has no rows. An owner needs at least one.")
    return chosen


def _open_file(label: str, path: Path) -> Table:
    suffix = path.with_suffix("").suffix.lower() if path.suffix.lower() == ".gz" else path.suffix.lower()
    compressed = path.suffix.lower() == ".gz"
    if not path.exists():
        raise UnreadableData(f"{label}: there is no such file ({path}). Check the path.")
    if suffix not in (".csv", ".tsv") and (compressed or suffix not in ENDINGS):
        raise UnreadableData(
            f"{label}: files ending in {path.suffix or 'nothing'!r} are not read. Known: {FILE_KINDS}; .csv.gz."
        )
    if path.stat().st_size == 0:
        raise UnreadableData(f"{label}: the file is empty.")
    with reading(label):
        match suffix:
            case ".csv" | ".tsv":
                return CsvTable(label, path)
            case ".parquet":
                return ParquetTable(label, path)
            case ".arrow" | ".feather":
                return IpcTable(label, path)
        return NpyTable(label, path) if suffix == ".npy" else NpzTable(label, path)


def _open_memory(label: str, data: Any) -> Table:
    module = type(data).__module__.partition(".")[0]
    if isinstance(data, np.ndarray):
        return MemoryTable(label, data)
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if isinstance(data, pa.Table):
        return FrameTable(label, data)
    if hasattr(data, "to_delayed"):
        return DaskTable(label, data)
    if module == "polars" and hasattr(data, "to_arrow") and hasattr(data, "columns"):
        return FrameTable(label, data)
    if module == "pandas" and hasattr(data, "iloc") and hasattr(data, "columns"):
        return PandasTable(label, data)
    raise OwnerError(
        f"{label}: a {type(data).__module__}.{type(data).__name__} is not read. Give a path ({FILE_KINDS}), "
        "a two-dimensional NumPy array, a pandas, polars or Dask DataFrame, or a PyArrow Table."
    )


def check_compatible(tables: Sequence[Table]) -> list[Table]:
    """The same tables with the same columns in the same order: that of the first owner.

    A table with the same names in another order is reordered; a table without names takes the names of the others by
    position. Both are said in the `notes` of the table returned. Different names or counts raise `BadColumns`.
    """
    if not tables:
        raise OwnerError("there are no owners. Give at least one table.")
    model = next((table for table in tables if table.names is not None), tables[0])
    return [_like(model, table) for table in tables]


def _like(model: Table, table: Table) -> Table:
    pair = f"{model.label} and {table.label}"
    if model.names is None or table.names is None:
        if model.n_columns != table.n_columns:
            raise BadColumns(
                f"{pair} have different numbers of columns: {model.n_columns} and {table.n_columns}. "
                "All owners need the same columns."
            )
        if model.names is None:
            return table
        note = f"{table.label} has no column names; its columns were taken in the order of {model.label}"
        return table.renamed(model.names, note)
    if table.names == model.names:
        return table
    missing = [name for name in model.names if name not in table.names]
    extra = [name for name in table.names if name not in model.names]
    if missing or extra:
        differences = []
        if missing:
            differences.append(f"only {model.label} has {listed(missing)}")
        if extra:
            differences.append(f"only {table.label} has {listed(extra)}")
        raise BadColumns(
            f"{pair} have different columns: {'; '.join(differences)}. "
            "Rename the columns, or choose those that all owners have (--columns)."
        )
    other = table.choose(model.names)
    other.notes = (*table.notes, f"the columns of {table.label} were put into the order of {model.label}")
    return other
