"""Signs of components on shares: those that a receiver gives to whole components, entry by entry, at the stated cost."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from harness.lockstep import run
from ppca.algorithms.orientation import oriented
from ppca.protocol import PlainArray
from ppca.receiver.parts import signed

GRID = 2.0**-40


def vectors(k: int, d: int) -> Any:
    """Rows of norm 1 on the grid of shares; one with two entries of equal magnitude and unlike signs, one of zeros."""
    V = np.random.default_rng(d).standard_normal((k, d))
    V = np.round(V / np.linalg.norm(V, axis=1, keepdims=True) / GRID) * GRID
    if d > 1:
        V[0] = 0
        V[0, [d // 3, d - 1]] = -np.sqrt(0.5), np.sqrt(0.5)
        V[0] = np.round(V[0] / GRID) * GRID
        V[1] = V[0] + 0.0
        V[1, -1] += GRID  # the last entry is the larger one by the last bit
    V[2] = 0
    return V


@pytest.mark.parametrize("d", [1, 2, 3, 7, 32, 33])
def test_as_of_whole_components(d: int) -> None:
    V = vectors(5, d)
    found = run(oriented, V)
    np.testing.assert_array_equal(found.value, signed(V))
    assert found.traffic.rounds == 4 + 3 * math.ceil(math.log2(d))
    assert all(line.to == "test" for line in found.audits[0]), "nothing is opened"


def test_bytes() -> None:
    """As wide.md says: about 900 bytes of every server for each entry."""
    found = run(oriented, vectors(10, 115))
    assert all(800 < sent / 1150 < 1000 for sent in found.traffic.sent)


def test_on_plain_numbers() -> None:
    V = vectors(4, 9)

    async def program() -> Any:
        return await oriented(PlainArray(V))

    with pytest.raises(StopIteration) as done:
        program().send(None)
    np.testing.assert_array_equal(done.value.value.values, signed(V))
