"""What a job opens, to whom, how often at most, and what that tells: the list that owners approve and servers enforce."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..algorithms.solvers import TOPK, chosen
from ..algorithms.topk import DEGREES
from ..jobs.analysis import LOADINGS, NEXT, has_scales
from ..jobs.inference import SAME_UNITS
from ..jobs.input_checks import IN_RANGE, ROW_SHARES
from ..jobs.wide_rows import ROUNDED, ROWS_TOGETHER
from .errors import FileRefused
from .jobfile import WIDE_ROWS, JobFile

SERVERS = "servers"
MOST_CHECKS = 1000
"""Convergence bits of a fit: one per iteration, and those of a fall-back."""


@dataclass(frozen=True)
class Disclosure:
    """One kind of opening. most: how often in one attempt."""

    what: str
    to: str
    most: int
    meaning: str

    def rule(self) -> dict[str, Any]:
        """As `protocol.opening` enforces it."""
        return {"what": self.what, "to": self.to, "most": self.most}


TAGS = "tags of common rows"
BY_COLUMN = {
    "scale exponents": "a power of two above the spread of the columns",
    "means": "the joint mean of every column",
    "scale of the means": "the unit of the means",
    "deviations": "the joint deviation of every column",
    "scale of the deviations": "the unit of the deviations",
}
MEANING = {
    ROW_SHARES: "one bit per owner: whether in each of its columns every row has less than the agreed part of the sum of squares",
    SAME_UNITS: "one bit: whether the units of the new rows are those of the model",
    IN_RANGE: "one bit per owner: whether its numbers are in the range that every unmodified client keeps",
    "enough rows": "one bit: whether all owners together have as many rows as the job asks for",
    "convergence bit": "one bit per iteration: how the eigensolver proceeds",
    "convergence level": "one number per loop: how far the eigensolver's residual is from the tolerance (13 values), whether its "
    "columns are orthonormal, and how many of two eigenvalues are below 1/256 of the first",
    "verification bit": "one bit: whether the decomposition is as accurate as promised",
    "shuffled ranks": "a uniformly random permutation: nothing",
    "number of components": "how many components explain the part of the variance that was asked for",
    "match pattern of pseudonyms": "how many rows every owner has, and which pseudonyms all owners have in common",
    ROUNDED: f"how many rows every owner has, rounded up to a multiple of {ROWS_TOGETHER}; all who have a part in the job see "
    "that, too, from the sizes of uploads",
    "verification of components": "one of three values: whether the components are as accurate as promised, at two tolerances",
    "number of rows": "how many rows all owners have together",
    **BY_COLUMN,
    "components": "the principal components: how columns vary together",
    "loadings": "what the principal components say of its own columns; with its own rows it can compute from that where all rows "
    "lie along them, the better the more of the variance they explain",
    "explained variance": "the variance along every component",
    "total variance": "the sum of the variances of all columns",
    "scale of the variance": "the unit of the variances",
    NEXT: "a number that no variance along a component that was left out exceeds, close to the largest of these",
    **{f"own {what}": f"{meaning}, its own columns only" for what, meaning in BY_COLUMN.items()},
    "coordinates": "the coordinates of the new rows along the components",
    "anomaly scores": "how far every new row is from what the model expects",
    "anomaly flags": "which of the new rows are anomalous",
    TAGS: "which of its own rows all owners have in common",
}
PARTS = {
    "components": ("components",),
    LOADINGS: ("loadings",),
    "variances": ("explained variance", "total variance", "scale of the variance"),
    "means": ("means", "scale of the means"),
    "deviations": ("deviations", "scale of the deviations"),
}


def disclosures(job: JobFile) -> list[Disclosure]:
    """Everything that the job opens."""
    return [*to_servers(job), *(line for name in job.receivers for line in to_receiver(job, name))]


def to_servers(job: JobFile) -> list[Disclosure]:
    found: list[tuple[str, int]] = []
    if job.align is not None and job.align.way == "psi":
        found.append(("match pattern of pseudonyms", 1))
    if job.program == WIDE_ROWS:
        found.append((ROUNDED, 1))
    if job.infer is not None:
        found.append((SAME_UNITS, 1))
    if job.checks_inputs:
        found.append((IN_RANGE, 1))
    if job.align is not None and job.align.row_share_at_most is not None:
        found.append((ROW_SHARES, 1))
    if job.fit is not None:
        if job.rows_at_least is not None and not job.by_columns:  # servers know how many rows owners of columns have
            found.append(("enough rows", 1))
        loops = len(DEGREES) + 1 if _by_topk(job) else 0
        if job.fit.fixed_iterations is None:
            found += [("convergence bit", MOST_CHECKS), *([("convergence level", loops)] if loops else [])]
        found.append(("verification bit", 3 if loops else 2))
        if job.is_wide or len(job.all_columns) > 1:
            found.append(("shuffled ranks", 2 + loops))
        if isinstance(job.fit.components, float):
            found.append(("number of components", 1))
        if job.is_wide:
            found.append(("verification of components", 1))
    return [Disclosure(what, SERVERS, most, MEANING[what]) for what, most in found]


def _by_topk(job: JobFile) -> bool:
    """Whether the solver is `topk`, which goes in loops; of products of rows, whose number is not known: whether it may be."""
    fit = job.fit
    if fit is None:
        return False
    components = None if isinstance(fit.components, str) else fit.components
    # There are fewer rows than columns, those of zeros included, and one more for every table.
    most = len(job.all_columns) + (len(job.widths) if job.is_wide else 0)
    return chosen(fit.solver, most, components, fit.fixed_iterations) == TOPK


def to_receiver(job: JobFile, receiver: str) -> list[Disclosure]:
    if job.infer is not None:
        operation = job.infer
        wanted = ["coordinates"] if operation.operation == "transform" else []
        if operation.operation == "detect":
            wanted += ["anomaly scores"] if operation.scores else []
            wanted += (
                ["anomaly flags"] if operation.threshold is not None or operation.contamination is not None else []
            )
    else:
        wanted = _of_fit(job, receiver)
    return [Disclosure(what, receiver, 1, MEANING[what]) for what in wanted]


def _of_fit(job: JobFile, receiver: str) -> list[str]:
    """Who gets loadings gets nothing of others' columns; exponents of raw data are one, of all columns."""
    parts, standardized = job.parts_of(receiver), bool(job.fit and job.fit.standardize)
    found = [] if job.by_columns else ["number of rows"]
    found += ["scale exponents"] if has_scales(parts, standardized) else []
    found += [what for part in parts for what in PARTS[part]]
    if {"components", "variances"} <= set(parts) and _leaves_out(job):
        found.insert(found.index("explained variance") + 1, NEXT)
    if not job.gets_own_only(receiver):
        return found
    return [
        f"own {what}" if what in BY_COLUMN and (standardized or what != "scale exponents") else what for what in found
    ]


