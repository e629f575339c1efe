"""`ppca bench eigen`: every eigensolver on shares, on covariance matrices of real data where present.

Rounds and bytes are exact; seconds are of this machine (four server processes on loopback). From rounds and bytes
follow the
times on other networks: rounds x latency + bytes / bandwidth + the local work measured here. A solver whose run would
take longer than the budget is measured for a few iterations and projected: its number of iterations comes from the
plaintext backend, which runs the same text. Projected rows are marked.
"""

from __future__ import annotations

import json
import math
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from benchmarks import table_console
from benchmarks.data_sets import Folder, MissingData, find
from ppca.algorithms.solvers import SOLVERS, eigh
from ppca.estimator.job import Job
from ppca.protocol import FIXED, InputPacket, Party, PlainArray, SecretArray, share
from ppca.protocol.plain import FLOAT
from ppca.runtime import LocalServers
from ppca.web.report import duration, kind_lines, percent, size

NETWORKS = {"LAN": (0.3e-3, 1e9), "WAN": (40e-3, 100e6)}
"""Latency of a round in seconds, bits per second of a server's link."""

PROBE = 2
"""Iterations measured for a projection."""


@dataclass
class Row:
    solver: str
    d: int
    source: str
    projected: bool
    iterations: int
    rounds: int
    bytes_per_server: int
    seconds: float
    network_seconds: float
    residual: float | None
    orthogonality: float | None
    eigenvalue_error: float | None
    kinds: dict[str, int]


