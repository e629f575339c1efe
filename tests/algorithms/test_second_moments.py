"""Covariances of columns in scales of their own are brought to one scale, on shares against plain numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from harness.lockstep import run
from ppca.algorithms.covariance import MOMENT_FRAC
from ppca.algorithms.scales import EXPONENT, NONE
from ppca.algorithms.second_moments import in_common_scale
from ppca.protocol import RingType

Floats = NDArray[np.float64]
MOMENTS = RingType(128, MOMENT_FRAC, 1)


def scaled(columns: Floats, exponent: NDArray[np.int64]) -> tuple[Floats, int]:
    """The covariance of columns in units of 2^exponent, and the exponent of its unit, as servers compute them."""
    d = columns.shape[1]
    high = np.cov(columns.T, bias=True).reshape(d, d)[np.triu_indices(d)]

    async def program(covariance: Any, own: Any) -> Any:
        found, unit = await in_common_scale(covariance.retype(MOMENTS), own)
        return [found.retype(RingType(128, 100, 20)), unit]

    packed, unit = run(program, np.ldexp(high, 40), exponent, dtypes=(RingType(128, 72, 41), EXPONENT)).value
    matrix = np.zeros((d, d))
    matrix[np.triu_indices(d)] = np.ldexp(packed, 100 - MOMENT_FRAC)
    return matrix + np.triu(matrix, 1).T, int(np.ravel(unit)[0])


def check(columns: Floats, exponent: NDArray[np.int64]) -> None:
    """Every entry is right to 2^-41 of the largest variance."""
    true = np.ldexp(columns, exponent - exponent.max())
    expected = np.cov(true.T, bias=True)
    found, unit = scaled(columns, exponent)
    largest = expected.diagonal().max()
    assert np.abs(np.ldexp(found, 2 * (unit - int(exponent.max()))) - expected).max() <= 2.0**-41 * largest


@pytest.mark.parametrize("seed", range(6))
def test_random_scales_and_deviations(seed: int) -> None:
    rng = np.random.default_rng(seed)
    d = int(rng.integers(2, 20))
    columns = rng.uniform(-1, 1, (50, d)) * 2.0 ** -rng.integers(0, 21, d)
    columns[:, 0] = rng.uniform(-1, 1, 50)
    check(columns, rng.integers(-60, 60, d))


@pytest.mark.parametrize("apart", [0, 22, 23, 24, 25, 39, 40, 41, 42, 60, 900])
def test_a_small_column_counts_as_far_as_the_result_tells(apart: int) -> None:
    """Its covariance with the largest column is 2^-apart of the largest variance: no digits are cut above 2^-41."""
    rng = np.random.default_rng(1)
    columns = rng.uniform(-1, 1, (30, 3))
    columns[:, 2] = columns[:, 0]
    check(columns, np.array([0, -3, -apart]))


@pytest.mark.parametrize("exponent", [10, 24, 100, 1024])
@pytest.mark.parametrize("entries", [0.0, 2.0**-24], ids=["zeros", "almost zeros"])
def test_a_scale_that_does_not_fit_the_values_cuts_nothing(exponent: int, entries: float) -> None:
    """An owner sends a large scale for a column of small numbers: columns of others count as if the column was not there."""
    rng = np.random.default_rng(2)
    columns = rng.uniform(-1, 1, (30, 3))
    alone, unit = scaled(columns[:, :2], np.array([3, -4]))
    columns[:, 2] = entries * (np.arange(30) == 5)
    found, both = scaled(columns, np.array([3, -4, exponent]))
    assert unit == both == 3
    assert np.abs(found[:2, :2] - alone).max() < 2.0**-41
    assert not found[2].any()


def test_a_scale_far_above_the_deviation_keeps_the_digits_of_others() -> None:
    """The unit is that of the liar's column, which varies by 2^-20 of it, less than the others do."""
    rng = np.random.default_rng(3)
    columns = rng.uniform(-1, 1, (30, 4))
    columns[:, 3] *= 2.0**-20
    check(columns, np.array([3, -4, -12, 21]))


def test_columns_that_do_not_vary() -> None:
    found, unit = scaled(np.zeros((5, 2)), np.array([3, NONE]))
    assert not found.any()
    assert unit < NONE
