"""docs/failures.py adds up what it says: the probability of every local truncation, with the values that are truncated."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from docs import failures
from ppca.protocol import SecretArray, local_parties, run_lockstep, share
from ppca.protocol.shares import Held

X = np.array([0.5, -1.25, 1.0])


def counted(operation: Callable[[SecretArray], Any]) -> failures.Tally:
    """The local truncations of one operation on X."""
    parties, packets = local_parties(), share(X)

    async def program(seat: int) -> None:
        found = operation(SecretArray.from_packet(parties[seat], packets[seat]))
        if isinstance(found, Awaitable):
            await found

    with failures.counting() as tally:
        run_lockstep([program(seat) for seat in range(4)])
    return tally


SQUARES = float(np.sum(X**2))
CASES: dict[str, tuple[Callable[[SecretArray], Any], float]] = {
    "local": (lambda x: x.mul(x, within=2), SQUARES * 2.0**-47),
    "narrow": (lambda x: x.mul(x, within=1.9, narrow=True), SQUARES * 2 * 2.0**-42),
    "one split": (lambda x: x.mul(x, within=1.9, narrow=True, only=Held.RIGHT), SQUARES * 2.0**-42),
    "public factor": (lambda x: x * 0.3, 0.3 * float(np.abs(X).sum()) * 2 * 2.0 ** (40 + 41 - 128)),
    "exact": (lambda x: x * x, 0.0),
    "comparison": (lambda x: x < 0, 0.0),
}


@pytest.mark.parametrize("name", CASES)
def test_probability_of_one_truncation(name: str) -> None:
    operation, probability = CASES[name]
    tally = counted(operation)
    assert tally.sum(failures.REST) == pytest.approx(probability, rel=1e-9)
    assert not tally.waiting


def test_phases_of_a_fit() -> None:
    tally = failures.counted(6, standardize=True, fixed_iterations=4)
    assert 2.0**-40 < tally.sum(failures.ITERATION) < 2.0**-30
    assert 2.0**-45 < tally.sum(failures.VERIFICATION) < 2.0**-36
    assert 2.0**-60 < tally.sum(failures.REST) < 2.0**-50


def test_unnoticed_failures_grow_with_the_number_of_elements() -> None:
    few, more = failures.Tally(), failures.Tally()
    for tally, d in zip((few, more), failures.COUNTED, strict=True):
        for elements in (1, d, d * d):
            tally.truncations.append(failures.Truncation(failures.REST, 2.0**-60, elements, 0.0, 0.5))
    for d in (failures.COUNTED[1], 5000):
        assert failures.unnoticed(few, more, d) == pytest.approx(2.0**-60 * (1 + d + d * d))


def test_what_verification_may_pass_follows_from_the_likeliest_failure() -> None:
    found = {"iteration, a": ("", [2.0**-30, 2.0**-20]), "iteration, b": ("", [2.0**-14]), "verification": ("", [0.5])}
    said = failures.passed(found)
    assert "below 2^-14" in said
    assert "one such failure in 2^26" in said
