"""Text for approvers of a job: what is computed from which data, what is opened, and what results reveal by their
nature."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..jobs.openings import MEANING, SERVERS, TAGS, AllowedOpening, is_unit
from ..jobs.pca import JointPCA
from ..jobs.registry import openings
from ..jobs.regression import JointRegression
from ..jobs.spec import ALIGNED, DROP, MEAN, NAMESPACE, PSI, REFUSE, JobSpec
from .proposal import Proposal


def to_servers(job: JobSpec) -> list[AllowedOpening]:
    """Return what the job opens to the four servers."""
    return [line for line in openings(job) if line.to == SERVERS]


def to_receiver(job: JobSpec, receiver: str) -> list[AllowedOpening]:
    """Return what the job reveals to one receiver."""
    return [line for line in openings(job) if line.to == receiver]


def scope(proposal: Proposal) -> str:
    """Return the columns, the owners and the duration of a job, for approvers."""
    whose = f"{proposal.job.data.width} columns of {', '.join(proposal.owners)}"
    time = f"until {proposal.expires:%Y-%m-%d %H:%M} UTC; erased {proposal.erase_after} after its end"
    return f"{whose}; {time}"


ALL_SERVERS = "the four servers"

SHOWN_NAMES = 10
"""Maximum number of another owner's columns that are named to an approver; the rest are counted. Own columns are all
named."""

FEW_ROWS = 10
"""Minimum number of common rows below which approvers are warned of the covariance of few people."""

ENOUGH_ROWS = 200
"""Minimum number of common rows below which approvers are warned of an owner with many columns; or twice these
columns."""


TELLS = {
    JointPCA.NAME: "components, variances and means",
    JointRegression.NAME: "the coefficients, the intercept and their errors",
}
"""The numbers of each analysis from which others' values can follow."""

IN_UNITS = {JointRegression.NAME: "only on shares; the result is in the units of the data"}
"""The meaning of standardized data in analyses whose result is not that of standardized columns."""


def _tells(job: JobSpec) -> str:
    return TELLS.get(job.analysis.NAME, "the result of this analysis")


def terms(job: JobSpec, me: str) -> list[str]:
    """Return, for one approver, the columns that are used, what is computed from them, and the minimum numbers of
    rows."""
    data, lines = job.data, []
    if isinstance(data.columns, Mapping):
        names = data.column_names
        for owner in sorted(data.owners, key=lambda owner: owner != me):
            whose = "columns that you contribute" if owner == me else f"columns of {owner}"
            lines.append(f"{whose}: {_named(names[data.columns_of(owner)], None if owner == me else SHOWN_NAMES)}")
    else:
        lines.append(f"columns that every owner contributes: {_named(data.column_names, None)}")
    lines += job.analysis.terms(job)
    if not data.uses_model:
        lines += _data_terms(job)
    if data.align is not None:
        lines += _align_terms(job)
    if data.rows_at_least is not None:
        whose = "new rows" if data.uses_model else "rows of all owners together"
        lines.append(f"minimum number of {whose}: {data.rows_at_least:,}; servers refuse fewer")
    elif not data.by_columns:
        lines.append("no minimum number of rows")
    return lines


def _data_terms(job: JobSpec) -> list[str]:
    data = job.data
    scaled = "no, columns keep their units"
    if data.standardize:
        scaled = IN_UNITS.get(job.analysis.NAME, "yes, each column is divided by its standard deviation")
    mean = "its owner's mean of the column" if data.by_columns else "the mean of the column over all owners"
    meaning = {
        REFUSE: "a table with a missing value is refused",
        DROP: "rows with a missing value are left out",
        MEAN: f"a missing value counts as {mean}",
    }
    return [f"standardized: {scaled}", f"missing values: {meaning[data.missing]}"]


def _align_terms(job: JobSpec) -> list[str]:
    assert job.data.align is not None
    align = job.data.align
    ways = {
        PSI: "by id; only individuals that all owners have are used",
        ALIGNED: "row by row; all owners must have the same individuals in the same order",
        NAMESPACE: f"by id, a whole number below {align.namespace or 0:,}; an owner sends a row of zeros for each id that it "
        "does not have",
    }
    case = "; upper and lower case of ids count as equal" if align.fold_case else ""
    zeros = ", with rows of zeros" if align.alignment == NAMESPACE else ""
    return [
        f"rows are joined: {ways[align.alignment]}{case}",
        f"minimum number of common rows{zeros}: {align.minimum:,}",
    ]


def _named(columns: Iterable[str], most: int | None) -> str:
    """Return names of columns in quotes, with quotes in names escaped. most: the maximum number of names."""
    names = list(columns)
    shown = ", ".join(json.dumps(name, ensure_ascii=False) for name in names[:most])
    more = 0 if most is None else max(0, len(names) - most)
    return shown + (f" and {more:,} more" if more else "")


def nature_in_words(job: JobSpec) -> list[str]:
    """Return what a result reveals by its nature, for approvers."""
    if job.data.uses_model or len(job.data.owners) < 2:
        return []
    return _nature_of_columns(job) if job.data.by_columns else _nature_of_rows(job)


