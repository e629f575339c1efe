"""`ppca bench vertical`: joint PCA of owners of different columns, beside scikit-learn on the joined table.

Every table is measured on servers of its own, so that peak memory is that of one job. The covariance step is what the
paper
measures: upload of all rows as shares, alignment, and second moments. Peak memory is VmHWM of each server process.
Tags are made in a process of their own too. All owners are played by one process, one after the other.
"""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.box import SIMPLE
from rich.table import Table

from benchmarks import table_console
from benchmarks.accuracy import Accuracy, accuracy_of
from benchmarks.data_sets import Floats, Folder, MissingData, concepts
from benchmarks.stages import stage_seconds
from ppca import PCA, Columns
from ppca.algorithms.second_moments import MAX_CHUNK_ROWS
from ppca.jobs.matching import match
from ppca.owner.alignment.ids import normalise_ids
from ppca.owner.alignment.tags import make_tags, order_of
from ppca.runtime import LocalServers
from ppca.web.report import duration, size

OWNERS, WIDTH = 10, 20
"""Owners of a whole table, and columns of each; a narrower table has fewer owners."""

PAPER_ROWS, PAPER_SECONDS = 195_177, 50.2
"""The paper's covariance step: 200 columns, ten owners, four servers of 40 cores."""

SPEEDUP = 3.0
MAX_MEMORY = 2 << 30
STAGES = ("arrange", "upload", "align", "second moments", "covariance", "eigendecomposition", "result")


@dataclass
class Row:
    """One job. Seconds by stage: of the owners (arrange, upload, align) and of the servers."""

    data: str
    rows: int
    columns: int
    owners: int
    alignment: str
    chunks: int | None
    seconds: dict[str, float]
    covariance_step: float
    total: float
    peak_memory: list[int]
    bytes_per_owner: int
    bytes_received_per_server: list[int]
    bytes_between_servers: list[int]
    rounds: int
    iterations: int
    verified: bool | None
    accuracy: dict[str, float]


def synthetic(rows: int = PAPER_ROWS) -> Floats:
    """Correlated counts, mostly small, as of courses that treat a concept."""
    random = np.random.default_rng(5)
    interest = random.gamma(0.5, 1.0, (rows, 12))
    topics = random.gamma(0.3, 0.6, (12, OWNERS * WIDTH))
    return random.poisson(interest @ topics).astype(np.float64)


def split(X: Floats, shuffled: bool) -> list[pa.Table]:
    """Owners of twenty columns each; every one lists the rows in an order of its own, if they are `shuffled`."""
    random = np.random.default_rng(7)
    ids = random.permutation(10 * len(X))[: len(X)]
    tables = []
    for number in range(X.shape[1] // WIDTH):
        order = random.permutation(len(X)) if shuffled else np.arange(len(X))
        part = X[:, WIDTH * number : WIDTH * (number + 1)]
        columns = np.ascontiguousarray(part[order].T)
        names = [f"x{WIDTH * number + i}" for i in range(WIDTH)]
        tables.append(pa.table(dict(zip(names, columns, strict=True)) | {"id": ids[order]}))
    return tables


def measure(name: str, X: Floats, alignment: str, chunks: int | None, use: Callable[[PCA], None] | None = None) -> Row:
    """One job on new servers. use: is called with the fitted model while these still keep it."""
    tables = split(X, alignment == "psi")
    with LocalServers(timeout=600) as servers:
        pca = PCA(partition=Columns("id", alignment, chunks=chunks), servers=servers)
        start = time.perf_counter()
        pca.fit(tables)
        total = time.perf_counter() - start
        peaks = [peak_memory(pid) for pid in servers.pids]
    seconds = {stage: pca.owner_seconds_.get(stage, 0.0) for stage in STAGES}
    spent = stage_seconds(pca.account_)
    seconds |= {stage: max(seconds[stage], spent[stage]) for stage in STAGES if stage in spent}
    on_servers = sum(seconds[stage] for stage in ("align", "second moments", "covariance", "eigendecomposition"))
    seconds["result"] = max(0.0, pca.owner_seconds_["analysis"] - on_servers)
    return Row(
        data=name,
        rows=len(X),
        columns=X.shape[1],
        owners=len(tables),
        alignment=alignment,
        chunks=chunks,
        seconds=seconds,
        covariance_step=sum(seconds[stage] for stage in ("upload", "align", "second moments", "covariance")),
        total=total,
        peak_memory=peaks,
        bytes_per_owner=max(pca.bytes_uploaded_),
        bytes_received_per_server=[splits * X.size * 8 for splits in (0, 1, 1, 2)],
        bytes_between_servers=pca.account_.bytes_sent,
        rounds=pca.account_.rounds,
        iterations=pca.n_iter_,
        verified=pca.verified_,
        accuracy=asdict(accuracy_of(pca, X)),
    )


def peak_memory(pid: int | str) -> int:
    """VmHWM, in bytes. (ru_maxrss would do, but a new process starts with that of its parent.)"""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) << 10
    return 0


