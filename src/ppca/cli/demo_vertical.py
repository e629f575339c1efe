"""`ppca demo vertical`: three institutions hold different columns of the same patients and fit one PCA together.

scikit-learn's breast-cancer data have thirty columns: ten measurements, each as mean, error and worst value. Here a clinic has
the means, a laboratory the errors, a registry the worst values, each in an order of its own and without some of the patients.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.text import Text

from .demo import COMPONENTS, INK, JOINT, TOLERANCE, Finding, angle, draw, new_axes, plain_pca, ratio_error

OWNERS = ("Clinic", "Laboratory", "Registry")
COLOURS = ("#c8553d", "#588b8b", "#d4a017")
PRESENT = 0.96
"""The share of all patients whom an institution knows."""

TABLES, LOADINGS = "institutions", "loadings.png"
TITLE = "Three institutions, the same patients: breast-cancer data"


def institutions(seed: int = 0) -> tuple[dict[str, tuple[NDArray[np.intp], list[str]]], NDArray[np.float64]]:
    """For each institution the patients it knows, in its order, and its columns; and the whole table."""
    from sklearn.datasets import load_breast_cancer

    data, random = load_breast_cancer(), np.random.default_rng(seed)
    names = [str(name) for name in data.feature_names]
    parts = {}
    for number, owner in enumerate(OWNERS):
        known = random.permutation(len(data.data))[: round(PRESENT * len(data.data))]
        parts[owner] = known, names[10 * number : 10 * number + 10]
    return parts, data.data


def demo_vertical(output: Path, tls: bool) -> None:
    """Runs the demo and writes its result."""
    from ..estimator import PCA
    from .folder import check_free, whole_folder
    from .job import fit_vertically
    from .result import FILES, REPORT, print_account, print_openings, print_scree, write_result

    console, known = Console(), (*FILES, TABLES, LOADINGS)
    check_free(output, known, replace=True)
    parts, data = institutions()
    everybody = sorted(set.intersection(*[set(rows.tolist()) for rows, _ in parts.values()]))
    counts = ", ".join(f"{owner} ({len(rows)} patients)" for owner, (rows, _) in parts.items())
    console.print(
        f"Three institutions: {counts}. Each has ten columns of its own, and they may not show their tables or tell each other "
        "whom they know. They agree on a key that the servers never see, send keyed pseudonyms in place of patient numbers and "
        "shares in place of values; four servers match the pseudonyms and compute the joint PCA on the shares.",
        highlight=False,
    )
    with whole_folder(output, known, replace=True) as folder:
        files = [_save(folder / TABLES, i, owner, *part, data) for i, (owner, part) in enumerate(parts.items())]
        pca = PCA(COMPONENTS, standardize=True, partition="columns", id="patient")
        run = fit_vertically(pca, files, Console(stderr=True), labels=OWNERS, tls=tls)
        model = pca.model_
        truth = plain_pca("joined (scikit-learn)", data[everybody])
        joint = Finding("joint on shares", model.rows, model.components, model.explained_variance_ratio)
        settings = {
            "data": "scikit-learn's load_breast_cancer, split by columns, joined by patient number",
            "alignment": "private set intersection",
            "components": COMPONENTS,
            "standardize": "yes",
            "eigensolver": pca.solver,
            "tolerance": f"{pca.tol:g}",
            "servers": "four processes on one machine" + (", mutual TLS" if tls else ", plain TCP"),
        }
        write_result(folder, model, run, title=TITLE, settings=settings, owners=list(OWNERS))
        _draw(folder / LOADINGS, truth, joint)
    print_scree(console, model)
    worst = ratio_error(joint, truth)
    console.print(
        f"{model.rows} patients are known to all three, as in the plain join of the tables ({len(everybody)}). Compared with "
        f"scikit-learn on that join: largest difference of an explained-variance ratio {worst:.1e}, largest angle between the "
        f"spaces of the first {COMPONENTS} components {angle(joint, truth, COMPONENTS):.0e}°.",
        highlight=False,
    )
    print_openings(console, model)
    console.print(
        "No institution learned whom another one knows, and nobody saw a value of another. The servers learned how many patients "
        "each one has and which pseudonyms match; they cannot tell who is behind a pseudonym.",
        highlight=False,
    )
    print_account(console, model, run)
    console.print(Text(f"written: {output} (open {output / REPORT}; figure {LOADINGS})"), soft_wrap=True)
    again = f"ppca fit --vertical --id patient {output / TABLES}/*.csv -k {COMPONENTS} --standardize -o result"
    console.print(Text(f"the same from files: {again}"), soft_wrap=True)
    if model.rows != len(everybody) or not worst <= TOLERANCE:
        raise ValueError(f"the joint result differs from scikit-learn's by {worst:.1e}, more than {TOLERANCE:g}.")


def _save(folder: Path, number: int, owner: str, rows: NDArray[np.intp], names: list[str], data: Any) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{owner.lower()}.csv"
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["patient", *names])
        values = data[rows, 10 * number : 10 * number + 10].tolist()
        table.writerows([f"P{row:04d}", *line] for row, line in zip(rows.tolist(), values, strict=True))
    return path


def _draw(path: Path, truth: Finding, joint: Finding) -> None:
    """Explained variance, and who contributes what to the first two components."""
    figure, (left, right) = new_axes(2, 11, 4.4)
    numbers = range(1, COMPONENTS + 1)
    left.plot(numbers, truth.ratios, color=INK, linewidth=7, alpha=0.22, label=truth.name)
    left.plot(numbers, joint.ratios, "o-", color=JOINT, markersize=6, label=joint.name)
    left.set(xlabel="component", title="Explained variance ratio", xticks=numbers)
    left.legend(frameon=False)
    for number, (owner, colour) in enumerate(zip(OWNERS, COLOURS, strict=True)):
        at = slice(10 * number, 10 * number + 10)
        right.scatter(*joint.components[:2, at], color=colour, s=36, label=owner, zorder=2)
    right.scatter(*truth.components[:2], s=110, facecolors="none", edgecolors=INK, alpha=0.4, label=truth.name)
    right.set(xlabel="component 1", ylabel="component 2", title="Loadings of the thirty columns")
    right.legend(frameon=False)
    draw(figure, path)
