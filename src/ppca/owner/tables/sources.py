"""Opening an owner's data, whatever they are, and checking that several owners' tables have the same columns."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ..errors import BadColumns, OwnerError, UnreadableData
from .arrays import MemorySource, NpySource, NpzSource
from .arrow_tables import CsvSource, FrameSource, IpcSource, PandasSource, ParquetSource
from .table import Source, listed, reading

FILE_KINDS = ".csv, .tsv, .parquet, .arrow, .feather, .npy, .npz"


def open_source(data: Any, *, columns: Sequence[str] | None = None, label: str | None = None) -> Source:
    """An owner's table, ready to be streamed.

    Parameters
    ----------
    data : path of a .csv or .tsv (optionally .gz), .parquet, .arrow or .feather, .npy, or .npz file; or a NumPy array, pandas
        or polars frame, or PyArrow table in memory. The first line of CSV holds the column names.
    columns : names of the columns to take, in this order; None takes all. Arrays have no names.
    label : what messages call the table; the file's name, or "owner 1"

    Raises `OwnerError` with the cause and the next step.
    """
    if isinstance(columns, str):
        columns = [columns]
    if isinstance(data, str | PathLike):
        path = Path(data)
        source = _open_file(label or path.name, path, columns)
    else:
        source = _open_memory(label or "owner 1", data, columns)
    if source.n_columns == 0:
        raise BadColumns(f"{source.label}: there are no columns. Give a table with at least one numeric column.")
    if source.rows == 0:
        raise OwnerError(f"{source.label}: the table has no rows. An owner needs at least one.")
    return source


def _open_file(label: str, path: Path, columns: Sequence[str] | None) -> Source:
    suffix = path.with_suffix("").suffix.lower() if path.suffix.lower() == ".gz" else path.suffix.lower()
    compressed = path.suffix.lower() == ".gz"
    if not path.exists():
        raise UnreadableData(f"{label}: there is no such file ({path}). Check the path.")
    if path.is_dir():
        raise UnreadableData(f"{label}: {path} is a folder. Give the file itself.")
    if suffix not in (".csv", ".tsv") and (compressed or suffix not in FILE_KINDS.split(", ")):
        raise UnreadableData(
            f"{label}: files ending in {path.suffix or 'nothing'!r} are not read. Known: {FILE_KINDS}; .csv.gz."
        )
    if path.stat().st_size == 0:
        raise UnreadableData(f"{label}: the file is empty.")
    with reading(label):
        match suffix:
            case ".csv" | ".tsv":
                return CsvSource(label, path, columns)
            case ".parquet":
                return ParquetSource(label, path, columns)
            case ".arrow" | ".feather":
                return IpcSource(label, path, columns)
        source = NpySource(label, path) if suffix == ".npy" else NpzSource(label, path)
        return source if columns is None else source.select(columns)


def _open_memory(label: str, data: Any, columns: Sequence[str] | None) -> Source:
    module = type(data).__module__.partition(".")[0]
    if isinstance(data, Source):
        return data if columns is None else data.select(columns)
    if isinstance(data, np.ndarray):
        array = MemorySource(label, data)
        return array if columns is None else array.select(columns)
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if isinstance(data, pa.Table):
        return FrameSource(label, data, columns)
    if module == "polars" and hasattr(data, "to_arrow") and hasattr(data, "columns"):
        return FrameSource(label, data, columns)
    if module == "pandas" and hasattr(data, "iloc") and hasattr(data, "columns"):
        return PandasSource(label, data, columns)
    raise OwnerError(
        f"{label}: a {type(data).__module__}.{type(data).__name__} is not read. Give a path ({FILE_KINDS}), "
        "a two-dimensional NumPy array, a pandas or polars DataFrame, or a PyArrow Table."
    )


def check_compatible(sources: Sequence[Source]) -> list[Source]:
    """The same sources with the same columns in the same order: that of the first owner.

    A table with the same names in another order is reordered; a table without names takes the names of the others by
    position. Both are said in the `notes` of the source returned. Different names or counts raise `BadColumns`.
    """
    if not sources:
        raise OwnerError("there are no owners. Give at least one table.")
    model = next((source for source in sources if source.names is not None), sources[0])
    return [_like(model, source) for source in sources]


def _like(model: Source, source: Source) -> Source:
    pair = f"{model.label} and {source.label}"
    if model.names is None or source.names is None:
        if model.n_columns != source.n_columns:
            raise BadColumns(
                f"{pair} have different numbers of columns: {model.n_columns} and {source.n_columns}. "
                "All owners need the same columns."
            )
        if model.names is None:
            return source
        note = f"{source.label} has no column names; its columns were taken in the order of {model.label}"
        return source.renamed(model.names, note)
    if source.names == model.names:
        return source
    missing = [name for name in model.names if name not in source.names]
    extra = [name for name in source.names if name not in model.names]
    if missing or extra:
        differences = []
        if missing:
            differences.append(f"only {model.label} has {listed(missing)}")
        if extra:
            differences.append(f"only {source.label} has {listed(extra)}")
        raise BadColumns(
            f"{pair} have different columns: {'; '.join(differences)}. "
            "Rename the columns, or choose those that all owners have (--columns)."
        )
    other = source.select(model.names)
    other.notes = (*source.notes, f"the columns of {source.label} were put into the order of {model.label}")
    return other
