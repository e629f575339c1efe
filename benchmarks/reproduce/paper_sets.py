"""The nine data sets of the paper's Table 3 at its row counts: real rows, resampled with noise where fewer are present.

Where a data set is absent, synthetic rows of its shape take its place. Each says what it is (`note`). Tables of more
than 200,000 rows go to float32 files in a folder for the time of the measurement, one per owner, as owners would have
them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import vertical
from benchmarks.data_sets import Floats, Folder, MissingData, concepts, insurance, musk, nbaiot, wine_quality
from benchmarks.owner import CHUNK, rows_of_owners, write_rows

NOISE = 0.01
"""Deviation of the noise on a resampled row, in deviations of the column at that owner."""

MAX_IN_MEMORY = 200_000


@dataclass(frozen=True)
class PaperSet:
    """A row of the paper's Table 3. load: the real rows, one table per owner; by_columns: owners hold columns, else
    rows."""

    name: str
    rows: int
    columns: int
    owners: int
    seconds: dict[str, float]
    load: Callable[[Folder], list[Floats]]
    by_columns: bool = False

    @property
    def inferred(self) -> int:
        """Rows that are projected on shares: all of a small data set."""
        return self.rows if self.rows < 10_000 else 1_000


def _paper(cov: float, decomposition: float, sort: float, inference: float) -> dict[str, float]:
    return {"covariance": cov, "decomposition": decomposition, "sort": sort, "inference": inference}


def _largest_devices(count: int) -> Callable[[Folder], list[Floats]]:
    """The devices of which the original has most rows."""

    def load(data: Folder) -> list[Floats]:
        order = np.argsort(rows_of_owners(7_062_606, data))[::-1]
        devices = nbaiot(data)
        return [devices[i] for i in sorted(order[:count])]

    return load


SETS = (
    PaperSet("Wine", 6_497, 11, 2, _paper(0.56, 2.27, 0.04, 0.01), wine_quality),
    PaperSet("Insurance", 9_822, 85, 3, _paper(2.97, 56.05, 0.11, 0.07), insurance),
    PaperSet("Musk", 3_062, 166, 2, _paper(3.29, 300.76, 0.29, 0.12), musk),
    PaperSet("IoT-3", 3_803_677, 115, 3, _paper(3.59, 136.50, 0.16, 0.01), _largest_devices(3)),
    PaperSet("IoT-5", 5_866_616, 115, 5, _paper(3.62, 142.98, 0.15, 0.01), _largest_devices(5)),
    PaperSet("IoT-9", 7_062_606, 115, 9, _paper(3.64, 142.80, 0.17, 0.01), _largest_devices(9)),
    PaperSet("MOOC-3", 195_177, 60, 3, _paper(13.26, 44.59, 0.10, 0.01), lambda data: [concepts(data)[:, :60]], True),
    PaperSet(
        "MOOC-7", 195_177, 140, 7, _paper(31.55, 295.03, 0.23, 0.02), lambda data: [concepts(data)[:, :140]], True
    ),
    PaperSet("MOOC-10", 195_177, 200, 10, _paper(50.20, 808.53, 0.40, 0.03), lambda data: [concepts(data)], True),
)
"""Its Table 3: name, rows, columns, owners, and seconds."""


@dataclass(frozen=True)
class Tables:
    """Data of a fit: a table or a file per row owner, or one table whose columns are dealt out; and what it is.

    real: distinct real rows in it; fewer than `rows` if they were resampled, 0 if they are synthetic.
    """

    owners: list[Any]
    rows: int
    note: str
    real: int


def tables_of(one: PaperSet, data: Folder, most_rows: int, folder: Path) -> Tables:
    """The data set at the paper's number of rows, or `most_rows` if that is less."""
    rows = min(one.rows, most_rows)
    try:
        real = one.load(data)
    except MissingData:
        return _made(one, rows, folder)
    held = sum(map(len, real))
    if held == rows:
        return Tables(real, rows, f"real, all {rows:,} rows", rows)
    if held > rows:
        return Tables(_fewer(real, rows), rows, f"real, {rows:,} of {held:,} rows", rows)
    random = np.random.default_rng(one.rows)
    counts = _dealt(rows, [len(table) for table in real])
    note = f"real, {held:,} rows resampled to {rows:,} with noise of {NOISE:g} deviations: {100 * held / rows:.2g} % are real"
    made = [_many(t, n, random, folder, i) for i, (t, n) in enumerate(zip(real, counts, strict=True))]
    return Tables(made, rows, note, held)


def _dealt(rows: int, weights: list[int]) -> list[int]:
    """So many rows in the proportions of these weights, at least two each."""
    ends = np.round(np.cumsum(weights) / np.sum(weights) * rows).astype(int)
    return [int(count) for count in np.diff(ends, prepend=0)]


def _fewer(real: list[Floats], rows: int) -> list[Floats]:
    random = np.random.default_rng(0)
    counts = _dealt(rows, [len(table) for table in real])
    return [table[random.permutation(len(table))[:count]] for table, count in zip(real, counts, strict=True)]


def _many(table: Floats, rows: int, random: np.random.Generator, folder: Path, number: int) -> Any:
    """Rows drawn with replacement, and noise on each number; a file if they are many."""
    step = NOISE * table.std(axis=0)

    def make(count: int) -> Floats:
        drawn: Floats = table[random.integers(0, len(table), count)]
        drawn += random.standard_normal(drawn.shape, dtype=np.float32) * step
        return drawn

    if rows <= MAX_IN_MEMORY:
        return make(rows)
    path = folder / f"owner-{number + 1}.npy"
    write_rows(path, rows, table.shape[1], make)
    return path


def _made(one: PaperSet, rows: int, folder: Path) -> Tables:
    """Synthetic rows of the shape: counts for column owners, a few factors and noise for row owners."""
    note = f"synthetic, {rows:,} rows"
    if one.by_columns:
        return Tables([vertical.synthetic(rows)[:, : one.columns]], rows, note, 0)
    random = np.random.default_rng(one.columns)
    mixing = random.standard_normal((max(2, one.columns // 6), one.columns))
    sample = random.standard_normal((20 * one.columns, len(mixing))) @ mixing
    sample += 0.3 * random.standard_normal(sample.shape)
    counts = _dealt(rows, list(range(1, one.owners + 1)))
    return Tables([_many(sample, count, random, folder, i) for i, count in enumerate(counts)], rows, note, 0)


def correlation(owners: list[Any]) -> Floats:
    """The correlation of all owners' rows in the clear, in float64 and by chunks: seven million rows are not held at
    once."""
    tables = [np.load(table, mmap_mode="r") if isinstance(table, Path) else table for table in owners]
    count = sum(map(len, tables))
    mean = sum(_chunked(table, lambda rows: rows.sum(axis=0)) for table in tables) / count
    products = sum(_chunked(table, lambda rows: (rows - mean).T @ (rows - mean)) for table in tables)
    deviation = np.sqrt(np.diagonal(products))
    inverse = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=deviation > 0)
    found: Floats = products * inverse * inverse[:, None] * count / (count - 1)
    return found


def _chunked(table: Any, work: Callable[[Floats], Floats]) -> Any:
    return sum(work(np.asarray(table[start : start + CHUNK], np.float64)) for start in range(0, len(table), CHUNK))
