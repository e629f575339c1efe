"""From a shared covariance to the result, for owners of rows and of columns: normalise, decompose, choose, reveal or keep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..algorithms.covariance import Normalised, normalised_correlation, normalised_covariance
from ..algorithms.decomposition import Spectrum, components_for, decompose
from ..protocol import Party, RingType, SecretArray
from .kept import keep


@dataclass
class Choices:
    """The public parameters of an analysis, as the estimator has them.

    keep: the name under which model and sums stay shared with the servers; reveal_model: whether the receiver gets the model.
    """

    components: int | float | None
    standardize: bool
    solver: str
    tol: float
    fixed_iterations: int | None = None
    max_iterations: int | None = None
    keep: str | None = None
    reveal_model: bool = True


async def analyse(
    party: Party, packed: SecretArray, means: SecretArray, rows: int, owners: int, choices: Choices, shrink: float = 1.0
) -> dict[str, Any]:
    """From covariance (packed, 112 fractional bits) and means to the result.

    shrink: a public factor that the covariance has too much squared, and the means are free of (see `algorithms.gram`).
    """
    d = len(means)
    with party.stage("covariance"):
        normalise = normalised_correlation if choices.standardize else normalised_covariance
        scaled: Normalised = await normalise(packed, d, owners)
    with party.stage("eigendecomposition"):
        identity = SecretArray.constant(party, np.eye(d))
        spectrum = await decompose(
            scaled.matrix,
            identity,
            solver=choices.solver,
            tol=choices.tol,
            max_iterations=choices.max_iterations,
            fixed_iterations=choices.fixed_iterations,
            top=choices.components if isinstance(choices.components, int) else None,
            progress=party.progress,
        )
    with party.stage("result"):
        most = min(d, rows)
        if choices.components is None:
            count = most
        elif isinstance(choices.components, float):
            count = min(most, await components_for(spectrum.values, choices.components))
        else:
            count = choices.components
        deviations = scaled.inverse_deviation
        if deviations is not None and shrink != 1.0:
            deviations = deviations[0] * shrink, deviations[1]
        if choices.keep is not None:
            kept = {"vectors": spectrum.vectors[:count], "values": spectrum.values[:count], "mean": means}
            if deviations is not None:
                kept["inverse"], kept["power"] = deviations
            keep(party, choices.keep, kept, {"features": d, "rows": rows, "components": count})
        party.progress("result", 1.0)

        def reveal(array: SecretArray, what: str) -> Any:
            return array.reveal(what=what, why="agreed result")

        result: dict[str, Any] = {"rows": rows, "shrink": shrink}
        if not choices.reveal_model:
            return result | facts_of(spectrum, scaled, count)
        result |= {
            "components": reveal(spectrum.vectors[:count], "components"),
            "values": reveal(spectrum.values[:count], "explained variance"),
            "total": reveal(spectrum.values.sum(), "total variance"),
            "factor": reveal(scaled.factor.retype(RingType(128, 100, 26)), "scale of the variance"),
            "mean": reveal(means, "means"),
        }
        if deviations is not None:
            inverse, power = deviations
            result["inverse"] = reveal(inverse, "deviations")
            result["power"] = reveal(power.retype(RingType(128, 60, 62)), "scale of the deviations")
    return result | facts_of(spectrum, scaled, count)


def facts_of(spectrum: Spectrum, scaled: Normalised, count: int) -> dict[str, Any]:
    """The public course of a decomposition."""
    return {
        "count": count,
        "shift": scaled.shift,
        "solver": spectrum.solver,
        "iterations": spectrum.iterations,
        "verified": spectrum.verified,
        "fell_back": spectrum.fell_back,
    }
