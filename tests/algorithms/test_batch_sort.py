"""The paper's batch_sort, corrected: ties are numbered; the same order as the sort by shuffled ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.batch_sort import batch_sort
from harness.lockstep import run
from harness.spectra import finish
from ppca.protocol import PlainArray, SecretArray

VECTORS = {
    "distinct": np.array([0.5, -1.25, 3.0, 0.0, -0.75]),
    "ties": np.array([1.0, 0.5, 1.0, 0.5, 0.5, 2.0]),
    "all equal": np.full(4, 0.25),
    "one": np.array([0.125]),
}


def expected(x: Any, descending: bool) -> Any:
    order = np.argsort(-x if descending else x, kind="stable")
    return order, np.argsort(order)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("x", VECTORS.values(), ids=VECTORS.keys())
def test_both_backends(x: Any, descending: bool) -> None:
    rows = np.arange(2.0 * len(x)).reshape(len(x), 2)
    order, positions = expected(x, descending)

    async def program(keys: SecretArray, payload: SecretArray) -> list[Any]:
        return await batch_sort(keys, payload, descending=descending)

    outcome = run(program, x, rows)
    plain = [a.values for a in finish(batch_sort(PlainArray(x), PlainArray(rows), descending=descending))]
    for result in (outcome.value, plain):
        np.testing.assert_array_equal(result[0], x[order])
        np.testing.assert_array_equal(result[1], positions)
        np.testing.assert_array_equal(result[2], rows[order])
    assert outcome.traffic.rounds == 5
    assert all(opening.to == "test" for opening in outcome.audits[0])


def test_same_as_the_sort_of_the_package() -> None:
    x = np.random.default_rng(3).integers(0, 6, 12) / 8.0

    async def program(keys: SecretArray) -> list[Any]:
        return [(await batch_sort(keys))[0], await keys.sort()]

    ours, theirs = run(program, x).value
    np.testing.assert_array_equal(ours, theirs)


def test_wrong_shapes() -> None:
    with pytest.raises(ValueError, match="vector"):
        finish(batch_sort(PlainArray(np.zeros((2, 2)))))
    with pytest.raises(ValueError, match="3 keys"):
        finish(batch_sort(PlainArray(np.zeros(3)), PlainArray(np.zeros((2, 2)))))
