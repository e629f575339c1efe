"""`ppca bench components`: the worst error of a component on twenty textbook tables, beside its bound.

Seven tables of scikit-learn and thirteen of statsmodels: numbers only, rows without missing values. Each has two
owners. All components of the covariance and of the correlation are computed on four local servers and compared with
those of the pooled rows.
"""

from __future__ import annotations

import importlib
import json
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.box import SIMPLE
from rich.table import Table
from sklearn import datasets

from benchmarks import table_console
from benchmarks.accuracy import standardised
from ppca import PCA
from ppca.receiver.angles import DETERMINED
from ppca.runtime import LocalServers, Servers

Floats = NDArray[np.float64]

SCIKIT_LEARN = ("iris", "wine", "breast_cancer", "diabetes", "digits", "linnerud", "linnerud_target")
STATSMODELS = (
    "anes96",
    "ccard",
    "copper",
    "cpunish",
    "elnino",
    "fair",
    "longley",
    "macrodata",
    "modechoice",
    "scotland",
    "stackloss",
    "star98",
    "statecrime",
)
NAMES = SCIKIT_LEARN + STATSMODELS


def table(name: str) -> Floats:
    """Rows of a table by its name."""
    if name == "linnerud_target":
        return np.asarray(datasets.load_linnerud().target, np.float64)
    if name in SCIKIT_LEARN:
        return np.asarray(getattr(datasets, f"load_{name}")().data, np.float64)
    data = importlib.import_module(f"statsmodels.datasets.{name}").load_pandas().data
    return np.asarray(data.select_dtypes("number").dropna().to_numpy(np.float64))


def exact_components(X: Floats, standardize: bool) -> Floats:
    """Right singular vectors of the centred rows, all of them."""
    Z = X - X.mean(axis=0)
    Z = standardised(Z) if standardize else Z - Z.mean(axis=0)
    return np.asarray(np.linalg.svd(Z, full_matrices=True)[2])


def angles(found: Floats, exact: Floats) -> Floats:
    """Angles between components. Rows of `found` that are zero are at a right angle to every component."""
    along = np.sum(found * exact, axis=1, keepdims=True)
    outside = np.linalg.norm(found - along * exact, axis=1)
    return np.asarray(np.arctan2(outside, np.abs(along[:, 0])))


@dataclass(frozen=True)
class Row:
    """One fit. Angles are in radians.

    determined: components with a bound of at most 1e-2; error, bound: the largest ones of these components.
    covered: the largest ratio of error to bound among all components; the bounds hold if it is at most 1.
    """

    table: str
    rows: int
    columns: int
    standardised: bool
    determined: int
    error: float
    bound: float
    covered: float


def measure(servers: Servers, name: str, standardize: bool) -> Row:
    """Fit all components of a table that two owners hold halves of."""
    X = table(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # columns of different scales, on purpose
        pca = PCA(standardize=standardize, servers=servers).fit(np.array_split(X, 2))
    return row_of(name, pca, X)


def row_of(name: str, pca: PCA, X: Floats) -> Row:
    """The errors of a fitted model."""
    errors = angles(pca.components_, exact_components(X, pca.standardize)[: pca.n_components_])
    bounds = pca.component_error_
    known = bounds <= DETERMINED
    worst, bound = (float(each[known].max(initial=0.0)) for each in (errors, bounds))
    covered = float((errors / bounds).max())
    rows, columns = X.shape
    return Row(name, rows, columns, pca.standardize, int(known.sum()), worst, bound, covered)


HEADINGS = ("table", "shape", "matrix", "determined", "worst error", "bound", "error / bound")


def cells(row: Row) -> list[str]:
    """A row as text. Figures are rounded upwards."""
    return [
        row.table,
        f"{row.rows:,} x {row.columns}",
        "correlation" if row.standardised else "covariance",
        f"{row.determined} of {row.columns}",
        _upwards(row.error),
        _upwards(row.bound),
        f"{np.ceil(100 * row.covered) / 100:.2f}",
    ]


def _upwards(value: float) -> str:
    """One digit, never less than the value."""
    if value == 0:
        return "0"
    unit = 10.0 ** np.floor(np.log10(value))
    return f"{np.ceil(value / unit) * unit:.0e}"


def load(path: Path) -> list[Row]:
    return [Row(**row) for row in json.loads(path.read_text())]


def main(names: Sequence[str], directory: Path) -> bool:
    """Return whether every bound holds."""
    console = table_console()
    with LocalServers(timeout=600) as servers, console.status("") as status:
        rows = []
        for name in names:
            status.update(name)
            rows += [measure(servers, name, standardize) for standardize in (False, True)]
    shown = Table(title="Worst error of a component on textbook tables, in radians", box=SIMPLE)
    for heading in HEADINGS:
        shown.add_column(heading, justify="left" if heading in ("table", "matrix") else "right", no_wrap=True)
    for row in rows:
        shown.add_row(*cells(row))
    console.print(shown)
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "components.json"
    path.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    console.print(f"written: {path}")
    return all(row.covered <= 1 for row in rows)
