"""Joint PCA of tables with more columns than rows, against scikit-learn on the joint table.

Tolerances: 1e-7 for explained-variance ratios, 1e-6 of the largest variance for residuals (the solver's promise), as elsewhere.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.decomposition import PCA as PlainPCA  # noqa: N811 - scikit-learn's
from sklearn.preprocessing import StandardScaler

from harness.lockstep import LockstepServers
from harness.tables import with_ids
from ppca import PCA, Columns
from ppca.servers import LocalServers

Floats = NDArray[np.float64]
COLUMNS = ["aligned", "namespace"]


def check(pca: PCA, joined: Floats) -> None:
    """Everything that scikit-learn says of the joint table; components below the resolution are zero."""
    n, d = joined.shape
    scaler = StandardScaler(with_std=pca.standardize).fit(joined)
    Z = scaler.transform(joined)
    truth = PlainPCA(pca.n_components_).fit(Z)
    assert pca.verified_
    assert (pca.n_samples_, pca.n_features_in_) == (n, d)
    largest, resolved = truth.explained_variance_[0], pca.resolved_
    off = np.abs(pca.explained_variance_ratio_ - truth.explained_variance_ratio_)
    assert np.all(off < np.where(resolved, 1e-7, pca.resolution_))
    assert np.all(np.abs(pca.explained_variance_ - truth.explained_variance_)[resolved] < 1e-7 * largest)
    V = pca.components_[resolved].T
    assert np.abs(V.T @ V - np.eye(V.shape[1])).max(initial=0.0) < 1e-9
    residual = Z.T @ (Z @ V) / (n - 1) - V * truth.explained_variance_[resolved]
    assert np.linalg.norm(residual) < 1e-6 * largest
    assert np.all(resolved == (truth.explained_variance_ratio_ > pca.resolution_))
    at = np.argmax(np.abs(pca.components_), axis=1)
    assert np.all(pca.components_[np.arange(len(at)), at] >= 0)
    # The mean of a constant column is its value; others may be rounded as scikit-learn's are.
    assert np.allclose(pca.mean_, joined.mean(axis=0), rtol=1e-14, atol=1e-14 * np.ptp(joined))
    if pca.standardize:
        assert np.allclose(pca.scale_, scaler.scale_, rtol=1e-8)


def sample(n: int, d: int, seed: int = 0) -> Floats:
    random = np.random.default_rng(seed)
    common = random.standard_normal((n, 4)) * [5, 3, 2, 1] @ random.standard_normal((4, d))
    return np.asarray(common + random.standard_normal((n, d)))


def column_owners(X: Floats, cuts: tuple[int, ...] = (7, 19)) -> list[Any]:
    ends = [0, *cuts, X.shape[1]]
    return [with_ids(X[:, a:b], [f"c{i}" for i in range(a, b)], np.arange(len(X))) for a, b in itertools.pairwise(ends)]


def fitted(way: str, X: Floats, servers: Any, *, standardize: bool = False, k: Any = 5, **options: Any) -> PCA:
    partition = Columns("id", way, len(X) if way == "namespace" else None)
    return PCA(k, standardize=standardize, partition=partition, servers=servers, **options).fit(column_owners(X))


def is_dual(pca: PCA) -> bool:
    return "verification of components" in [line["what"] for line in pca.openings_]


both = pytest.mark.parametrize("standardize", [False, True], ids=["raw", "standardised"])
every_way = pytest.mark.parametrize("way", COLUMNS)


@every_way
@both
def test_like_scikit_learn(seats: LockstepServers, way: str, standardize: bool) -> None:
    X = sample(25, 60) * np.geomspace(1, 30, 60)
    X[:, 11] = 4.5
    pca = fitted(way, X, seats, standardize=standardize)
    assert is_dual(pca)
    check(pca, X)


@every_way
@both
def test_means_far_from_zero(seats: LockstepServers, way: str, standardize: bool) -> None:
    """A mean of 10^7 deviations costs no digit: what is compared is exact, as integers are."""
    X = np.rint(sample(20, 50, 1) * 100) + 1e9
    check(fitted(way, X, seats, standardize=standardize), X)


CASES = {
    "two rows": np.random.default_rng(0).standard_normal((2, 30)),
    "rows twice": np.vstack([sample(9, 40, 2)] * 2),
    "rank 2": sample(15, 2, 3) @ sample(2, 40, 4),
    "nearly singular": sample(12, 12, 5) * np.geomspace(1, 1e-3, 12) @ sample(12, 40, 6),
    "an owner without variance": np.hstack([np.full((12, 7), 3.0), sample(12, 40, 7)]),
    "columns far apart": sample(14, 40, 8) * np.geomspace(1e-9, 1e6, 40),
    "tiny": sample(14, 40, 9) * 2.0**-400,
}


@pytest.mark.parametrize("case", CASES)
@every_way
@both
def test_hard_tables(seats: LockstepServers, way: str, standardize: bool, case: str) -> None:
    X = CASES[case]
    pca = fitted(way, X, seats, standardize=standardize, k=min(6, len(X)))
    if case == "tiny" and not standardize:  # squares of 2^-400 are no doubles
        X, pca.mean_ = X * 2.0**400, pca.mean_ * 2.0**400
        pca.explained_variance_ = pca.explained_variance_ * 2.0**400 * 2.0**400
    check(pca, X)


@both
def test_all_components_and_a_fraction(seats: LockstepServers, standardize: bool) -> None:
    """All components are as many as rows; the last has no variance, and is zero."""
    X = sample(11, 45, 10)
    pca = fitted("aligned", X, seats, standardize=standardize, k=None)
    assert pca.n_components_ == 11
    assert pca.resolved_.sum() == 10
    assert np.all(pca.components_[10] == 0)
    check(pca, X)
    some = fitted("aligned", X, seats, standardize=standardize, k=0.7)
    assert some.n_components_ == 1 + np.sum(np.cumsum(pca.explained_variance_ratio_) <= 0.7)
    check(some, X)


def test_no_variance_at_all(seats: LockstepServers) -> None:
    pca = fitted("aligned", np.full((8, 30), 2.5), seats, k=2)
    assert pca.verified_
    assert np.all(pca.components_ == 0)
    assert np.all(pca.explained_variance_ == 0)
    assert np.all(pca.mean_ == 2.5)


@both
def test_a_kept_model_projects_rows(seats: LockstepServers, standardize: bool) -> None:
    X = sample(18, 50, 11)
    pca = fitted("aligned", X, seats, standardize=standardize, k=4, keep="wide")
    secret = np.abs(pca.shared_model().transform(X[:5]))
    frame = pca.transform(column_frame(X[:5]))
    assert np.abs(secret - np.abs(frame)).max() < 1e-6 * np.abs(frame).max()


def column_frame(X: Floats) -> Any:
    import pandas as pd

    return pd.DataFrame(X, columns=[f"c{i}" for i in range(X.shape[1])])


def test_openings(seats: LockstepServers) -> None:
    """What the page says of tables with more columns than rows, and nothing else."""
    X = sample(16, 40, 12)
    pca = fitted("aligned", X, seats, k=3, fixed_iterations=16)
    servers = [(line["what"], tuple(line["shape"])) for line in pca.openings_ if line["to"] == "servers"]
    assert servers == [("shuffled ranks", (16,)), ("verification bit", ()), ("verification of components", ())]
    for audits in seats.audits:
        assert all(audit == audits[0] for audit in audits)


def test_as_many_rows_as_columns_are_not_wide(seats: LockstepServers) -> None:
    assert not is_dual(fitted("aligned", sample(40, 40, 13), seats, k=2))


def test_on_processes(servers: LocalServers) -> None:
    X = sample(40, 300, 14)
    pca = fitted("aligned", X, servers, k=6)
    check(pca, X)