def _nature_of_rows(job: JobSpec) -> list[str]:
    if not job.receivers:
        return []
    tells = f"anyone with {_tells(job)} can compute the other values of that row"
    if job.analysis.NAME == JointRegression.NAME:
        tells = f"{_tells(job)} fit that row exactly: anyone with them and its other values can compute its target"
    found = [
        "if one row of all owners differs from all others in a column, such as a rare category encoded as 0 and 1, "
        + tells
    ]
    if len(job.data.owners) == 2:
        found.append(
            "with two owners, anyone with the result and one owner's rows can subtract that owner's part, and learns "
            "the number of rows, the means and the covariance of the other one"
        )
    if job.data.missing == MEAN:
        found.append(
            f"an owner whose values of a column lie far from yours can compute from {_tells(job)} "
            "how many rows of the other owners miss that column, and the sum of these rows; your client refuses a "
            f"column that fewer than {FEW_ROWS} of your rows miss, or have, unless you lower --min-rows"
        )
    return found


def _nature_of_columns(job: JobSpec) -> list[str]:
    assert job.data.align is not None
    align, few = job.data.align, []
    if align.minimum < FEW_ROWS:
        few = [
            f"results of only {align.minimum} common rows are allowed: the covariance of few people reveals "
            f"their values. Ask for a minimum of {FEW_ROWS} or more"
        ]
    where = f"{_tells(job)}, if it sees them"
    if job.analysis.NAME != JointPCA.NAME:
        where += "; each further column of that owner tells one person more"
    found = (
        "an owner with a column that marks one person, or with two columns that differ in one person, can compute "
        f"that person's values in your columns from {where}"
    )
    share = align.row_share_at_most
    if share is None:
        found += (
            "; the servers do not check whether such columns are there, because the job sets no row_share_at_most. Your "
            "client does not check it either"
        )
    else:
        found += (
            f"; columns with more than {share:.0%} of their sum of squares in one row are refused by unmodified "
            f"clients, and by servers if it is clearly more than {share + (1 - share) / 4:.0%}"
        )
    return [
        *few,
        found,
        "the number of common rows reveals to its receiver and an owner together whether chosen ids are in your table",
        *_few_common_rows(job),
    ]


def _few_common_rows(job: JobSpec) -> list[str]:
    """Return what covariances of few rows reveal, if the job allows few."""
    assert job.data.align is not None
    minimum, width = job.data.align.minimum, max(job.data.widths)
    advised = max(ENOUGH_ROWS, 2 * width)
    if minimum >= advised and not job.data.is_wide:
        return []
    which = "this job is for fewer rows than columns" if job.data.is_wide else f"{minimum:,} common rows are enough"
    if job.analysis.NAME != JointPCA.NAME:
        return [
            f"{which}, and one owner has {width:,} columns: if there are not many more common rows than columns of an "
            f"owner, that owner can compute much about your values from {_tells(job)}, if it sees them. Every owner can "
            f"make the number of common rows small. Ask for a minimum of {advised:,} or more"
        ]
    help_ = "" if job.data.is_wide else f"Ask for a minimum of {advised:,} or more, or for"
    return [
        f"{which}, and one owner has {width:,} columns: if there are not many more common rows than columns of an owner, "
        "that owner can compute your values of every common row from components, variances and means, if it sees them. A "
        "few columns suffice if your values are few numbers, such as 0 and 1. Every owner can make the number of common "
        f"rows small. {help_ or 'Ask for'} few components"
    ]


@dataclass(frozen=True)
class Reader:
    """A reader of a job's openings: a receiver, or the four servers. openings: what it gets, and what that tells."""

    name: str
    openings: tuple[tuple[str, str], ...]

    @property
    def lines(self) -> list[tuple[str, str]]:
        """Openings that are not units of others."""
        return [line for line in self.openings if not is_unit(line[0])]

    @property
    def units(self) -> list[tuple[str, str]]:
        """Units of the other numbers."""
        return [line for line in self.openings if is_unit(line[0])]


def readers(job: JobSpec) -> list[Reader]:
    """List the receivers, then the four servers, with their openings."""
    found = []
    for receiver in job.receivers:
        lines = [(line.what, line.meaning) for line in to_receiver(job, receiver)]
        if (
            job.data.uses_model and job.data.align is not None and job.data.align.alignment == PSI
        ):  # pseudonyms, no shared value
            lines.append((TAGS, f"{MEANING[TAGS]}, if it is one of the owners"))
        found.append(Reader(receiver, tuple(lines)))
    return [*found, Reader(ALL_SERVERS, tuple((line.what, line.meaning) for line in to_servers(job)))]


def kept_in_words(job: JobSpec) -> list[str]:
    """For approvers: what the servers keep, and for which later jobs."""
    if job.keep is None or job.keep.until is None:
        return []
    return [
        f"kept in shares until {job.keep.until:%Y-%m-%d}: {operation} of new rows for "
        f"{' and '.join(receivers) or 'no receiver'}, if you agree again"
        for operation, receivers in job.keep.allow.items()
    ]


def in_words(job: JobSpec) -> list[str]:
    """For approvers: one line per reader and thing."""
    *receivers, servers = readers(job)
    lines = [
        f"to {reader.name}: {what} ({tells})" for reader in (servers, *receivers) for what, tells in reader.openings
    ]
    return [*lines, *kept_in_words(job)]
