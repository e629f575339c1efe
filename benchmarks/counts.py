"""`ppca bench counts`: the paper's Table 2, counted by running each solver; and its batch_sort beside our sort."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import table_console
from benchmarks.batch_sort import batch_sort
from benchmarks.counting import OPERATIONS, expensive_operations
from benchmarks.stages import stage_seconds
from ppca.estimator.job import Job
from ppca.protocol import Party, SecretArray
from ppca.runtime import LocalServers


@dataclass
class Sort:
    """A sort of `n` secret numbers with one payload row of `n` numbers each, as eigenvectors go with eigenvalues."""

    name: str
    n: int
    rounds: int
    bytes_per_server: int
    seconds: float


async def sort_with_payload(party: Party, x: SecretArray, rows: SecretArray, *, name: str) -> Any:
    """The server program: one sort by the named algorithm, revealed."""
    with party.stage("sort"):
        if name == "batch_sort":
            values, _, moved = await batch_sort(x, rows, descending=True)
        else:
            values, moved = await x.sort(rows, descending=True)
    return [values.reveal(why="benchmark"), moved.reveal(why="benchmark")]


def measure(servers: LocalServers, name: str, n: int) -> Sort:
    x = np.random.default_rng(n).permutation(n) / n
    rows = np.tile(x[:, None], (1, n))
    job = Job(servers)
    values, moved = job.run(sort_with_payload, x, rows, name=name)
    order = np.sort(x)[::-1]
    if np.abs(values - order).max() > 1e-11 or np.abs(moved - order[:, None]).max() > 1e-11:
        raise ValueError(f"{name} did not sort {n} numbers")
    stages = [server["stages"]["sort"] for server in job.account.stages]
    sent = max(stage["bytes_sent"] for stage in stages)
    return Sort(name, n, stages[0]["rounds"], sent, stage_seconds(job.account)["sort"])


def main(d: int, sizes: list[int], directory: Path) -> None:
    console = table_console()
    counts = expensive_operations(d)
    print_counts(console, counts, d)
    with LocalServers(timeout=600, developer=True) as servers:
        sorts = [measure(servers, name, n) for n in sizes for name in ("batch_sort", "sort")]
    print_sorts(console, sorts)
    directory.mkdir(parents=True, exist_ok=True)
    content = {"d": d, "per_iteration": counts, "sorts": [asdict(one) for one in sorts]}
    (directory / "counts.json").write_text(json.dumps(content, indent=1) + "\n")


def print_counts(console: Console, counts: dict[str, dict[str, int]], d: int) -> None:
    table = Table(title=f"Expensive operations per iteration (batches), d = {d}", title_justify="left")
    table.add_column("solver")
    for operation in OPERATIONS:
        table.add_column(operation, justify="right")
    for solver, own in counts.items():
        table.add_row(solver, *(str(own[operation]) for operation in OPERATIONS))
    console.print(table)


def print_sorts(console: Console, sorts: list[Sort]) -> None:
    table = Table(title="Sorting n numbers, each with a row of n", title_justify="left")
    for heading in ("algorithm", "n", "rounds", "MB per server", "ms"):
        table.add_column(heading, justify="left" if heading == "algorithm" else "right")
    for one in sorts:
        size = f"{one.bytes_per_server / 1e6:.2f}"
        table.add_row(one.name, str(one.n), str(one.rounds), size, f"{1e3 * one.seconds:.1f}")
    console.print(table)
