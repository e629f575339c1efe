"""Scenarios of `ppca demo`: partitions of scikit-learn's breast-cancer data, comparisons and plots."""

from __future__ import annotations

import csv
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from ..estimator.partition import Columns
    from ..receiver import PCAModel

Floats = NDArray[np.float64]

COMPONENTS = 5
PATIENTS = {"North": 100, "Harbour": 169, "Hill": 300}
INSTITUTIONS = ("Clinic", "Laboratory", "Registry")
PRESENT = 0.96
"""The part of all patients whom an institution knows."""

COLOURS = ("#c8553d", "#588b8b", "#d4a017")
INK, JOINT = "#1c2733", "#1f5f8b"


@dataclass(frozen=True)
class ModelResult:
    """Result of a PCA of standardised data: components in rows, and the fraction of variance of each."""

    name: str
    rows: int
    components: Floats
    ratios: Floats


def plain_pca(name: str, table: Floats) -> ModelResult:
    """scikit-learn's answer on a table in the clear."""
    from sklearn.decomposition import PCA
    from sklearn.preprocessing import StandardScaler

    found = PCA(COMPONENTS).fit(StandardScaler().fit_transform(table))
    return ModelResult(name, len(table), found.components_, found.explained_variance_ratio_)


def ratio_error(result: ModelResult, truth: ModelResult) -> float:
    return float(np.abs(result.ratios - truth.ratios).max())


def angle(result: ModelResult, truth: ModelResult, count: int) -> float:
    """Largest angle between the spaces of the first `count` components, in degrees."""
    ours, theirs = result.components[:count], truth.components[:count]
    outside = ours - ours @ theirs.T @ theirs  # its norm is the sine, exact for small angles too
    return float(np.degrees(np.arcsin(min(1.0, float(np.linalg.norm(outside, 2))))))


class Walkthrough(ABC):
    """One demo. `options`: what `ppca fit` needs besides; `folder`, `figures`: what it writes beside the files of a
    result."""

    title: str
    story: str
    moral: str
    data: str
    folder: str
    figures: tuple[str, ...]
    options: str = ""
    partition: str | Columns = "rows"
    truth: ModelResult

    @abstractmethod
    def write(self, folder: Path) -> dict[str, Path]:
        """Write the owners' tables; a file for every owner's name."""

    @abstractmethod
    def compare(self, console: Console, joint: ModelResult) -> None:
        """Print the joint result beside the truth."""

    @abstractmethod
    def draw(self, folder: Path, model: PCAModel, joint: ModelResult) -> None:
        """Draw the figures."""


def _load() -> tuple[Floats, list[str]]:
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    return data.data, [str(name) for name in data.feature_names]


