"""The form of a new job: its fields become a job.toml by the builders that the command line uses."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...federation.membership import Membership
from ...federation.proposal import ProposedJob, propose
from ...jobs.build import pca_job
from ...jobs.pca import JointPCA
from ...jobs.spec import ALIGNED, DROP, MEAN, PSI, REFUSE, Align

ROWS, COLUMNS = "rows", "columns"
MISSING = {
    REFUSE: "refuse a table with missing values",
    DROP: "leave out rows with missing values",
    MEAN: "count them as the column's mean",
}
ALIGNMENTS = {PSI: "by an id, for individuals whom all owners have", ALIGNED: "row by row, all in the same order"}
CHOICES = {"form": (ROWS, COLUMNS), "missing": tuple(MISSING), "alignment": tuple(ALIGNMENTS)}


@dataclass(frozen=True)
class NewJob:
    """Fields of the form. Defaults are those of `ppca job new`."""

    name: str = ""
    form: str = ROWS
    owners: tuple[str, ...] = ()
    receivers: tuple[str, ...] = ()
    columns: str = ""
    components: str = "all"
    standardize: bool = True
    missing: str = REFUSE
    alignment: str = PSI
    minimum: str = "10"
    rows_at_least: str = ""
    expires: str = "7d"
    erase_after: str = "7d"

    @classmethod
    def of(cls, fields: Any) -> NewJob:
        """From the fields of a submitted form; unknown choices are refused."""
        texts: dict[str, Any] = {
            name: str(fields.get(name, "")).strip()
            for name in cls.__dataclass_fields__
            if name not in ("owners", "receivers", "standardize")
        }
        for name, allowed in CHOICES.items():
            if texts[name] not in allowed:
                raise ValueError(f"{name} is {texts[name]!r}. Choose one of: {', '.join(allowed)}.")
        people: dict[str, Any] = {
            name: tuple(str(value) for value in fields.getall(name, [])) for name in ("owners", "receivers")
        }
        return cls(**texts, **people, standardize="standardize" in fields)

    def proposed(self, membership: Membership) -> ProposedJob:
        """The job as a file. Raises ValueError that names the field."""
        if not self.name:
            raise ValueError("name is empty. Give the job a name; all its members see it.")
        if not self.owners or not self.receivers:
            raise ValueError("owners or receivers are missing. Choose at least one of each.")
        by_columns = self.form == COLUMNS
        align = Align(alignment=self.alignment, minimum=_whole("minimum", self.minimum)) if by_columns else None
        rows = _whole("minimum number of rows", self.rows_at_least) if self.rows_at_least else None
        job = pca_job(
            self.owners,
            self._columns(),
            {receiver: ["model"] for receiver in self.receivers},
            JointPCA(components=_components(self.components)),
            federated=True,
            align=align,
            standardize=self.standardize,
            missing=self.missing,
            rows_at_least=rows,
        )
        return propose(membership.digest, self.name, job, expires=self.expires, erase_after=self.erase_after)

    def _columns(self) -> Sequence[str] | Mapping[str, Sequence[str]]:
        """Names of columns: a list or, of column owners, one line for each owner."""
        lines = [line.strip() for line in self.columns.splitlines() if line.strip()]
        if not lines:
            raise ValueError("columns: name the columns that are analysed.")
        if self.form == ROWS:
            return [name for line in lines for name in _names(line)]
        found = {}
        for line in lines:
            owner, colon, names = line.partition(":")
            if not colon or owner.strip() not in self.owners:
                raise ValueError(f"columns: {line[:60]!r} is not 'owner: a, b, c' with one of the chosen owners.")
            found[owner.strip()] = _names(names)
        return found


def _names(line: str) -> list[str]:
    """Names between commas; a name with a comma is in quotes, as in CSV files."""
    return [name.strip() for name in next(csv.reader([line], skipinitialspace=True)) if name.strip()]


def _whole(what: str, text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"{what}: {text[:40]!r} is not a whole number.")
    return int(text)


def _components(text: str) -> int | float | None:
    """A number of components, a fraction of the variance, or None for all."""
    if text == "all":
        return None
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    raise ValueError(
        f"components: {text[:40]!r}. Give a whole number, a fraction of the variance such as 0.95, or 'all'."
    )
