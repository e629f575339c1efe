"""Programs for owners of rows: their sums become one covariance.

survey    number of rows and scale exponents, opened
fit       moments of all owners -> components for the receiver; the model may stay shared under a name
"""

from __future__ import annotations

from typing import Any

from ..algorithms.covariance import central_moments, pooled, sums_over_owners
from ..protocol import Party, SecretArray, concatenate, stack, together
from .analysis import Choices, analyse
from .kept import SUMS, keep, recall


async def survey(party: Party, *inputs: SecretArray) -> dict[str, Any]:
    """Opens the joint number of rows and the largest scale exponents. Inputs: (count, exponents) of every owner."""
    counts, exponents = concatenate(inputs[0::2]), stack(inputs[1::2])
    with party.stage("survey"):
        party.progress("survey", 0.0)
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
            old, facts = recall(party, add_to + SUMS)
            packed, means = await pooled((old["packed"], old["mean"]), (packed, means), facts["rows"], rows)
            rows += facts["rows"]
            owners += facts["owners"]
        if chosen.keep is not None:
            keep(party, chosen.keep + SUMS, {"packed": packed, "mean": means}, {"rows": rows, "owners": owners})
    return await analyse(party, packed, means, rows, owners, chosen)


def _total(arrays: tuple[SecretArray, ...]) -> SecretArray:
    """Sum over owners; the type is each owner's (the parts are fractions of the whole)."""
    total = arrays[0]
    for array in arrays[1:]:
        total = total + array
    return total.retype(arrays[0].dtype)
