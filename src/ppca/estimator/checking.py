"""Check owners' tables before a fit: read them as the fit would, and collect every problem instead of the first one.

The functions that open and read tables are those of the fit (`open_rows`, `open_columns`, `sums_of`,
`Records.for_upload`, `arrange`). After a problem with some columns of a table, its other columns are read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from ..jobs.matching import MatchError, match, too_few
from ..jobs.spec import ALIGNED, MEAN, PSI
from ..jobs.uploads import MATCH
from ..jobs.wide import too_large
from ..owner.alignment.arrangement import arrange
from ..owner.columns import Centred
from ..owner.contribute import are_wide, missing_of
from ..owner.errors import BadValue, OwnerError
from ..owner.rows import missing_moments_of, sums_of
from ..owner.tables.opening import check_numeric
from ..owner.tables.owners import Problems
from ..owner.tables.reading import CompleteRows
from ..owner.tables.records import Records
from ..owner.tables.table import Table, listed
from ..owner.wide import WideColumns, WideRows, padded
from .forecast import Forecast, forecast_of
from .partition import Columns, check_matched, check_number
from .plan import Plan

T = TypeVar("T")

MAX_SUMMED = 4096
"""Maximum columns for which sums are computed if it is unknown whether the owners have fewer rows than columns."""


@dataclass
class CheckedTable:
    """A table that was read: label, number of rows and columns, and number of rows dropped for a missing value."""

    label: str
    rows: int
    columns: int
    dropped: int = 0


@dataclass
class Checked:
    """Result of a check. A fit fails if there are problems."""

    tables: list[CheckedTable] = field(default_factory=list)
    problems: list[ValueError] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    forecast: Forecast | None = None


def check_tables(tables: Sequence[Table], plan: Plan, problems: Problems) -> Checked:
    """Read all owners' tables as a fit with this plan would. problems: list to which problems are added."""
    by_columns = isinstance(plan.partition, Columns)
    with problems.collect():
        plan.allowed(len(tables) if by_columns else 0)  # raises for uses that a kept model cannot have
    check = _check_columns if by_columns else _check_rows
    found = check(tables, plan, problems)
    found.notes += [note for table in tables for note in table.notes]
    found.problems = problems.found
    if not problems.found:
        found.forecast = forecast_of(
            plan,
            [each.columns for each in found.tables],
            [each.rows for each in found.tables],
            missing_of(tables) == MEAN,
        )
    return found


def _check_rows(tables: Sequence[Table], plan: Plan, problems: Problems) -> Checked:
    found = Checked()
    if not tables:
        return found
    width = tables[0].n_columns
    with problems.collect():
        plan.check_width(width)
    means, wide = missing_of(tables) == MEAN, width > MAX_SUMMED
    with problems.collect():
        wide = are_wide(tables)

    def rows_of(table: Table) -> Records:
        records = Records.of(table)
        WideRows.of(records, bool(plan.standardize))  # raises for values that are too large
        return records

    read: Callable[[Table], Any] = rows_of if wide else missing_moments_of if means else sums_of
    results = [read_or_collect(table, read, problems) for table in tables]
    for table, result in zip(tables, results, strict=True):
        if result is not None:
            rows = len(result.values) if wide else result.count
            found.tables.append(CheckedTable(table.label, rows, table.n_columns, _dropped(table)))
    if not problems.found:
        total = sum(each.rows for each in found.tables)
        with problems.collect():
            plan.check_rows(total, width)
            if wide and (refused := too_large(sum(padded(each.rows) for each in found.tables), width)) is not None:
                raise OwnerError(f"{refused}.")
            found.notes += _check_variance(tables, results, total, wide)
    return found


def _check_variance(tables: Sequence[Table], results: Sequence[Any], rows: int, wide: bool) -> list[str]:
    """Add a problem if no column varies, and a note if some do not."""
    width = tables[0].n_columns
    if wide:
        values = np.concatenate([result.values for result in results])
        constant = values.min(axis=0) == values.max(axis=0)
    else:
        joint = results[0]
        for result in results[1:]:
            joint = joint.merge(result)
        constant = np.diagonal(joint.gram)[:width] == 0
    if constant.all():
        raise OwnerError(f"no column varies in the {rows:,} rows of all owners. Components do not exist.")
    names = [tables[0].column_title(index) for index in np.flatnonzero(constant).tolist()]
    return [f"{listed(names, str)} {'does' if len(names) == 1 else 'do'} not vary in any table"] if names else []


def _check_columns(tables: Sequence[Table], plan: Plan, problems: Problems) -> Checked:
    partition, found = plan.partition, Checked()
    assert isinstance(partition, Columns)
    width = sum(table.n_columns for table in tables)
    if not problems.found:  # otherwise the table of another owner could not be opened
        with problems.collect():
            check_number(len(tables))
    with problems.collect():
        plan.check_width(width)
    in_order = partition.alignment == ALIGNED

    def read(table: Table) -> Records:
        return Records.for_upload(table, in_order=in_order, columns=width, fill=True)

    records = [read_or_collect(table, read, problems) for table in tables]
    for table, result in zip(tables, records, strict=True):
        if result is not None:
            found.tables.append(CheckedTable(table.label, len(result.values), table.n_columns, _dropped(table)))
    ready = [each for each in records if each is not None]
    if len(ready) == len(tables) >= 2:
        with problems.collect():
            found.notes += _check_match(ready, partition, plan, width)
    else:
        for each in ready:
            with problems.collect():
                arrange([each], partition.align)
    return found


def _check_match(owners: Sequence[Records], partition: Columns, plan: Plan, width: int) -> list[str]:
    """Add a problem if ids do not match, or a note with the number of common rows. The user of a check has all
    tables."""
    arranged = arrange(owners, partition.align)
    wide = min(len(each.values) for each in arranged) < width
    for each in arranged:  # raises for values that are too large
        WideColumns.of(each, bool(plan.standardize)) if wide else Centred.of(each)
    rows = len(arranged[0].values)
    if partition.alignment == PSI:
        tags = [each.tags for each in arranged if each.tags is not None]
        try:
            rows = len(match(tags, partition.minimum)[0])
        except MatchError as error:
            check_matched({"refused": str(error), "cause": MATCH}, partition, owners)
    elif refused := too_few(rows, partition.minimum):
        check_matched({"refused": refused}, partition, owners)
    plan.check_rows(rows, width)
    if wide and (refused := too_large(rows, width)) is not None:
        raise OwnerError(f"{refused}.")
    return [f"{rows:,} rows are common to all owners"]


def read_or_collect(table: Table, read: Callable[[Table], T], problems: Problems) -> T | None:
    """Read a table as a fit does, without columns with bad values. Return None if it cannot be read."""
    while True:
        bad: set[str] = set()
        with problems.collect():
            try:
                check_numeric(table)
                return read(table)
            except BadValue as error:
                bad = set(error.columns)
                raise
        if table.names is None or not bad & set(table.names) or len(bad) >= len(table.names):
            return None
        table = table.choose([name for name in table.names if name not in bad], table.id)


def _dropped(table: Table) -> int:
    return table.dropped if isinstance(table, CompleteRows) else 0
