"""The program for owners of rows: their sums, in secret scales, become one covariance, and that is analysed."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from ..algorithms.entry import Sums, enter
from ..algorithms.imputed import GapParts, enter_imputed
from ..protocol import Party, SecretArray, concatenate, stack
from ..servers.failure import Refusal
from ..servers.programs import offered
from .analysis import Choices, analyse
from .kept import keep_sums, recall_sums


@offered
async def fit(
    party: Party,
    *inputs: SecretArray,
    add_to: str | None = None,
    mean_for_missing: bool = False,
    choices: dict[str, Any],
) -> dict[str, Any]:
    """Joint PCA from the sums of every owner: the parts of `Sums`, one owner after the other.

    add_to: the name of kept sums of earlier owners, to which these are added. mean_for_missing: whether missing values count as
    the joint mean; every owner then sends the parts of `GapParts`. choices: see `Choices`. See `PCAModel` for what the receiver
    makes of the result.
    """
    chosen, width = Choices(**choices), len(inputs[2])
    names = [field.name for field in fields(GapParts if mean_for_missing else Sums)]
    each = {name: inputs[k :: len(names)] for k, name in enumerate(names)}
    sums = {name: concatenate(parts) if name in ("count", "root") else stack(parts) for name, parts in each.items()}
    if add_to is not None:
        old = recall_sums(party, add_to, chosen.allow, chosen.receivers)
        if old.keys() != sums.keys():
            raise Refusal(
                f"missing values {'do not count' if mean_for_missing else 'count'} as the joint mean in the sums kept as "
                f"{add_to!r}: these rows cannot be added. Read missing values as in the first fit, or fit all owners again."
            )
        sums = {name: concatenate([old[name], new]) for name, new in sums.items()}
    if chosen.keep is not None:
        keep_sums(party, chosen.keep, sums, chosen.allow, chosen.receivers)
    with party.stage("covariance"):
        party.progress("covariance", 0.0)
        common = not chosen.standardize
        entered = (
            enter_imputed(GapParts(**sums), width, common) if mean_for_missing else enter(Sums(**sums), width, common)
        )
        joint = await entered
    return {"fit": party.run, **await analyse(party, joint, chosen)}
