"""`ppca bench ops`: the paper's Table 1 on four local processes, with the cost of a bare network round beside it.

For every operation and batch size: median time, time relative to 10^4 multiplications, exact rounds and bytes, largest
error against NumPy. Times of one run are comparable with each other; across machines only ratios, rounds and bytes are.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks import programs, table_console
from ppca.estimator.job import Job
from ppca.runtime import LocalServers
from ppca.web.report import duration, size

UNIT = 10_000
"""The paper's unit: the time of 10^4 multiplications."""

SMALL = 64
"""Elements of the small batch whose latency is compared with the bare round."""

BLOCKS = 15
"""Blocks measured of it at least: the latency of a hundred microseconds is easily disturbed."""

MAX_RAW = 65536
"""Bare rounds use blocking sockets, whose buffers must hold a message."""


@dataclass
class Row:
    """One operation at one batch size."""

    op: str
    n: int
    seconds: float
    relative: float
    rounds: int
    bytes_per_server: int
    max_error: float
    raw_round: float | None
    transport_round: float | None


def expected(op: str, x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """NumPy's answer."""
    answers: dict[str, Any] = {
        "add": lambda: x + y,
        "mul": lambda: x * y,
        "gt": lambda: (x > y).astype(float),
        "eq": lambda: (x == y).astype(float),
        "sqrt": lambda: np.sqrt(x),
        "reciprocal": lambda: 1 / x,
        "rsqrt": lambda: 1 / np.sqrt(x),
        "matmul": lambda: x @ y,
        "newton_sqrt": lambda: np.sqrt(x),
        "newton_reciprocal": lambda: 1 / x,
    }
    result: NDArray[np.float64] = answers[op]()
    return result


def inputs(op: str, n: int, seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Reproducible operands on the fixed-point grid; a matrix product of n outputs for matmul."""
    rng = np.random.default_rng(seed)
    shape: tuple[int, ...] = (math.isqrt(n),) * 2 if op == "matmul" else (n,)
    grid = 2.0**-40
    x, y = (np.round(rng.uniform(0.5, 100, shape) / grid) * grid for _ in range(2))
    y = np.where(rng.random(shape) < 0.1, x, y)  # some equal pairs
    return x, y


def _slowest(result: list[list[float]]) -> float:
    """Median over blocks of the slowest server's time."""
    return float(median(max(times) for times in zip(*result, strict=True)))


def measure(servers: LocalServers, op: str, n: int, repeats: int) -> Row:
    x, y = inputs(op, n)
    job = Job(servers)
    job.run(programs.count_operation, x, y, name=op)
    rounds, sent = job.account.rounds - 1, max(job.account.bytes_sent) - 160  # less the key agreement
    inner = 1
    trial = job.run(programs.time_operation, x, y, name=op, repeats=1, inner=1)
    once = _slowest(trial["seconds"])
    if once < 0.01:
        inner = max(1, min(200, int(0.02 / once)))
    blocks = repeats if once < 1 else max(1, min(repeats, int(10 / once)))
    answer = job.run(programs.time_operation, x, y, name=op, repeats=blocks, inner=inner)
    error = float(np.abs(np.asarray(answer["result"], np.float64) - expected(op, x, y)).max())
    return Row(op, n, _slowest(answer["seconds"]), math.nan, rounds, sent, error, None, None)


def beside_rounds(servers: LocalServers, row: Row, repeats: int) -> None:
    """Measure the operation of a small batch again, in turns with empty rounds of as many bytes, and fill in both.

    An empty round sends, in one round, all that a server sends for the operation: half to each of two mates.
    """
    half = min(max(row.bytes_per_server // 2, 8), MAX_RAW)
    x, y = inputs(row.op, row.n)
    answer = Job(servers).run(
        programs.time_beside_rounds, x, y, name=row.op, size=half, repeats=max(repeats, BLOCKS), inner=100
    )
    times = {kind: [t[kind] for t in answer["seconds"]] for kind in answer["seconds"][0]}
    row.seconds = _slowest(times["operation"])
    row.raw_round, row.transport_round = _slowest(times["bare"]), _slowest(times["transport"])


def run(sizes: list[int], operations: list[str], repeats: int, tls: bool, console: Console) -> dict[str, Any]:
    """All rows, with the small batch first; `relative` is filled from the multiplications of the same run."""
    rows: list[Row] = []
    with LocalServers(tls=tls, timeout=600, developer=True) as servers, console.status("") as status:
        status.update("10^4 multiplications (the unit)")
        unit = measure(servers, "mul", UNIT, repeats)
        for n in [SMALL, *sizes]:
            for op in operations:
                status.update(f"{op} of {n:,} elements")
                rows.append(measure(servers, op, n, repeats))
        for row in rows:
            if row.n == SMALL and row.rounds:
                status.update(f"{row.op} of {row.n} elements beside empty rounds")
                beside_rounds(servers, row, repeats)
    for row in rows:
        row.relative = row.seconds / unit.seconds
    return {"unit_seconds": unit.seconds, "tls": tls, "rows": [asdict(row) for row in rows]}


def print_table(result: dict[str, Any], console: Console) -> None:
    table = Table(title="Operations on four local servers" + (" (mutual TLS)" if result["tls"] else " (plain TCP)"))
    for name in (
        "operation",
        "elements",
        "time",
        "vs 10^4 mul",
        "rounds",
        "sent per server",
        "largest error",
        "vs bare sockets",
        "vs empty round",
    ):
        table.add_column(name, justify="left" if name == "operation" else "right")
    former = None
    for row in result["rows"]:
        if former not in (None, row["n"]):
            table.add_section()
        former = row["n"]
        ratios = [f"{row['seconds'] / row[key]:.2f}x" if row[key] else "" for key in ("raw_round", "transport_round")]
        table.add_row(
            row["op"],
            f"{row['n']:,}",
            duration(row["seconds"]),
            f"{row['relative']:.3g}",
            str(row["rounds"]),
            size(row["bytes_per_server"]),
            f"{row['max_error']:.1e}" if row["max_error"] else "0",
            *ratios,
        )
    console.print(table)
    empty = sorted(
        {(r["bytes_per_server"], r["raw_round"], r["transport_round"]) for r in result["rows"] if r["raw_round"]}
    )
    for sent, bare, transport in empty:
        console.print(
            f"a round of {size(sent)} per server: {duration(bare)} over bare sockets, {duration(transport)} as frames"
        )


def plot(result: dict[str, Any], path: Path) -> None:
    """Time against batch size, one line per operation."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7.5, 5), layout="constrained")
    for op in dict.fromkeys(row["op"] for row in result["rows"]):
        points = [(row["n"], row["seconds"]) for row in result["rows"] if row["op"] == op]
        axes.loglog(*zip(*points, strict=True), marker="o", markersize=4, label=op)
    axes.set(xlabel="elements in the batch", ylabel="seconds (median)", title="Secure operations, four local servers")
    axes.grid(True, which="both", alpha=0.25)
    axes.legend(ncols=2, frameon=False)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def main(sizes: list[int], operations: list[str], repeats: int, tls: bool, directory: Path) -> None:
    console = table_console()
    result = run(sizes, operations, repeats, tls, console)
    print_table(result, console)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "ops.json").write_text(json.dumps(result, indent=1) + "\n")
    plot(result, directory / "ops.png")
    console.print(f"written: {directory / 'ops.json'}, {directory / 'ops.png'}")
