"""Opening one owner's data, whatever they are: one table, its schema only, then the columns that are wanted of it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa

from ..errors import BadColumns, NoRows, OwnerError, UnreadableData
from .addresses import Address, Place, ending, found_at, is_address, local_path, shown
from .arrays import MemoryTable, NpyTable, NpzTable, SparseTable, array_of_lists
from .arrow import ArrowTable, IpcTable, ParquetTable, StoredIpcTable
from .dask import DaskTable
from .files import ENDINGS, FilesTable, PartitionFile, files_of, is_pattern, partition_values, refuse_twice, stem
from .frames import FrameTable, LazyTable, PandasTable
from .options import DEFAULTS, ReadOptions
from .reading import as_read
from .table import Table, reading
from .text import CsvTable

FILE_KINDS = ", ".join(ENDINGS)
STORED = (".csv", ".tsv", ".parquet", ".arrow", ".feather")
"""Kinds that are read in a store; arrays are mapped into memory, which only files of this machine can be."""

SCHEMAS_AT_ONCE = 16
"""Files of a store that are opened at the same time: each waits for answers most of its time."""

Names = Sequence[str] | None


def open_table(
    data: Any,
    *,
    columns: Names = None,
    id: str | None = None,
    label: str | None = None,
    decimal: str = ".",
    thousands: str = "",
    na_values: str | Sequence[str] = (),
    encoding: str = "utf-8",
    missing: str = "refuse",
    dask: bool = False,
    min_rows: int = 1,
) -> Table:
    """One owner's table, ready to be streamed.

    Parameters
    ----------
    data : path of a .csv or .tsv (optionally .gz), .parquet, .arrow or .feather, .npy, or .npz file; a folder of such
        files (with the folders below it, as Hive and Spark write them), or a pattern like "north/*.parquet"; each also
        as an address that fsspec knows, like "s3://bucket/north/*.parquet" (Parquet, Arrow and text); or a NumPy array,
        SciPy sparse matrix, list of rows, pandas, polars (also lazy) or Dask frame, Dask array, or PyArrow table in
        memory. The first line of CSV holds the column names.
    columns : names of the columns to take, in this order; None takes all. Arrays do not have names.
    id : name of the column, or of a pandas index, that identifies the rows; it is not a column of numbers
    label : what messages call the table; the file's name, or "owner 1"
    decimal : decimal separator of text files, "." or ","
    thousands : separator of thousands in text files: ",", ".", "'", "_" or " " (any kind of space); "" for none
    na_values : values that count as missing, such as ["n/k", "-999"]: texts in text files, numbers in any table
    encoding : encoding of text files: "utf-8", "latin-1", "utf-16", ...
    missing : "refuse" a table with missing values, "drop" the rows that have one, or let such values count as the
    "mean" of
        their column: in a fit of row owners the joint mean of all owners' present values, computed on shares, if
        one owner or more says so; in a fit of column owners the mean of the column's owner over all its rows.
        Inference refuses them.
    dask : files are read by the workers of the Dask client in use (`distributed.Client(...)`), which must reach them;
        they return sums only. A Dask frame is summed by them anyway, data in memory are summed here.

    min_rows : refuse to take part in a fit with fewer rows, before anything is sent

    Raises `OwnerError` with the cause and the next step.
    """
    absent = (na_values,) if isinstance(na_values, str) else tuple(na_values)
    options = ReadOptions(decimal, thousands, absent, encoding, missing, dask)
    table = as_read(opened(data, label, options), options)
    if min_rows > 1:
        table = copy.copy(table)
        table.min_rows = min_rows
    return chosen(table, [columns] if isinstance(columns, str) else columns, id)


def opened(data: Any, label: str | None = None, options: ReadOptions = DEFAULTS) -> Table:
    """The schema of an owner's data; nothing is chosen."""
    if isinstance(data, Table):
        return data
    if not isinstance(data, str | PathLike):
        return _open_memory(label or "owner 1", data)
    if is_address(data):
        return _open_address(str(data), label, options)
    path = local_path(data)
    title = label or (str(path) if is_pattern(path) else path.name)
    files = files_of(path, ENDINGS)
    if files is None:
        return _open_file(title, path, options)
    if not files:
        what = f"the folder {path} holds" if path.is_dir() else f"the pattern {path} finds"
        raise UnreadableData(f"{what} no data files ({FILE_KINDS}).")
    refuse_twice(title, files)
    folders = [file.relative_to(path).parts[:-1] if path.is_dir() else () for file in files]
    return FilesTable(title, [_open_part(title, *found, options) for found in zip(files, folders, strict=True)])


def stem_of(path: str | PathLike[str]) -> str:
    """Return an owner's name from its file: the name without its endings; a pattern unchanged."""
    name = local_path(path).name
    if is_pattern(path):
        return shown(str(path))
    return stem(name)


def chosen(table: Table, columns: Names, id: str | None) -> Table:
    """The wanted columns of a table, which are numbers, and the ids apart."""
    taken = named(table, columns, id)
    if taken is not table:
        check_numeric(taken)
    return taken


