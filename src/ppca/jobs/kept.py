"""Kept models and kept sums: shares that servers store between jobs under a name, with their allowed uses.

Anyone with the parts of two servers has the model. Many answers about it can reveal it too, see "What a kept model
gives away" in docs/security/threat-model.md. Therefore every record lists the allowed operations and the receivers of
their results. Servers refuse everything else.

    transform      coordinates of secret rows
    flags          whether each secret row is anomalous
    scores         how anomalous each secret row is
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
"""Suffix of the record with the kept sums of a model: they are stored under the name of the model plus this suffix."""

Allowed = dict[str, list[str]]
"""Allowed operations, each with the allowed receivers of its results."""


class NotAllowed(Refusal):
    """A kept model does not allow this operation, or not for this receiver."""


UNITS = "exponents"
"""Name of the array of a kept model with its scale exponents: new rows come in units of 2^exponent of their columns."""


def owner_name(position: int) -> str:
    """Return the name of a column owner as a receiver: its position in the fit, counted from 0."""
    return local_owners(position + 1)[-1]


def allowance(allow: Sequence[str] | Mapping[str, Sequence[str]], owners: int = 0) -> Allowed:
    """Return the allowed receivers of each operation. An operation without receivers allows all: the client and each
    owner."""
    if isinstance(allow, str):
        raise ValueError(f"allow={allow!r}: give a tuple of operations, as ({allow!r},)")
    everybody = [CLIENT, *(owner_name(position) for position in range(owners))]
    named = allow if isinstance(allow, Mapping) else dict.fromkeys(allow, everybody)
    for operation, receivers in named.items():
        if operation not in USES:
            raise ValueError(f"allow: {operation!r} is not an operation of a kept model; choose from {', '.join(USES)}")
        for receiver in receivers:
            if receiver not in everybody:
                raise ValueError(f"allow: {receiver!r} is not a receiver; choose from {', '.join(everybody)}")
    return {operation: list(receivers) for operation, receivers in named.items()}


def check_allowed(allowed: Mapping[str, Sequence[str]], operation: str, receiver: str | None) -> None:
    """Raise `NotAllowed` unless the operation is allowed for the receiver (None: the result is not revealed)."""
    if operation not in allowed:
        raise NotAllowed(
            f"this model was kept without {operation!r}: it allows {' and '.join(allowed) or 'nothing'}. Fit it again "
            "and allow that, too, if the owners agree."
        )
    if receiver is not None and receiver not in allowed[operation]:
        raise NotAllowed(
            f"this model does not allow {operation!r} for {receiver}: results may go to "
            f"{' and '.join(allowed[operation]) or 'no receiver'}."
        )


def keep(party: Party, model: Keep, arrays: dict[str, SecretArray], public: dict[str, Any]) -> None:
    """Store the shared arrays of a model on the servers."""
    _store(party, model.name, arrays, public, model.allow)


def _store(
    party: Party,
    name: str | None,
    arrays: dict[str, SecretArray],
    public: dict[str, Any],
    allowed: Mapping[str, Sequence[str]],
) -> None:
    """Store shared arrays on the servers under a name, with their allowed uses.

    fit: the name of this run. Programs return the runs of the records they used, so that a receiver refuses a result
    from shares of two
    fits: a client that is killed while four servers replace a record may leave some with the old one.
    """
    if name is None:
        raise Refusal("the job does not name the model that it keeps")
    shares = {key: (array.data, array.dtype) for key, array in arrays.items()}
    uses = {use: list(receivers) for use, receivers in allowed.items()}
    party.store[name] = {"public": {**public, "allowed": uses, "fit": party.run}, **shares}


def kept(party: Party, name: str) -> tuple[dict[str, SecretArray], dict[str, Any]]:
    """Return the shared arrays and public facts kept under a name.

    A program calls `check_allowed` with these facts before it reveals anything computed from the arrays.
    """
    record = party.store[name]
    return {key: SecretArray(party, *value) for key, value in record.items() if key != "public"}, record["public"]


Receivers = Mapping[str, Sequence[str]]
"""The parts of a result by receiver."""


def keep_sums(party: Party, model: Keep, sums: dict[str, SecretArray], receivers: Receivers) -> None:
    """Store sums for a later partial fit, if that is allowed. The later result can go only to the receivers of this
    one."""
    if "partial_fit" in model.allow:
        informed = {receiver: list(parts) for receiver, parts in receivers.items()}
        allowed = {**model.allow, "partial_fit": list(informed)}
        _store(party, f"{model.name}{SUMS}", sums, {"receivers": informed}, allowed)
    else:
        drop_sums(party, model)


def drop_sums(party: Party, model: Keep | None) -> None:
    """Erase sums that an earlier fit stored under the name of this model: they do not belong to this model."""
    if model is not None and f"{model.name}{SUMS}" in party.store:
        del party.store[f"{model.name}{SUMS}"]


def recall_sums(party: Party, name: str, model: Keep | None, receivers: Receivers) -> dict[str, SecretArray]:
    """Return the kept sums to which a fit adds rows.

    Raise `NotAllowed` if the new fit would allow more uses, or reveal more parts to a receiver, than the fit that kept
    them. The new record names both runs.
    """
    arrays, public = kept(party, name + SUMS)
    check_allowed(public["allowed"], "partial_fit", None)
    for receiver, parts in receivers.items():
        check_allowed(public["allowed"], "partial_fit", receiver)
        more = set(parts) - set(public["receivers"][receiver])
        if more:
            raise NotAllowed(
                f"this model does not allow 'partial_fit' for {receiver} with {' and '.join(sorted(more))}: the fit "
                "before did not give that"
            )
    for operation, whom in ({} if model is None else model.allow).items():
        for receiver in whom if operation != "partial_fit" else ():
            check_allowed(public["allowed"], operation, receiver)
    party.run = hashlib.blake2b(f"{party.run} {public['fit']}".encode(), digest_size=16).hexdigest()
    return arrays
