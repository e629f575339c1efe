"""job.toml: what is computed, of whose data, and what is opened to whom. Its exact bytes are hashed, approved and run.

The lists `opens` and `reveals` say everything that will leave the sharing; servers refuse any other opening at run time. They
follow from the other fields (`disclosure`); a file in which they differ is refused.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from ..algorithms.scales import NONE
from ..algorithms.solvers import TOLERANCE
from ..jobs.pca import LOADINGS, MODEL, PARTS, WHOLE
from . import toml
from .errors import FileRefused
from .identity import NAME
from .objects import is_digest
from .text import is_plain, looks_like

JOB_FILE = "job.toml"
ROWS, COLUMNS, INFER = "pca-rows/1", "pca-columns/1", "infer/1"
WIDE_ROWS, WIDE_COLUMNS = "pca-rows-wide/1", "pca-columns-wide/1"
"""Of tables with more columns than rows: products of rows are analysed, not the covariance."""

PROGRAMS = (ROWS, COLUMNS, WIDE_ROWS, WIDE_COLUMNS, INFER)
OPERATIONS = ("transform", "flags", "scores")
ROW_SHARE = 0.75
"""The largest part of a column's sum of squares that one row may have, if a new job does not say otherwise."""

MOST_COLUMNS = 1 << 16
MOST_TABLES = 1 << 12
"""Largest number of tables of a sole owner."""

