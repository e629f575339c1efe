"""`ppca bench owner`: the pass of an owner over a table of the paper's size, and the whole joint PCA of nine of them.

Synthetic rows with the mean and covariance of N-BaIoT (or a fixed spectrum where the data are absent), float32, one
.npy file per owner, as many rows as the nine devices of the original have. Each pass runs in a process of its own,
whose peak memory is its own. Beside it, in the same run, the floor: reading the file, and one product X'X of the same
shape (float64, as the sums need it; and float32, for the record). The floor is its fastest chunk times their number,
and a pass the better of two, so that a busy moment counts in neither.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

from benchmarks.accuracy import WIDTH
from benchmarks.data_sets import Folder, MissingData, find, nbaiot
from ppca.web.report import duration, size

ROWS, COLUMNS, OWNERS = 7_062_606, 115, 9
CHUNK = 1 << 15
REPEATS = 2

MAX_RATIO, MAX_MEMORY = 2.0, 1 << 30
"""Limits of a pass: multiples of the minimum time, and bytes."""


@dataclass
class Pass:
    """One owner's pass and its floor: seconds, and bytes of memory at the peak."""

    owner: int
    rows: int
    seconds: float
    memory: int
    read: float
    product: float
    product_float32: float

    @property
    def ratio(self) -> float:
        return self.seconds / (self.read + self.product)


# -- data ------------------------------------------------------------------------------------------------------------


def distribution(data: Folder) -> tuple[NDArray[np.float32], NDArray[np.float32], str]:
    """Mean and a factor F such that mean + F z has the wanted covariance."""
    try:
        X = np.vstack(nbaiot(data))
    except MissingData as missing:
        rng = np.random.default_rng(0)
        Q, _ = np.linalg.qr(rng.standard_normal((COLUMNS, COLUMNS)))
        return (
            np.zeros(COLUMNS, np.float32),
            (Q * np.geomspace(1, 1e-3, COLUMNS)).astype(np.float32),
            f"fixed spectrum; {missing}",
        )
    deviation = X.std(axis=0)
    values, V = np.linalg.eigh(np.corrcoef((X / np.where(deviation > 0, deviation, 1)).T))
    factor = deviation[:, None] * (V * np.sqrt(np.maximum(values, 0)))
    return X.mean(axis=0).astype(np.float32), factor.astype(np.float32), "covariance of N-BaIoT"


def rows_of_owners(total: int, data: Folder) -> list[int]:
    """The rows of the nine devices, in the proportions of the original; equal where the counts are absent."""
    weights = np.ones(OWNERS)
    with suppress(MissingData):
        path = find(data, "nbaiot/full_dataset_row_counts.csv")
        table = np.genfromtxt(path, delimiter=",", names=True, dtype=None, encoding="utf-8")
        devices = np.unique(table["device"])
        weights = np.array([table["rows_in_full_dataset"][table["device"] == device].sum() for device in devices])
    ends = np.round(np.cumsum(weights) / weights.sum() * total).astype(int)
    return [int(count) for count in np.diff(ends, prepend=0)]


def write(path: Path, rows: int, mean: NDArray[np.float32], factor: NDArray[np.float32], seed: int) -> None:
    """One owner's table."""
    rng = np.random.default_rng(seed)
    write_rows(path, rows, len(mean), lambda n: rng.standard_normal((n, len(mean)), dtype=np.float32) @ factor.T + mean)


def write_rows(path: Path, rows: int, columns: int, make: Callable[[int], NDArray[Any]]) -> None:
    """A .npy file of float32 of any length; `make` returns a given number of its rows at a time."""
    with path.open("wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (rows, columns)}
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, rows, CHUNK):
            file.write(make(min(CHUNK, rows - start)).astype(np.float32).tobytes())


# -- measurement, each in a process of its own -----------------------------------------------------------------------


def measure_pass(path: Path) -> dict[str, float]:
    """The owner's pass over a file."""
    from ppca.owner.moments import moments
    from ppca.owner.tables.opening import open_table

    start = time.perf_counter()
    moments(open_table(path))
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "memory": peak_memory()}


def measure_floor(path: Path) -> dict[str, float]:
    """Reading the file, and one product of its shape, chunk by chunk."""
    table = np.load(path, mmap_mode="r")
    rows, columns = table.shape
    offset = table.offset
    del table
    times: list[tuple[float, float, float]] = []
    with path.open("rb", buffering=0) as file:
        file.seek(offset)
        buffer = np.empty((CHUNK, columns), np.float32)
        for start in range(0, rows, CHUNK):
            chunk = buffer[: min(CHUNK, rows - start)]
            read = _timed(lambda chunk=chunk: _fill(file, chunk))
            wide = chunk.astype(np.float64)
            product = _timed(lambda wide=wide: wide.T @ wide)
            single = _timed(lambda chunk=chunk: chunk.T @ chunk)
            if len(chunk) == CHUNK or rows < CHUNK:
                times.append((read, product, single))
    best = np.min(times, axis=0) * (rows / min(rows, CHUNK))
    return dict(zip(("read", "product", "product_float32"), best.tolist(), strict=True))


