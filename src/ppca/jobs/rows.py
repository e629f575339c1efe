"""The program for owners of rows: their sums, in secret scales, become one covariance, and that is analysed."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from ..algorithms.entry import Sums, enter
from ..protocol import Party, SecretArray, concatenate, stack
from ..servers.programs import offered
from .analysis import Choices, analyse
from .kept import keep_sums, recall_sums

PARTS = [field.name for field in fields(Sums)]


@offered
async def fit(party: Party, *inputs: SecretArray, add_to: str | None = None, choices: dict[str, Any]) -> dict[str, Any]:
    """Joint PCA from the sums of every owner: the parts of `Sums`, one owner after the other.

    add_to: the name of kept sums of earlier owners, to which these are added. choices: see `Choices`. See `PCAModel` for what
    the receiver makes of the result.
    """
    chosen, width = Choices(**choices), len(inputs[2])
    each = {name: inputs[k :: len(PARTS)] for k, name in enumerate(PARTS)}
    sums = {name: concatenate(parts) if name in ("count", "root") else stack(parts) for name, parts in each.items()}
    if add_to is not None:
        old = recall_sums(party, add_to, chosen.allow, chosen.reveal_model)
        sums = {name: concatenate([old[name], new]) for name, new in sums.items()}
    if chosen.keep is not None:
        keep_sums(party, chosen.keep, sums, chosen.allow, chosen.reveal_model)
    with party.stage("covariance"):
        party.progress("covariance", 0.0)
        joint = await enter(Sums(**sums), width, common=not chosen.standardize)
    return {"fit": party.run, **await analyse(party, joint, chosen)}
