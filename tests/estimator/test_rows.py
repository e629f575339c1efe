"""Joint PCA of rows of several owners: scikit-learn's numbers on real and on awkward data, and scikit-learn's manners.

Limits are the project's: explained-variance ratios, eigenvalues (relative to the largest) and residuals within 1e-6,
orthogonality within 1e-7. Larger data sets are measured by `ppca bench accuracy`.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn import decomposition
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.exceptions import NotFittedError

from benchmarks.accuracy import ACCURACY_LIMITS, PROMISED, Accuracy, accuracy_of, standardised
from benchmarks.data_sets import DATA_SETS, MissingData, split
from harness.lockstep import LockstepServers
from ppca import PCA
from ppca.jobs import inference
from ppca.owner.errors import BadValue
from ppca.servers import LocalServers

Floats = NDArray[np.float64]
CLOSE = 1e-6
EVERYTHING = ("transform", "flags", "scores", "inverse")


def random(*shape: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape)


def check(pca: PCA, pooled: Floats) -> Accuracy:
    accuracy = accuracy_of(pca, pooled)
    assert accuracy.broken(PROMISED) == [], accuracy
    assert pca.verified_
    np.testing.assert_allclose(pca.mean_, pooled.mean(axis=0), rtol=1e-9, atol=1e-12 * np.abs(pooled).max())
    return accuracy


def check_subspaces(pca: PCA, pooled: Floats, gap: float = 0.02) -> None:
    """Eigenvalues less than `gap` of the largest apart count as one group; groups must span the true subspaces.

    sin(angle) <= residual / distance to the other eigenvalues (Davis and Kahan), both relative to |C|. A group of which
    some components were left out is not determined.
    """
    values, basis = spectrum(pooled, pca.standardize)
    cuts = np.flatnonzero(-np.diff(values) > gap) + 1
    for group in np.split(np.arange(len(values)), cuts):
        if group[-1] < pca.n_components_:
            ours, theirs = pca.components_[group], basis[group]
            outside = ours - ours @ theirs.T @ theirs
            assert np.linalg.norm(outside, 2) <= np.sqrt(len(values)) * ACCURACY_LIMITS["residual"] / gap


def check_components(pca: PCA, wanted: Floats, pooled: Floats) -> None:
    """Each component within twice residual / gap (Davis and Kahan), where its eigenvalue is 1e-5 of the largest from others."""
    values, _ = spectrum(pooled, pca.standardize)
    gaps = np.minimum(np.diff(-values, prepend=-np.inf), np.diff(-values, append=np.inf))[: pca.n_components_]
    for ours, theirs, gap in zip(pca.components_, wanted, gaps, strict=True):
        if gap > 1e-5:
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=2 * ACCURACY_LIMITS["residual"] / gap)


def spectrum(pooled: Floats, standardize: bool) -> tuple[Floats, Floats]:
    """Eigenvalues relative to the largest, descending, and eigenvectors as rows."""
    X = standardised(pooled) if standardize else pooled - pooled.mean(axis=0)
    values, basis = np.linalg.eigh(X.T @ X / (len(X) - 1))
    return values[::-1] / values[-1], basis[:, ::-1].T


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
    assert again.servers is None
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


# -- right at the edges ---------------------------------------------------------------------------------------------------


def exact_pca(X: Floats, standardize: bool) -> Any:
    """scikit-learn on rows centred in exact arithmetic."""
    means = [sum(map(Fraction, column.tolist())) / len(X) for column in X.T]
    Z = np.array([[float(Fraction(float(x)) - m) for x, m in zip(row, means, strict=True)] for row in X])
    return decomposition.PCA().fit(Z / Z.std(axis=0) if standardize else Z)


@pytest.mark.parametrize("standardize", [False, True], ids=["raw", "standardised"])
@pytest.mark.parametrize("ratio", [0.0, 1e3, 1e5, 1e7, 1e9])
def test_means_far_from_zero(seats: LockstepServers, ratio: float, standardize: bool) -> None:
    X = random(120, 4) @ random(4, 4, seed=1)
    X = X + ratio * X.std(axis=0)
    truth = exact_pca(X, standardize)
    pca = PCA(standardize=standardize, servers=seats).fit(split(X, 3))
    assert pca.verified_
    assert np.abs(pca.explained_variance_ratio_ - truth.explained_variance_ratio_).max() < CLOSE
    np.testing.assert_allclose(
        pca.explained_variance_, truth.explained_variance_, rtol=0, atol=CLOSE * truth.explained_variance_[0]
    )


def test_columns_of_very_different_scale(seats: LockstepServers) -> None:
    """Standardised they are alike. Raw, what lies below the resolution is marked, and whitening refuses it."""
    X = random(200, 5) @ random(5, 5, seed=1) * 10.0 ** np.array([7, 4, 2, 0, -3])
    alike = PCA(standardize=True, servers=seats).fit(split(X, 2))
    truth = exact_pca(X, True)
    assert np.abs(alike.explained_variance_ratio_ - truth.explained_variance_ratio_).max() < CLOSE
    assert alike.resolved_.all()
    raw = PCA(whiten=True, servers=seats).fit(split(X, 2))
    ratios = exact_pca(X, False).explained_variance_ratio_
    assert raw.resolution_ == pytest.approx(4e-7, rel=1e-3)
    assert raw.resolved_.tolist() == (ratios > raw.resolution_).tolist()
    assert not raw.resolved_[-1]
    with pytest.raises(ValueError, match="the variance of component 3 lies below the resolution, 4e-07 of the total"):
        raw.transform(X)
    np.testing.assert_allclose(PCA(1, whiten=True, servers=seats).fit(split(X, 2)).transform(X).std(), 1, rtol=0.01)


def test_timestamps_and_large_integers(seats: LockstepServers) -> None:
    n = 90
    frame = pd.DataFrame(
        {
            "when": 1_700_000_000_000_000_000 + np.random.default_rng(1).integers(0, 365, n) * 86_400_000_000_000,
            "number": 2**53 - np.random.default_rng(2).integers(0, 1000, n),
            "value": random(n),
        }
    )
    truth = exact_pca(frame.to_numpy(np.float64), True)
    pca = PCA(standardize=True, servers=seats).fit([frame[:40], frame[40:]])
    assert np.abs(pca.explained_variance_ratio_ - truth.explained_variance_ratio_).max() < CLOSE
    assert pca.verified_


def exact_integer_pca(rows: list[list[int]], standardize: bool) -> decomposition.PCA:
    """scikit-learn on integers centred in rational arithmetic."""
    means = [Fraction(sum(column), len(rows)) for column in zip(*rows, strict=True)]
    Z = np.array([[float(x - m) for x, m in zip(row, means, strict=True)] for row in rows])
    return decomposition.PCA(svd_solver="full").fit(Z / Z.std(axis=0) if standardize else Z)


def near_integers(deviation: float, middle: int, dtype: Any = np.int64) -> list[NDArray[Any]]:
    """Owners whose means lie up to three deviations apart."""
    mix = np.array([[1, 0.7, 0.2], [0, 1, 0.5], [0, 0, 1]])
    parts = [np.rint((random(n, 3, seed=n) @ mix + k) * deviation) for n, k in ((20, 0), (30, 3), (25, -2))]
    return [(part.astype(np.int64).astype(object) + middle).astype(dtype) for part in parts]


@pytest.mark.parametrize("standardize", [False, True], ids=["raw", "standardised"])
@pytest.mark.parametrize("deviation", [0.5, 10, 1e6])
@pytest.mark.parametrize("middle", [2**62, -(2**63) + 2**24, 2**63, 2**64 - 2**24])
def test_integers_that_doubles_do_not_tell_apart(
    seats: LockstepServers, tmp_path: Path, middle: int, deviation: float, standardize: bool
) -> None:
    """As an array, as CSV and as Parquet."""
    parts = near_integers(deviation, middle, np.uint64 if middle > 2**62 else np.int64)
    truth = exact_integer_pca([row for part in parts for row in part.tolist()], standardize)
    pd.DataFrame(parts[1], columns=list("abc")).to_csv(tmp_path / "b.csv", index=False)
    pd.DataFrame(parts[2], columns=list("abc")).to_parquet(tmp_path / "c.parquet")
    pca = PCA(standardize=standardize, servers=seats).fit([parts[0], tmp_path / "b.csv", tmp_path / "c.parquet"])
    assert pca.verified_
    assert np.abs(pca.explained_variance_ratio_ - truth.explained_variance_ratio_).max() < CLOSE
    assert np.abs(pca.explained_variance_ - truth.explained_variance_).max() < CLOSE * truth.explained_variance_[0]
    assert np.abs(pca.components_[0] @ truth.components_[0]) > 1 - CLOSE


@pytest.mark.parametrize("standardize", [False, True], ids=["raw", "standardised"])
def test_integers_far_apart(seats: LockstepServers, standardize: bool) -> None:
    """Owners at both ends of the range, an owner with both ends in one column, and a constant column."""
    ends = np.array([[-(2**63), 2**62 + 1, 2**62 + 1], [2**63 - 1, 2**62 + 1, -7], [5, 2**62 + 1, 2**62 + 2]])
    owners = [ends, *(np.array([[s * 2**62 + k, 2**62 + 1, s * k * 2**59] for k in range(9)]) for s in (1, -1))]
    pca = PCA(standardize=standardize, servers=seats).fit(owners)
    rows = [[row[0], row[2]] for owner in owners for row in owner.tolist()]
    truth = exact_integer_pca(rows, standardize)
    assert np.abs(pca.explained_variance_ratio_[:2] - truth.explained_variance_ratio_).max() < CLOSE
    assert pca.explained_variance_ratio_[2] < CLOSE
    assert pca.mean_[1] == 2.0**62


def test_rows_of_such_integers_are_refused_where_doubles_are_too_coarse(servers: LocalServers) -> None:
    """In the clear by the receiver's model; on shares by the range of the model's numbers, and rebuilt rows by the receiver."""
    parts = near_integers(10, 2**62)
    pca = PCA(servers=servers, keep="far", allow=EVERYTHING).fit(parts)
    with pytest.raises(
        ValueError, match=r"column '.' has a mean of 4.61e\+18, where doubles are 1e\+03 apart.*Subtract the same"
    ):
        pca.transform(parts[0])
    model = pca.shared_model()
    with pytest.raises(
        BadValue, match=r"column '1' has 4.61169e\+18 in row 1; .* if all rows are so large, subtract one number"
    ):
        model.transform(parts[0])
    with pytest.raises(
        ValueError, match=r"column 1 lies 2\^36 or more scales of the model from zero.*Subtract the same offset"
    ):
        model.inverse_transform(np.ones((2, 3)))
    far = near_integers(2.0**50, 2**62)
    pca = PCA(servers=servers, keep="far", allow=EVERYTHING).fit(far)
    wanted = pca.transform(far[0])
    found = pca.shared_model().transform(far[0])
    np.testing.assert_allclose(np.abs(found), np.abs(wanted), rtol=0, atol=CLOSE * 2.0**50)


# -- rows that come later ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("standardize", [False, True], ids=["raw", "standardised"])
def test_partial_fit_equals_fit_of_all(servers: LocalServers, standardize: bool) -> None:
    X = random(300, 6) @ random(6, 6, seed=1) + 50
    parts = split(X, 4)
    pca = PCA(standardize=standardize, servers=servers, keep="growing").fit(parts[:2])
    for part in parts[2:]:
        pca.partial_fit(part)
    assert pca.n_samples_ == 300
    check(pca, X)
    all_at_once = PCA(standardize=standardize, servers=servers).fit(parts)
    check_components(pca, all_at_once.components_, X)
    np.testing.assert_allclose(pca.mean_, all_at_once.mean_, rtol=1e-9)


def test_rows_of_another_size_are_added(servers: LocalServers) -> None:
    """Scales are made anew from those of all owners; a refused addition leaves the sums unharmed."""
    frame = pd.DataFrame(random(50, 3), columns=["a", "b", "c"])
    pca = PCA(servers=servers, keep="scale").fit([frame])
    with pytest.raises(ValueError, match="X has 2 features, but PCA is expecting 3 features"):
        pca.partial_fit(frame[["a", "b"]].to_numpy())
    large = frame.assign(b=frame["b"] * 1e6 + 1e9)
    pca.partial_fit(large)
    assert pca.n_samples_ == 100
    check(pca, np.vstack([frame, large]))


def test_partial_fit_needs_servers_that_keep_sums() -> None:
    with pytest.raises(ValueError, match=r"pass servers=\.\.\. and keep='name'"):
        PCA().partial_fit(random(10, 2))


# -- inference on shares -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("standardize", [False, True], ids=["raw", "standardised"])
def test_shared_model(servers: LocalServers, standardize: bool) -> None:
    """Model and rows both secret; the same numbers as scikit-learn in the clear, up to signs of components."""
    X = random(150, 6) @ random(6, 6, seed=1) * np.geomspace(0.1, 10, 6) + 3
    X[7] *= 6
    pca = PCA(3, standardize=standardize, servers=servers, keep="shared", reveal=False, allow=EVERYTHING).fit(
        split(X, 3)
    )
    assert not hasattr(pca, "components_")
    told = {line["what"] for line in pca.openings_ if line["to"] != "servers"}
    assert told == {"number of rows", "scale exponents"}
    reference = standardised(X) if standardize else X
    truth = decomposition.PCA(3).fit(reference)
    wanted = truth.transform(reference)
    scores = ((reference - truth.inverse_transform(wanted)) ** 2).sum(axis=1)
    model = pca.shared_model()
    found = model.transform(X)
    signs = np.sign((found * wanted).sum(axis=0))
    np.testing.assert_allclose(found * signs, wanted, rtol=0, atol=CLOSE * np.abs(wanted).max())
    np.testing.assert_allclose(model.score_samples(X), scores, rtol=0, atol=CLOSE * scores.max())
    np.testing.assert_array_equal(model.detect(X, contamination=0.1), scores >= np.sort(scores)[-15])
    middle = float(np.sort(scores)[100:102].mean())
    np.testing.assert_array_equal(model.detect(X, threshold=middle), scores > middle)
    rebuilt = model.inverse_transform(found)
    np.testing.assert_allclose(rebuilt, truth.inverse_transform(wanted), rtol=0, atol=CLOSE * np.abs(reference).max())


def test_a_shared_model_with_a_constant_column(servers: LocalServers) -> None:
    """It counts for nothing, whatever new rows have there: as the model in the clear, whose deviation is 1 there."""
    X = np.column_stack([random(60, 3), np.full(60, 7.0)])
    pca = PCA(2, standardize=True, servers=servers, keep="constant").fit(split(X, 2))
    found, wanted = pca.shared_model().transform(X), pca.transform(X)
    signs = np.sign((found * wanted).sum(axis=0))
    np.testing.assert_allclose(found * signs, wanted, rtol=0, atol=CLOSE * np.abs(wanted).max())


def test_nothing_is_anomalous_where_all_columns_are_constant() -> None:
    seats = LockstepServers()
    model = PCA(1, servers=seats, keep="m").fit([np.ones((5, 2))]).shared_model()
    assert model.detect(np.array([[1.0, 1.0], [2.0, 9.0]]), threshold=0.5).tolist() == [False, False]


@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("offset", [0.0, 1e8, 1e13])
def test_no_row_is_too_far_away_to_be_flagged(offset: float, standardize: bool) -> None:
    """Scores that have no room are the largest: of rows that owners may just send, and of those without an offset of the fit."""
    X = np.random.default_rng(0).standard_normal((80, 64)) + np.r_[offset, np.zeros(63)]
    seats = LockstepServers()
    model = PCA(1, standardize=standardize, servers=seats, keep="m", allow=("flags", "scores")).fit([X]).shared_model()
    rows = np.vstack([np.ldexp(0.97, model.scale + 20), np.zeros(64)])
    assert model.detect(rows, threshold=1e6).tolist() == [True, bool(offset)]
    assert model.score_samples(rows)[0] == inference.LARGEST_SCORE * model.unit**2


def test_score_of_a_row_far_away(servers: LocalServers) -> None:
    """Scores stay right up to 2^45: here a row of 1e6 deviations, whose squares are 1e12."""
    X = random(2000, 4)
    X[0, 3] = 30.0  # the scale leaves room for 32 times as much
    X[:, 3] *= 1e-3
    X[0, 3] = 1.0
    pca = PCA(1, standardize=True, servers=servers, keep="far", allow=("scores",)).fit([X])
    rows = X[:5].copy()
    rows[2, 3] = 31.0
    wanted = pca.model_.scores(rows)
    np.testing.assert_allclose(pca.shared_model().score_samples(rows), wanted, rtol=1e-5)


def test_rows_that_do_not_fit_a_shared_model(servers: LocalServers) -> None:
    pca = PCA(2, servers=servers, keep="narrow").fit([WINE])
    model = pca.shared_model()
    with pytest.raises(ValueError, match="column 'hue' has 1e\\+12 in row 2"):
        model.transform(WINE.assign(hue=[1.0, 1e12] + [1.0] * 176))
    with pytest.raises(ValueError, match="4 columns, the model 13"):
        model.transform(WINE.to_numpy()[:, :4])
    with pytest.raises(ValueError, match="nothing to find"):
        model.detect(WINE)


# -- refusals ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "cause"),
    [
        ({"n_components": 14}, "between 1 and 13"),
        ({"n_components": 0}, "n_components=0 must be at least 1"),
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
