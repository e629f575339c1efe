"""Messages for users of Python: hints below an error, as notes in tracebacks, and warnings."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ..html.formats import counted
from ..jobs.checks import SpecError
from ..owner.errors import OwnerError
from ..owner.rows import MIN_ROWS
from ..owner.tables.table import Table

NAMES = {"components": "n_components"}
"""Parameters whose name differs from their field of a job."""

REMEDIES = {
    "columns": "PCA(columns=[...]) chooses columns",
    "dask_ca": "distributed.Client(address, security=distributed.Security(...)) connects with your files",
    "decimal": 'ppca.open_table(path, decimal=",") reads decimal commas',
    "drop": "PCA(columns=[...]) chooses columns",
    "encoding": 'ppca.open_table(path, encoding="latin-1") reads another encoding',
    "fold_case": "Columns(fold_case=True) lets ids differ in case",
    "id": "Columns(id=[...]) names the id column of every owner",
    "minimum": "Columns(minimum=...) lowers the limit, if fewer rows may be analysed",
    "na_values": "ppca.open_table(path, na_values=[...]) counts texts as missing",
    "thousands": 'ppca.open_table(path, thousands=",") reads thousands separators',
    "min_rows": "ppca.open_table(data, min_rows=...) sets the minimum",
    "missing": 'ppca.open_table(data, missing="drop") drops rows with a missing value, missing="mean" counts it as the mean',
}


@contextmanager
def advised() -> Iterator[None]:
    """Add hints to an owner's error, with parameters as Python names them."""
    try:
        yield
    except OwnerError as error:
        for name in error.options:
            error.add_note(REMEDIES[name])
        raise
    except SpecError as error:
        raise renamed(error) from None


def renamed(error: SpecError) -> SpecError:
    """Return the same error with the Python parameter that sets the field."""
    short = error.short()
    return SpecError(NAMES.get(short.field, short.field), error.value, error.cause)


def with_advice(error: OwnerError) -> str:
    """Return the error and its hints in one line, for a warning."""
    return ". ".join([str(error).removesuffix("."), *(REMEDIES[name] for name in error.options)]) + "."


def warn_of_few_rows(tables: Sequence[Table], *, joins: bool = False) -> None:
    """Warn of owners with few rows and without a minimum. joins: whether these tables are added to an earlier fit."""
    few = [table for table in tables if table.min_rows == 1 and table.rows is not None and table.rows < MIN_ROWS]
    if few and (joins or len(tables) > 1):
        whose = few[0].label + (f" and {counted(len(few) - 1, 'other table')}" if len(few) > 1 else "")
        warnings.warn(
            f"fewer than {MIN_ROWS} rows: {whose}. Others could compute much about these rows from the joint result. "
            f"ppca.open_table(data, min_rows={MIN_ROWS}) refuses such a table before anything is sent.",
            stacklevel=3,
        )


def refuse_table(y: Any, width: int, *, by_columns: bool) -> None:
    """Refuse a y that can be a second owner's table: a path, several tables, or a table with the same number of
    columns.

    Any table can be that of a column owner. Targets of other widths are ignored, as in scikit-learn.
    """
    shape = getattr(y, "shape", None)
    try:
        shape = np.asarray(y).shape if shape is None else shape
        table = len(shape) not in (1, 2) or (len(shape) == 2 and (shape[1] == width or by_columns))
    except ValueError:  # a list of tables of different lengths
        table = True
    if y is not None and table:
        raise ValueError(
            f"y is a {type(y).__name__}, which is not used. Pass all owners' tables in the first argument: "
            "fit([A, B]), or fit({'north': A, 'south': B})."
        )


def warn_of_accuracy(result: dict[str, Any], tol: float) -> None:
    """Warn of a result that failed its check on shares, or was verified with a larger tolerance than was asked for."""
    if not result["verified"]:
        text = (
            "the check on shares failed: the decomposition is less accurate than tol promises, so components and "
            "variances may be wrong. Fit again without fixed_iterations and max_iterations, with fewer components, a "
            "larger tol, standardize=True, or another solver."
        )
    elif result["tolerance"] > tol:
        text = (
            f"the solver {result['solver']} reached a tolerance of {result['tolerance']:.0e} instead of "
            f"{tol:g}, and its result was verified with that: component_error_ and resolved_ say what this "
            "means for every component."
        )
    else:
        return
    warnings.warn(text, ConvergenceWarning, stacklevel=4)
