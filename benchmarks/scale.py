"""`ppca bench scale`: an owner's pass over a table of many Parquet files on a local Dask cluster, beside plain reading.

A folder of Parquet files is one owner's table. To save disk, it holds a few distinct files, and the others are hard
links to
them: every file is opened, decoded and summed as any other, but what the distinct files take may stay in the page
cache, for the pass and for plain reading alike. Steps, each in a process of its own, whose peak memory and processor
time are its own:

1. write the distinct files: correlated float32 columns, uncompressed, row groups of 500,000 rows;
2. read all files with PyArrow (all columns, its own threads), and do nothing with them;
3. pass over them on the cluster: client, scheduler and workers, from opened files to the owner's sums;
4. the same pass in one process without Dask; then plain reading once more, so that both passes lie between two
   readings.

The sums are checked: those of the distinct files, computed one by one, times their links. On a machine that does other
work, too, processor seconds say more than seconds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

from benchmarks.accuracy import WIDTH
from benchmarks.owner import peak_memory
from ppca.web.report import duration, size

ROW_GROUP = 500_000


@dataclass
class Measured:
    """One way over all rows: seconds, processor seconds of all processes, peak memory of the process and of every
    worker."""

    way: str
    rows: int
    seconds: float
    processor: float
    memory: int
    workers: list[int]

    @property
    def rate(self) -> float:
        return self.rows / self.seconds


# -- steps, each in a process of its own -----------------------------------------------------------------------------


def write(path: str, rows: str, columns: str, seed: str) -> None:
    """One distinct file."""
    rng = np.random.default_rng(int(seed))
    width = int(columns)
    mixing = np.random.default_rng(0).standard_normal((width, width)).astype(np.float32) * np.geomspace(1, 1e-2, width)
    mixing = mixing.astype(np.float32)
    schema = pa.schema([pa.field(f"c{k:03d}", pa.float32()) for k in range(width)])
    options: dict[str, Any] = {"compression": "none", "use_dictionary": False}
    with threadpool_limits(1), pa.parquet.ParquetWriter(path, schema, **options) as writer:
        for start in range(0, int(rows), ROW_GROUP):
            z = rng.standard_normal((min(ROW_GROUP, int(rows) - start), width), dtype=np.float32)
            values = np.asfortranarray(z @ mixing + np.arange(width, dtype=np.float32))
            writer.write_table(pa.table([values[:, k] for k in range(width)], schema=schema), row_group_size=ROW_GROUP)


def read(folder: str) -> dict[str, Any]:
    """Plain reading."""
    with _Clock() as clock:
        batches = pa.dataset.dataset(folder).to_batches(batch_readahead=4, fragment_readahead=1)
        rows = sum(batch.num_rows for batch in batches)
    return {"rows": rows, **clock.found, "workers": []}


def pass_here(folder: str) -> dict[str, Any]:
    """The pass of one process."""
    from ppca.owner.rows import sums_of
    from ppca.owner.tables.opening import open_table

    with _Clock() as clock:
        sums = sums_of(open_table(folder))
    return {"rows": sums.count, **clock.found, "workers": []}


def pass_on_dask(folder: str, workers: str) -> dict[str, Any]:
    """The pass on a cluster of this machine, which runs before the clock does; and how far off its sums are."""
    from ppca.owner.cluster import cluster
    from ppca.owner.rows import sums_of
    from ppca.owner.tables.opening import open_table

    told: list[float] = []
    with cluster(f"local:{workers}") as client:
        before = client.run(_processor)  # which has the workers import what they need
        with _Clock() as clock:
            sums = sums_of(open_table(folder, dask=True), lambda done, total: told.append(time.perf_counter()))
        after = client.run(_processor)
        peaks = list(client.run(peak_memory).values())
    clock.found["processor"] += sum(after[worker] - before[worker] for worker in after)
    found = {"rows": sums.count, **clock.found, "workers": peaks, "parts": len(told)}
    silence = float(np.diff([clock.start, *told]).max())
    return found | {"longest_silence": silence, "error": _error(Path(folder), sums)}


class _Clock:
    """Costs of a block: seconds, processor seconds of this process, and its peak memory."""

    found: dict[str, Any]

    def __enter__(self) -> Self:
        self._processor, self.start = time.process_time(), time.perf_counter()
        return self

    def __exit__(self, *exception: object) -> None:
        processor, seconds = time.process_time() - self._processor, time.perf_counter() - self.start
        self.found = {"seconds": seconds, "processor": processor, "memory": peak_memory()}


def _processor() -> float:
    """Processor seconds of a worker so far, PPCA imported."""
    import ppca.owner.rows  # noqa: F401

    return time.process_time()


def _error(folder: Path, sums: Any) -> float:
    """Largest difference from the sums of the distinct files, merged as often as each is linked; relative to
    deviations."""
    from ppca.owner.moments import moments
    from ppca.owner.tables.opening import open_table

    distinct: dict[int, tuple[Path, int]] = {}
    for path in sorted(folder.glob("*/*.parquet")):
        first, links = distinct.get(path.stat().st_ino, (path, 0))
        distinct[path.stat().st_ino] = first, links + 1
    parts = [part for path, links in distinct.values() for part in [moments(open_table(path))] * links]
    wanted = parts[0]
    for part in parts[1:]:
        wanted = wanted.merge(part)
    deviation = np.sqrt(np.diagonal(wanted.gram))
    return float(np.abs((sums.gram - wanted.gram) / np.outer(deviation, deviation)).max())


STEPS: dict[str, Callable[..., Any]] = {"write": write, "read": read, "here": pass_here, "dask": pass_on_dask}


def run(step: str, *arguments: object) -> dict[str, Any]:
    """A step in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.scale", step, *map(str, arguments)]
    where = Path(__file__).parent.parent
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=where)  # noqa: S603 - our own module
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


