"""`ppca bench wide`: joint PCA of a table with more columns than rows, beside scikit-learn on the joint table.

Three row owners and three of columns, raw and standardised, each job on servers of its own, so that peak memory
(VmHWM) is that of one job. The table is like gene expression: a few programs that many columns take part in, noise,
means and scales that differ. Seconds are of this machine, with all servers and all owners on it.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE
from rich.table import Table

from benchmarks import table_console
from benchmarks.accuracy import ACCURACY_LIMITS
from benchmarks.data_sets import Floats
from benchmarks.stages import stage_seconds
from benchmarks.vertical import peak_memory
from ppca import PCA, Columns
from ppca.owner.wide import padded
from ppca.runtime import LocalServers
from ppca.web.report import duration, size

OWNERS = 3
MAX_MEMORY = 4 << 30
STAGES = ("covariance", "standardise", "second moments", "eigendecomposition", "components")


@dataclass
class Row:
    """One job. bytes_sent, peak_memory: of the busiest server."""

    partition: str
    rows: int
    columns: int
    components: int
    standardised: bool
    solver: str
    seconds: float
    stages: dict[str, float]
    rounds: int
    bytes_sent: int
    bytes_uploaded: int
    peak_memory: int
    verified: bool
    accuracy: dict[str, float]
    broken: list[str]


def expression(rows: int, columns: int) -> Floats:
    random = np.random.default_rng(11)
    programs = random.standard_normal((rows, 12)) * np.geomspace(3, 0.5, 12)
    weights = random.standard_normal((12, columns)) * (random.random((12, columns)) < 0.2)
    level, scale = random.gamma(4, 2, columns), random.gamma(2, 0.5, columns) + 0.1
    return np.asarray(level + scale * (programs @ weights + random.standard_normal((rows, columns))))


@dataclass
class Truth:
    """scikit-learn's full decomposition of the joint table, centred and standardised as the fit does."""

    table: Floats
    variances: Floats

    @classmethod
    def of(cls, X: Floats, standardize: bool) -> Truth:
        from sklearn.decomposition import PCA as PlainPCA  # noqa: N811 - scikit-learn's
        from sklearn.preprocessing import StandardScaler

        Z = StandardScaler(with_std=standardize).fit_transform(X)
        return cls(Z, PlainPCA(svd_solver="full").fit(Z).explained_variance_)

    def accuracy(self, pca: PCA) -> dict[str, float]:
        """As `accuracy.accuracy_of`, without the covariance."""
        values, V, count = pca.explained_variance_, pca.components_.T, pca.n_components_
        residual = self.table.T @ (self.table @ V) / (len(self.table) - 1) - V * values
        variances = self.variances
        return {
            "ratio_error": float(np.abs(pca.explained_variance_ratio_ - variances[:count] / variances.sum()).max()),
            "eigenvalue_error": float(np.abs(values - variances[:count]).max() / variances[0]),
            "residual": float(np.linalg.norm(residual) / np.linalg.norm(variances)),
            "orthogonality": float(np.linalg.norm(V.T @ V - np.eye(count))),
        }


def measure(X: Floats, truth: Truth, partition: str, components: int, standardize: bool) -> Row:
    by_columns = partition == "columns"
    owners = np.array_split(X, OWNERS, axis=1 if by_columns else 0)
    way: Any = Columns(None, "aligned") if by_columns else "rows"
    with LocalServers(timeout=1800) as servers:
        pca = PCA(components, standardize=standardize, partition=way, servers=servers)
        start = time.perf_counter()
        pca.fit(owners)
        spent = time.perf_counter() - start
        peak = max(peak_memory(pid) for pid in servers.pids)
    found, account = truth.accuracy(pca), pca.account_
    broken = [key for key, limit in ACCURACY_LIMITS.items() if not found[key] <= limit]
    broken += ["memory"] * (peak >= MAX_MEMORY) + ["verified"] * (not pca.verified_)
    spent_in = stage_seconds(account)
    return Row(
        partition=partition,
        rows=len(X),
        columns=X.shape[1],
        components=components,
        standardised=standardize,
        solver=pca.model_.solver,
        seconds=spent,
        stages={name: spent_in[name] for name in STAGES if name in spent_in},
        rounds=account.rounds,
        bytes_sent=max(account.bytes_sent),
        bytes_uploaded=4 * 16 * sum(_sent(len(part), by_columns) * part.shape[1] for part in owners),
        peak_memory=peak,
        verified=bool(pca.verified_),
        accuracy=found,
        broken=broken,
    )


def _sent(rows: int, by_columns: bool) -> int:
    """Rows that an owner uploads."""
    return rows if by_columns else padded(rows)


def main(rows: int, columns: int, components: int, output: Path) -> bool:
    """Return whether all limits are kept."""
    console = table_console()
    X = expression(rows, columns)
    jobs = []
    output.mkdir(parents=True, exist_ok=True)
    path = output / "wide.json"
    for standardize in (False, True):
        truth = Truth.of(X, standardize)
        for partition in ("columns", "rows"):
            jobs.append(measure(X, truth, partition, components, standardize))
            path.write_text(json.dumps({"jobs": [asdict(job) for job in jobs]}, indent=1))
            console.print(f"{partition}, {'standardised' if standardize else 'raw'}: {duration(jobs[-1].seconds)}")
    console.print(table_of(jobs))
    console.print(f"written: {path}", highlight=False)
    for job in jobs:
        for limit in job.broken:
            console.print(f"NOT KEPT: {job.partition}, standardised {job.standardised}: {limit}", style="bold red")
    return not any(job.broken for job in jobs)


def table_of(jobs: list[Row]) -> Table:
    title = f"{jobs[0].rows:,} x {jobs[0].columns:,}, {OWNERS} owners, {jobs[0].components} components"
    table = Table(title=title, title_justify="left", box=SIMPLE)
    headings = ("time", "rounds", "sent by a server", "uploaded in all", "peak memory", "EVR error", "residual")
    for heading in ("owners of", "", "solver", *headings):
        table.add_column(heading, justify="right" if heading in headings else "left")
    for job in jobs:
        table.add_row(
            job.partition,
            "standardised" if job.standardised else "raw",
            job.solver,
            duration(job.seconds),
            str(job.rounds),
            size(job.bytes_sent),
            size(job.bytes_uploaded),
            size(job.peak_memory),
            f"{job.accuracy['ratio_error']:.1e}",
            f"{job.accuracy['residual']:.1e}",
        )
    return table
