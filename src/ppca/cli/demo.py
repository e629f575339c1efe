"""`ppca demo`: three hospitals share scikit-learn's breast-cancer data by rows and fit one PCA together.

The data are public, so the demo can show beside the joint result what scikit-learn finds in the pooled table, and what each
hospital would find alone. One client plays all three hospitals; the four server processes see shares only.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .complaint import complaints

if TYPE_CHECKING:
    from ..receiver import PCAModel

Floats = NDArray[np.float64]

PATIENTS = {"North": 100, "Harbour": 169, "Hill": 300}
COMPONENTS = 5
TOLERANCE = 1e-6
"""Largest accepted difference of an explained-variance ratio between the joint and the pooled result."""

HOSPITALS, COMPARISON, PROJECTION = "hospitals", "comparison.png", "projection.png"
TITLE = "Three hospitals, one PCA: breast-cancer data"


@dataclass(frozen=True)
class Finding:
    """What somebody finds in the standardised data: components in rows, and the share of variance of each."""

    name: str
    rows: int
    components: Floats
    ratios: Floats


def hospitals(seed: int = 0) -> tuple[dict[str, Floats], list[str]]:
    """The table of each hospital, and the names of the columns.

    Patients with small tumours tend to go to North and those with large ones to Hill, so that no hospital's own patients
    are like all patients.
    """
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    size = data.data[:, 0]
    score = (size - size.mean()) / size.std() + np.random.default_rng(seed).normal(0, 0.5, len(size))
    order = np.argsort(score, kind="stable")
    ends = np.cumsum(list(PATIENTS.values()))
    parts = np.split(data.data[order], ends[:-1])
    return dict(zip(PATIENTS, parts, strict=True)), [str(name) for name in data.feature_names]


def plain_pca(name: str, table: Floats) -> Finding:
    """scikit-learn's answer on a table in the clear."""
    from sklearn.decomposition import PCA
    from sklearn.preprocessing import StandardScaler

    found = PCA(COMPONENTS).fit(StandardScaler().fit_transform(table))
    return Finding(name, len(table), found.components_, found.explained_variance_ratio_)


def ratio_error(finding: Finding, truth: Finding) -> float:
    return float(np.abs(finding.ratios - truth.ratios).max())


def angle(finding: Finding, truth: Finding, count: int) -> float:
    """Largest angle between the spaces of the first `count` components, in degrees."""
    ours, theirs = finding.components[:count], truth.components[:count]
    outside = ours - ours @ theirs.T @ theirs  # its norm is the sine, exact for small angles too
    return float(np.degrees(np.arcsin(min(1.0, float(np.linalg.norm(outside, 2))))))


def demo(
    data: Annotated[str, typer.Argument(help="horizontal: owners of rows; vertical: owners of columns")] = "horizontal",
    output: Annotated[Path, typer.Option("--output", "-o", help="folder for figures and report")] = Path("demo-result"),
    tls: Annotated[bool, typer.Option("--tls", help="mutual TLS between the servers")] = False,
) -> None:
    """Joint PCA of three hospitals on four local servers, beside each hospital alone and scikit-learn on pooled data."""
    with complaints():
        if data not in ("horizontal", "vertical"):
            raise ValueError(f"there is no demo {data!r}: choose 'horizontal' or 'vertical'.")
        if data == "vertical":
            from .demo_vertical import demo_vertical

            demo_vertical(output, tls)
            return
        from ..estimator import PCA
        from ..owner import open_source
        from .folder import check_free, whole_folder
        from .job import fit_jointly
        from .result import FILES, REPORT, print_account, print_openings, print_scree, write_result

        console = Console()
        known = (*FILES, HOSPITALS, COMPARISON, PROJECTION)
        check_free(output, known, replace=True)
        tables, names = hospitals()
        patients = ", ".join(f"{name} ({len(table)} patients)" for name, table in tables.items())
        console.print(
            f"Three hospitals: {patients}. They measured the same {len(names)} columns and may not show their tables. "
            "Each sends shares of its sums to four servers, which compute the joint PCA on the shares.",
            highlight=False,
        )
        with whole_folder(output, known, replace=True) as folder:
            files = [_save(folder / HOSPITALS / f"{name.lower()}.csv", table, names) for name, table in tables.items()]
            pca = PCA(COMPONENTS, standardize=True)
            run = fit_jointly(pca, [open_source(file) for file in files], Console(stderr=True), tls=tls)
            model = pca.model_
            pooled = np.concatenate(list(tables.values()))
            truth = plain_pca("pooled (scikit-learn)", pooled)
            joint = Finding("joint on shares", model.rows, model.components, model.explained_variance_ratio)
            alone = [plain_pca(f"{name} alone", table) for name, table in tables.items()]
            settings = {
                "data": "scikit-learn's load_breast_cancer, 569 patients, split by rows",
                "components": COMPONENTS,
                "standardize": "yes",
                "eigensolver": pca.solver,
                "tolerance": f"{pca.tol:g}",
                "servers": "four processes on one machine" + (", mutual TLS" if tls else ", plain TCP"),
            }
            write_result(folder, model, run, title=TITLE, settings=settings, owners=list(tables))
            draw_comparison(folder / COMPARISON, truth, joint, alone)
            draw_projection(folder / PROJECTION, tables, model, truth, alone[0])
        print_scree(console, model)
        _print_comparison(console, truth, [joint, *alone])
        print_openings(console, model)
        console.print(
            "Nobody saw a patient's row, a hospital's number of patients, its means or its covariance, or the joint "
            "covariance matrix. The table above is everything that left the sharing. A server alone sees random numbers.",
            highlight=False,
        )
        print_account(console, model, run)
        written = f"written: {output} (open {output / REPORT}; figures {COMPARISON}, {PROJECTION})"
        console.print(Text(written), soft_wrap=True)
        again = f"ppca fit {output / HOSPITALS}/*.csv -k {COMPONENTS} --standardize -o result"
        console.print(Text(f"the same from files: {again}"), soft_wrap=True)
        worst = ratio_error(joint, truth)
        if not worst <= TOLERANCE:
            raise ValueError(f"the joint result differs from scikit-learn's by {worst:.1e}, more than {TOLERANCE:g}.")