def peak_memory() -> int:
    """Bytes that this process held at most. (ru_maxrss of a child counts what its parent held when it was started.)"""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def _fill(file: Any, chunk: NDArray[np.float32]) -> None:
    view = chunk.reshape(-1).view(np.uint8).data
    done = 0
    while done < len(view):
        done += file.readinto(view[done:])


def _timed(work: Any) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _in_process(what: str, path: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.owner", what, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - our own module
    return dict(json.loads(done.stdout))


def passes(files: list[Path], rows: list[int]) -> Iterator[Pass]:
    for i, (path, count) in enumerate(zip(files, rows, strict=True)):
        floor = _in_process("floor", path)
        own = min((_in_process("pass", path) for _ in range(REPEATS)), key=lambda measured: measured["seconds"])
        yield Pass(i + 1, count, own["seconds"], int(own["memory"]), **floor)


def joint(files: list[Path], standardize: bool) -> dict[str, Any]:
    """The whole joint PCA, from files to the model, servers started and stopped."""
    from ppca import PCA

    start = time.perf_counter()
    pca = PCA(standardize=standardize).fit(files)
    seconds = time.perf_counter() - start
    return {
        "standardised": standardize,
        "seconds": seconds,
        "servers_seconds": pca.account_.seconds,
        "rounds": pca.account_.rounds,
        "bytes_per_server": max(pca.account_.bytes_sent),
        "iterations": pca.n_iter_,
        "verified": pca.verified_,
    }


def main(total: int, data: Folder, folder: Path | None, directory: Path) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    rows = rows_of_owners(total, data)
    with threadpool_limits(1):
        mean, factor, source = distribution(data)
    with tempfile.TemporaryDirectory(prefix="ppca-owners-", dir=folder) as name, console.status("") as status:
        files = [Path(name) / f"owner-{i + 1}.npy" for i in range(len(rows))]
        for i, (path, count) in enumerate(zip(files, rows, strict=True)):
            status.update(f"writing the table of owner {i + 1}: {count:,} rows")
            with threadpool_limits(1):
                write(path, count, mean, factor, i)
        held = sum(path.stat().st_size for path in files)
        status.update("passes of the owners")
        measured = list(passes(files, rows))
        runs = []
        for standardize in (False, True):
            status.update(f"joint PCA, {'standardised' if standardize else 'raw'}")
            runs.append(joint(files, standardize))
    _print(console, measured, runs, f"{sum(rows):,} x {len(mean)} float32 ({source}), {size(held)} in .npy files")
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "owner.json"
    lines = [asdict(line) | {"ratio": line.ratio} for line in measured]
    path.write_text(json.dumps({"source": source, "passes": lines, "joint": runs}, indent=1) + "\n")
    console.print(f"written: {path}")


def _print(console: Console, measured: list[Pass], runs: list[dict[str, Any]], title: str) -> None:
    table = Table(title=f"Owners' passes: {title}", title_justify="left")
    for heading in ("owner", "rows", "pass", "read", "X'X", "ratio", "X'X float32", "memory"):
        table.add_column(heading, justify="right")
    for line in measured:
        table.add_row(
            str(line.owner), f"{line.rows:,}", duration(line.seconds), duration(line.read), duration(line.product),
            f"{line.ratio:.2f}", duration(line.product_float32), size(line.memory),
        )  # fmt: skip
    seconds = sum(line.seconds for line in measured)
    read, product = sum(line.read for line in measured), sum(line.product for line in measured)
    single = sum(line.product_float32 for line in measured)
    table.add_section()
    table.add_row(
        "all", f"{sum(line.rows for line in measured):,}", duration(seconds), duration(read), duration(product),
        f"{seconds / (read + product):.2f}", duration(single), size(max(line.memory for line in measured)),
    )  # fmt: skip
    console.print(table)
    kept = seconds <= MAX_RATIO * (read + product) and all(line.memory < MAX_MEMORY for line in measured)
    console.print(
        f"ratio: pass / (read + X'X in float64), at most {MAX_RATIO:g}; memory: peak of the pass's process, below "
        f"{size(MAX_MEMORY)}. Limits {'kept' if kept else 'NOT KEPT'}.",
        highlight=False,
    )
    for run in runs:
        console.print(
            f"joint PCA, {'standardised' if run['standardised'] else 'raw'}: {duration(run['seconds'])} from files "
            f"to model, {duration(run['servers_seconds'])} of it on the servers, {run['rounds']} rounds, "
            f"{size(run['bytes_per_server'])} sent by the busiest server, {run['iterations']} iterations",
            highlight=False,
        )


if __name__ == "__main__":
    work = {"pass": measure_pass, "floor": measure_floor}[sys.argv[1]]
    print(json.dumps(work(Path(sys.argv[2]))))
