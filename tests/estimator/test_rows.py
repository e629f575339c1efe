"""Joint PCA of rows of several owners: scikit-learn's numbers on real and on awkward data, and scikit-learn's manners.

Limits are the project's: explained-variance ratios, eigenvalues (relative to the largest) and residuals within 1e-6,
orthogonality within 1e-7. Larger data sets are measured by `ppca bench accuracy`.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import decomposition
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.exceptions import NotFittedError

from benchmarks.accuracy import standardised
from benchmarks.data_sets import DATA_SETS, MissingData, split
from harness.accuracy import Floats, check, check_components, check_subspaces, random
from ppca import PCA
from ppca.runtime import LocalServers

CLOSE = 1e-6


# -- real data -----------------------------------------------------------------------------------------------------------


REAL = [
    ("wine", False), ("wine", True), ("breast cancer", False), ("breast cancer", True), ("digits", False), ("digits", True),
    ("Wine Quality", False), ("Wine Quality", True), ("N-BaIoT", True),
]  # fmt: skip


@pytest.mark.parametrize(("name", "standardize"), REAL)
def test_real_data(servers: LocalServers, name: str, standardize: bool) -> None:
    folder = os.environ.get("PPCA_DATA")
    try:
        owners = DATA_SETS[name](Path(folder) if folder else None)
    except MissingData as missing:
        pytest.skip(f"{name}: {missing}")
    pca = PCA(standardize=standardize, servers=servers).fit(owners)
    pooled = np.vstack(owners)
    check(pca, pooled)
    check_subspaces(pca, pooled)


# -- awkward data --------------------------------------------------------------------------------------------------------


def constant() -> Floats:
    X = random(60, 6)
    X[:, 2], X[:, 4] = 7.3, 0.0
    return X


def duplicated() -> Floats:
    X = random(60, 4)
    return np.column_stack([X, X[:, 1], -X[:, 1], 3 * X[:, 0] + 2])


def rank_deficient() -> Floats:
    return random(80, 3) @ random(3, 9, seed=1)


def fewer_rows_than_columns() -> Floats:
    return random(7, 12)


def one_column() -> Floats:
    return random(30, 1) * 5 + 3


def two_columns() -> Floats:
    return random(30, 2) @ np.array([[2.0, 1.0], [0.0, 0.5]])


def far_from_zero() -> Floats:
    """Mean / deviation = 1e4."""
    return random(400, 6) @ random(6, 6, seed=1) + 1e4 * np.linspace(1, 3, 6)


def unlike_magnitudes() -> Floats:
    """Columns that differ by 1e15."""
    return (random(200, 6) @ random(6, 6, seed=1)) * np.geomspace(1e-7, 1e8, 6)


def repeated_eigenvalues() -> Floats:
    """Covariance with three equal eigenvalues, and three equal smaller ones, exactly."""
    Q, _ = np.linalg.qr(random(60, 6) - random(60, 6).mean(axis=0))
    return (Q - Q.mean(axis=0)) * np.repeat([4.0, 1.0], 3)


def independent_columns() -> Floats:
    """Nearly diagonal: nothing to rotate."""
    return random(500, 5) * np.array([5.0, 4.0, 3.0, 2.0, 1.0])


def all_constant() -> Floats:
    return np.tile([1.0, -2.0, 3.0], (20, 1))


def tiny() -> Floats:
    return random(50, 4) * 1e-12


AWKWARD: list[Callable[[], Floats]] = [
    constant, duplicated, rank_deficient, fewer_rows_than_columns, one_column, two_columns, far_from_zero,
    unlike_magnitudes, repeated_eigenvalues, independent_columns, tiny,
]  # fmt: skip


@pytest.mark.parametrize("standardize", [False, True], ids=["raw", "standardised"])
@pytest.mark.parametrize("make", AWKWARD, ids=lambda make: make.__name__)
def test_awkward_data(servers: LocalServers, make: Callable[[], Floats], standardize: bool) -> None:
    X = make()
    pca = PCA(standardize=standardize, servers=servers).fit(split(X, 2))
    assert pca.n_components_ == min(X.shape)
    check(pca, X)
    check_subspaces(pca, X)


@pytest.mark.parametrize("standardize", [False, True], ids=["raw", "standardised"])
def test_data_without_variance(servers: LocalServers, standardize: bool) -> None:
    """There is nothing to explain; scikit-learn divides 0 by 0 here."""
    X = all_constant()
    pca = PCA(standardize=standardize, servers=servers).fit(split(X, 2))
    np.testing.assert_allclose(pca.explained_variance_, 0, atol=1e-12)
    np.testing.assert_allclose(pca.explained_variance_ratio_, 0, atol=1e-12)
    np.testing.assert_allclose(pca.mean_, X[0], rtol=1e-12)
    np.testing.assert_allclose(pca.components_ @ pca.components_.T, np.eye(3), atol=1e-7)
    np.testing.assert_allclose(pca.transform(X), 0, atol=1e-9)


def test_small_columns_are_not_lost_when_standardised(servers: LocalServers) -> None:
    """The column of magnitude 1e-7 has the same weight as the one of 1e8."""
    X = unlike_magnitudes()
    pca = PCA(standardize=True, servers=servers).fit(split(X, 3))
    np.testing.assert_allclose(pca.scale_, X.std(axis=0), rtol=1e-8)
    check_components(pca, decomposition.PCA().fit(standardised(X)).components_, X)


@pytest.mark.parametrize("owners", [1, 2, 20])
def test_number_of_owners(servers: LocalServers, owners: int) -> None:
    X = random(400, 8) @ random(8, 8, seed=1)
    for standardize in (False, True):
        check(PCA(standardize=standardize, servers=servers).fit(split(X, owners)), X)


def test_owner_with_one_row(servers: LocalServers) -> None:
    X = random(50, 4) @ random(4, 4, seed=1)
    check(PCA(servers=servers).fit([X[:1], X[1:2], X[2:]]), X)


# -- scikit-learn's conventions ------------------------------------------------------------------------------------------


WINE = load_wine(as_frame=True).data


@pytest.mark.parametrize("components", [1, 5, 13, None, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("standardize", [False, True], ids=["raw", "standardised"])
def test_number_of_components(servers: LocalServers, components: Any, standardize: bool) -> None:
    X = WINE.to_numpy()
    pca = PCA(components, standardize=standardize, servers=servers).fit(split(X, 3))
    truth = decomposition.PCA(components).fit(standardised(X) if standardize else X)
    assert pca.n_components_ == truth.n_components_
    assert pca.components_.shape == truth.components_.shape
    check_components(pca, truth.components_, X)
    np.testing.assert_allclose(pca.explained_variance_ratio_, truth.explained_variance_ratio_, rtol=0, atol=CLOSE)
    largest = truth.explained_variance_[0]
    np.testing.assert_allclose(pca.noise_variance_, truth.noise_variance_, rtol=0, atol=CLOSE * largest)
    np.testing.assert_allclose(pca.singular_values_**2, truth.singular_values_**2, rtol=0, atol=CLOSE * largest * 177)
    opened = [line["what"] for line in pca.openings_]
    assert ("number of components" in opened) == isinstance(components, float)


@pytest.mark.parametrize("whiten", [False, True])
@pytest.mark.parametrize("standardize", [False, True], ids=["raw", "standardised"])
def test_transform_and_back(servers: LocalServers, whiten: bool, standardize: bool) -> None:
    X = random(120, 6) @ random(6, 6, seed=1) + 5
    pca = PCA(4, whiten=whiten, standardize=standardize, servers=servers).fit(split(X, 3))
    reference = standardised(X) if standardize else X
    truth = decomposition.PCA(4, whiten=whiten).fit(reference)
    wanted = truth.transform(reference)
    np.testing.assert_allclose(pca.transform(X), wanted, rtol=0, atol=1e-5)
    rebuilt = truth.inverse_transform(wanted)
    if standardize:
        rebuilt = rebuilt * X.std(axis=0) + X.mean(axis=0)
    np.testing.assert_allclose(pca.inverse_transform(pca.transform(X)), rebuilt, rtol=0, atol=1e-5)


def test_get_params_clone_and_pickle(servers: LocalServers) -> None:
    pca = PCA(3, standardize=True, tol=1e-7, servers=servers)
    assert clone(pca).get_params() == pca.get_params()
    assert pca.set_params(n_components=2).n_components == 2
    pca.fit(split(WINE.to_numpy(), 2))
    again = pickle.loads(pickle.dumps(pca))
    with pytest.raises(ValueError, match="set_params"):
        again.fit(split(WINE.to_numpy(), 2))
    np.testing.assert_array_equal(again.components_, pca.components_)
    np.testing.assert_array_equal(again.transform(WINE.to_numpy()), pca.transform(WINE.to_numpy()))
    with pytest.raises(NotFittedError):
        clone(pca).transform(WINE.to_numpy())


def test_names_of_columns(servers: LocalServers) -> None:
    pca = PCA(2, servers=servers).fit([WINE[:50], WINE[50:]])
    np.testing.assert_array_equal(pca.feature_names_in_, WINE.columns)
    chosen = PCA(2, columns=["ash", "hue"], servers=servers).fit([WINE[:50], WINE[50:][list(WINE.columns[::-1])]])
    np.testing.assert_array_equal(chosen.feature_names_in_, ["ash", "hue"])
    check(PCA(servers=servers, columns=["ash", "hue"]).fit([WINE]), WINE[["ash", "hue"]].to_numpy())


def test_results_do_not_depend_on_who_owns_which_rows(servers: LocalServers) -> None:
    X = WINE.to_numpy()
    one = PCA(4, standardize=True, servers=servers).fit([X])
    many = PCA(4, standardize=True, servers=servers).fit(split(X[::-1], 5))
    check_components(one, many.components_, X)
    np.testing.assert_allclose(one.explained_variance_, many.explained_variance_, rtol=CLOSE)


@pytest.mark.parametrize("solver", ["jacobi", "jacobi-classic", "qr"])
def test_other_solvers(servers: LocalServers, solver: str) -> None:
    X = random(60, 5) @ random(5, 5, seed=1)
    pca = PCA(solver=solver, servers=servers).fit(split(X, 2))
    check(pca, X)
    assert not pca.fell_back_


# -- refusals ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "cause"),
    [
        ({"n_components": 14}, "n_components=14: must be at most 13"),
        ({"n_components": 0}, "n_components=0: must be a whole number, at least 1"),
        ({"n_components": 1.0}, "strictly between 0 and 1"),
        ({"solver": "magic"}, "choose from auto, topk, allpairs"),
        ({"tol": 1.0}, "must lie between"),
        ({"partition": "diagonal"}, "choose 'rows' or ppca.Columns"),
    ],
)
def test_bad_parameters(servers: LocalServers, parameters: dict[str, Any], cause: str) -> None:
    with pytest.raises(ValueError, match=cause):
        PCA(servers=servers, **parameters).fit(split(WINE.to_numpy(), 2))


def test_more_components_than_rows(servers: LocalServers) -> None:
    with pytest.raises(ValueError, match=r"at most min\(rows, columns\) = 4"):
        PCA(5, servers=servers).fit([random(2, 8), random(2, 8)])
