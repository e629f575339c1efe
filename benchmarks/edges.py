"""`ppca bench edges`: joint PCA where digits are lost easily, beside exact arithmetic: large means, timestamps, scales
apart."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table
from sklearn.decomposition import PCA as PlainPCA  # noqa: N811 - scikit-learn's

from benchmarks import table_console
from ppca import PCA
from ppca.runtime import LocalServers
from ppca.web.report import size

OWNERS = 3


@dataclass
class Row:
    """Errors: largest difference of an explained-variance ratio, and of a variance relative to the largest."""

    data: str
    standardised: bool
    ratio_error: float
    variance_error: float
    verified: bool
    below_resolution: int
    rounds: int
    bytes_per_server: int


def tables(rows: int) -> Iterator[tuple[str, NDArray[Any]]]:
    random = np.random.default_rng(0)
    X = random.standard_normal((rows, 5)) @ random.standard_normal((5, 5))
    for ratio in (0.0, 1e3, 1e5, 1e7, 1e9):
        yield f"mean / deviation {ratio:g}", X + ratio * X.std(axis=0)
    day = 86_400_000_000_000
    when = 1_700_000_000_000_000_000 + random.integers(0, 365, rows) * day
    yield "ns timestamps, and a value", np.column_stack([when.astype(np.float64), X[:, 0], X[:, 1]])
    number = 2.0**53 - random.integers(0, 1000, rows)
    yield "integers about 2^53, and a value", np.column_stack([number, X[:, 0], X[:, 1]])
    near = np.rint(4 * X[:, :3]).astype(np.int64)
    yield "integers about 2^63 that differ by tens", (near.astype(object) + 2**63).astype(np.uint64)
    yield "five columns of scales 1e7 to 1e-3", X * 10.0 ** np.array([7, 4, 2, 0, -3])


def exact(X: NDArray[Any], standardize: bool) -> PlainPCA:
    """scikit-learn on rows centred in rational arithmetic."""
    means = [sum(map(Fraction, column.tolist())) / len(X) for column in X.T]
    Z = np.array([[float(Fraction(x) - m) for x, m in zip(row, means, strict=True)] for row in X.tolist()])
    return PlainPCA(svd_solver="full").fit(Z / Z.std(axis=0) if standardize else Z)


def measure(servers: LocalServers, name: str, X: NDArray[Any], standardize: bool) -> Row:
    truth = exact(X, standardize)
    found = PCA(standardize=standardize, servers=servers).fit(np.array_split(X, OWNERS))
    ratio = np.abs(found.explained_variance_ratio_ - truth.explained_variance_ratio_).max()
    variance = np.abs(found.explained_variance_ - truth.explained_variance_).max() / truth.explained_variance_[0]
    account = found.account_
    below = int((~found.resolved_).sum())
    return Row(
        name,
        standardize,
        float(ratio),
        float(variance),
        found.verified_,
        below,
        account.rounds,
        max(account.bytes_sent),
    )


def main(rows_of_table: int, directory: Path) -> None:
    with LocalServers(timeout=600) as servers:
        rows = [
            measure(servers, name, X, standardize) for name, X in tables(rows_of_table) for standardize in (False, True)
        ]
    table = Table(title=f"Joint PCA of {OWNERS} owners beside exact arithmetic", title_justify="left")
    for heading in ("data", "", "ratio error", "variance error", "verified", "below resolution", "rounds", "sent"):
        table.add_column(heading, justify="left" if heading in ("data", "") else "right")
    for row in rows:
        table.add_row(
            row.data,
            "standardised" if row.standardised else "raw",
            f"{row.ratio_error:.0e}",
            f"{row.variance_error:.0e}",
            "yes" if row.verified else "NO",
            str(row.below_resolution),
            str(row.rounds),
            size(row.bytes_per_server),
        )
    table_console().print(table)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "edges.json").write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
