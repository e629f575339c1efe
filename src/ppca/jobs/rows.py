"""The program for owners of rows: their sums, in secret scales, become one covariance, and that is analysed."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from ..algorithms.entry import COUNT, COUNT_BITS, Sums, enter
from ..algorithms.imputed import GapParts, enter_imputed
from ..algorithms.input_ranges import ranges_of_sums
from ..protocol import Party, SecretArray, concatenate, stack
from .analysis import Choices, analyse
from .errors import Refusal
from .input_checks import check_ranges
from .kept import keep_sums, recall_sums


async def fit(
    party: Party,
    *inputs: SecretArray,
    add_to: str | None = None,
    mean_for_missing: bool = False,
    rows_at_least: int | None = None,
    owners: list[str] | None = None,
    choices: dict[str, Any],
) -> dict[str, Any]:
    """Joint PCA from the sums of every owner: the parts of `Sums`, one owner after the other.

    add_to: the name of kept sums of earlier owners, to which these are added. mean_for_missing: whether missing values count as
    the joint mean; every owner then sends the parts of `GapParts`. rows_at_least: the fewest joint rows that are worked on; the
    servers learn whether there are so many, and nothing else if not. owners: the owner of every table, if what they sent must be
    checked (`input_checks`). choices: see `Choices`. See `PCAModel` for what the receiver makes of the result.
    """
    chosen, width = Choices(**choices), len(inputs[2])
    names = [field.name for field in fields(GapParts if mean_for_missing else Sums)]
    each = {name: list(inputs[k :: len(names)]) for k, name in enumerate(names)}
    del inputs
    sums = {name: concatenate(parts) if name in ("count", "root") else _stacked(parts) for name, parts in each.items()}
    if owners is not None:
        with party.stage("input checks"):
            checked = GapParts(**sums) if mean_for_missing else Sums(**sums)
            await check_ranges(party, await ranges_of_sums(party, checked), owners)
    if add_to is not None:
        old = recall_sums(party, add_to, chosen.allow, chosen.receivers)
        if old.keys() != sums.keys():
            raise Refusal(
                f"missing values {'do not count' if mean_for_missing else 'count'} as the joint mean in the sums kept as "
                f"{add_to!r}: these rows cannot be added. Read missing values as in the first fit, or fit all owners again."
            )
        sums = {name: concatenate([old[name], new]) for name, new in sums.items()}
    if rows_at_least is not None:
        await check_rows(party, sums["count"], rows_at_least)
    if chosen.keep is not None:
        keep_sums(party, chosen.keep, sums, chosen.allow, chosen.receivers)
    with party.stage("covariance"):
        party.progress("covariance", 0.0)
        common = not chosen.standardize
        entered = (
            enter_imputed(GapParts(**sums), width, common) if mean_for_missing else enter(Sums(**sums), width, common)
        )
        del sums
        joint = await entered
    return {"fit": party.run, **await analyse(party, joint, chosen)}


def _stacked(parts: list[SecretArray]) -> SecretArray:
    """All owners' arrays in one. Each is taken off the list and let go: the factors are most of what a server has in memory."""
    if len({(part.shape, part.dtype) for part in parts}) > 1:
        found: SecretArray = stack(parts)
        return found
    whole = parts[0].zeros((len(parts), *parts[0].shape))
    for owner in range(len(parts)):
        whole.data[:, owner] = parts.pop(0).data
    return whole


async def check_rows(party: Party, count: SecretArray, least: int) -> None:
    """Refuses fewer joint rows, from their shared number: one bit is opened."""
    with party.stage("number of rows"):
        total = count.sum().retype(COUNT)
        why = f"at least {least} rows are worked on"
        if least >= 1 << COUNT_BITS or not await (await (total >= least)).open(what="enough rows", why=why):
            raise Refusal(
                f"all owners together have fewer than {least:,} rows, which is the fewest that this job or an operator allows. "
                "Nothing else was opened; find more owners, or agree on a smaller number."
            )
