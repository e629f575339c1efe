"""`ppca fetch --scores`: the receiver's own rows in a report, projected on this machine. Nothing is sent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..member.fetching import Evidence


def scored_path(output: Path) -> Path:
    """Return the file of the report with scores: beside the folder, whose files anyone can compute again."""
    return output.with_name(f"{output.name}-scores.html")


def write_scored(evidence: Evidence, table: Path, path: Path) -> None:
    """Write the report of a fetched fit with the rows of a table, which stay here."""
    from ..owner.tables.opening import open_table
    from ..receiver.results import PCAResult
    from ..web.report import write_report
    from .fit import settings_of
    from .kept import scores_of

    found = evidence.result()
    if not isinstance(found, PCAResult) or not found.whole:
        raise ValueError(
            "--scores needs a fit whose components, variances and means were revealed to you. Fetch without --scores, "
            "or ask for a job that reveals them."
        )
    rows = open_table(table, columns=found.model.feature_names)
    write_report(
        path,
        found.model,
        found.account,
        title=f"{evidence.job.name}, with rows of {table.name}",
        settings=settings_of(found, True, servers=f"the four servers of {evidence.membership.name}"),
        owners=list(found.job.data.owners),
        by_columns=found.job.data.by_columns,
        scores=scores_of(found.model, [rows]),
    )
