"""`ppca bench accuracy`: whole joint PCAs of real data on four local servers, beside scikit-learn on the pooled rows.

Rounds and bytes are of the whole job, from the owners' sums to the sorted result; seconds are of this machine. Data
sets that are not present are left out, and said so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from benchmarks.data_sets import DATA_SETS, Floats, Folder, MissingData
from ppca import PCA
from ppca.runtime import LocalServers
from ppca.web.report import duration, size

ROUND_LIMITS = {50: 260, 115: 330, 200: 420}
"""Maximum number of rounds of a whole job up to this many columns, at the tolerance of this benchmark."""

BYTE_LIMITS = {115: 100e6}
"""Maximum bytes that a server may send in a whole job, up to this number of columns."""

WIDTH = 170
"""Width of the table if the output is not a terminal."""

ACCURACY_LIMITS = {"ratio_error": 1e-8, "eigenvalue_error": 1e-7, "residual": 1e-7, "orthogonality": 1e-8}
"""Quantities that data sets of this benchmark keep."""

TOL = 1e-7
"""The tolerance of this benchmark."""

PROMISED = {"ratio_error": 4e-7, "eigenvalue_error": 4e-7, "residual": 4e-7, "orthogonality": 1e-7}
"""Guarantee of a passed verification at this tolerance, for any data: a residual below 2 tol, of a norm of at least
1/2."""


@dataclass(frozen=True)
class Accuracy:
    """Distance of a model from the truth, see `accuracy_of`."""

    ratio_error: float
    eigenvalue_error: float
    residual: float
    orthogonality: float

    def broken(self, limits: dict[str, float] = ACCURACY_LIMITS) -> list[str]:
        """The limits that are not kept."""
        return [key for key, limit in limits.items() if not getattr(self, key) <= limit]


def standardised(X: Floats) -> Floats:
    """As scikit-learn's StandardScaler does; constant columns become zero."""
    from sklearn.preprocessing import StandardScaler

    return np.asarray(StandardScaler().fit_transform(X))


def accuracy_of(pca: PCA, pooled: Floats) -> Accuracy:
    """The joint model against scikit-learn's on the pooled rows.

    ratio_error: largest difference of an explained-variance ratio; eigenvalue_error: of a variance, relative to the
    largest;
    residual: |C V - V L|_F / |C|_F; orthogonality: |V'V - I|_F.
    """
    from sklearn import decomposition

    X = standardised(pooled) if pca.standardize else np.asarray(pooled, np.float64)
    truth = decomposition.PCA(svd_solver="full").fit(X)
    centred = X - X.mean(axis=0)
    return accuracy_beside(pca, centred.T @ centred / (len(X) - 1), truth.explained_variance_)


def accuracy_beside(pca: PCA, C: Floats, variances: Floats) -> Accuracy:
    """The joint model against the covariance in the clear (the correlation, if it is standardised) and all its
    variances."""
    count = pca.n_components_
    values, V = pca.explained_variance_, pca.components_.T
    ratios = variances / variances.sum()
    return Accuracy(
        ratio_error=float(np.abs(pca.explained_variance_ratio_ - ratios[:count]).max()),
        eigenvalue_error=float(np.abs(values - variances[:count]).max()) / float(variances[0]),
        residual=float(np.linalg.norm(C @ V - V * values)) / float(np.linalg.norm(C)),
        orthogonality=float(np.linalg.norm(V.T @ V - np.eye(count))),
    )


@dataclass
class Row:
    data: str
    rows: int
    columns: int
    owners: int
    standardised: bool
    rounds: int
    bytes_per_server: int
    seconds: float
    iterations: int
    verified: bool | None
    fell_back: bool
    ratio_error: float
    eigenvalue_error: float
    residual: float
    orthogonality: float
    broken: list[str]


def limit_at(limits: dict[int, Any], columns: int) -> Any:
    """The limit of the smallest size that is not below `columns`; None beyond all."""
    return next((limit for most, limit in sorted(limits.items()) if columns <= most), None)


def measure(servers: LocalServers, name: str, owners: list[Floats], standardize: bool, tol: float = TOL) -> Row:
    """One joint PCA with all components."""
    pca = PCA(standardize=standardize, tol=tol, servers=servers).fit(owners)
    pooled = np.vstack(owners)
    accuracy = accuracy_of(pca, pooled)
    account = pca.account_
    d = pooled.shape[1]
    most_rounds, most_bytes = limit_at(ROUND_LIMITS, d), limit_at(BYTE_LIMITS, d)
    broken = accuracy.broken()
    if most_rounds is not None and account.rounds > most_rounds:
        broken.append("rounds")
    if most_bytes is not None and max(account.bytes_sent) > most_bytes:
        broken.append("bytes")
    return Row(
        name, len(pooled), d, len(owners), standardize, account.rounds, max(account.bytes_sent), account.seconds, pca.n_iter_,
        pca.verified_, pca.fell_back_, **asdict(accuracy), broken=broken,
    )  # fmt: skip


def measured(
    servers: LocalServers, names: list[str], data: Folder, status: Callable[[str], None]
) -> Iterator[Row | tuple[str, MissingData]]:
    """A row per data set and scaling, or the name of a data set that is not there, and why."""
    for name in names:
        try:
            owners = DATA_SETS[name](data)
        except MissingData as missing:
            yield name, missing
            continue
        for standardize in (False, True):
            status(f"{name}, {'standardised' if standardize else 'raw'}")
            yield measure(servers, name, owners, standardize)


def main(names: list[str], data: Folder, directory: Path) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    rows: list[Row] = []
    absent: list[tuple[str, MissingData]] = []
    with LocalServers(timeout=600) as servers, console.status("") as status:
        for row in measured(servers, names, data, status.update):
            if isinstance(row, tuple):
                absent.append(row)
            else:
                rows.append(row)
    table = Table(title="Joint PCA of whole data sets, beside scikit-learn on the pooled rows", box=SIMPLE)
    for heading in (
        "data", "shape", "owners", "scaling", "rounds", "sent", "time", "steps", "ratios", "values", "residual", "V'V - I",
        "limits",
    ):  # fmt: skip
        table.add_column(heading, justify="left" if heading in ("data", "scaling", "limits") else "right", no_wrap=True)
    for row in rows:
        limit = limit_at(ROUND_LIMITS, row.columns)
        table.add_row(
            row.data, f"{row.rows:,} x {row.columns}", str(row.owners), "correlation" if row.standardised else "raw",
            f"{row.rounds:,}" if limit is None else f"{row.rounds:,} of {limit}", size(row.bytes_per_server),
            duration(row.seconds), f"{row.iterations}{' (jacobi)' if row.fell_back else ''}",
            *(f"{getattr(row, key):.0e}" for key in ACCURACY_LIMITS), ", ".join(row.broken) or "kept",
        )  # fmt: skip
    console.print(table)
    for name, why in absent:
        console.print(f"{name} was left out: {why}", highlight=False)
    console.print(
        "limits: ratios and orthogonality 1e-8, eigenvalues and residual 1e-7, rounds as shown, 100 MB sent up to 115 "
        "columns"
    )
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "accuracy.json"
    path.write_text(
        json.dumps({"rows": [asdict(row) for row in rows], "absent": [name for name, _ in absent]}, indent=1) + "\n"
    )
    console.print(f"written: {path}")