def _leaves_out(job: JobFile) -> bool:
    """Whether the result may have fewer components than there are columns, or rows where products of rows are analysed."""
    return job.fit is not None and job.fit.components not in ("all", len(job.all_columns))


def check_lists(job: JobFile, label: str) -> None:
    """Refuses a file whose lists are not those of its program."""
    opens = [line.what for line in to_servers(job)]
    reveals = {name: [line.what for line in to_receiver(job, name)] for name in job.receivers}
    if list(job.opens) != opens:
        raise FileRefused(f"{label}: opens must be {opens} for these parameters; make the file with ppca job new.")
    if {name: list(lines) for name, lines in job.reveals.items()} != reveals:
        raise FileRefused(f"{label}: reveals must be {reveals} for these parameters; make the file with ppca job new.")


def scope(job: JobFile) -> str:
    """For approvers: of whose data, for how long, and how a kept model is used."""
    whose = f"{len(job.all_columns)} columns of {', '.join(job.owners)}"
    time = f"until {job.expires:%Y-%m-%d %H:%M} UTC; erased {job.erase_after} after its end"
    return "; ".join([whose, time, *use_in_words(job)])


def use_in_words(job: JobFile) -> list[str]:
    """How a job uses a kept model, for approvers."""
    use = job.infer
    if use is None:
        return []
    lines = [
        f"uses the model of job {use.model[:12]} of {', '.join(use.model_owners)} on new rows of {', '.join(job.owners)}"
    ]
    if use.standardized:
        lines.append("units: deviations of the columns in the fit; servers compare the scales with those of the model")
    else:
        lines.append(
            f"units: those of the data; servers compare the scale 2^{use.scale_exponents[0]} with that of the model"
        )
    if use.threshold is not None:
        lines.append(
            f"flags: rows whose squared distance from the model is above {use.threshold:g}, in these units squared"
        )
    if use.contamination is not None:
        lines.append(
            f"flags: the {use.contamination:.4g} part of the new rows with the largest distance from the model"
        )
    if job.rows_at_least is not None:
        lines.append(f"only if there are at least {job.rows_at_least:,} new rows")
    return lines


