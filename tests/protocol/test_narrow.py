"""Products of which fewer bits travel, or one split: right where that split serves, and refused everywhere else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.lockstep import run
from harness.numbers import grid
from ppca.protocol import Held, SecretArray, skew, symmetric, together

RANDOM = np.random.default_rng(11)
A, B, C = (RANDOM.uniform(-1, 1, (6, 6)) / 6 for _ in range(3))
ULP = 2.0**-40


async def halves(a: SecretArray, b: SecretArray) -> tuple[Any, Any]:
    left = await a.matmul(b, within=1, narrow=True, only=Held.LEFT)
    right = await a.matmul(b, within=1, narrow=True, only=Held.RIGHT)
    return left, right


def test_on_its_own_side_it_is_the_product() -> None:
    async def program(a: SecretArray, b: SecretArray, c: SecretArray) -> Any:
        left, right = await halves(a, b)
        return [
            await left.matmul(c, within=1),
            await c.matmul(right, within=1),
            await left.mul(right, within=1),
            await left.inner(right, axis=0, within=1),
        ]

    got = run(program, A, B, C).value
    want = [A @ B @ C, C @ (A @ B), (A @ B) ** 2, ((A @ B) ** 2).sum(0)]
    for one, other in zip(got, want, strict=True):
        assert np.abs(one - other).max() < 8 * ULP


def test_local_operations_keep_it() -> None:
    async def program(a: SecretArray, b: SecretArray, c: SecretArray) -> Any:
        left, right = await halves(a, b)
        i, j = np.triu_indices(6, 1)
        moved = skew((right * 0.5 + a - right)[i, j].within(1), 6) + symmetric(right[np.triu_indices(6)], 6)
        assert moved.held is Held.RIGHT
        assert SecretArray.concatenate([left, a]).held is Held.LEFT
        assert left.T.astype(30).reshape(36).held is Held.LEFT
        assert (left + right).held is Held(0)
        return await c.matmul(moved, within=4)

    P = A @ B
    upper = np.triu(A - P / 2, 1)
    M = upper - upper.T + np.triu(P) + np.triu(P, 1).T
    assert np.abs(run(program, A, B, C).value - C @ M).max() < 16 * ULP


USES = {
    "right operand": (Held.LEFT, lambda half, c: c @ half),
    "left operand": (Held.RIGHT, lambda half, c: half @ c),
    "square": (Held.LEFT, lambda half, c: half.square()),
    "comparison": (Held.RIGHT, lambda half, c: half < 0.1),
    "table": (Held.RIGHT, lambda half, c: half.coarse_power(-0.5, 0.1)),
    "slope": (Held.RIGHT, lambda half, c: half.slope()),
    "exact truncation": (Held.LEFT, lambda half, c: half.truncate(10)),
    "shuffle": (Held.LEFT, lambda half, c: half.shuffle()),
    "opening": (Held.RIGHT, lambda half, c: half.open(why="test")),
    "sum of both": (Held.LEFT, lambda half, c: (half + c) @ (c + half)),
}


@pytest.mark.parametrize("use", USES)
def test_elsewhere_it_is_refused(use: str) -> None:
    only, operation = USES[use]

    async def program(a: SecretArray, b: SecretArray, c: SecretArray) -> Any:
        half = await a.matmul(b, within=1, narrow=True, only=only)
        return await operation(half, c)

    with pytest.raises(TypeError, match="split"):
        run(program, A, B, C)


def test_a_reveal_needs_what_it_sends() -> None:
    async def program(a: SecretArray, b: SecretArray) -> Any:
        half = await a.matmul(b, within=1, narrow=True, only=Held.RIGHT)
        return half.reveal(why="test")

    with pytest.raises(TypeError, match="split"):
        run(program, A, B)


def test_products_that_are_not_narrow_have_both() -> None:
    async def program(a: SecretArray, b: SecretArray) -> Any:
        whole = await a.matmul(b, only=Held.LEFT)
        assert whole.held is Held.BOTH
        return whole

    assert np.abs(run(program, A, B).value - A @ B).max() < 2 * ULP


@pytest.mark.parametrize("within", [1.0, 3.0, 16.0])
def test_narrow_products(within: float) -> None:
    """Within 1.25 ulp and unbiased over the promised range, its ends and zero; all 128 bits are right, also untruncated."""
    rng = np.random.default_rng(3)
    x = np.concatenate([rng.uniform(-1, 1, 2000), [0.0, 1.0, -1.0, 2.0**-40]])
    y = np.concatenate([rng.uniform(-within, within, 2000), [within, within, within, 1.0]])
    x, y = grid(x), grid(y)

    async def program(a: Any, b: Any) -> Any:
        product, bit = await together(a.mul(b, within=within, narrow=True), a.negative())
        flipped = await bit.mul(b, frac=40, within=within, narrow=True)
        whole, sums = await together(
            product.truncate(0), a.reshape(3, -1).inner(b.reshape(3, -1), axis=0, within=3 * within, narrow=True)
        )
        return [whole, bit, flipped, sums]

    product, bit, flipped, sums = run(program, x, y).value
    error = np.ldexp(product - x * y, 40)
    assert np.abs(error).max() < 1.25 + 2.0**-10  # doubles round the exact product
    assert abs(error.mean()) < 5 * error.std() / np.sqrt(len(error))
    np.testing.assert_array_equal(bit, x < 0)
    np.testing.assert_array_equal(flipped, np.where(x < 0, y, 0))
    assert np.abs(sums - (x * y).reshape(3, -1).sum(0)).max() < 1.26 * ULP