async def solve(
    party: Party,
    A: SecretArray,
    *,
    solver: str,
    tol: float,
    fixed: int | None = None,
    variant: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The server program: one decomposition, revealed. variant: options that only the paper's solvers have."""
    identity = SecretArray.constant(party, np.eye(len(A)))
    run = partial(SOLVERS[solver], **variant) if variant else partial(eigh, solver=solver)
    with party.stage("solve"):
        found = await run(A, identity, tol=tol, fixed_iterations=fixed, progress=party.progress)
    return {
        "values": found.values.reveal(why="benchmark"),
        "vectors": found.vectors.reveal(why="benchmark"),
        "iterations": found.iterations,
    }


def file_of(d: int) -> str:
    """The data set whose first d columns are taken."""
    files = {11: "wine_quality.parquet", 85: "insurance_coil2000.parquet", 115: "nbaiot", 166: "musk_odds.parquet"}
    return files.get(d, "mooccube/student_concept_200.parquet")


def matrix(d: int, data: Folder) -> tuple[NDArray[np.float64], str]:
    """A correlation matrix of dimension d scaled to |A|_F in (1/2, 1]: of real data where present, else of made
    ones."""
    columns: NDArray[np.float64] | None = None
    name = "synthetic"
    with suppress(MissingData):
        import pyarrow.parquet as pq

        path = find(data, file_of(d))
        tables = [pq.read_table(file) for file in (sorted(path.glob("*.parquet")) if path.is_dir() else [path])]
        skip = {"quality", "color", "CARAVAN", "split", "outlier", "family", "attack", "label", "student"}
        names = [n for n in tables[0].column_names if n not in skip and not n.startswith("enrolled")]
        if len(names) >= d:
            columns = np.vstack([np.column_stack([t[n].to_numpy() for n in names[:d]]) for t in tables]).astype(float)
            name = path.stem
    if columns is None:
        rng = np.random.default_rng(d)
        columns = rng.normal(size=(4 * d, d)) * np.geomspace(1, 1e-3, d) @ rng.normal(size=(d, d))
    deviation = columns.std(axis=0)
    centred = (columns - columns.mean(axis=0)) / np.where(deviation > 0, deviation, 1)
    return scaled(centred.T @ centred / len(centred)), name


def scaled(A: NDArray[np.float64]) -> NDArray[np.float64]:
    """The matrix times a power of two, |A|_F in (1/2, 1]: what the solvers take."""
    return A / 2.0 ** math.ceil(math.log2(np.linalg.norm(A)))


def plain_iterations(A: NDArray[np.float64], solver: str, tol: float, mode: str = FLOAT, **variant: Any) -> int:
    """Return how many iterations the solver takes, from the plaintext backend; `mode` is its arithmetic."""

    async def run() -> int:
        solved = partial(SOLVERS[solver], **variant) if variant else partial(eigh, solver=solver)
        found = await solved(PlainArray(A, mode), PlainArray(np.eye(len(A)), mode), tol=tol)
        return int(found.iterations)

    return _finish(run())


def _finish(program: Coroutine[Any, Any, int]) -> int:
    try:
        program.send(None)
    except StopIteration as stop:
        return int(stop.value)
    raise AssertionError("the plaintext backend never talks")


def measure(servers: LocalServers, d: int, data: Folder, solver: str, tol: float, budget: float, **variant: Any) -> Row:
    """The solver on the matrix of dimension d; variant: options of the paper's solvers, see `solve`."""
    return measure_matrix(servers, *matrix(d, data), solver, tol, budget, **variant)


def measure_matrix(
    servers: LocalServers,
    A: NDArray[np.float64],
    source: str,
    solver: str,
    tol: float,
    budget: float,
    **variant: Any,
) -> Row:
    """The solver on this matrix, |A|_F in (1/2, 1]; `source` is its origin."""
    d, packets = len(A), share(A, FIXED)
    iterations = plain_iterations(A, solver, tol, **variant) if solver != "allpairs" else 0
    probe = None
    if iterations > PROBE:
        one, more = (_solved(servers, packets, solver, tol, fixed, **variant)[1] for fixed in (1, 1 + PROBE))
        probe = [(b - a) / PROBE for a, b in zip(one, more, strict=True)]
        if probe[2] * iterations > budget:
            rounds, sent, seconds, network = (a + (iterations - 1) * step for a, step in zip(one, probe, strict=True))
            return Row(
                solver, d, source, True, iterations, round(rounds), round(sent), seconds, network, None, None, None, {}
            )
    answer, (rounds, sent, seconds, network), kinds = _solved(servers, packets, solver, tol, **variant)
    values, V = np.asarray(answer["values"]), np.asarray(answer["vectors"])
    exact = np.linalg.eigvalsh(A)
    return Row(
        solver,
        d,
        source,
        False,
        int(answer["iterations"]),
        int(rounds),
        int(sent),
        seconds,
        network,
        float(np.linalg.norm(A @ V - V * values) / np.linalg.norm(A)),
        float(np.linalg.norm(V.T @ V - np.eye(d))),
        float(np.abs(np.sort(values) - exact).max() / exact[-1]),
        kinds,
    )


def _solved(
    servers: LocalServers, packets: list[InputPacket], solver: str, tol: float, fixed: int | None = None, **variant: Any
) -> tuple[dict[str, Any], tuple[float, float, float, float], dict[str, int]]:
    """The answer; rounds, bytes of the busiest server, seconds, and seconds of them spent in the network, of the solve
    stage; and these bytes by kind of message."""
    job = Job(servers)
    answer = job.run(solve, packets, solver=solver, tol=tol, fixed=fixed, variant=variant)
    stages = [server["stages"]["solve"] for server in job.account.stages]
    sent = max(stage["bytes_sent"] for stage in stages)
    kinds = {line.kind: line.sent for line in kind_lines(job.account) if line.stage == "solve"}
    return answer, (stages[0]["rounds"], sent, job.account.seconds, min(stage["seconds"] for stage in stages)), kinds


def predicted(row: dict[str, Any], network: str) -> float:
    """Seconds on another network: its rounds and bytes, and this machine's local work."""
    latency, bandwidth = NETWORKS[network]
    local = max(0.0, row["seconds"] - row["network_seconds"])
    return float(row["rounds"] * latency + row["bytes_per_server"] * 8 / bandwidth + local)


def profile_table(rows: list[dict[str, Any]]) -> Table:
    """Return where the bytes of the busiest server went, by kind of message."""
    table = Table(title="Bytes by kind of message")
    for name in ("solver", "d", "kind", "sent", "part", "bytes per pair and iteration"):
        table.add_column(name, justify="left" if name in ("solver", "kind") else "right")
    for row in rows:
        pairs = row["d"] * (row["d"] - 1) // 2 * row["iterations"]
        for kind, sent in row["kinds"].items():
            part = percent(sent / row["bytes_per_server"])
            table.add_row(row["solver"], str(row["d"]), kind, size(sent), part, f"{sent / pairs:.1f}")
    return table


def main(
    dimensions: list[int],
    data: Folder,
    solvers: list[str],
    tol: float,
    budget: float,
    directory: Path,
    profile: bool = False,
) -> None:
    console = table_console()
    rows: list[dict[str, Any]] = []
    with LocalServers(timeout=600, developer=True) as servers, console.status("") as status:
        for d in dimensions:
            try:
                find(data, file_of(d))
            except MissingData as missing:
                console.print(f"d = {d} is synthetic: {missing}", highlight=False)
            for solver in solvers:
                status.update(f"{solver}, d = {d}")
                row = asdict(measure(servers, d, data, solver, tol, budget))
                rows.append(row | {name: predicted(row, name) for name in NETWORKS})
    table = Table(title=f"Eigensolvers on shares, tolerance {tol:g} (* projected)")
    for name in (
        "solver",
        "d",
        "matrix",
        "iterations",
        "rounds",
        "sent",
        "here",
        "LAN",
        "WAN",
        "residual",
        "orthogonality",
        "eigenvalues",
    ):
        table.add_column(name, justify="left" if name in ("solver", "matrix") else "right")
    for row in rows:
        accuracy = [
            f"{row[key]:.1e}" if row[key] is not None else ""
            for key in ("residual", "orthogonality", "eigenvalue_error")
        ]
        times = [duration(row[key]) for key in ("seconds", "LAN", "WAN")]
        mark = "*" if row["projected"] else ""
        table.add_row(
            row["solver"] + mark, str(row["d"]), row["source"], f"{row['iterations']:,}", f"{row['rounds']:,}",
            size(row["bytes_per_server"]), *times, *accuracy,
        )  # fmt: skip
    console.print(table)
    if profile:
        console.print(profile_table(rows))
    console.print("LAN: 0.3 ms a round, 1 Gbit/s; WAN: 40 ms, 100 Mbit/s; predicted from exact rounds and bytes.")
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "eigen.json").write_text(json.dumps({"tol": tol, "rows": rows}, indent=1) + "\n")
    console.print(f"written: {directory / 'eigen.json'}")
