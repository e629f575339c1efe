"""The loop of the solvers: how often it steps, when it asks, what it opens, and that asking costs no round."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from harness.lockstep import Ended, run
from harness.spectra import finish
from ppca.algorithms.iteration import silent, until_converged
from ppca.protocol import PlainArray, SecretArray


class Halving:
    """Halves a number until it is below a bound, and remembers what it was asked."""

    def __init__(self, bound: float = 0.1) -> None:
        self.bound = bound
        self.stepped: list[int] = []
        self.asked: list[float] = []

    async def step(self, x: PlainArray, done: int) -> PlainArray:
        self.stepped.append(done)
        return x * 0.5

    async def bit(self, x: PlainArray) -> Any:
        self.asked.append(float(x.values))
        return await (x < self.bound)

    def run(self, every: int = 1, most: int = 20, fixed: int | None = None) -> tuple[float, int, bool | None]:
        loop = until_converged(
            PlainArray(1.0), self.step, self.bit, due=lambda done: done % every == 0, max_steps=most, fixed_steps=fixed
        )
        x, done, converged = finish(loop)
        return float(x.values), done, converged


def test_the_step_beside_the_answer_is_the_last() -> None:
    # 1, 1/2, 1/4, 1/8 are too large, 1/16 is not: the fifth question is answered with yes while the fifth step is made.
    halving = Halving()
    assert halving.run() == (2.0**-5, 5, True)
    assert halving.stepped == [0, 1, 2, 3, 4]
    assert halving.asked == [2.0**-k for k in range(5)]


def test_it_asks_only_where_due() -> None:
    halving = Halving()
    assert halving.run(every=3) == (2.0**-7, 7, True)
    assert halving.asked == [1.0, 2.0**-3, 2.0**-6]


@pytest.mark.parametrize("most", [0, 1, 4])
def test_it_gives_up(most: int) -> None:
    halving = Halving()
    assert halving.run(most=most) == (2.0**-most, most, False)
    assert len(halving.asked) == most


@pytest.mark.parametrize("fixed", [0, 3, 30])
def test_a_fixed_number_asks_nothing(fixed: int) -> None:
    halving = Halving()
    assert halving.run(most=5, fixed=fixed) == (2.0**-fixed, fixed, None)
    assert halving.asked == []


def test_silence() -> None:
    assert silent("anything", 0.5) is None


async def three_rounds(x: Any, done: int) -> Any:
    for _ in range(3):
        x = (await (x * 0.5).square()).within(1)
    return x


def on_shares(most: int, fixed: int | None) -> Ended:
    async def program(x: SecretArray) -> list[Any]:
        x, done, converged = await until_converged(
            x.within(1), three_rounds, lambda x: x < 0.25, due=lambda done: done > 0, max_steps=most, fixed_steps=fixed
        )
        return [x, done, -1 if converged is None else int(converged)]

    return run(program, np.array(0.99))


@pytest.mark.parametrize("steps", [0, 1, 2, 3])
def test_shares_three_rounds_a_step_asked_or_not(steps: int) -> None:
    """The question takes three rounds, too (two for the comparison, one for the opening): it travels beside the step."""
    fixed = on_shares(9, steps)
    assert (fixed.value[1:], fixed.traffic.rounds) == ([steps, -1], 3 * steps)
    assert not openings(fixed)
    limited = on_shares(steps, None)
    assert limited.traffic.rounds == 3 * limited.value[1]
    assert len(openings(limited)) == max(0, limited.value[1] - 1)


def test_shares_stop_when_the_bit_says_so() -> None:
    outcome = on_shares(9, None)
    assert outcome.value[1:] == [2, 1]
    assert openings(outcome) == [("convergence bit", "servers")]
    # x -> (x/2)^2 three times, twice: the error of a square is below 2^-40 each time, and shrinks afterwards.
    x = 0.99
    for _ in itertools.repeat(None, 6):
        x = (x / 2) ** 2
    assert abs(outcome.value[0] - x) <= 3 * 2.0**-40


def openings(outcome: Ended) -> list[tuple[str, str]]:
    return [(line.what, line.to) for line in outcome.audits[0] if line.to != "test"]