def named(table: Table, columns: Names, id: str | None) -> Table:
    """The wanted columns of a table by their names, and the ids apart."""
    if table.chosen and columns is None and id == table.id:
        return table
    with reading(table.label):
        taken = table.choose(columns, id)
    if taken.n_columns == 0:
        raise BadColumns(
            f"{taken.label}: there are no columns, 0 feature(s) (shape=({taken.rows or 0}, 0)) while a minimum of 1 "
            "is required. Give a table with at least one numeric column."
        )
    if taken.rows == 0:
        raise NoRows.for_none(taken.label)
    return taken


def check_numeric(table: Table) -> None:
    """Refuse columns that are not numbers, as far as it is known without reading all rows."""
    with reading(table.label):
        table.check_types()


def _open_address(address: str, label: str | None, options: ReadOptions) -> Table:
    """A table in a store: one file, or a folder or a pattern of files, whose schemas are fetched several at a time."""
    folder, files = found_at(address, ENDINGS)
    title = label or (shown(address) if is_pattern(address) else PurePosixPath(address).name)
    if not files:
        raise UnreadableData(f"{shown(address)}: there are no data files ({', '.join(STORED)}).")
    if folder is None and not is_pattern(address):
        return _open_file(title, files[0], options)
    refuse_twice(title, files)

    def part(file: Address) -> Table:
        between = () if folder is None else file.inside.relative_to(folder).parts[:-1]
        return _open_part(title, file, between, options)

    with ThreadPoolExecutor(min(len(files), SCHEMAS_AT_ONCE)) as pool:
        return FilesTable(title, list(pool.map(part, files)))


def _open_part(title: str, file: Place, folders: Sequence[str], options: ReadOptions) -> Table:
    """One of an owner's files, with the columns that its folders stand for."""
    table = _open_file(f"{title}: {file.name}", file, options)
    values = partition_values(folders)
    return PartitionFile(table, values) if values and isinstance(table, ArrowTable) else table


def _open_file(label: str, path: Place, options: ReadOptions) -> Table:
    kind = ending(PurePosixPath(path.name))
    if not path.exists():
        raise UnreadableData(f"{label}: there is no such file ({path}). Check the path.")
    if kind not in ENDINGS:
        rename = " Rename a text file with separators to .csv or .tsv; save a spreadsheet as CSV."
        raise UnreadableData(
            f"{label}: files ending in {path.suffix or 'nothing'!r} are not read. Known: {FILE_KINDS}; .csv.gz.{rename}"
        )
    if isinstance(path, Address) and kind not in STORED:
        raise UnreadableData(
            f"{label}: {kind} files are read on this machine only. Copy the file here, or store the "
            "table as Parquet or Arrow."
        )
    if (path.stat().st_size if isinstance(path, Path) else path.size()) == 0:
        raise UnreadableData(f"{label}: the file is empty.")
    with reading(label):
        match kind:
            case ".csv" | ".tsv":
                return CsvTable(label, path, options)
            case ".parquet":
                return ParquetTable(label, path)
            case ".arrow" | ".feather":
                return IpcTable(label, path) if isinstance(path, Path) else StoredIpcTable(label, path)
        assert isinstance(path, Path)
        return NpyTable(label, path) if kind == ".npy" else NpzTable(label, path)


def _open_memory(label: str, data: Any) -> Table:
    modules = {kind.__module__.partition(".")[0] for kind in type(data).__mro__}  # also of subclasses of frames
    if isinstance(data, list | tuple) and data and isinstance(data[0], list | tuple):
        data = array_of_lists(label, data)
    if isinstance(data, np.ndarray):
        return MemoryTable(label, data)
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if isinstance(data, pa.Table):
        return FrameTable(label, data)
    if hasattr(data, "to_delayed"):
        return DaskTable(label, data)
    if "scipy" in modules and hasattr(data, "tocsr"):
        return SparseTable(label, data)
    if "polars" in modules and hasattr(data, "collect_batches"):
        return LazyTable(label, data)
    if "polars" in modules and hasattr(data, "to_arrow") and hasattr(data, "columns"):
        return FrameTable(label, data)
    if "pandas" in modules and hasattr(data, "iloc") and hasattr(data, "columns"):
        return PandasTable(label, data)
    if hasattr(data, "__array__") and not hasattr(data, "columns"):
        return MemoryTable(label, np.asarray(data))
    if hasattr(data, "__arrow_c_stream__"):  # DuckDB, narwhals and others
        with reading(label):
            return FrameTable(label, pa.RecordBatchReader.from_stream(data).read_all())
    raise OwnerError(
        f"{label}: a {type(data).__module__}.{type(data).__name__} is not read. Give a path ({FILE_KINDS}), a "
        "two-dimensional NumPy array, a SciPy sparse matrix, a list of rows, a pandas, polars or Dask DataFrame, a "
        "PyArrow Table, or an object with __arrow_c_stream__."
    )
