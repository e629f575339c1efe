"""What the four servers run for a joint PCA. Everything that is opened is opened here or in the algorithms below.

survey    number of rows and scale exponents, opened
fit       moments of all owners -> components for the receiver; the model may stay shared under a name
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..algorithms.covariance import (
    Normalised,
    central_moments,
    normalised_correlation,
    normalised_covariance,
    pooled,
    sums_over_owners,
)
from ..algorithms.decomposition import Spectrum, components_for, decompose
from ..protocol import Party, RingType, SecretArray, concatenate, stack, together
from . import inference


async def survey(party: Party, *inputs: SecretArray) -> dict[str, Any]:
    """Opens the joint number of rows and the largest scale exponents. Inputs: (count, exponents) of every owner."""
    counts, exponents = concatenate(inputs[0::2]), stack(inputs[1::2])
    with party.stage("survey"):
        total, largest = await sums_over_owners(counts, exponents)
        assert largest is not None
        rows, scale = await together(
            total.open(what="number of rows", why="divide by it"),
            largest.open(what="scale exponents", why="common power-of-two scale of the data"),
        )
    return {"rows": int(rows), "exponents": [int(e) for e in scale]}


async def count_rows(party: Party, *counts: SecretArray) -> int:
    """Opens the joint number of rows (scale exponents come from declared bounds)."""
    with party.stage("survey"):
        rows = await concatenate(counts).sum().open(what="number of rows", why="divide by it")
    return int(rows)


async def fit(
    party: Party,
    *inputs: SecretArray,
    rows: int,
    add_to: str | None = None,
    choices: dict[str, Any],
) -> dict[str, Any]:
    """Joint PCA from the moments of every owner: (moments, means) each. See `PCAModel` for what the receiver makes of it.

    rows: of these owners together. add_to: the name of kept sums of earlier rows, to which these are added.
    choices: see `Choices`.
    """
    owners, chosen = len(inputs) // 2, Choices(**choices)
    moments, means = _total(inputs[0::2]), _total(inputs[1::2])
    with party.stage("covariance"):
        party.progress("covariance", 0.0)
        packed = await central_moments(moments, means)
        if add_to is not None:
            old, facts = inference.recall(party, add_to + SUMS)
            packed, means = await pooled((old["packed"], old["mean"]), (packed, means), facts["rows"], rows)
            rows += facts["rows"]
            owners += facts["owners"]
        if chosen.keep is not None:
            inference.keep(
                party, chosen.keep + SUMS, {"packed": packed, "mean": means}, {"rows": rows, "owners": owners}
            )
    return await analyse(party, packed, means, rows, owners, chosen)


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
    receiver: str = "client"
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
            inference.keep(party, choices.keep, kept, {"features": d, "rows": rows, "components": count})
        party.progress("result", 1.0)

        def reveal(array: SecretArray, what: str) -> Any:
            return array.reveal(choices.receiver, what=what, why="agreed result")

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


SUMS = ".sums"
"""Kept sums stand beside a kept model under its name with this ending."""


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


def _total(arrays: tuple[SecretArray, ...]) -> SecretArray:
    """Sum over owners; the type is each owner's (the parts are fractions of the whole)."""
    total = arrays[0]
    for array in arrays[1:]:
        total = total + array
    return total.retype(arrays[0].dtype)