def _save(path: Path, table: Floats, names: list[str]) -> Path:
    path.parent.mkdir(exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([names, *table.tolist()])
    return path


def _print_comparison(console: Console, truth: Finding, findings: list[Finding]) -> None:
    title = "Compared with scikit-learn on the pooled table"
    table = Table(title=title, title_justify="left")
    table.add_column("who")
    for heading in ("rows", "ratio error", "angle 1", "angle 1-2", f"angle 1-{COMPONENTS}"):
        table.add_column(heading, justify="right")
    for finding in findings:
        angles = [_degrees(angle(finding, truth, count)) for count in (1, 2, COMPONENTS)]
        table.add_row(finding.name, str(finding.rows), f"{ratio_error(finding, truth):.1e}", *angles)
    console.print(table)
    console.print(
        "ratio error: largest difference of an explained-variance ratio; angle 1-2: between the planes of components 1 and 2",
        style="dim",
        soft_wrap=True,
    )


def _degrees(value: float) -> str:
    return f"{value:.1f}°" if value >= 0.05 else f"{value:.0e}°"


# -- figures -----------------------------------------------------------------------------------------------------------

COLOURS = {"North": "#c8553d", "Harbour": "#588b8b", "Hill": "#d4a017"}
INK, JOINT = "#1c2733", "#1f5f8b"


def new_axes(columns: int, width: float, height: float, **options: Any) -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, columns, figsize=(width, height), layout="constrained", **options)
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(True, alpha=0.2)
    return figure, axes


def draw(figure: Any, path: Path) -> None:
    import matplotlib.pyplot as plt

    figure.savefig(path, dpi=140)
    plt.close(figure)


def draw_comparison(path: Path, truth: Finding, joint: Finding, alone: list[Finding]) -> None:
    """Explained variance of everybody, and how far their spaces are from the pooled ones."""
    figure, (left, right) = new_axes(2, 11, 4.4)
    numbers = range(1, COMPONENTS + 1)
    left.plot(numbers, truth.ratios, color=INK, linewidth=7, alpha=0.22, label=truth.name)
    right.set_yscale("log")
    for finding, colour in zip(alone, COLOURS.values(), strict=True):
        left.plot(numbers, finding.ratios, "o--", color=colour, markersize=5, label=finding.name)
        right.plot(numbers, [angle(finding, truth, n) for n in numbers], "o--", color=colour, markersize=5)
    left.plot(numbers, joint.ratios, "o-", color=JOINT, markersize=6, label=joint.name)
    right.plot(numbers, [max(angle(joint, truth, n), 1e-9) for n in numbers], "o-", color=JOINT, markersize=6)
    left.set(xlabel="component", title="Explained variance ratio", xticks=numbers)
    right.set(xlabel="first so many components", title="Angle to the pooled components (degrees)", xticks=numbers)
    left.legend(frameon=False)
    draw(figure, path)


def draw_projection(path: Path, tables: dict[str, Floats], model: PCAModel, truth: Finding, alone: Finding) -> None:
    """All patients on the first two components: pooled, joint, and those of one hospital alone."""
    assert model.scale is not None
    figure, axes = new_axes(3, 12, 4.2, sharex=True, sharey=True)
    joint = "joint on shares"
    for axis, (title, components) in zip(
        axes,
        [(truth.name, truth.components), (joint, model.components), (f"components of {alone.name}", alone.components)],
        strict=True,
    ):
        for name, table in tables.items():
            points = (table - model.mean) / model.scale @ components[:2].T
            axis.scatter(*points.T, s=9, alpha=0.6, color=COLOURS[name], label=name, linewidths=0)
        axis.set(title=title, xlabel="component 1")
    axes[0].set_ylabel("component 2")
    axes[0].legend(frameon=False, markerscale=2)
    draw(figure, path)
