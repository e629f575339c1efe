"""Join the four servers' parts of a result into plaintext. Public values must agree; sealed ones are unsealed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..jobs.kept import CLIENT
from ..protocol import InconsistentShares, Sealed, unseal
from ..runtime import PerServer


def unsealed(values: Sequence[Any], where: str = "the result") -> Any:
    """Join one value from four equal structures, by server."""
    first = values[0]
    if any(_form(value) != _form(first) for value in values[1:]):
        raise InconsistentShares(f"{where} differs in form between the servers; it was not used")
    if isinstance(first, Sealed):
        return unseal(values)
    if isinstance(first, PerServer):
        return [value.value for value in values]
    if isinstance(first, list | tuple):
        return [unsealed(list(items), f"{where}[{i}]") for i, items in enumerate(zip(*values, strict=True))]
    if isinstance(first, dict):
        return {key: unsealed([value[key] for value in values], f"{where}[{key!r}]") for key in first}
    if not all(_same(first, other) for other in values[1:]):
        raise InconsistentShares(
            f"{where} is a public value that differs between the servers; it was not used. If they "
            "keep a model, fit it again."
        )
    return first


def received(result: dict[str, Any], receiver: str = CLIENT) -> dict[str, Any]:
    """Return what one receiver has of a result: what is public, and what was revealed to it."""
    return {**{key: value for key, value in result.items() if key != "to"}, **result["to"][receiver]}


def _form(value: Any) -> Any:
    """Return what must be equal before values can be compared or merged part by part."""
    if isinstance(value, list | tuple):
        return list, len(value)
    if isinstance(value, dict):
        return dict, set(value)
    return type(value)


def _same(first: Any, other: Any) -> bool:
    a, b = np.asarray(first), np.asarray(other)
    return a.dtype == b.dtype and bool(np.array_equal(a, b, equal_nan=a.dtype.kind in "fc"))
