"""Explain a fitted model in words: a summary, cautions, and the numbers of its pictures."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..html.formats import counted, percent
from ..html.labels import labels
from .model import PCAModel

Floats = NDArray[np.float64]

DRIVERS = 3
"""Columns that are named as driving a component."""

STRONG = 0.5
"""Part of a component's largest loading from which on a column is said to drive it."""

FEW_ROWS = 10
"""Rows of an owner, on average, below which a result tells about single people."""

ROWS_PER_COLUMN = 2
"""Rows for each column below which components change much from one sample to another."""


def strongest(component: Floats, most: int) -> list[int]:
    """The columns of largest magnitude in a component, the largest first."""
    return [int(j) for j in np.argsort(-np.abs(component), kind="stable")[:most]]


def correlations(model: PCAModel) -> Floats | None:
    """Correlation of every component (row) with every column. None if the deviations of columns do not follow from the
    model."""
    spread = model.components * np.sqrt(model.explained_variance)[:, None]
    if model.scale is not None:
        deviation = np.full(spread.shape[1], np.sqrt(model.rows / (model.rows - 1)))
    elif len(model.components) >= min(model.components.shape[1], model.rows - 1):
        deviation = np.sqrt(np.sum(spread**2, axis=0))
    else:
        return None
    found = np.divide(spread, deviation, out=np.zeros_like(spread), where=deviation > 0)
    return np.asarray(np.clip(found, -1.0, 1.0))


def arrows(model: PCAModel, first: int, second: int) -> tuple[Floats, bool]:
    """A point for every column in the plane of two components (counted from 0), and whether these are correlations.

    Else they are loadings times deviations of components, in units of the longest arrow.
    """
    found = correlations(model)
    if found is not None:
        return found[[first, second]].T, True
    points = (model.components * np.sqrt(model.explained_variance)[:, None])[[first, second]].T
    longest = float(np.hypot(points[:, 0], points[:, 1]).max(initial=0.0))
    return points / (longest or 1.0), False


def summary(model: PCAModel, owners: int | None = None, *, by_columns: bool = False) -> str:
    """One paragraph: what was analysed, how much the first components explain, and which columns drive them."""
    kept, width = model.components.shape
    what = "standardised columns (their correlation)" if model.scale is not None else "columns in their own units"
    whose = ""
    if owners is not None:
        whose = f" of {counted(owners, 'owner')}"
        whose += (", joined row by row" if by_columns else " together") if owners > 1 else ""
    text = f"This PCA is of {counted(model.rows, 'row')} and {counted(width, 'column')}{whose}, with {what}. "
    ratios = model.explained_variance_ratio
    if not model.varies.any():
        return text + "The columns do not vary, so there is nothing to explain."
    first = min(3, kept)
    if first == 1:
        text += f"The first component explains {percent(float(ratios[0]))} of the variance"
    else:
        each = ", ".join(percent(float(ratio)) for ratio in ratios[:first])
        both = "two" if first == 2 else "three"
        text += f"The first {both} components explain {percent(float(ratios[:first].sum()))} of the variance ({each})"
    if kept > first:
        text += f"; all {kept} that were computed explain {percent(float(ratios.sum()))}"
    return text + ". " + " ".join(_driven(model, i) for i in range(min(2, kept)) if model.resolved[i])


def _driven(model: PCAModel, index: int) -> str:
    """Describe in one sentence which columns drive a component."""
    component, names = model.components[index], labels(model.column_names)
    largest = float(np.abs(component).max())
    chosen = [j for j in strongest(component, DRIVERS) if abs(component[j]) >= STRONG * largest]
    up = [names[j] for j in chosen if component[j] > 0]
    down = [names[j] for j in chosen if component[j] < 0]
    parts = [listed(up)] if up else []
    parts += [f"{'against ' if up else ''}{listed(down)}"] if down else []
    others = int(np.sum(np.abs(component) >= STRONG * largest)) - len(chosen)
    more = f" (and {counted(others, 'other column')} of similar weight)" if others else ""
    return f"Component {index + 1} is driven by {' '.join(parts)}{more}."


def cautions(model: PCAModel, owners: int | None = None, *, by_columns: bool = False) -> list[tuple[str, str]]:
    """Return cautions for readers of the result, each with a heading and sentences."""
    found = []
    if not model.verified:
        found.append(
            (
                "The check on shares failed.",
                "The decomposition is not as accurate as the tolerance promises. Fit again with more iterations or "
                "a larger tolerance before using it.",
            )
        )
    if (notice := model.scale_notice()) is not None:
        found.append(("Scales.", f"{notice[0].upper()}{notice[1:]} (ppca fit --standardize, PCA(standardize=True))."))
    width = model.components.shape[1]
    if owners and not by_columns and model.rows < FEW_ROWS * owners:
        text = f"{counted(owners, 'owner')} have {counted(model.rows, 'row')} together. "
        found.append(("Small groups.", text + "A result of few rows can reveal single people."))
    if model.rows < ROWS_PER_COLUMN * width:
        text = f"There are {counted(model.rows, 'row')} for {counted(width, 'column')}. "
        found.append(("Few rows.", text + "Components of another sample can look different."))
    if remarks := model.remarks():
        found.append(("Components that are not determined.", " ".join(remarks)))
    return found


def listed(words: list[str]) -> str:
    """a, b and c."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