# -- tags
# ----------------------------------------------------------------------------------------------------------------


@dataclass
class TagRow:
    """Tags of one owner, or the match of several owners' tags."""

    what: str
    ids: int
    seconds: dict[str, float]
    per_second: float
    peak_memory: int


def integers(count: int) -> Any:
    return np.random.default_rng(1).permutation(count).astype(np.int64)


def strings(count: int) -> Any:
    """Addresses of 28 bytes: two blocks each."""
    numbers = pc.utf8_lpad(pc.cast(pa.array(integers(count)), pa.large_string()), 11, "0")
    before, after, between = (pa.scalar(text, pa.large_string()) for text in ("user-", "@example.org", ""))
    return pc.binary_join_element_wise(before, numbers, after, between)


def measure_tags(kind: str, count: int) -> TagRow:
    """Normalise, tag and sort the ids of one owner, in this process."""
    makers: dict[str, Callable[[int], Any]] = {"integers": integers, "strings": strings}
    column = makers[kind](count)
    seconds = {}
    start = time.perf_counter()
    ids = normalise_ids(column)
    seconds["normalise"] = time.perf_counter() - start
    tags = make_tags(ids, bytes(16))
    seconds["tags"] = time.perf_counter() - start - seconds["normalise"]
    tags[order_of(tags, "owner")]
    seconds["sort"] = time.perf_counter() - start - seconds["normalise"] - seconds["tags"]
    return TagRow(f"tags of {kind}", count, seconds, count / sum(seconds.values()), peak_memory("self"))


