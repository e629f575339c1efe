"""What servers keep between jobs under a name, as shares: fitted models and sums. Two servers' parts together are the content."""

from __future__ import annotations

from typing import Any

from ..protocol import Party, SecretArray

SUMS = ".sums"
"""Kept sums stand beside a kept model under its name with this ending."""


def keep(party: Party, name: str, arrays: dict[str, SecretArray], public: dict[str, Any]) -> None:
    """Leaves shared arrays with the servers under a name."""
    party.store[name] = {"public": public, **{key: (array.data, array.dtype) for key, array in arrays.items()}}


def recall(party: Party, name: str) -> tuple[dict[str, SecretArray], dict[str, Any]]:
    """Shared arrays and public facts kept under a name."""
    record = party.store[name]
    arrays = {key: SecretArray(party, *value) for key, value in record.items() if key != "public"}
    return arrays, record["public"]