MOST_TEXT = 1000
MOST_EXPONENT = 500
TOLERANCES = (1e-9, 1e-2)
LARGEST_NAMESPACE = 1 << 26
_SPAN = re.compile(r"([0-9]{1,6})([smhd])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _moment(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise ValueError("write a time with its zone, as 2030-01-31T12:00:00Z")
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise ValueError("there is no such time in UTC") from None


def _span(value: str) -> str:
    if not _SPAN.fullmatch(value):
        raise ValueError("write a number and s, m, h or d, as 7d")
    return value


def _member(value: str) -> str:
    if not NAME.fullmatch(value):
        raise ValueError(f"{value[:60]!r} is no name of a member")
    return value


def _digest(value: str) -> str:
    if not is_digest(value):
        raise ValueError("a SHA-256 digest was expected: 64 hexadecimal digits")
    return value


Moment = Annotated[datetime, AfterValidator(_moment)]
Span = Annotated[str, AfterValidator(_span)]
Name = Annotated[str, AfterValidator(_member)]
Digest = Annotated[str, AfterValidator(_digest)]


def _text(value: str) -> str:
    if not value or not is_plain(value) or len(value) > MOST_TEXT:
        raise ValueError(f"text without control or hidden characters was expected, at most {MOST_TEXT} of them")
    return value


Text = Annotated[str, AfterValidator(_text)]
Names = Annotated[tuple[Name, ...], Field(strict=False, fail_fast=True)]
Texts = Annotated[tuple[Text, ...], Field(strict=False, fail_fast=True)]
"""The first wrong element of a list is refused; the others, which may be many, are not listed."""


class Fit(toml.Strict):
    """The parameters of a fit, by the names that `PCA` and `ppca fit` have for them."""

    components: int | float | Literal["all"] = "all"
    standardize: bool = False
    solver: Literal["auto", "topk", "allpairs", "jacobi", "jacobi-classic", "jacobi-eo", "qr", "power"] = "auto"
    tol: float = Field(default=TOLERANCE, ge=TOLERANCES[0], le=TOLERANCES[1])
    fixed_iterations: int | None = Field(default=None, ge=1, le=1000)
    max_iterations: int | None = Field(default=None, ge=1, le=1000)
    missing: Literal["refuse", "drop", "mean"] = "refuse"

    @field_validator("components")
    @classmethod
    def _some(cls, value: int | float | str) -> int | float | str:
        if not isinstance(value, str) and not (0 < value < 1 if isinstance(value, float) else value >= 1):
            raise ValueError("a whole number, at least 1, a part of the variance between 0 and 1, or 'all'")
        return value


class Align(toml.Strict):
    """How rows of owners of columns come together."""

    way: Literal["psi", "aligned", "namespace"] = "psi"
    namespace: int | None = None
    minimum: int = Field(default=10, ge=1)
    fold_case: bool = False
    row_share_at_most: float | None = Field(default=None, ge=1 / 64, lt=1)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if (self.way == "namespace") != (self.namespace is not None):
            raise ValueError("namespace is the number of ids, for that way only")
        if self.namespace is not None and not 2 <= self.namespace <= LARGEST_NAMESPACE:
            raise ValueError(f"namespace must be 2 to {LARGEST_NAMESPACE:,}")
        return self


class Keep(toml.Strict):
    """That the seats keep the model in shares, and what it may be used for: operation -> receivers. At most until then."""

    allow: dict[str, Names]
    until: Moment

    @field_validator("allow")
    @classmethod
    def _known(cls, value: dict[str, Any]) -> dict[str, Any]:
        for operation in value:
            if operation not in OPERATIONS:
                raise ValueError(f"{operation!r} is no operation of a kept model; choose from {', '.join(OPERATIONS)}")
        return value


class Infer(toml.Strict):
    """The use of a kept model on new rows: whose model it is, and what of it must be known to send rows."""

    model: Digest
    model_owners: Names
    model_columns: Literal["rows", "columns"] = "rows"
    operation: Literal["transform", "detect"]
    threshold: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    contamination: float | None = Field(default=None, gt=0, le=0.5)
    scores: bool = False
    standardized: bool
    scale_exponents: tuple[int, ...] = Field(strict=False, min_length=1, fail_fast=True)

    @model_validator(mode="after")
    def _asks(self) -> Self:
        limits = (self.threshold is not None) + (self.contamination is not None)
        if self.operation == "transform" and (limits or self.scores):
            raise ValueError("transform has no threshold, contamination or scores")
        if self.operation == "detect" and (limits > 1 or (not limits and not self.scores)):
            raise ValueError("detect needs a threshold, a contamination or scores, and not both limits")
        if not all(NONE <= exponent <= MOST_EXPONENT for exponent in self.scale_exponents):
            raise ValueError("scale_exponents are those of the model; make the job with ppca job use --model")
        return self

    @property
    def unit(self) -> float:
        """One unit of the servers in the units of the data; scores have its square."""
        return 1.0 if self.standardized else 2.0 ** self.scale_exponents[0]


class JobFile(toml.Strict):
    """The content of job.toml."""

    name: Text = Field(max_length=80)
    federation: Digest
    build: Text
    program: Literal["pca-rows/1", "pca-columns/1", "pca-rows-wide/1", "pca-columns-wide/1", "infer/1"]
    owners: Names
    columns: Texts | dict[str, Texts]
    tables: tuple[int, ...] | None = Field(default=None, strict=False, fail_fast=True)
    rows_at_least: int | None = Field(default=None, ge=1, le=1 << 40)
    receivers: dict[str, Texts]
    fit: Fit | None = None
    align: Align | None = None
    keep: Keep | None = None
    infer: Infer | None = None
    opens: Texts
    reveals: dict[str, Texts]
    not_before: Moment | None = None
    expires: Moment
    erase_after: Span = "7d"

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if not self.owners or len(set(self.owners)) < len(self.owners):
            raise ValueError("owners: name each owner once, at least one")
        for receiver in self.receivers:
            _member(receiver)
        fits = self.program != INFER
        if fits != (self.fit is not None) or fits == (self.infer is not None):
            raise ValueError(f"{self.program} needs the table [{'fit' if fits else 'infer'}], and not the other one")
        if self.by_columns != (self.align is not None):
            raise ValueError("the table [align] goes with owners of columns, and only with them")
        shares = None if self.align is None else self.align.row_share_at_most
        if shares is not None and (self.program != COLUMNS or len(self.owners) < 2):
            raise ValueError(f"align.row_share_at_most goes with {COLUMNS} and two or more owners, and only with them")
        if self.program == WIDE_ROWS and self.fit is not None and self.fit.missing == "mean":
            raise ValueError(f"{WIDE_ROWS}: missing values that count as the joint mean need the covariance ({ROWS})")
        if fits and not self.receivers and self.keep is None:
            raise ValueError("nobody would have the result: name receivers, or keep the model")
        if not fits and (self.keep is not None or len(self.receivers) != 1):
            raise ValueError("infer has one receiver and keeps nothing")
        if self.not_before is not None and self.not_before >= self.expires:
            raise ValueError("not_before: the job would expire before it may start")
        self._check_columns()
        self._check_parts(fits)
        return self

    def _check_columns(self) -> None:
        if isinstance(self.columns, dict) != self.by_columns or not self.columns:
            raise ValueError("columns: a list of names; for owners of columns a table with the list of every owner")
        if isinstance(self.columns, dict) and (set(self.columns) != set(self.owners) or not all(self.columns.values())):
            raise ValueError("columns: every owner of columns has at least one, and nobody else has any")
        if self.tables is not None and not self._tables_fit(self.tables):
            raise ValueError("tables: for a sole owner that acts for several tables, the number of columns of each")
        flat = self.all_columns
        if len(set(map(looks_like, flat))) < len(flat) or len(flat) > MOST_COLUMNS:
            raise ValueError(f"columns: every name once, and no two that look the same; at most {MOST_COLUMNS}")

    def _tables_fit(self, tables: tuple[int, ...]) -> bool:
        width = len(self.all_columns)
        fits = sum(tables) == width if self.by_columns else set(tables) == {width}
        return len(self.owners) == 1 and 0 < len(tables) <= MOST_TABLES and min(tables) > 0 and fits

    @property
    def widths(self) -> list[int]:
        """Number of columns of every table, in the order in which the tables are joined."""
        return [width for owner in self.owners for width in self.table_widths(owner)]

    def table_widths(self, owner: str) -> list[int]:
        """Number of columns of every table that an owner contributes: one table, unless it acts for several."""
        if self.tables is not None:
            return list(self.tables)
        return [len(self.columns[owner] if isinstance(self.columns, dict) else self.columns)]

    @property
    def checks_inputs(self) -> bool:
        """Whether servers check on shares that the numbers of every owner are in range: nobody can harm itself alone."""
        return self.fit is not None and len(self.owners) > 1

    @property
    def owner_multiplies(self) -> bool:
        """Whether the owner sends the products of its own columns: only one that acts alone and knows the common rows.

        Of several owners the servers compute them, so that nobody can send products that do not fit its rows.
        """
        return self.align is not None and self.align.way != "psi" and len(self.owners) == 1

    def _check_parts(self, fits: bool) -> None:
        if (
            self.fit is not None
            and isinstance(self.fit.components, int)
            and self.fit.components > len(self.all_columns)
        ):
            raise ValueError(f"fit.components: at most {len(self.all_columns)}, the number of columns")
        known = (*PARTS, MODEL) if fits else OPERATIONS
        for receiver, parts in self.receivers.items():
            if LOADINGS in parts and fits:
                self._check_loadings(receiver, parts)
            for part in parts:
                if part not in known:
                    raise ValueError(f"receivers.{receiver}: {part!r} is unknown; choose from {', '.join(known)}")

    def _check_loadings(self, receiver: str, parts: Texts) -> None:
        if not self.by_columns or receiver not in self.owners:
            raise ValueError(f"receivers.{receiver}: loadings are for an owner of columns, of its own columns")
        if {"components", MODEL} & set(parts):
            raise ValueError(f"receivers.{receiver}: loadings are in place of components; name one of them")

    @property
    def by_columns(self) -> bool:
        """Whether the owners hold columns of the same individuals."""
        return self.program in (COLUMNS, WIDE_COLUMNS) or (
            self.infer is not None and self.infer.model_columns == "columns"
        )

    @property
    def is_wide(self) -> bool:
        """Whether owners say that they have more columns than rows."""
        return self.program in (WIDE_ROWS, WIDE_COLUMNS)

    @property
    def all_columns(self) -> list[str]:
        if isinstance(self.columns, dict):
            return [name for owner in self.owners for name in self.columns[owner]]
        return list(self.columns)

    @property
    def approvers(self) -> list[str]:
        """Who must agree: the owners, and those of the model that is used."""
        more = [] if self.infer is None else [name for name in self.infer.model_owners if name not in self.owners]
        return [*self.owners, *more]

    @property
    def members(self) -> list[str]:
        return list(dict.fromkeys([*self.approvers, *self.receivers]))

    def parts_of(self, receiver: str) -> list[str]:
        """The parts of a fit that a receiver gets."""
        assert self.fit is not None
        named = self.receivers[receiver]
        wanted = WHOLE if MODEL in named else tuple(part for part in PARTS if part in named)
        return [part for part in wanted if part != "deviations" or self.fit.standardize]

    def gets_own_only(self, receiver: str) -> bool:
        """Whether a receiver gets, of what there is for every column, its own columns only."""
        return self.fit is not None and LOADINGS in self.receivers[receiver]

    def own_columns(self, owner: str) -> tuple[int, int]:
        """The first of an owner's columns among all, and the one after its last."""
        assert isinstance(self.columns, dict)
        start = sum(len(self.columns[other]) for other in self.owners[: self.owners.index(owner)])
        return start, start + len(self.columns[owner])

    def columns_of(self, receiver: str) -> list[str]:
        """The columns that a receiver's result is about."""
        if self.gets_own_only(receiver) and isinstance(self.columns, dict):
            return list(self.columns[receiver])
        return self.all_columns


def whole_parts(file: JobFile) -> list[str]:
    """The parts that make a whole model."""
    return [part for part in WHOLE if part != "deviations" or (file.fit is not None and file.fit.standardize)]


def seconds(span: str) -> float:
    found = _SPAN.fullmatch(span)
    if found is None:
        raise FileRefused(f"{span!r} is no time: write a number and s, m, h or d, as 7d.")
    return float(found[1]) * _UNITS[found[2]]


def after(moment: datetime, span: str) -> datetime:
    return moment + timedelta(seconds=seconds(span))
