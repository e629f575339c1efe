"""A fetched result on disk, as a page shows it: checked, with the charts of the report. Keys are never part of a
page."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from markupsafe import Markup

from ...federation.proposal import ProposedJob
from ...member.fetching import EVIDENCE
from ...receiver import PCAModel
from ...receiver.interpret import cautions, summary
from ...receiver.model import MODEL_FILE
from ...receiver.regression import REGRESSION_FILE, RegressionModel
from ..report import charts
from ..report.regression import summary as regression_summary

REPORT = "report.html"
Check = Callable[[Path, ProposedJob], list[str]]


@dataclass(frozen=True)
class Result:
    """checked: what was found right. fault: what was found wrong; nothing else is shown then."""

    folder: Path
    files: dict[str, int] = field(default_factory=dict)
    checked: list[str] = field(default_factory=list)
    fault: str = ""
    summary: str = ""
    cautions: list[tuple[str, str]] = field(default_factory=list)
    charts: dict[str, Any] = field(default_factory=dict)


class Results:
    """The results of a member, one folder for each job. check: that a folder holds the result of a job, as `ppca
    verify` does."""

    def __init__(self, folder: Path, check: Check) -> None:
        self.folder = folder
        self._check = check
        self._seen: dict[Path, tuple[Any, Result]] = {}

    def place(self, job: ProposedJob) -> Path:
        name = re.sub(r"[^\w-]+", "-", job.name).strip("-")[:40]
        return self.folder / f"{name or 'result'}-{job.id[:8]}"

    def fetched(self, job: ProposedJob) -> bool:
        return (self.place(job) / EVIDENCE).is_dir()

    def of(self, job: ProposedJob) -> Result | None:
        """The result of a job, if it was fetched; checked again whenever a file of it has changed."""
        if not self.fetched(job):
            return None
        place = self.place(job)
        stamp = sorted((str(p), p.stat().st_mtime_ns, p.stat().st_size) for p in place.rglob("*") if p.is_file())
        if place not in self._seen or self._seen[place][0] != stamp:
            self._seen[place] = (stamp, self._load(place, job))
        return self._seen[place][1]

    def _load(self, place: Path, job: ProposedJob) -> Result:
        try:
            checked = self._check(place, job)
            files = {path.name: path.stat().st_size for path in sorted(place.iterdir()) if path.is_file()}
            if REGRESSION_FILE in files:
                fit = RegressionModel.load(place / REGRESSION_FILE)
                plot = {"forest": Markup(charts.forest(fit))}  # noqa: S704 - made here, with names escaped there
                notes = [("", text) for text in fit.remarks()]
                return Result(place, files, checked, summary=regression_summary(fit), cautions=notes, charts=plot)
            if MODEL_FILE not in files:
                return Result(place, files, checked)
            model = PCAModel.load(place / MODEL_FILE)
            owners, by_columns = len(job.proposal.owners), job.spec.data.by_columns
            words = summary(model, owners, by_columns=by_columns)
            found = cautions(model, owners, by_columns=by_columns)
            return Result(place, files, checked, summary=words, cautions=found, charts=_charts(model))
        except (ValueError, OSError) as error:
            return Result(place, fault=str(error))


def _charts(model: PCAModel) -> dict[str, Any]:
    """SVG made here, with names escaped there."""
    found = {
        "scree": charts.scree(model.explained_variance_ratio),
        "errors": charts.errors(model),
        "loadings": charts.loadings(model.components, model.column_names),
        "key": charts.colour_key(model.components),
    }
    if len(model.components) > 1:
        found["circle"] = charts.circle(model)
    return {name: Markup(text) for name, text in found.items()}  # noqa: S704
