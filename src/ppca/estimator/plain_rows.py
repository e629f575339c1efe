"""Rows in the clear that an estimator is applied to on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import validate_data

from ..owner.tables.owners import are_several, open_like
from .advice import advised
from .partition import Columns


class Detached:
    """Placeholder for the servers of a pickled estimator. `set_params(servers=...)` replaces it."""

    def __repr__(self) -> str:
        return "<servers that were not pickled>"


def check_attached(servers: Any) -> None:
    """Raise for the servers of a pickled estimator."""
    if isinstance(servers, Detached):
        raise ValueError(
            "this estimator had servers, and a connection to servers is not pickled. Connect again with "
            "set_params(servers=...), or set_params(servers=None) to compute on four processes of this machine."
        )


def plain_rows(estimator: Any, X: Any, names: list[str] | None) -> NDArray[np.float64]:
    """Return plain rows with the columns of the fit, by scikit-learn's rules: the same names in the same order.

    As in `fit`, a list or a dictionary has one table per owner; their rows are concatenated. Files and lazy frames
    are read completely, and their columns matched by name. names: column names of
    the fit, or None if its columns had no names.
    """
    tables: Any = list(X.values()) if isinstance(X, Mapping) else X
    if are_several(tables):
        if isinstance(estimator.partition, Columns):
            raise ValueError(
                "column owners: only rows with all columns can be given here. Join the rows of all owners first, or "
                "apply a kept PCA on shares with shared_model().transform_columns"
            )
        return np.vstack([plain_rows(estimator, table, names) for table in tables])
    if isinstance(tables, str | PathLike) or hasattr(tables, "collect_batches"):
        with advised():
            return open_like(tables, names, estimator.n_features_in_).read()[0]
    if hasattr(tables, "set_axis") and not all(isinstance(name, str) for name in tables.columns):
        tables = tables.set_axis([str(name) for name in tables.columns], axis=1)  # names as text, as in fit
    rows = validate_data(estimator, tables, reset=False, dtype=np.float64, accept_sparse="csr")
    return np.asarray(rows.toarray() if hasattr(rows, "toarray") else rows)
