"""Right numbers at the edges: means far from zero, columns of very different scale, integers that doubles do not tell apart."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn import decomposition

from benchmarks.data_sets import split
from harness.accuracy import Floats, random
from harness.lockstep import LockstepServers
from ppca import PCA
from ppca.algorithms.solvers import NAMES
from ppca.owner.errors import BadValue
from ppca.runtime import LocalServers

CLOSE = 1e-6
EVERYTHING = ("transform", "flags", "scores", "inverse")


def exact_pca(X: Floats, standardize: bool) -> Any:
    """scikit-learn on rows centred in exact arithmetic."""
    means = [sum(map(Fraction, column.tolist())) / len(X) for column in X.T]
    Z = np.array([[float(Fraction(float(x)) - m) for x, m in zip(row, means, strict=True)] for row in X])
    return decomposition.PCA().fit(Z / Z.std(axis=0) if standardize else Z)


@pytest.mark.parametrize("standardize", [False, True], ids=["raw", "standardised"])
@pytest.mark.parametrize("ratio", [0.0, 1e3, 1e5, 1e7, 1e9])
def test_means_far_from_zero(lockstep_servers: LockstepServers, ratio: float, standardize: bool) -> None:
    X = random(120, 4) @ random(4, 4, seed=1)
    X = X + ratio * X.std(axis=0)
    truth = exact_pca(X, standardize)
    pca = PCA(standardize=standardize, servers=lockstep_servers).fit(split(X, 3))
    assert pca.verified_
    assert np.abs(pca.explained_variance_ratio_ - truth.explained_variance_ratio_).max() < CLOSE
    np.testing.assert_allclose(
        pca.explained_variance_, truth.explained_variance_, rtol=0, atol=CLOSE * truth.explained_variance_[0]
    )


def test_columns_of_very_different_scale(lockstep_servers: LockstepServers) -> None:
    """Standardised they are alike. Raw, what lies below the resolution is marked, and whitening refuses it."""
    X = random(200, 5) @ random(5, 5, seed=1) * 10.0 ** np.array([7, 4, 2, 0, -3])
    alike = PCA(standardize=True, servers=lockstep_servers).fit(split(X, 2))
    truth = exact_pca(X, True)
    assert np.abs(alike.explained_variance_ratio_ - truth.explained_variance_ratio_).max() < CLOSE
    assert alike.resolved_.all()
    raw = PCA(whiten=True, servers=lockstep_servers).fit(split(X, 2))
    ratios = exact_pca(X, False).explained_variance_ratio_
    assert raw.resolution_ == pytest.approx(4e-9, rel=1e-2)
    assert raw.model_.varies.tolist() == (ratios > raw.resolution_).tolist()
    assert not raw.resolved_[-1]
    with pytest.raises(ValueError, match="the variance of component 3 lies below the resolution, 4e-09 of the total"):
        raw.transform(X)
    np.testing.assert_allclose(
        PCA(1, whiten=True, servers=lockstep_servers).fit(split(X, 2)).transform(X).std(), 1, rtol=0.01
    )


def test_one_column_with_every_solver(lockstep_servers: LockstepServers) -> None:
    """`topk`, too, whose openings of one column were not in the list of the job."""
    X = random(30, 1)
    for solver in NAMES:
        pca = PCA(1, solver=solver, servers=lockstep_servers).fit(split(X, 2))
        assert pca.verified_
        assert pca.explained_variance_[0] == pytest.approx(X.var(ddof=1))


def test_timestamps_and_large_integers(lockstep_servers: LockstepServers) -> None:
    n = 90
    frame = pd.DataFrame(
        {
            "when": 1_700_000_000_000_000_000 + np.random.default_rng(1).integers(0, 365, n) * 86_400_000_000_000,
            "number": 2**53 - np.random.default_rng(2).integers(0, 1000, n),
            "value": random(n),
        }
    )
    truth = exact_pca(frame.to_numpy(np.float64), True)
    pca = PCA(standardize=True, servers=lockstep_servers).fit([frame[:40], frame[40:]])
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
    lockstep_servers: LockstepServers, tmp_path: Path, middle: int, deviation: float, standardize: bool
) -> None:
    """As an array, as CSV and as Parquet."""
    parts = near_integers(deviation, middle, np.uint64 if middle > 2**62 else np.int64)
    truth = exact_integer_pca([row for part in parts for row in part.tolist()], standardize)
    pd.DataFrame(parts[1], columns=list("abc")).to_csv(tmp_path / "b.csv", index=False)
    pd.DataFrame(parts[2], columns=list("abc")).to_parquet(tmp_path / "c.parquet")
    pca = PCA(standardize=standardize, servers=lockstep_servers).fit(
        [parts[0], tmp_path / "b.csv", tmp_path / "c.parquet"]
    )
    assert pca.verified_
    assert np.abs(pca.explained_variance_ratio_ - truth.explained_variance_ratio_).max() < CLOSE
    assert np.abs(pca.explained_variance_ - truth.explained_variance_).max() < CLOSE * truth.explained_variance_[0]
    assert np.abs(pca.components_[0] @ truth.components_[0]) > 1 - CLOSE


@pytest.mark.parametrize("standardize", [False, True], ids=["raw", "standardised"])
def test_integers_far_apart(lockstep_servers: LockstepServers, standardize: bool) -> None:
    """Owners at both ends of the range, an owner with both ends in one column, and a constant column."""
    ends = np.array([[-(2**63), 2**62 + 1, 2**62 + 1], [2**63 - 1, 2**62 + 1, -7], [5, 2**62 + 1, 2**62 + 2]])
    owners = [ends, *(np.array([[s * 2**62 + k, 2**62 + 1, s * k * 2**59] for k in range(9)]) for s in (1, -1))]
    pca = PCA(standardize=standardize, servers=lockstep_servers).fit(owners)
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
        ValueError, match=r"column 1 is 2\^36 or more scales of the model from zero.*Subtract the same offset"
    ):
        model.inverse_transform(np.ones((2, 3)))
    far = near_integers(2.0**50, 2**62)
    pca = PCA(servers=servers, keep="far", allow=EVERYTHING).fit(far)
    wanted = pca.transform(far[0])
    found = pca.shared_model().transform(far[0])
    np.testing.assert_allclose(np.abs(found), np.abs(wanted), rtol=0, atol=CLOSE * 2.0**50)
