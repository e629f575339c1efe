"""An owner of columns: its table of numbers and the ids of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.ipc as pa_ipc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from .errors import OwnerError
from .sources import open_source


@dataclass
class ColumnTable:
    """One owner's columns: values of shape (rows, columns), names if known, and the id column as it was given (or None)."""

    label: str
    values: NDArray[np.float64]
    names: list[str] | None
    ids: Any


def read_columns(
    data: Any, id_column: str | None, *, columns: Sequence[str] | None = None, label: str | None = None
) -> ColumnTable:
    """Reads an owner's table: all numeric columns (or the chosen ones), and the id column apart."""
    names = column_names(data)
    title = label or (Path(data).name if isinstance(data, str | Path) else "an owner")
    if id_column is not None and (names is None or id_column not in names):
        known = "it has no column names" if names is None else f"its columns are {', '.join(names[:8])}"
        raise OwnerError(f"{title} has no id column {id_column!r}; {known}")
    chosen = columns if columns is not None else None if names is None else [n for n in names if n != id_column]
    if chosen is not None and id_column in chosen:
        raise OwnerError(f"{title}: the id column {id_column!r} cannot be analysed, leave it out of the columns")
    if chosen is not None and not chosen:
        raise OwnerError(f"{title} has no columns besides {id_column!r}")
    source = open_source(data, columns=chosen, label=label)
    values = np.concatenate([np.asarray(chunk, np.float64) for chunk in source.chunks()])
    ids = None if id_column is None else _id_values(data, id_column)
    return ColumnTable(source.label, values, source.names, ids)


def column_names(data: Any) -> list[str] | None:
    """The column names of a file or frame; None for plain arrays."""
    if isinstance(data, np.ndarray):
        return None
    if not isinstance(data, str | Path):
        found = getattr(data, "column_names", None) or getattr(data, "columns", None)
        return None if found is None else [str(name) for name in found]
    path = Path(data)
    try:
        if path.suffix == ".parquet":
            return list(pq.read_schema(path).names)
        if path.suffix in (".arrow", ".feather", ".ipc"):
            with pa.memory_map(str(path)) as file:
                return list(pa_ipc.open_file(file).schema.names)
        if path.suffix in (".csv", ".tsv", ".gz"):
            with _csv(path) as reader:
                return list(reader.schema.names)
    except (OSError, pa.ArrowInvalid) as error:
        raise OwnerError(f"cannot read {path.name}: {error}") from None
    return None


def _csv(path: Path, **convert: Any) -> Any:
    delimiter = "\t" if ".tsv" in path.name else ","
    return pa_csv.open_csv(
        path,
        parse_options=pa_csv.ParseOptions(delimiter=delimiter),
        convert_options=pa_csv.ConvertOptions(**convert) if convert else None,
    )


def _id_values(data: Any, name: str) -> Any:
    if not isinstance(data, str | Path):
        return data[name]
    path = Path(data)
    if path.suffix == ".parquet":
        return pq.read_table(path, columns=[name])[name]
    if path.suffix in (".arrow", ".feather", ".ipc"):
        with pa.memory_map(str(path)) as file:
            return pa_ipc.open_file(file).read_all()[name]
    with _csv(path, include_columns=[name]) as reader:
        return reader.read_all()[name]