def measure_match(owners: int, count: int) -> TagRow:
    """Match the tags of several owners, nine tenths of which are common, in this process."""
    random = np.random.default_rng(2)
    everybody = random.integers(0, 2**64, (count + count // 10, 2), dtype=np.uint64)
    everybody = everybody[np.lexsort((everybody[:, 1], everybody[:, 0]))]
    tags = [everybody[np.sort(random.permutation(len(everybody))[:count])] for _ in range(owners)]
    start = time.perf_counter()
    match(tags)
    spent = time.perf_counter() - start
    return TagRow(f"match of {owners} owners", count, {"match": spent}, owners * count / spent, peak_memory("self"))


def _apart(work: Callable[..., TagRow], *arguments: Any) -> TagRow:
    """In a new process, whose peak memory is that of the work alone."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()


# -- the command
# -----------------------------------------------------------------------------------------------------------


def main(rows: int, chunks: list[int], ids: int, data: Folder, output: Path) -> None:
    console = table_console()
    X = synthetic(rows)
    jobs: list[Row] = []
    try:
        jobs.append(measure("MOOCCube", concepts(data), "psi", None))
    except MissingData as missing:
        console.print(f"MOOCCube was left out: {missing}", highlight=False)
    jobs.append(measure("synthetic", X, "aligned", None))
    jobs += [measure("synthetic", X, "psi", count) for count in chunks]
    console.print(_job_table(jobs), _traffic_table(jobs))
    tags = [_apart(measure_tags, kind, ids) for kind in ("integers", "strings")]
    tags.append(_apart(measure_match, 3, ids))
    console.print(_tag_table(tags))
    best = min((job for job in jobs if job.rows == PAPER_ROWS), key=lambda job: job.covariance_step, default=None)
    if best is not None:
        console.print(
            f"covariance step of {best.rows:,} x {best.columns}: {best.covariance_step:.2f} s, "
            f"{PAPER_SECONDS / best.covariance_step:.1f} times faster than the paper's {PAPER_SECONDS} s",
            highlight=False,
        )
    for complaint in broken(jobs):
        console.print(f"NOT KEPT: {complaint}", style="bold red", highlight=False)
    output.mkdir(parents=True, exist_ok=True)
    path = output / "vertical.json"
    path.write_text(
        json.dumps({"jobs": [asdict(job) for job in jobs], "tags": [asdict(row) for row in tags]}, indent=1)
    )
    console.print(f"written: {path}", highlight=False)


def broken(jobs: list[Row]) -> list[str]:
    """The limits that are not kept."""
    found = []
    for job in jobs:
        name = f"{job.data}, {job.alignment}, chunks {job.chunks or 'fewest'}"
        found += [f"{name}: {limit}" for limit in Accuracy(**job.accuracy).broken()]
        if max(job.peak_memory) >= MAX_MEMORY:
            found.append(f"{name}: a server took {size(max(job.peak_memory))}")
        if job.rows == PAPER_ROWS and job.covariance_step > PAPER_SECONDS / SPEEDUP:
            found.append(f"{name}: the covariance step took {job.covariance_step:.1f} s")
    return found


def chunks(asked: int | None, rows: int) -> int:
    """Row chunks of a job: as asked, else as few as the longest chunk allows."""
    return asked or -(-rows // MAX_CHUNK_ROWS)


def _job_table(jobs: list[Row]) -> Table:
    table = Table(title="Ten owners of twenty columns: seconds by stage", title_justify="left", box=SIMPLE)
    for heading in ("data", "rows", "alignment", "M", *STAGES[:-2], "eigen", "result", "covariance step", "whole job"):
        table.add_column(heading, justify="left" if heading in ("data", "alignment") else "right")
    for job in jobs:
        times = [f"{job.seconds[stage]:.2f}" for stage in STAGES]
        count = str(chunks(job.chunks, job.rows))
        line = (job.data, f"{job.rows:,}", job.alignment, count, *times)
        table.add_row(*line, f"{job.covariance_step:.2f}", f"{job.total:.2f}")
    return table


def _traffic_table(jobs: list[Row]) -> Table:
    title = "Traffic, memory and accuracy (against scikit-learn on the joined table)"
    table = Table(title=title, title_justify="left", box=SIMPLE)
    headings = ("sent by an owner", "received by a server", "sent by a server", "rounds", "peak memory", "EVR error")
    for heading in ("data", "alignment", "M", *headings, "eigenvalue error", "residual"):
        table.add_column(heading, justify="left" if heading in ("data", "alignment") else "right")
    for job in jobs:
        table.add_row(
            job.data,
            job.alignment,
            str(chunks(job.chunks, job.rows)),
            size(job.bytes_per_owner),
            size(max(job.bytes_received_per_server)),
            size(max(job.bytes_between_servers)),
            str(job.rounds),
            size(max(job.peak_memory)),
            *[f"{job.accuracy[key]:.1e}" for key in ("ratio_error", "eigenvalue_error", "residual")],
        )
    return table


def _tag_table(rows: list[TagRow]) -> Table:
    table = Table(title="Private set intersection, one core", title_justify="left", box=SIMPLE)
    for heading in ("what", "ids per owner", "time", "ids per second", "peak memory"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    for row in rows:
        parts = ", ".join(f"{name} {duration(spent)}" for name, spent in row.seconds.items())
        table.add_row(row.what, f"{row.ids:,}", parts, f"{row.per_second / 1e6:.1f} million", size(row.peak_memory))
    return table
