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
from ppca.owner.contribute import are_wide
from ppca.owner.tables.owners import open_rows
from ppca.runtime import LocalServers

Floats = NDArray[np.float64]


def check(pca: PCA, joined: Floats, spread: float | None = None) -> None:
    """Everything that scikit-learn says of the joint table; components below the resolution are zero.

    spread: of all rows that owners have, common or not: means on shares have 2^-40 of it, or better."""
    if pca.partition == "rows":
        joined = wider(joined)
    n, d = joined.shape
    scaler = StandardScaler(with_std=pca.standardize).fit(joined)
    Z = scaler.transform(joined)
    truth = PlainPCA(pca.n_components_, svd_solver="full").fit(Z)
    assert pca.verified_
    assert (pca.n_samples_, pca.n_features_in_) == (n, d)
    largest, resolved = truth.explained_variance_[0], pca.model_.varies
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
    error = 2.0**-40 * float(np.ptp(joined) if spread is None else spread)
    assert np.allclose(pca.mean_, joined.mean(axis=0), rtol=1e-14, atol=error)
    if pca.standardize:
        assert np.allclose(pca.scale_, scaler.scale_, rtol=1e-8)


def sample(n: int, d: int, seed: int = 0) -> Floats:
    random = np.random.default_rng(seed)
    common = random.standard_normal((n, 4)) * [5, 3, 2, 1] @ random.standard_normal((4, d))
    return np.asarray(common + random.standard_normal((n, d)))


def column_owners(X: Floats, cuts: tuple[int, ...] = (7, 19)) -> list[Any]:
    ends = [0, *cuts, X.shape[1]]
    return [with_ids(X[:, a:b], [f"c{i}" for i in range(a, b)], np.arange(len(X))) for a, b in itertools.pairwise(ends)]


