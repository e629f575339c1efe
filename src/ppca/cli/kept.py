"""Load kept models for commands that use them on shared rows."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from ..estimator.job import Job
from ..estimator.shared_model import SharedModel
from ..owner.errors import OwnerError
from ..owner.tables.table import Table, unknown_names
from ..receiver import PCAModel, SharedFacts
from ..runtime import Servers
from ..runtime.files import whole_file
from ..runtime.servers import Progress
from ..transport import server_name
from .result import MODEL, SHARED, csv_names
from .shares import holds

ENDINGS = (".csv", ".parquet")


def load_facts(result: Path, state: Path) -> SharedFacts:
    """Return the public facts of a result's shared model. Raise if the servers keep none, or shares are missing in
    `state`."""
    if not result.is_dir():
        raise ValueError(f"there is no folder {result}. Give the folder that `ppca fit` wrote with -o.")
    if not (result / SHARED).exists():
        kept = "no server keeps this model: it was fitted without --keep, or `ppca forget` has erased it"
        if (result / MODEL).exists():
            raise ValueError(
                f"{result}: {kept}. Add --revealed to use the revealed model here, in the "
                "clear, or fit again with --keep."
            )
        raise ValueError(f"{result} holds no model. Give the folder that `ppca fit --keep` wrote with -o.")
    facts = SharedFacts.load(result / SHARED)
    for server in range(4):
        if not holds(state, server, facts.name):
            raise ValueError(
                f"the shares of {server_name(server)} are missing in {state}. Name the folder that the fit used with "
                "--servers-state, or fit again."
            )
    return facts


def load_revealed(result: Path) -> PCAModel:
    """Return the model that the receiver holds."""
    if result.is_dir() and not (result / MODEL).exists() and (result / SHARED).exists():
        raise ValueError(f"the model of {result} was not revealed (--no-reveal). Omit --revealed to use it on shares.")
    if not (result / MODEL).exists():
        raise ValueError(f"there is no {result / MODEL}. Give the folder that `ppca fit` wrote with -o.")
    return PCAModel.load(result / MODEL)


def check_kept(table: Table, names: Sequence[str]) -> None:
    """Refuse columns that are to be copied into the result and are not in the table."""
    if names and table.offered is None:
        raise OwnerError(f"{table.label}: the data do not have column names, so none can be kept.")
    unknown = [name for name in names if name not in (table.offered or [])]
    if unknown:
        raise OwnerError(
            f"{table.label}: there is no column to keep named {unknown_names(unknown, table.offered or [])}"
        )


def chunks_of(table: Table) -> Iterator[NDArray[np.float64]]:
    """Yield the checked rows in chunks. A table without rows is refused."""
    done = 0
    for chunk in table.chunks():
        done += len(chunk)
        yield chunk.astype(np.float64)
    if not done:
        raise OwnerError(f"{table.label}: the table is empty.")


def scores_of(model: PCAModel, tables: Sequence[Table]) -> dict[str, NDArray[np.float64]]:
    """Read the tables of row owners again and return the coordinates of their rows."""
    return {table.label: np.vstack([model.project(chunk) for chunk in chunks_of(table)]) for table in tables}


@contextmanager
def kept_model(servers: Servers, facts: SharedFacts, progress: Progress) -> Iterator[SharedModel]:
    """Yield the kept model on four local servers. They start with the first rows."""
    with Job(servers, progress) as job:
        scale = np.asarray(facts.scale_exponents, np.int64)
        yield SharedModel(job, facts.name, scale, facts.standardized, facts.feature_names, facts.components)


def write_tables(folder: Path, tables: Mapping[str, Mapping[str, Any]]) -> None:
    """Write tables by the names of their files. Texts can be names of columns, which a spreadsheet would run as
    formulas."""
    for name, columns in tables.items():
        safe = {
            head: csv_names(values) if len(values) and isinstance(values[0], str) else values
            for head, values in columns.items()
        }
        write_table(folder / name, safe)


def write_table(path: Path, columns: Mapping[str, Any]) -> None:
    """Write a table with all digits. An existing file is replaced only if everything was written."""
    table = pa.table(columns)
    with whole_file(path) as part:
        if path.suffix.lower() == ".parquet":
            pyarrow.parquet.write_table(table, part)
        else:
            with part.open("wb") as file:
                head = io.StringIO()  # Arrow would put all names in quotes
                csv.writer(head, lineterminator="\n").writerow(csv_names(columns))
                file.write(head.getvalue().encode())
                pyarrow.csv.write_csv(table, file, pyarrow.csv.WriteOptions(include_header=False))