def _save(path: Path, heads: Iterable[str], rows: Iterable[Iterable[Any]]) -> Path:
    path.parent.mkdir(exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([heads, *rows])
    return path


# -- row owners --------------------------------------------------------------------------------------------------------


class Hospitals(Walkthrough):
    """Patients with small tumours tend to go to North, those with large ones to Hill: no hospital's own are like
    all."""

    title = "Three hospitals, one PCA: breast-cancer data"
    data = "scikit-learn's load_breast_cancer, 569 patients, split by rows"
    folder, figures = "hospitals", ("comparison.png", "projection.png")
    moral = (
        "No one saw a patient's row, a hospital's number of patients, its means or its covariance, or the joint "
        "covariance matrix. The table above is everything that left the sharing. A server alone sees random numbers."
    )

    def __init__(self, seed: int = 0) -> None:
        pooled, self.names = _load()
        size = pooled[:, 0]
        score = (size - size.mean()) / size.std() + np.random.default_rng(seed).normal(0, 0.5, len(size))
        parts = np.split(pooled[np.argsort(score, kind="stable")], np.cumsum(list(PATIENTS.values()))[:-1])
        self.tables = dict(zip(PATIENTS, parts, strict=True))
        self.truth = plain_pca("pooled (scikit-learn)", np.concatenate(parts))
        self.alone = [plain_pca(f"{name} alone", table) for name, table in self.tables.items()]
        patients = ", ".join(f"{name} ({len(table)} patients)" for name, table in self.tables.items())
        self.story = (
            f"Three hospitals: {patients}. They measured the same {len(self.names)} columns and may not show their "
            "tables. Each sends shares of its sums to four servers, which compute the joint PCA on the shares."
        )

    def write(self, folder: Path) -> dict[str, Path]:
        return {
            name: _save(folder / f"{name.lower()}.csv", self.names, table.tolist())
            for name, table in self.tables.items()
        }

    def compare(self, console: Console, joint: ModelResult) -> None:
        table = Table(title="Compared with scikit-learn on the pooled table", title_justify="left")
        table.add_column("owner")
        for heading in ("rows", "ratio error", "angle 1", "angle 1-2", f"angle 1-{COMPONENTS}"):
            table.add_column(heading, justify="right")
        for result in (joint, *self.alone):
            angles = [_degrees(angle(result, self.truth, count)) for count in (1, 2, COMPONENTS)]
            table.add_row(result.name, str(result.rows), f"{ratio_error(result, self.truth):.1e}", *angles)
        console.print(table)
        console.print(
            "ratio error: largest difference of an explained-variance ratio; angle 1-2: between the planes of "
            "components 1 and 2",
            style="dim",
            soft_wrap=True,
        )

    def draw(self, folder: Path, model: PCAModel, joint: ModelResult) -> None:
        self._draw_comparison(folder / self.figures[0], joint)
        self._draw_projection(folder / self.figures[1], model)

    def _draw_comparison(self, path: Path, joint: ModelResult) -> None:
        """Plot the explained variance of each owner, and the angles between its components and the pooled ones."""
        figure, (left, right) = _axes(2, 11, 4.4)
        numbers = range(1, COMPONENTS + 1)
        _draw_ratios(left, self.truth, joint)
        right.set_yscale("log")
        for result, colour in zip(self.alone, COLOURS, strict=True):
            left.plot(numbers, result.ratios, "o--", color=colour, markersize=5, label=result.name)
            right.plot(numbers, [angle(result, self.truth, n) for n in numbers], "o--", color=colour, markersize=5)
        right.plot(numbers, [max(angle(joint, self.truth, n), 1e-9) for n in numbers], "o-", color=JOINT, markersize=6)
        right.set(xlabel="number of components", title="Angle to the pooled components (degrees)", xticks=numbers)
        left.legend(frameon=False)
        _save_figure(figure, path)

    def _draw_projection(self, path: Path, model: PCAModel) -> None:
        """All patients on the first two components: pooled, joint, and those of one hospital alone."""
        assert model.scale is not None
        figure, axes = _axes(3, 12, 4.2, sharex=True, sharey=True)
        alone = self.alone[0]
        shown = [
            (self.truth.name, self.truth.components),
            ("joint on shares", model.components),
            (f"components of {alone.name}", alone.components),
        ]
        for axis, (title, components) in zip(axes, shown, strict=True):
            for (name, table), colour in zip(self.tables.items(), COLOURS, strict=True):
                points = (table - model.mean) / model.scale @ components[:2].T
                axis.scatter(*points.T, s=9, alpha=0.6, color=colour, label=name, linewidths=0)
            axis.set(title=title, xlabel="component 1")
        axes[0].set_ylabel("component 2")
        axes[0].legend(frameon=False, markerscale=2)
        _save_figure(figure, path)


# -- column owners -----------------------------------------------------------------------------------------------------


class Institutions(Walkthrough):
    """Column owners: of ten measurements a clinic has the means, a laboratory the errors, a registry the worst values.

    Each lists its patients in an order of its own, and does not know some of them.
    """

    title = "Three institutions, the same patients: breast-cancer data"
    data = "scikit-learn's load_breast_cancer, split by columns, joined by patient number"
    folder, figures, options = "institutions", ("loadings.png",), "--vertical --id patient "
    moral = (
        "No institution learned the patients or values of another one. The servers learned how many patients "
        "each one has and which pseudonyms match; they cannot identify the patient of a pseudonym."
    )

    def __init__(self, seed: int = 0) -> None:
        from ..estimator.partition import Columns

        self.partition = Columns(id="patient")
        self.table, self.names = _load()
        random, count = np.random.default_rng(seed), len(self.table)
        self.known = {owner: random.permutation(count)[: round(PRESENT * count)] for owner in INSTITUTIONS}
        everybody = sorted(set.intersection(*[set(rows.tolist()) for rows in self.known.values()]))
        self.truth = plain_pca("joined (scikit-learn)", self.table[everybody])
        counts = ", ".join(f"{owner} ({len(rows)} patients)" for owner, rows in self.known.items())
        self.story = (
            f"Three institutions: {counts}. Each has ten columns of its own, and they may not show their tables or "
            "tell each other whom they know. They agree on a key that the servers never see, send keyed pseudonyms "
            "instead of patient numbers and shares instead of values; four servers match the pseudonyms and compute "
            "the joint PCA on the shares."
        )

    def write(self, folder: Path) -> dict[str, Path]:
        files = {}
        for number, (owner, rows) in enumerate(self.known.items()):
            at = slice(10 * number, 10 * number + 10)
            lines = zip(rows.tolist(), self.table[rows, at].tolist(), strict=True)
            path = folder / f"{owner.lower()}.csv"
            files[owner] = _save(path, ["patient", *self.names[at]], ([f"P{row:04d}", *line] for row, line in lines))
        return files

    def compare(self, console: Console, joint: ModelResult) -> None:
        console.print(
            f"{joint.rows} patients are known to all three, as in the plain join of the tables ({self.truth.rows}). "
            "Compared with scikit-learn on that join: largest difference of an explained-variance ratio "
            f"{ratio_error(joint, self.truth):.1e}, largest angle between the spaces of the first {COMPONENTS} "
            f"components {angle(joint, self.truth, COMPONENTS):.0e}°.",
            highlight=False,
        )

    def draw(self, folder: Path, model: PCAModel, joint: ModelResult) -> None:
        """Plot the explained variance, and the share of each owner's columns in the first two components."""
        figure, (left, right) = _axes(2, 11, 4.4)
        _draw_ratios(left, self.truth, joint)
        left.legend(frameon=False)
        for number, (owner, colour) in enumerate(zip(INSTITUTIONS, COLOURS, strict=True)):
            at = slice(10 * number, 10 * number + 10)
            right.scatter(*joint.components[:2, at], color=colour, s=36, label=owner, zorder=2)
        right.scatter(
            *self.truth.components[:2], s=110, facecolors="none", edgecolors=INK, alpha=0.4, label=self.truth.name
        )
        right.set(xlabel="component 1", ylabel="component 2", title="Loadings of the thirty columns")
        right.legend(frameon=False)
        _save_figure(figure, folder / self.figures[0])


def _degrees(value: float) -> str:
    return f"{value:.1f}°" if value >= 0.05 else f"{value:.0e}°"


def _axes(columns: int, width: float, height: float, **options: Any) -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, columns, figsize=(width, height), layout="constrained", **options)
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(True, alpha=0.2)
    return figure, axes


def _draw_ratios(axis: Any, truth: ModelResult, joint: ModelResult) -> None:
    """Explained variance of the joint result over the truth."""
    numbers = range(1, COMPONENTS + 1)
    axis.plot(numbers, truth.ratios, color=INK, linewidth=7, alpha=0.22, label=truth.name)
    axis.plot(numbers, joint.ratios, "o-", color=JOINT, markersize=6, label=joint.name, zorder=3)
    axis.set(xlabel="component", title="Explained variance ratio", xticks=numbers)


def _save_figure(figure: Any, path: Path) -> None:
    import matplotlib.pyplot as plt

    figure.savefig(path, dpi=140)
    plt.close(figure)