def nature_in_words(job: JobFile) -> list[str]:
    """What a result tells by its nature, for approvers."""
    if job.fit is not None and not job.by_columns and len(job.owners) == 2 and job.receivers:
        return [
            "with two owners, whoever has the result and one owner's rows can subtract that owner's part, and learns the number "
            "of rows, the means and the covariance of the other one"
        ]
    if job.fit is None or not job.by_columns or len(job.owners) < 2:
        return []
    share = None if job.align is None else job.align.row_share_at_most
    found = (
        "an owner with a column that marks one person, or with two columns that differ in one person, can compute that person's "
        "values in your columns from components, variances and means, if it sees them"
    )
    if share is not None:
        found += f"; columns with more than {share:.0%} of their sum of squares in one row are refused"
    return [
        found,
        "the number of common rows tells its receiver and an owner together whether chosen ids are in your table",
    ]


def in_words(job: JobFile) -> list[str]:
    """For approvers: one line per reader and thing."""
    lines = [f"to the four servers: {line.what} ({line.meaning})" for line in to_servers(job)]
    for receiver in job.receivers:
        lines += [f"to {receiver}: {line.what} ({line.meaning})" for line in to_receiver(job, receiver)]
        if job.infer is not None and job.align is not None and job.align.way == "psi":  # pseudonyms, no shared value
            lines.append(f"to {receiver}: {TAGS} ({MEANING[TAGS]}, if it is one of the owners)")
    if job.keep is not None:
        for operation, receivers in job.keep.allow.items():
            whom = " and ".join(receivers) or "nobody"
            lines.append(
                f"kept in shares until {job.keep.until:%Y-%m-%d}: {operation} of new rows for {whom}, if you agree again"
            )
    return lines


def together(job: JobFile, earlier: Iterable[tuple[str, JobFile]], me: str) -> list[str]:
    """What this job and earlier ones on overlapping columns tell together that neither tells alone."""
    found = []
    mine = set(job.owners)
    for name, other in earlier:
        if job.fit is None or other.fit is None or not set(job.all_columns) & set(other.all_columns):
            continue
        readers = set(job.receivers) & set(other.receivers) or {"whoever sees both results"}
        theirs = set(other.owners)
        for larger, smaller in ((mine, theirs), (theirs, mine)):
            rest = larger - smaller
            if smaller < larger and len(rest) == 1:
                whose = "you" if rest == {me} else next(iter(rest))
                found.append(
                    f"you approved {name!r} of {' + '.join(sorted(theirs))}; this is {' + '.join(sorted(mine))}: "
                    f"{' and '.join(sorted(readers))} can compute from the difference what {whose} alone contributed"
                )
        if mine == theirs:
            found.append(
                f"you approved {name!r} of the same owners: if anybody's rows changed since, the difference of the two results "
                "tells about the rows that changed"
            )
    return found
