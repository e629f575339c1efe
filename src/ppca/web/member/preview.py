"""Preview of an owner's table before anything is sent: rows, columns, missing values and problems."""

from __future__ import annotations

import secrets
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...estimator.checking import read_or_collect
from ...html.formats import counted
from ...html.labels import shortened
from ...jobs.spec import REFUSE, Data
from ...member.contributing import table_of
from ...owner.contribute import Source, contribution
from ...owner.rows import MIN_ROWS
from ...owner.tables.options import ReadOptions
from ...owner.tables.owners import Problems
from ...owner.tables.table import Table
from .tasks import Told, in_words

FIRST_ROWS, FIRST_COLUMNS, PROBLEMS, GAPS = 4, 6, 8, 12
"""Maximum number of rows, columns, problems, and columns with missing values that are shown. Others are counted."""


@dataclass
class Preview:
    """label: name of the table. columns: names and number of missing values. first: first rows and columns as text."""

    label: str
    rows: int = 0
    columns: list[tuple[str, int]] = field(default_factory=list)
    first: list[list[str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def missing(self) -> int:
        """Number of missing values."""
        return sum(count for _, count in self.columns)

    @property
    def gaps(self) -> list[tuple[str, int]]:
        """Columns with missing values, those that miss most first."""
        return sorted((each for each in self.columns if each[1]), key=lambda each: -each[1])[:GAPS]

    @property
    def heads(self) -> list[str]:
        """Names above `first`."""
        return [shortened(name, 20) for name, _ in self.columns[:FIRST_COLUMNS]]

    @property
    def verdict(self) -> str:
        """Summarise the problems that `ppca check` would list, in one sentence."""
        if self.problems:
            return f"{counted(len(self.problems), 'problem')}: this table cannot be sent as it is."
        return "No problems: this table can be sent."


def preview(
    data: Data, owner: str, table: Any, label: str, id: str | None, options: ReadOptions, told: Told
) -> Preview:
    """Read a table as a contribution to a job would, and send nothing. Problems are collected, not raised."""
    found, problems = Preview(label), Problems()
    with problems.collect():
        _look(table_of(replace(data, missing=REFUSE), owner, table, id, options, 1), found, told)
    if not problems.found:
        with problems.collect():
            opened = table_of(data, owner, table, id, options, MIN_ROWS)
            found.notes += opened.notes
            read_or_collect(opened, lambda each: _share(data, owner, each, told), problems)
    texts = [in_words(error) for error in problems.found]
    found.problems = texts[:PROBLEMS] + ([f"and {len(texts) - PROBLEMS} more"] if len(texts) > PROBLEMS else [])
    return found


def _look(table: Table, found: Preview, told: Told) -> None:
    """Count rows and missing values, and keep the first rows."""
    missing = np.zeros(table.n_columns, np.int64)
    for chunk, _ in table.chunks_with_rest(check=False):
        if not found.rows:
            corner = np.asarray(chunk[:FIRST_ROWS, :FIRST_COLUMNS], np.float64)
            found.first = [["missing" if np.isnan(value) else f"{value:.6g}" for value in row] for row in corner]
        missing += np.isnan(chunk).sum(axis=0)
        found.rows += len(chunk)
        told(f"{found.rows:,} rows looked at", None)
    names = table.names or [f"column {j + 1}" for j in range(table.n_columns)]
    found.columns = list(zip(names, missing.tolist(), strict=True))


def _share(data: Data, owner: str, table: Table, told: Told) -> None:
    """Make all shares of a contribution, with a key of its own, and forget them: what would be refused is refused."""

    def show(done: int, total: int | None) -> None:
        told(f"{done:,} {'columns' if data.is_wide else 'rows'} checked", done / total if total else None)

    key = secrets.token_bytes(32)
    chunks = contribution(data, data.owners.index(owner), Source(table), lambda: key, show)
    deque(chunks, maxlen=0)
