"""Warnings for approvers about what this job and earlier jobs of overlapping owners reveal together."""

from __future__ import annotations

from collections.abc import Iterable

from ..jobs.infer import UseModel
from ..jobs.inference import FLAGS
from ..jobs.spec import JobSpec


def together(job: JobSpec, earlier: Iterable[tuple[str, JobSpec]], me: str) -> list[str]:
    """Return what this job and earlier ones on overlapping columns reveal together that none reveals alone."""
    found = []
    mine, names = set(job.data.owners), set(job.data.column_names)
    for name, other in earlier:
        if (warning := _same_model(job, name, other)) is not None:
            found.append(warning)
        if job.data.uses_model or other.data.uses_model or not names & set(other.data.column_names):
            continue
        readers = set(job.receivers) & set(other.receivers) or {"anyone with both results"}
        theirs = set(other.data.owners)
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
                f"you approved {name!r} of {' + '.join(sorted(theirs))}; this is "
                f"{' + '.join(sorted(mine))}: results of several such jobs together can tell "
                f"{' and '.join(sorted(readers))} what single owners contributed"
            )
        if mine == theirs:
            found.append(
                f"you approved {name!r} of the same owners: if any rows changed since, the difference of the two "
                "results tells about the rows that changed"
            )
    return found


def _one_apart(a: set[str], b: set[str]) -> bool:
    """Return whether one set of owners is the other plus exactly one owner."""
    return len(a ^ b) == 1


def _same_model(job: JobSpec, name: str, other: JobSpec) -> str | None:
    """Return a warning if both jobs use the same kept model."""
    this, that = job.analysis, other.analysis
    if not (isinstance(this, UseModel) and isinstance(that, UseModel) and this.model == that.model):
        return None
    readers = set(job.receivers) & set(other.receivers) or {"anyone with both results"}
    used = f"you approved {name!r}, which uses the same model"
    if FLAGS in _parts(job) | _parts(other):
        return (
            f"{used}: if rows are the same, flags with several thresholds or contaminations tell "
            f"{' and '.join(sorted(readers))} scores of rows. Each further use makes them more exact"
        )
    return (
        f"{used}: if rows are the same or nearly so, {' and '.join(sorted(readers))} can learn from both results what "
        "neither tells alone"
    )


def _parts(job: JobSpec) -> set[str]:
    """Return the parts of the result that the receivers of a job get."""
    return {part for parts in job.receivers.values() for part in parts}