def row_owners(X: Floats) -> list[Floats]:
    """Three owners, or two of one row each."""
    cuts = [len(X) // 3, len(X) // 2] if len(X) > 2 else [1]
    return np.split(wider(X), cuts)


def wider(X: Floats) -> Floats:
    """More columns, as rows of zeros count: the same ones again, turned, scaled, and moved by no more than doubles hold."""
    return np.asarray(np.hstack([X, X[:, ::-1] * 0.5, X * 2 + np.abs(X).max(axis=0)]))


def fitted(way: str, X: Floats, servers: Any, *, standardize: bool = False, k: Any = 5, **options: Any) -> PCA:
    if way == "rows":
        return PCA(k, standardize=standardize, servers=servers, **options).fit(row_owners(X))
    partition = Columns("id", way, len(X) if way == "namespace" else None, minimum=2)
    return PCA(k, standardize=standardize, partition=partition, servers=servers, **options).fit(column_owners(X))


def is_dual(pca: PCA) -> bool:
    return "verification of components" in [line["what"] for line in pca.openings_]


@pytest.fixture
def few_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of rows are rounded up to multiples of 4: products of rows are then smaller, and tests quicker."""
    monkeypatch.setattr("ppca.owner.wide.ROWS_TOGETHER", 4)


both = pytest.mark.parametrize("standardize", [False, True], ids=["raw", "standardised"])
every_way = pytest.mark.parametrize("way", ["aligned", "namespace", "psi", "rows"])


@pytest.mark.usefixtures("few_zeros")
@every_way
@both
def test_like_scikit_learn(lockstep_servers: LockstepServers, way: str, standardize: bool) -> None:
    X = sample(25, 60) * np.geomspace(1, 30, 60)
    X[:, 11] = 4.5
    pca = fitted(way, X, lockstep_servers, standardize=standardize)
    assert is_dual(pca)
    check(pca, X)


@pytest.mark.usefixtures("few_zeros")
@every_way
@both
def test_means_far_from_zero(lockstep_servers: LockstepServers, way: str, standardize: bool) -> None:
    """A mean of 10^7 deviations costs no digit: what is compared is exact, as integers are."""
    X = np.rint(sample(20, 50, 1) * 100) + 1e9
    check(fitted(way, X, lockstep_servers, standardize=standardize), X)


CASES = {
    "two rows": np.random.default_rng(0).standard_normal((2, 30)),
    "rows twice": np.vstack([sample(9, 40, 2)] * 2),
    "rank 2": sample(15, 2, 3) @ sample(2, 40, 4),
    "nearly singular": sample(12, 12, 5) * np.geomspace(1, 1e-3, 12) @ sample(12, 40, 6),
    "an owner without variance": np.hstack([np.full((12, 7), 3.0), sample(12, 40, 7)]),
    "columns far apart": sample(14, 40, 8) * np.geomspace(1e-9, 1e6, 40),
    "tiny": sample(14, 40, 9) * 2.0**-400,
}


@pytest.mark.usefixtures("few_zeros")
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("way", ["aligned", pytest.param("namespace", marks=pytest.mark.release), "psi", "rows"])
@both
def test_hard_tables(lockstep_servers: LockstepServers, way: str, standardize: bool, case: str) -> None:
    X = CASES[case]
    pca = fitted(way, X, lockstep_servers, standardize=standardize, k=min(6, len(X)))
    if case == "tiny" and not standardize:  # squares of 2^-400 are no doubles
        X, pca.mean_ = X * 2.0**400, pca.mean_ * 2.0**400
        pca.explained_variance_ = pca.explained_variance_ * 2.0**400 * 2.0**400
    check(pca, X)


@pytest.mark.usefixtures("few_zeros")
@pytest.mark.parametrize("way", ["aligned", "psi", "rows"])
@both
def test_all_components_and_a_fraction(lockstep_servers: LockstepServers, way: str, standardize: bool) -> None:
    """All components are as many as rows; the last has no variance, and is zero."""
    X = sample(11, 45, 10)
    pca = fitted(way, X, lockstep_servers, standardize=standardize, k=None)
    assert pca.n_components_ == 11
    assert pca.resolved_.sum() == 10
    assert np.all(pca.components_[10] == 0)
    check(pca, X)
    some = fitted(way, X, lockstep_servers, standardize=standardize, k=0.7)
    assert some.n_components_ == 1 + np.sum(np.cumsum(pca.explained_variance_ratio_) <= 0.7)
    check(some, X)


@pytest.mark.usefixtures("few_zeros")
@pytest.mark.parametrize("way", ["aligned", "psi", "rows"])
def test_no_variance_at_all(lockstep_servers: LockstepServers, way: str) -> None:
    pca = fitted(way, np.full((8, 40), 2.5), lockstep_servers, k=2)
    assert pca.verified_
    assert np.all(pca.components_ == 0)
    assert np.all(pca.explained_variance_ == 0)
    assert np.all(pca.mean_[:30] == 2.5)


@pytest.mark.usefixtures("few_zeros")
@pytest.mark.parametrize("way", ["aligned", "psi", "rows"])
@both
def test_a_kept_model_projects_rows(lockstep_servers: LockstepServers, way: str, standardize: bool) -> None:
    X = sample(18, 50, 11)
    pca = fitted(way, X, lockstep_servers, standardize=standardize, k=4, keep="wide", allow=("transform", "scores"))
    new = wider(X[:5]) if way == "rows" else X[:5]
    model = pca.shared_model()
    projected = pca.model_.project(new)
    assert np.abs(np.abs(model.transform(new)) - np.abs(projected)).max() < 1e-7 * np.abs(projected).max()
    assert np.allclose(model.score_samples(new), pca.model_.scores(new), rtol=1e-6)


@pytest.mark.usefixtures("few_zeros")
def test_rows_cannot_be_added(lockstep_servers: LockstepServers) -> None:
    pca = fitted("rows", sample(18, 50, 11), lockstep_servers, k=2, keep="wide")
    assert "partial_fit" not in pca.allowed_
    with pytest.raises(ValueError, match="fit all owners again"):
        pca.partial_fit(wider(sample(9, 50, 12)))


def test_openings(lockstep_servers: LockstepServers) -> None:
    """What the page says of tables with more columns than rows, and nothing else."""
    X = sample(16, 40, 12)
    pca = fitted("aligned", X, lockstep_servers, k=3, fixed_iterations=16)
    servers = [(line["what"], tuple(line["shape"])) for line in pca.openings_ if line["to"] == "servers"]
    assert servers == [("shuffled ranks", (16,)), ("verification bit", ()), ("verification of components", ())]
    for audits in lockstep_servers.audits:
        assert all(audit == audits[0] for audit in audits)
    rows = fitted("rows", X, lockstep_servers, k=3, fixed_iterations=20)
    servers = [(line["what"], tuple(line["shape"])) for line in rows.openings_ if line["to"] == "servers"]
    assert servers == [
        ("rounded numbers of rows", (3,)),
        *(("shuffled ranks", (99,)), ("verification bit", ()), ("verification of components", ())),
    ]


@pytest.mark.usefixtures("few_zeros")
@both
def test_servers_see_rounded_numbers_of_rows_only(standardize: bool) -> None:
    """Owners of 1 and of 4 rows send packets and lead to messages of the same sizes, and to the same public parameters."""
    views = []
    for few in (1, 4):
        lockstep_servers = LockstepServers(record=True)
        owners = [sample(few, 40, 1), sample(7, 40, 2)]
        PCA(2, standardize=standardize, servers=lockstep_servers, fixed_iterations=16).fit(owners)
        public = [{key: value for key, value in one.items() if key != "table"} for one in lockstep_servers.public]
        views.append(([[len(part) for part in view] for view in lockstep_servers.views], public))
    assert views[0] == views[1]


@pytest.mark.usefixtures("few_zeros")
@both
def test_an_owner_far_from_the_others(lockstep_servers: LockstepServers, standardize: bool) -> None:
    """Its mean lies 10^5 deviations away, its own deviations are 10^-3 of the others', and it has a single row besides."""
    owners = [sample(9, 140, 1) + 1e9, sample(11, 140, 2) * 1e-3 + 1e5 + 1e9, sample(1, 140, 3) + 1e9]
    X = np.vstack(owners)
    pca = PCA(3, standardize=standardize, servers=lockstep_servers).fit(owners)
    assert is_dual(pca)
    pca.partition = None
    check(pca, X)


@both
def test_rows_that_only_servers_find_common(lockstep_servers: LockstepServers, standardize: bool) -> None:
    """Owners have other rows besides, far away; a column that is constant in the common rows counts as constant."""
    X = sample(40, 60, 20)
    X[30:] = X[30:] * 50 + 1000
    X[:30, 8] = 2.5
    known = [np.r_[0:30, 30:33], np.r_[0:30, 33:36], np.r_[0:30, 36:40]]
    names = [f"c{i}" for i in range(60)]
    ends = [0, 7, 19, 60]
    random = np.random.default_rng(21)
    owners = []
    for (a, b), rows in zip(itertools.pairwise(ends), known, strict=True):
        order = random.permutation(rows)
        owners.append(with_ids(X[order, a:b], names[a:b], order))
    pca = PCA(4, standardize=standardize, partition=Columns("id"), servers=lockstep_servers).fit(owners)
    assert is_dual(pca)
    check(pca, X[:30], float(np.ptp(X)))


def test_as_many_rows_as_columns_are_not_wide(lockstep_servers: LockstepServers) -> None:
    """Rows of zeros count: one row each of three owners are 96."""
    assert not is_dual(fitted("aligned", sample(40, 40, 13), lockstep_servers, k=2))
    X = sample(3, 97, 13)
    assert are_wide(open_rows(list(X[:, None])))
    assert not are_wide(open_rows(list(X[:, None, 1:])))
    assert not are_wide(open_rows([sample(33, 97, 14), *X[1:, None]]))


@pytest.mark.parametrize("way", ["aligned", "psi", "rows"])
@both
def test_on_processes(servers: LocalServers, way: str, standardize: bool) -> None:
    X = sample(40, 300, 14)
    pca = fitted(way, X, servers, standardize=standardize, k=6)
    assert is_dual(pca)
    check(pca, X)
