"""`ppca bench federation`: what a job costs over a federation of processes, beside local servers; and over slow links,
measured.

Servers talk TLS with pinned keys; `wan` puts a proxy before every mesh port, with a delay in milliseconds one way and a
limit of bits per second in each direction of a link. Predicted: time here, plus rounds times the delay, plus the bytes
of the busiest link.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from benchmarks import table_console
from benchmarks.data_sets import DATA_SETS
from benchmarks.field import Field
from benchmarks.jobs import fit_job
from ppca import PCA
from ppca.jobs.build import iterations_for
from ppca.member.contributing import contribute
from ppca.member.fetching import Evidence
from ppca.runtime import Account, LocalServers
from ppca.web.report import duration, size

OWNERS = ("north", "south", "west")
RECEIVER = "analyst"
COMPONENTS = 10
SETTINGS = {"work": {"timeout": 120.0, "start_timeout": 120.0}}


@dataclass
class Row:
    """One way to run the same job. seconds: on the servers; wall: what a person waits for, from the last table to the
    result."""

    how: str
    seconds: float
    wall: float
    rounds: int
    bytes_per_server: int
    busiest_link: int
    predicted: float | None
    ratio_error: float
    bytes_per_owner: int | None = None


def table_of(data: Path | None, d: int, rows: int) -> tuple[str, NDArray[np.float64]]:
    """N-BaIoT if it is present and has the columns, else synthetic data of that shape."""
    if data is not None and d == 115:
        with contextlib.suppress(OSError):
            found = np.concatenate(DATA_SETS["N-BaIoT"](data))
            return "N-BaIoT", found[np.random.default_rng(0).permutation(len(found))[:rows]]
    random = np.random.default_rng(0)
    return "synthetic", random.standard_normal((rows, d)) @ random.standard_normal((d, d))


def busiest(account: Account) -> int:
    return int(max(sent for stage in account.stages for sent in stage["total"]["sent_to"]))


def predicted(here: float, account: Account, delay: float, rate: float) -> float:
    """Seconds over slow links: those on loopback, a delay a round, and the bytes of the busiest link."""
    return here + account.rounds * delay + (8 * busiest(account) / rate if rate else 0.0)


def local(tables: list[NDArray[np.float64]], truth: NDArray[np.float64], tls: bool) -> Row:
    with LocalServers(tls=tls, timeout=120) as servers:
        iterations = iterations_for(tables[0].shape[1])
        model = PCA(COMPONENTS, standardize=True, fixed_iterations=iterations, servers=servers)
        began = time.perf_counter()
        model.fit(tables)
        wall = time.perf_counter() - began
    account = model.account_
    error = float(np.abs(model.explained_variance_ratio_ - truth).max())
    how = "four local processes, " + ("mutual TLS" if tls else "plain TCP")
    return Row(how, account.seconds, wall, account.rounds, max(account.bytes_sent), busiest(account), None, error)


def over_field(
    tables: list[NDArray[np.float64]], truth: NDArray[np.float64], here: Row, delay: float, rate: float
) -> Row:
    slow = delay > 0 or rate > 0
    with tempfile.TemporaryDirectory(prefix="ppca-field-") as name:
        folder = Path(name)
        mesh: dict[str, Any] | None = {"delay": delay, "rate": rate} if slow else None
        with Field(folder, OWNERS, (RECEIVER,), mesh=mesh, settings=SETTINGS) as field:
            evidence, wall, sent = run(field, folder, tables)
    account = evidence.account()
    error = float(np.abs(evidence.result().model.explained_variance_ratio - truth).max())
    expected = predicted(here.seconds, account, delay, rate) if slow else None
    how = f"federation, {1000 * delay:g} ms one way, {rate / 1e6:g} Mbit/s" if slow else "federation on loopback"
    return Row(
        *(how, account.seconds, wall, account.rounds, max(account.bytes_sent), busiest(account)),
        expected,
        error,
        sent,
    )


def run(field: Field, folder: Path, tables: list[NDArray[np.float64]]) -> tuple[Evidence, float, int]:
    """The evidence, the seconds from the last contribution to the result, and the bytes that an owner sent."""
    columns = [f"c{i}" for i in range(tables[0].shape[1])]
    receiver = field.member(RECEIVER)
    job = fit_job(
        receiver.membership,
        "bench",
        list(OWNERS),
        columns,
        {RECEIVER: ["model"]},
        components=COMPONENTS,
        standardize=True,
    )
    receiver.submit(job)
    while any(item.what.startswith("offer") for item in receiver.job_state(job).waiting):
        time.sleep(0.05)
    sent = 0
    for owner, table in zip(OWNERS, tables, strict=True):
        member = field.member(owner)
        path = folder / f"{owner}.parquet"
        _write(path, columns, table)
        member.approve(job)
        began = time.perf_counter()
        sent = contribute(member, job, path)
        member.close()
    for _ in receiver.watch(job, 3600):
        pass
    evidence = Evidence.gather(receiver, job)
    evidence.check()
    wall = time.perf_counter() - began
    receiver.close()
    return evidence, wall, sent


def _write(path: Path, columns: list[str], table: NDArray[np.float64]) -> None:
    import pyarrow as pa
    import pyarrow.parquet

    pyarrow.parquet.write_table(pa.table({name: table[:, i] for i, name in enumerate(columns)}), path)


def main(d: int, rows: int, delay: float, rate: float, data: Path | None, output: Path) -> None:
    name, X = table_of(data, d, rows)
    X = X[np.random.default_rng(1).permutation(len(X))]
    spread = X.std(axis=0)
    X = X[:, spread > 0]
    values = np.linalg.eigvalsh(np.corrcoef(X.T))[::-1]
    truth = (values / values.sum())[:COMPONENTS]
    tables = np.array_split(X, len(OWNERS))
    found = [local(tables, truth, False), local(tables, truth, True)]
    found.append(over_field(tables, truth, found[1], 0.0, 0.0))
    if delay or rate:
        found.append(over_field(tables, truth, found[1], delay, rate))
    table = Table(title=f"{name}, {X.shape[0]:,} rows, {X.shape[1]} columns, three owners", title_justify="left")
    for heading in (
        "how",
        "on the servers",
        "predicted",
        "whole wait",
        "ratio",
        "rounds",
        "sent per server",
        "busiest link",
        "error",
    ):
        table.add_column(heading, justify="left" if heading == "how" else "right")
    for row in found:
        table.add_row(
            row.how,
            duration(row.seconds),
            "" if row.predicted is None else duration(row.predicted),
            duration(row.wall),
            f"{row.wall / found[0].wall:.1f}x",
            f"{row.rounds:,}",
            size(row.bytes_per_server),
            size(row.busiest_link),
            f"{row.ratio_error:.1e}",
        )
    console = table_console()
    console.print(table)
    console.print(f"an owner sent {size(found[2].bytes_per_owner or 0)} in all, whatever its number of rows")
    output.mkdir(parents=True, exist_ok=True)
    content = {"data": name, "rows": len(X), "columns": X.shape[1], "table": [asdict(row) for row in found]}
    (output / "federation.json").write_text(json.dumps(content, indent=1) + "\n")
