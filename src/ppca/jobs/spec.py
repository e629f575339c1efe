"""A job as one typed value: the data it uses, the analysis, the parts of each receiver, and what the servers keep.

    JobSpec(data, analysis, receivers, keep)

`Data` says whose tables are used and how they become one shared table. The owners' side reads it and nothing else.
`Analysis` says what is computed and opened; each analysis is one subclass, registered in `registry`. A job is checked
when it is created: `SpecError` names the field, its value and the cause. Limits and default values of the data are
defined here, those of an analysis in its module.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

from ..algorithms import scales
from ..protocol import Party
from .checks import (
    SpecError,
    check_choice,
    check_name,
    check_range,
    check_switch,
    check_whole,
    in_utc,
    is_digest,
    is_whole,
)
from .openings import AllowedOpening
from .text import is_plain, looks_like

ROWS, COLUMNS = "rows", "columns"
WIDE_ROWS, WIDE_COLUMNS = "wide-rows", "wide-columns"
NEW_ROWS, NEW_COLUMNS, COORDINATES = "new-rows", "new-columns", "coordinates"
FORMS = (ROWS, COLUMNS, WIDE_ROWS, WIDE_COLUMNS, NEW_ROWS, NEW_COLUMNS, COORDINATES)
"""Forms of data: tables of row owners or column owners; the same with more columns than rows (wide); new rows for a
kept model, of row owners or column owners; coordinates from which a kept model rebuilds rows."""

BY_COLUMNS = frozenset({COLUMNS, WIDE_COLUMNS, NEW_COLUMNS})
"""Forms whose owners hold different columns of the same individuals."""

WIDE = frozenset({WIDE_ROWS, WIDE_COLUMNS})
"""Forms for tables with more columns than rows."""

USES_SCALES = frozenset({NEW_ROWS, NEW_COLUMNS, COORDINATES})
"""Forms whose rows are given in units of a kept model."""

REFUSE, DROP, MEAN = "refuse", "drop", "mean"
MISSING = (REFUSE, DROP, MEAN)
PSI, ALIGNED, NAMESPACE = "psi", "aligned", "namespace"
ALIGNMENTS = (PSI, ALIGNED, NAMESPACE)
USES = ("transform", "flags", "scores", "inverse", "partial_fit")
"""Uses of a kept model that a fit can allow."""

CLIENT = "client"
"""The receiver of a job on local servers."""

MAX_COLUMNS = 1 << 16
"""Maximum number of columns that a job lists by name; a longer list is given as `ColumnList`."""

MAX_NUMBERED = 1 << 10
"""Maximum number of columns that a job on local servers lists by name."""

MAX_TEXT = 1000
"""Maximum number of characters of a column name."""

MAX_NAMESPACE = 1 << 26
"""Maximum number of ids of the alignment `namespace`."""

MAX_TABLES = 1 << 12
"""Maximum number of tables of a job whose only owner uploads several."""

MAX_MIN_ROWS, MAX_CHUNKS = 1 << 40, 1 << 16
"""Maximum of `rows_at_least` and of `chunks`."""

MIN_SCALE_EXPONENT, MAX_SCALE_EXPONENT = scales.NONE, 500
"""Minimum (a column of zeros) and maximum of an exponent in `scales`."""

MIN_COMMON_IDS = 10
"""Default minimum number of ids that column owners must have in common."""

MIN_ROW_SHARE, ROW_SHARE = 1 / 64, 0.75
"""Minimum of `row_share_at_most` (fraction of a column's sum of squares in one row), and its value in new jobs."""


@dataclass(frozen=True, kw_only=True)
class ColumnList:
    """Columns that are too many to list: their number and the SHA-256 of their names, which each owner compares."""

    count: int
    digest: str

    def __post_init__(self) -> None:
        if not is_whole(self.count) or self.count < 1:
            raise SpecError("data.columns.count", self.count, "must be a whole number, at least 1")
        if not is_digest(self.digest):
            raise SpecError("data.columns.digest", self.digest, "must be a SHA-256 digest: 64 hexadecimal digits")


@dataclass(frozen=True, kw_only=True)
class Align:
    """The join of the rows of column owners.

    alignment: "psi" joins by keyed pseudonyms of ids; "aligned" takes rows in the order they have; "namespace" takes
    ids 0 to `namespace` - 1. minimum: the job stops if the owners have fewer rows in common. fold_case: ignore the case
    of ids.
    row_share_at_most: the job stops if one row has a larger part of the sum of squares of a column.
    """

    alignment: str = PSI
    namespace: int | None = None
    minimum: int = MIN_COMMON_IDS
    fold_case: bool = False
    row_share_at_most: float | None = None

    def __post_init__(self) -> None:
        check_choice("data.align.alignment", self.alignment, ALIGNMENTS)
        check_whole("data.align.minimum", self.minimum, 1)
        check_switch("data.align.fold_case", self.fold_case)
        if self.row_share_at_most is not None:
            check_range("data.align.row_share_at_most", self.row_share_at_most, MIN_ROW_SHARE, 1)
        if self.alignment != NAMESPACE and self.namespace is not None:
            raise SpecError("data.align.namespace", self.namespace, f"is not used with alignment {self.alignment!r}")
        if self.alignment == NAMESPACE and not (
            is_whole(self.namespace) and 2 <= (self.namespace or 0) <= MAX_NAMESPACE
        ):
            cause = f"must be the number of ids, between 2 and {MAX_NAMESPACE:,}; use 'psi' for a larger range"
            raise SpecError("data.align.namespace", self.namespace, cause)


OwnColumns = tuple[str, ...] | ColumnList
Columns = OwnColumns | Mapping[str, OwnColumns]


@dataclass(frozen=True, kw_only=True)
class Data:
    """Describe the tables of a job: owners, columns, and how they become one shared table.

    form: one of `FORMS`. owners: names of members, or owner-1, owner-2, ... on local servers; never names of files.
    columns: names that all row owners have in common, or by owner for column owners.
    tables: number of columns of each table, if the only owner uploads several.
    standardize: divide each column by its joint standard deviation. missing: one of `MISSING`. align: for column owners
    only.
    rows_at_least: minimum number of joint rows. add_to: name of kept moments to add these to (row owners).
    scales: one exponent per column of the kept model; new rows are given in units of 2^exponent.
    chunks: number of row chunks of the second moments (column owners); None: as few as the ring allows.
    check_inputs: the servers check on shares that the numbers of each owner are in range, and that new rows have the
    units of the model. Jobs of a federation with several owners, or with a kept model, must have it.
    """

    form: str
    owners: tuple[str, ...]
    columns: Columns
    tables: tuple[int, ...] | None = None
    standardize: bool = False
    missing: str = REFUSE
    align: Align | None = None
    rows_at_least: int | None = None
    add_to: str | None = None
    scales: tuple[int, ...] | None = None
    chunks: int | None = None
    check_inputs: bool = False

    def __post_init__(self) -> None:
        check_choice("data.form", self.form, FORMS)
        check_switch("data.standardize", self.standardize)
        check_switch("data.check_inputs", self.check_inputs)
        check_choice("data.missing", self.missing, MISSING)
        self._check_owners()
        self._check_columns()
        self._check_tables()
        if self.by_columns != (self.align is not None):
            raise SpecError("data.align", self.align, "is for column owners: give it for them and only for them")
        share = None if self.align is None else self.align.row_share_at_most
        if share is not None and (self.form != COLUMNS or len(self.owners) < 2 or not self.check_inputs):
            cause = f"is possible with form {COLUMNS!r}, several owners and check_inputs only"
            raise SpecError("data.align.row_share_at_most", share, cause)
        if self.form == WIDE_ROWS and self.missing == MEAN:
            cause = f"is not possible with form {WIDE_ROWS!r}: the joint mean of missing values needs the covariance"
            raise SpecError("data.missing", self.missing, cause)
        if self.uses_model and self.missing != REFUSE:
            raise SpecError("data.missing", self.missing, "is not possible for new rows of a kept model")
        if self.rows_at_least is not None:
            check_whole("data.rows_at_least", self.rows_at_least, 1, MAX_MIN_ROWS)
        if self.add_to is not None and self.form != ROWS:
            raise SpecError("data.add_to", self.add_to, f"rows can be added to kept moments only with form {ROWS!r}")
        self._check_scales()
        if self.chunks is not None:
            check_whole("data.chunks", self.chunks, 1, MAX_CHUNKS)
            if self.form != COLUMNS:
                raise SpecError("data.chunks", self.chunks, f"is possible with form {COLUMNS!r} only")

    def _check_owners(self) -> None:
        if not self.owners or len(set(self.owners)) < len(self.owners):
            raise SpecError("data.owners", self.owners, "name each owner once, and at least one")
        for owner in self.owners:
            check_name("data.owners", owner)

    def _check_columns(self) -> None:
        if isinstance(self.columns, Mapping) != self.by_columns or not self.columns:
            cause = "must be a list of names; for column owners, a table with the list of each owner"
            raise SpecError("data.columns", self.columns, cause)
        if isinstance(self.columns, Mapping) and (
            list(self.columns) != list(self.owners) or not all(map(_count, self.columns.values()))
        ):
            cause = "must name at least one column for each owner, in the order of the owners, and for no other member"
            raise SpecError("data.columns", sorted(self.columns), cause)
        names = self.column_names
        if len(set(map(looks_like, names))) < len(names) or len(names) > MAX_COLUMNS:
            cause = f"no two names may look the same; at most {MAX_COLUMNS:,} names"
            raise SpecError("data.columns", names, cause)
        for name in names:
            if not name or len(name) > MAX_TEXT or not is_plain(name):
                cause = f"a column name has 1 to {MAX_TEXT} characters and no hidden or control characters"
                raise SpecError("data.columns", name[:60], cause)

    def _check_tables(self) -> None:
        if self.tables is None:
            return
        fits = all(is_whole(width) and width > 0 for width in self.tables) and 0 < len(self.tables) <= MAX_TABLES
        fits = fits and (sum(self.tables) == self.width if self.by_columns else set(self.tables) == {self.width})
        if len(self.owners) != 1 or not fits:
            cause = "is only for a job whose only owner uploads several tables: the number of columns of each"
            raise SpecError("data.tables", self.tables, cause)

    def _check_scales(self) -> None:
        if (self.scales is not None) != (self.form in USES_SCALES):
            raise SpecError("data.scales", self.scales, "are needed for new rows of a kept model, and only for them")
        for exponent in self.scales or ():
            check_whole("data.scales", exponent, MIN_SCALE_EXPONENT, MAX_SCALE_EXPONENT)
        if self.scales is not None and len(self.scales) != self.width:
            raise SpecError("data.scales", len(self.scales), f"must have one exponent for each of {self.width} columns")

    @property
    def by_columns(self) -> bool:
        """Return whether the owners hold different columns of the same individuals."""
        return self.form in BY_COLUMNS

    @property
    def is_wide(self) -> bool:
        """Return whether there are more columns than rows."""
        return self.form in WIDE

    @property
    def uses_model(self) -> bool:
        """Return whether the rows are new ones, on which a kept model is used."""
        return self.form in USES_SCALES

    @property
    def column_names(self) -> list[str]:
        """Names of all columns in the order of the owners, except those of a `ColumnList`, which are unknown."""
        each = self.columns.values() if isinstance(self.columns, Mapping) else [self.columns]
        return [name for own in each if not isinstance(own, ColumnList) for name in own]

    @property
    def width(self) -> int:
        """Number of columns of the joint table."""
        return sum(map(_count, self.columns.values())) if isinstance(self.columns, Mapping) else _count(self.columns)

    @property
    def widths(self) -> list[int]:
        """Number of columns of each table."""
        if self.tables is not None:
            return list(self.tables)
        if isinstance(self.columns, Mapping):
            return [_count(self.columns[owner]) for owner in self.owners]
        return [self.width] * len(self.owners)

    def widths_of(self, owner: str) -> list[int]:
        """Return the number of columns of each table that an owner sends: one table, unless it acts for several."""
        return self.widths if self.tables is not None else [self.widths[self.owners.index(owner)]]

    @property
    def checked_owners(self) -> tuple[str, ...] | None:
        """The owner of each table, if the servers check what they send."""
        return self.owners if self.check_inputs else None

    @property
    def owners_multiply(self) -> bool:
        """Return whether column owners send the products of their own columns, or of their own rows if the table is
        wide.

        They do if they know the common rows. If the servers check what they send, the servers compute the products.
        """
        return self.align is not None and self.align.alignment != PSI and not self.check_inputs

    def columns_of(self, owner: str) -> slice:
        """The columns of a column owner among all columns."""
        if not isinstance(self.columns, Mapping) or owner not in self.owners:
            raise SpecError("data.owners", owner, "is not a column owner of this job")
        start = sum(_count(self.columns[other]) for other in self.owners[: self.owners.index(owner)])
        return slice(start, start + _count(self.columns[owner]))


class Analysis:
    """The analysis of a job: what it computes and opens. A subclass is a frozen dataclass: its fields are the
    parameters of the analysis.

    NAME: its name and version in job.toml, such as "pca/1". FORMS: the forms of data it accepts. PARTS: parts of its
    result that a receiver can get.
    """

    NAME: ClassVar[str]
    FORMS: ClassVar[frozenset[str]]
    PARTS: ClassVar[tuple[str, ...]]

    def check(self, job: JobSpec) -> None:
        """Check the rules between the parameters and the other fields of the job; raise `SpecError`."""

    def openings(self, job: JobSpec) -> list[AllowedOpening]:
        """Return everything that the analysis opens to the servers or reveals to receivers."""
        raise NotImplementedError(type(self).__name__)

    async def run(self, party: Party, table: Any, job: JobSpec) -> dict[str, Any]:
        """Compute from the shared table. Return public facts and, under "to", the revealed parts of each receiver."""
        raise NotImplementedError(type(self).__name__)

    def terms(self, job: JobSpec) -> list[str]:
        """Return lines that tell approvers what is computed."""
        return []

    @property
    def approvers(self) -> tuple[str, ...]:
        """Members that must approve the job in a federation, besides the owners."""
        return ()


@dataclass(frozen=True, kw_only=True)
class Keep:
    """A model that stays on the servers as shares.

    allow: uses of the model, each with the receivers of its results. name: its name on local servers. until: when the
    servers of a federation erase it; its name there follows from the job.
    """

    allow: Mapping[str, tuple[str, ...]]
    name: str | None = None
    until: datetime | None = None

    def __post_init__(self) -> None:
        for use, receivers in self.allow.items():
            if use not in USES:
                raise SpecError("keep.allow", use, f"is not a use of a kept model; choose from {', '.join(USES)}")
            for receiver in receivers:
                check_name("keep.allow", receiver)
        if (self.name is None) == (self.until is None):
            raise SpecError("keep", self.name, "needs either a name (local servers) or a date of erasure (federation)")
        if self.until is not None:
            object.__setattr__(self, "until", in_utc("keep.until", self.until))


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """A complete job. receivers: parts by receiver; without parts, a receiver gets public facts only. See the module
    docstring."""

    data: Data
    analysis: Analysis
    receivers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    keep: Keep | None = None

    def __post_init__(self) -> None:
        if self.data.form not in self.analysis.FORMS:
            known = ", ".join(form for form in FORMS if form in self.analysis.FORMS)
            raise SpecError(
                "data.form", self.data.form, f"is not accepted by {self.analysis.NAME}; choose from {known}"
            )
        for receiver, parts in self.receivers.items():
            check_name("receivers", receiver)
            for part in parts:
                if part not in self.analysis.PARTS:
                    known = ", ".join(self.analysis.PARTS)
                    raise SpecError(f"receivers.{receiver}", part, f"is not a part of the result; choose from {known}")
        if not self.receivers and self.keep is None:
            raise SpecError(
                "receivers",
                {},
                "must name a receiver, unless the servers keep the model: otherwise the result would be lost",
            )
        self.analysis.check(self)


def local_owners(count: int) -> tuple[str, ...]:
    """Return the names of owners on local servers: names of files do not enter a job."""
    return tuple(f"owner-{number + 1}" for number in range(count))


def numbered(count: int, start: int = 0) -> OwnColumns:
    """Return names for columns of tables on local servers, c1, c2, ...: the real names do not enter a job."""
    names = tuple(f"c{number + 1}" for number in range(start, start + count))
    if count <= MAX_NUMBERED:
        return names
    return ColumnList(count=count, digest=hashlib.sha256("\0".join(names).encode()).hexdigest())


def _count(columns: OwnColumns) -> int:
    return columns.count if isinstance(columns, ColumnList) else len(columns)
