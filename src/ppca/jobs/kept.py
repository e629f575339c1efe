"""What servers keep between jobs under a name, as shares (fitted models and sums), and what it may be used for.

Two servers' parts together are the content; and so are enough answers, see "What a kept model gives away" in
docs/security/threat-model.md. So every record says which operations are allowed and who may receive their results. Servers refuse
everything else, whoever asks.

    transform      coordinates of secret rows
    flags          which of secret rows are anomalous
    scores         how anomalous they are
    inverse        rows rebuilt from coordinates
    partial_fit    fit again with more rows; without it the sums are not kept
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from ..protocol import Party, SecretArray
from .errors import Refusal
from .spec import CLIENT, USES, Keep, local_owners

SUMS = ".sums"
"""Kept sums stand beside a kept model under its name with this ending."""

Allowed = dict[str, list[str]]
"""Operations, each with the receivers its results may go to."""


class NotAllowed(Refusal):
    """A kept model may not be used for this, or not for this receiver."""


UNITS = "exponents"
"""The array of a kept model with its scale exponents: new rows come in units of 2^exponent of their columns."""


def owner_name(position: int) -> str:
    """How servers call an owner of columns as a receiver: by its place in the fit, counted from 0."""
    return local_owners(position + 1)[-1]


def allowance(allow: Sequence[str] | Mapping[str, Sequence[str]], owners: int = 0) -> Allowed:
    """What a user allows, in full. Names alone allow any receiver: the client, and each of so many owners of columns."""
    if isinstance(allow, str):
        raise ValueError(f"allow={allow!r}: give a tuple of operations, as ({allow!r},)")
    everybody = [CLIENT, *(owner_name(position) for position in range(owners))]
    named = allow if isinstance(allow, Mapping) else dict.fromkeys(allow, everybody)
    for operation, receivers in named.items():
        if operation not in USES:
            raise ValueError(f"allow: {operation!r} is no operation of a kept model; choose from {', '.join(USES)}")
        for receiver in receivers:
            if receiver not in everybody:
                raise ValueError(f"allow: {receiver!r} is no receiver; choose from {', '.join(everybody)}")
    return {operation: list(receivers) for operation, receivers in named.items()}


def check_allowed(allowed: Mapping[str, Sequence[str]], operation: str, receiver: str | None) -> None:
    """Raises `NotAllowed` unless the operation is allowed for the receiver (None: nobody receives anything)."""
    if operation not in allowed:
        raise NotAllowed(
            f"this model was kept without {operation!r}: it allows {' and '.join(allowed) or 'nothing'}. Fit it again "
            "and allow that, too, if the owners agree."
        )
    if receiver is not None and receiver not in allowed[operation]:
        raise NotAllowed(
            f"this model does not allow {operation!r} for {receiver}: results may go to "
            f"{' and '.join(allowed[operation]) or 'nobody'}."
        )


def keep(party: Party, model: Keep, arrays: dict[str, SecretArray], public: dict[str, Any]) -> None:
    """Leaves the shared arrays of a model with the servers."""
    _store(party, model.name, arrays, public, model.allow)


def _store(
    party: Party,
    name: str | None,
    arrays: dict[str, SecretArray],
    public: dict[str, Any],
    allowed: Mapping[str, Sequence[str]],
) -> None:
    """Leaves shared arrays with the servers under a name, and what they may be used for.

    fit: the name of this run. Programs return that of what they used, so that a receiver refuses a result of shares of two
    fits: a client that is killed while four servers replace a record may leave some with the old one.
    """
    if name is None:
        raise Refusal("the job does not name the model that it keeps")
    shares = {key: (array.data, array.dtype) for key, array in arrays.items()}
    uses = {use: list(receivers) for use, receivers in allowed.items()}
    party.store[name] = {"public": {**public, "allowed": uses, "fit": party.run}, **shares}


def kept(party: Party, name: str) -> tuple[dict[str, SecretArray], dict[str, Any]]:
    """Shared arrays and public facts kept under a name. Who lets something leave the sharing that comes of them asks
    `check_allowed` of these facts first."""
    record = party.store[name]
    return {key: SecretArray(party, *value) for key, value in record.items() if key != "public"}, record["public"]


Receivers = Mapping[str, Sequence[str]]
"""Who gets which parts of a result."""


def keep_sums(party: Party, model: Keep, sums: dict[str, SecretArray], receivers: Receivers) -> None:
    """Leaves sums for a later partial fit, if that is allowed; its result goes only to whom this one goes."""
    if "partial_fit" in model.allow:
        informed = {receiver: list(parts) for receiver, parts in receivers.items()}
        allowed = {**model.allow, "partial_fit": list(informed)}
        _store(party, f"{model.name}{SUMS}", sums, {"receivers": informed}, allowed)
    else:
        drop_sums(party, model)


def drop_sums(party: Party, model: Keep | None) -> None:
    """Erases sums that an earlier fit has left under the name: they are not those of the model that takes it."""
    if model is not None and f"{model.name}{SUMS}" in party.store:
        del party.store[f"{model.name}{SUMS}"]


def recall_sums(party: Party, name: str, model: Keep | None, receivers: Receivers) -> dict[str, SecretArray]:
    """Sums of earlier owners to add to. What comes of them is allowed no more than they are, nobody gets more of it, and it is
    named after both runs."""
    arrays, public = kept(party, name + SUMS)
    check_allowed(public["allowed"], "partial_fit", None)
    for receiver, parts in receivers.items():
        check_allowed(public["allowed"], "partial_fit", receiver)
        more = set(parts) - set(public["receivers"][receiver])
        if more:
            raise NotAllowed(
                f"this model does not allow 'partial_fit' for {receiver} with {' and '.join(sorted(more))}: the fit before did "
                "not give that"
            )
    for operation, whom in ({} if model is None else model.allow).items():
        for receiver in whom if operation != "partial_fit" else ():
            check_allowed(public["allowed"], operation, receiver)
    party.run = hashlib.blake2b(f"{party.run} {public['fit']}".encode(), digest_size=16).hexdigest()
    return arrays


async def erase(party: Party, *, model: str) -> None:
    """Forgets a kept model and its sums."""
    for name in (model, model + SUMS):
        if name in party.store:
            del party.store[name]
