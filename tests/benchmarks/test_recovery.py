"""The attacker of the evaluation: what second moments tell of rows, and what they do not."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from benchmarks.reproduce.recovery import Moments, descended, matched, recover, rotated, success, without_own

Floats = NDArray[np.float64]
LOW, HIGH = np.zeros(64), np.full(64, 16.0)


@pytest.fixture(scope="module")
def digits() -> Floats:
    return np.asarray(load_digits().data)


def some(digits: Floats, count: int, seed: int = 0) -> Floats:
    return digits[np.random.default_rng(seed).permutation(len(digits))[:count]]


def components(rows: Floats) -> tuple[Floats, Floats, float]:
    """All components, their variances from the largest, the total."""
    variances, vectors = np.linalg.eigh(np.cov(rows, rowvar=False))
    return vectors.T[::-1], variances[::-1], float(variances.sum())


def test_rotations_have_the_same_mean_and_covariance_and_are_other_rows(digits: Floats) -> None:
    true = some(digits, 12)
    known = Moments.of_covariance(12, true.mean(axis=0), np.cov(true, rowvar=False))
    other = rotated(known, np.random.default_rng(1))
    np.testing.assert_allclose(other.mean(axis=0), true.mean(axis=0), atol=1e-9)
    np.testing.assert_allclose(np.cov(other, rowvar=False), np.cov(true, rowvar=False), atol=1e-9)
    assert success(other, true).error > 0.5


@pytest.mark.parametrize("count", [11, 5])
def test_nearest_keeps_the_moments_and_leaves_rows_that_have_them(digits: Floats, count: int) -> None:
    true = some(digits, 12)
    V, variances, total = components(true)
    known = Moments.of_components(12, true.mean(axis=0), V[:count], variances[:count], total)
    for each in (known, known.scaled(np.linspace(0.5, 2.0, 64))):
        np.testing.assert_allclose(each.nearest(true / each.unit) * each.unit, true, atol=1e-6)
        found = each.nearest(np.random.default_rng(2).standard_normal((12, 64))) * each.unit
        assert known.fit(found, 1e-6)


def test_few_rows_are_recovered_from_their_covariance(digits: Floats) -> None:
    true = some(digits, 10)
    known = Moments.of_covariance(10, true.mean(axis=0), np.cov(true, rowvar=False))
    found, certain = recover(known, LOW, HIGH, np.random.default_rng(3), 3000)
    assert certain
    np.testing.assert_array_equal(matched(found, true), true)


def test_few_components_of_rows_do_not_give_them(digits: Floats) -> None:
    true = some(digits, 10)
    V, variances, total = components(true)
    known = Moments.of_components(10, true.mean(axis=0), V[:3], variances[:3], total)
    found, certain = recover(known, LOW, HIGH, np.random.default_rng(3), 500)
    assert not certain
    assert success(found, true).exact == 0


@pytest.mark.parametrize("few", [2, 6])
def test_who_owns_all_other_rows_has_the_covariance_of_the_rest(digits: Floats, few: int) -> None:
    """From one component less than there are other rows, exactly; from fewer, less than that."""
    others, own = digits[:few], digits[few:]
    V, variances, total = components(digits)
    known = without_own(own, len(digits), digits.mean(axis=0), V[: few - 1], variances[: few - 1], total)
    centred = others - others.mean(axis=0)
    np.testing.assert_allclose(known.mean, others.mean(axis=0), atol=1e-8)
    np.testing.assert_allclose(known.factor.T @ known.factor, centred.T @ centred, atol=1e-3)
    assert known.rest == 0
    found, certain = recover(known, LOW, HIGH, np.random.default_rng(4), 3000)
    assert certain
    np.testing.assert_array_equal(matched(found, others), others)
    if few > 2:
        known = without_own(own, len(digits), digits.mean(axis=0), V[: few - 3], variances[: few - 3], total)
        assert known.rest > 0
        assert known.fit(others, 1e-3)


@pytest.mark.parametrize("power", [1, 2])
def test_objective_with_the_paper_s_factor_is_off_by_n_less_one(digits: Floats, power: int) -> None:
    true = some(digits, 6)
    C = np.cov(true, rowvar=False)
    Y = descended(C, 6, 5.0**power, np.random.default_rng(5))
    ratio = np.trace(Y.T @ Y / 5) / np.trace(C)
    assert ratio == pytest.approx(5.0 ** (power - 1), rel=0.02)
