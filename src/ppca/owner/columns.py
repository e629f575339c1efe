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

from .errors import BadColumns, OwnerError, UnreadableData
from .tables.arrow_tables import pandas_index, sniff_delimiter
from .tables.sources import open_source
from .tables.table import listed, reading


@dataclass
class ColumnTable:
    """One owner's columns: values of shape (rows, columns), names if known, and the id column as it was given (or None)."""

    label: str
    values: NDArray[np.float64]
    names: list[str] | None
    ids: Any


def read_owners(
    owners: Sequence[Any],
    id_column: str | None,
    *,
    columns: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
    labels: Sequence[str] | None = None,
) -> list[ColumnTable]:
    """The tables of owners of different columns. `columns`: those to take, `drop`: those to leave out, whoever has them."""
    titles = labels or [
        Path(data).name if isinstance(data, str | Path) else f"owner {number}"
        for number, data in enumerate(owners, start=1)
    ]
    held = [column_names(data, label) for data, label in zip(owners, titles, strict=True)]
    everything = {name for names in held for name in names or []}
    for name in (*(columns or ()), *(drop or ())):
        if name not in everything:
            raise BadColumns(f"no owner has a column {name!r}. The owners' columns are {listed(sorted(everything))}.")
    tables = []
    for data, names, label in zip(owners, held, titles, strict=True):
        chosen = None
        if names is not None and (columns is not None or drop is not None):
            wanted = names if columns is None else [name for name in columns if name in names]
            chosen = [name for name in wanted if name not in (drop or ()) and name != id_column]
            if not chosen:
                raise BadColumns(
                    f"{label}: none of its columns were chosen. Leave this owner out, or choose one of them."
                )
        tables.append(read_columns(data, id_column, columns=chosen, label=label))
    return tables


def read_columns(
    data: Any, id_column: str | None, *, columns: Sequence[str] | None = None, label: str | None = None
) -> ColumnTable:
    """Reads an owner's table: all columns (or the chosen ones), which must be numbers, and the id column apart."""
    title = label or (Path(data).name if isinstance(data, str | Path) else "owner 1")
    names = column_names(data, title)
    if id_column is not None and (names is None or id_column not in names):
        known = "it has no column names" if names is None else f"its columns are {listed(names)}"
        raise BadColumns(f"{title}: there is no id column {id_column!r}; {known}.")
    chosen = columns if columns is not None else None if names is None else [n for n in names if n != id_column]
    if chosen is not None and id_column in chosen:
        raise BadColumns(f"{title}: the id column {id_column!r} cannot be analysed, leave it out of the columns.")
    if chosen is not None and not chosen:
        raise BadColumns(f"{title}: there are no columns besides the ids {id_column!r}.")
    source = open_source(data, columns=chosen, label=title)
    values = np.concatenate([np.asarray(chunk, np.float64) for chunk in source.chunks()])
    ids = None
    if id_column is not None:
        with reading(title):
            ids = _id_values(data, id_column, title)
        if len(ids) != len(values):
            raise OwnerError(f"{title}: {len(ids):,} ids for {len(values):,} rows.")
    return ColumnTable(title, np.ascontiguousarray(values), source.names, ids)


def joint_names(tables: Sequence[ColumnTable]) -> list[str] | None:
    """All owners' column names; a name that two owners use is told apart by the owner."""
    if any(table.names is None for table in tables):
        return None
    every = [name for table in tables for name in table.names or []]
    twice = {name for name in every if every.count(name) > 1}
    return [f"{table.label}:{name}" if name in twice else name for table in tables for name in table.names or []]


def column_names(data: Any, label: str) -> list[str] | None:
    """The column names of a file or frame, without a stored pandas index; None for plain arrays."""
    if isinstance(data, np.ndarray):
        return None
    if not isinstance(data, str | Path):
        found = getattr(data, "column_names", None)
        found = getattr(data, "columns", None) if found is None else found
        return None if found is None else [str(name) for name in found]
    path = Path(data)
    if not path.is_file():
        raise UnreadableData(f"{label}: there is no such file ({path}). Check the path.")
    with reading(label):
        kind = _kind(path)
        if kind == "csv":
            with _csv(path, label) as reader:
                return list(reader.schema.names)
        schema = {"parquet": pq.read_schema, "arrow": _arrow_schema}.get(kind, lambda _: None)(path)
        return None if schema is None else [name for name in schema.names if name not in pandas_index(schema)]


def _kind(path: Path) -> str:
    suffix = path.with_suffix("").suffix if path.suffix.lower() == ".gz" else path.suffix
    kinds = {".csv": "csv", ".tsv": "csv", ".parquet": "parquet", ".arrow": "arrow", ".feather": "arrow"}
    return kinds.get(suffix.lower(), "other")


def _csv(path: Path, label: str, **convert: Any) -> Any:
    return pa_csv.open_csv(
        path,
        parse_options=pa_csv.ParseOptions(delimiter=sniff_delimiter(label, path)),
        convert_options=pa_csv.ConvertOptions(**convert) if convert else None,
    )


def _arrow_table(path: Path) -> Any:
    with pa.memory_map(str(path)) as file:
        try:
            return pa_ipc.open_file(file).read_all()
        except pa.ArrowInvalid:
            return pa_ipc.open_stream(file).read_all()


def _arrow_schema(path: Path) -> Any:
    return _arrow_table(path).schema


def _id_values(data: Any, name: str, label: str) -> Any:
    """The id column as it stands. Of text files as text: whether 007 is a number must not depend on the other ids."""
    if not isinstance(data, str | Path):
        return data[name]
    path = Path(data)
    if _kind(path) == "parquet":
        return pq.read_table(path, columns=[name])[name]
    if _kind(path) == "arrow":
        return _arrow_table(path)[name]
    with _csv(path, label, include_columns=[name], column_types={name: pa.large_string()}) as reader:
        return reader.read_all()[name]