# -- the measurement -------------------------------------------------------------------------------------------------


def main(
    rows: int, columns: int, files: int, distinct: int, workers: int, folder: Path | None, here: bool, directory: Path
) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    distinct = min(distinct, files)
    if rows % files:
        raise SystemExit(f"{rows:,} rows do not make {files} equal files")
    with tempfile.TemporaryDirectory(prefix="ppca-scale-", dir=folder) as name, console.status("") as status:
        table = Path(name)
        # Each file has a folder of its own: a folder that holds the same table twice is refused.
        paths = [table / f"{number:04d}" / "part.parquet" for number in range(files)]
        for number, path in enumerate(paths):
            path.parent.mkdir()
            if number < distinct:
                status.update(f"writing file {number + 1} of {distinct}")
                run("write", path, rows // files, columns, number)
            else:
                os.link(paths[number % distinct], path)
        held = sum(path.stat().st_size for path in paths[:distinct])
        listed = sum(path.stat().st_size for path in paths)
        measured: list[Measured] = []
        extra: dict[str, Any] = {}
        ways = [("plain reading (PyArrow)", "read", ()), (f"Dask, {workers} workers", "dask", (workers,))]
        ways += [("one process, threads", "here", ())] if here else []
        for way, step, arguments in [*ways, ("plain reading (PyArrow), again", "read", ())]:
            status.update(way)
            found = run(step, table, *arguments)
            extra |= {key: found.pop(key) for key in ("parts", "longest_silence", "error") if key in found}
            measured.append(Measured(way, **found))
    facts = {
        "rows": rows,
        "columns": columns,
        "files": files,
        "distinct_files": distinct,
        "bytes_on_disk": held,
        "bytes_read": listed,
        "cores": os.cpu_count(),
        "load": os.getloadavg()[1],
        **extra,
    }
    _print(console, facts, measured)
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "scale.json"
    lines = [asdict(line) | {"rows_per_second": line.rate} for line in measured]
    path.write_text(json.dumps(facts | {"ways": lines}, indent=1) + "\n")
    console.print(f"written: {path}")


def _print(console: Console, facts: dict[str, Any], measured: list[Measured]) -> None:
    title = f"One owner's table of {facts['rows']:,} x {facts['columns']} float32, {facts['files']} Parquet files"
    table = Table(title=title, title_justify="left")
    for heading in ("way", "time", "rows/s", "of reading", "processor", "peak of client", "peak of a worker"):
        table.add_column(heading, justify="left" if heading == "way" else "right")
    reading = [line.rate for line in measured if line.way.startswith("plain")]
    for line in measured:
        table.add_row(
            line.way, duration(line.seconds), f"{line.rate:,.0f}", f"{line.rate / (sum(reading) / len(reading)):.2f}",
            duration(line.processor), size(line.memory), size(max(line.workers)) if line.workers else "",
        )  # fmt: skip
    console.print(table)
    console.print(
        f"{facts['distinct_files']} of the files are distinct ({size(facts['bytes_on_disk'])} on disk, which the "
        f"page cache may hold), the others are hard links to them; {size(facts['bytes_read'])} are read. "
        f"{facts['parts']} parts, progress at least every {facts['longest_silence']:.1f} s; the sums differ "
        f"from those of the files one by one by {facts['error']:.1e} of the deviations. {facts['cores']} cores, "
        f"load {facts['load']:.1f} (other work slows all ways).",
        highlight=False,
    )


if __name__ == "__main__":
    print(json.dumps(STEPS[sys.argv[1]](*sys.argv[2:])))
