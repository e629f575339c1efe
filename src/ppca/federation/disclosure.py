"""What a job opens, to whom, how often at most, and what that tells: the list that owners approve and servers enforce."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..jobs import spec
from ..jobs.checks import SpecError
from ..jobs.infer import UseModel
from ..jobs.openings import MEANING, SERVERS, TAGS, AllowedOpening
from ..jobs.pca import JointPCA
from ..jobs.registry import openings
from ..jobs.spec import Data, JobSpec
from .errors import FileRefused
from .jobfile import COLUMNS, ROWS, WIDE_COLUMNS, WIDE_ROWS, JobFile

FORMS = {
    ROWS: spec.ROWS,
    COLUMNS: spec.COLUMNS,
    WIDE_ROWS: spec.WIDE_ROWS,
    WIDE_COLUMNS: spec.WIDE_COLUMNS,
}


def job_of(file: JobFile) -> JobSpec:
    """Return the job that a file describes; raise `SpecError` if it describes none."""
    columns: Any = file.columns
    if isinstance(file.columns, dict):
        columns = {owner: tuple(file.columns[owner]) for owner in file.owners}
    align = file.align
    data = Data(
        form=FORMS.get(file.program, spec.NEW_COLUMNS if file.by_columns else spec.NEW_ROWS),
        owners=tuple(file.owners),
        columns=columns,
        tables=file.tables,
        standardize=file.fit.standardize if file.fit is not None else bool(file.infer and file.infer.standardized),
        missing=spec.REFUSE if file.fit is None else file.fit.missing,
        align=None
        if align is None
        else spec.Align(
            alignment=align.way,
            namespace=align.namespace,
            minimum=align.minimum,
            fold_case=align.fold_case,
            row_share_at_most=align.row_share_at_most,
        ),
        rows_at_least=file.rows_at_least,
        scales=None if file.infer is None else tuple(file.infer.scale_exponents),
        check_inputs=file.checks_inputs or file.infer is not None,
    )
    keep = None if file.keep is None else spec.Keep(allow=file.keep.allow, until=file.keep.until)
    if file.infer is not None:
        use = UseModel(
            model=file.infer.model,
            model_owners=tuple(file.infer.model_owners),
            threshold=file.infer.threshold,
            contamination=file.infer.contamination,
        )
        flags = file.infer.threshold is not None or file.infer.contamination is not None
        wanted = {"transform": file.infer.operation == "transform", "scores": file.infer.scores, "flags": flags}
        parts = tuple(part for part, asked in wanted.items() if asked)
        return JobSpec(data=data, analysis=use, receivers=dict.fromkeys(file.receivers, parts), keep=keep)
    fit = file.fit
    assert fit is not None
    analysis = JointPCA(
        components=None if isinstance(fit.components, str) else fit.components,
        solver=fit.solver,
        tol=fit.tol,
        fixed_iterations=fit.fixed_iterations,
        max_iterations=fit.max_iterations,
    )
    return JobSpec(data=data, analysis=analysis, receivers=file.receivers, keep=keep)


def disclosures(job: JobFile) -> list[AllowedOpening]:
    """Return everything that the job opens."""
    return openings(job_of(job))


def to_servers(job: JobFile) -> list[AllowedOpening]:
    """Return what the job opens to the four servers."""
    return [line for line in disclosures(job) if line.to == SERVERS]


def to_receiver(job: JobFile, receiver: str) -> list[AllowedOpening]:
    """Return what the job reveals to one receiver."""
    return [line for line in disclosures(job) if line.to == receiver]


def check_lists(job: JobFile, label: str) -> None:
    """Refuses a file whose lists are not those of its program."""
    try:
        found = disclosures(job)
    except SpecError as error:
        raise FileRefused(f"{label}: {error}.") from None
    opens = [line.what for line in found if line.to == SERVERS]
    reveals = {name: [line.what for line in found if line.to == name] for name in job.receivers}
    if list(job.opens) != opens:
        raise FileRefused(f"{label}: opens must be {opens} for these parameters; make the file with ppca job new.")
    if {name: list(lines) for name, lines in job.reveals.items()} != reveals:
        raise FileRefused(f"{label}: reveals must be {reveals} for these parameters; make the file with ppca job new.")


def scope(job: JobFile) -> str:
    """For approvers: of whose data, for how long, and how a kept model is used."""
    whose = f"{len(job.all_columns)} columns of {', '.join(job.owners)}"
    time = f"until {job.expires:%Y-%m-%d %H:%M} UTC; erased {job.erase_after} after its end"
    return "; ".join([whose, time, *use_in_words(job)])


SHOWN_NAMES = 10
"""Columns of another owner that are named to an approver; the rest is counted. Its own columns are all named."""

FEW_ROWS = 10
"""Fewest common rows that an approver is not warned about."""


def terms(job: JobFile, me: str) -> list[str]:
    """For one approver: which columns are used, what is computed from them, and from how many rows at least."""
    lines = []
    if isinstance(job.columns, dict):
        for owner in sorted(job.owners, key=lambda owner: owner != me):
            whose = "columns that you contribute" if owner == me else f"columns of {owner}"
            lines.append(f"{whose}: {_named(job.columns[owner], None if owner == me else SHOWN_NAMES)}")
    else:
        lines.append(f"columns that every owner contributes: {_named(job.columns, None)}")
    if job.fit is not None:
        lines += _fit_terms(job, len(job.all_columns))
    if job.align is not None:
        lines += _align_terms(job)
    if job.rows_at_least is not None:
        lines.append(f"minimum number of rows of all owners together: {job.rows_at_least:,}; servers refuse fewer")
    elif not job.by_columns:
        lines.append("no minimum number of rows")
    return lines


def _fit_terms(job: JobFile, width: int) -> list[str]:
    assert job.fit is not None
    count, missing = job.fit.components, job.fit.missing
    if isinstance(count, float):
        components = f"principal components: as many as explain {count:.4g} of the variance, at most {width}"
    elif count == "all" or count == width:
        components = f"principal components: all, at most {width}"
    else:
        components = f"principal components: {count} of at most {width}"
    scaled = (
        "yes, each column is divided by its standard deviation"
        if job.fit.standardize
        else "no, columns keep their units"
    )
    mean = "its owner's mean of the column" if job.by_columns else "the mean of the column over all owners"
    meaning = {
        "refuse": "a table with a missing value is refused",
        "drop": "rows with a missing value are left out",
        "mean": f"a missing value counts as {mean}",
    }
    return [components, f"standardized: {scaled}", f"missing values: {meaning[missing]}"]


def _align_terms(job: JobFile) -> list[str]:
    assert job.align is not None
    align = job.align
    ways = {
        "psi": "by id; only individuals whom all owners have are used",
        "aligned": "row by row; all owners must have the same individuals in the same order",
        "namespace": f"by id, a whole number below {align.namespace or 0:,}; only individuals whom all owners have are used",
    }
    case = "; upper and lower case of ids count as equal" if align.fold_case else ""
    return [f"rows are joined: {ways[align.way]}{case}", f"minimum number of common rows: {align.minimum:,}"]


def _named(columns: Iterable[str], most: int | None) -> str:
    """The names of columns in quotes, as an approver reads them. most: how many are named."""
    names = list(columns)
    shown = ", ".join(f'"{name}"' for name in names[:most])
    more = 0 if most is None else max(0, len(names) - most)
    return shown + (f" and {more:,} more" if more else "")


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
    few = []
    if job.align is not None and job.align.minimum < FEW_ROWS:
        few = [
            f"results of only {job.align.minimum} common rows are allowed: the covariance of so few people tells "
            f"their values. Ask for a minimum of {FEW_ROWS} or more"
        ]
    found = (
        "an owner with a column that marks one person, or with two columns that differ in one person, can compute that person's "
        "values in your columns from components, variances and means, if it sees them"
    )
    if share is not None:
        found += f"; columns with more than {share:.0%} of their sum of squares in one row are refused"
    return [
        *few,
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
            if smaller < larger and _one_apart(larger, smaller):
                whose = "you" if rest == {me} else next(iter(rest))
                found.append(
                    f"you approved {name!r} of {' + '.join(sorted(theirs))}; this is {' + '.join(sorted(mine))}: "
                    f"{' and '.join(sorted(readers))} can compute from the difference what {whose} alone contributed"
                )
        if mine & theirs and mine != theirs and not _one_apart(mine, theirs):
            found.append(
                f"you approved {name!r} of {' + '.join(sorted(theirs))}; this is {' + '.join(sorted(mine))}: results of several "
                f"such jobs together can tell {' and '.join(sorted(readers))} what single owners contributed"
            )
        if mine == theirs:
            found.append(
                f"you approved {name!r} of the same owners: if anybody's rows changed since, the difference of the two results "
                "tells about the rows that changed"
            )
    return found


def _one_apart(a: set[str], b: set[str]) -> bool:
    """Whether one set of owners is the other one and one owner more."""
    return len(a ^ b) == 1
