"""Missing values count as the mean of their column: as SimpleImputer and PCA of scikit-learn do on the joined table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.decomposition import PCA as PlainPCA  # noqa: N811 - scikit-learn's
from sklearn.impute import SimpleImputer

from benchmarks.accuracy import PROMISED, accuracy_of
from harness.lockstep import LockstepServers
from harness.tables import with_ids
from ppca import PCA, Columns, open_table
from ppca.jobs.errors import Refusal
from ppca.owner.errors import BadValue

Floats = NDArray[np.float64]
DATA = {"wine": load_wine().data, "breast cancer": load_breast_cancer().data}
MISSING = {"everywhere": (0.05, 0.05, 0.05), "unlike": (0.3, 0.0, 0.05), "many": (0.3, 0.3, 0.25)}
NAMES = ["a", "b", "c", "d"]


def with_holes(X: Floats, parts: tuple[float, ...]) -> list[Floats]:
    """Owners of a quarter, a quarter and a half of the rows, missing these parts of their values."""
    random = np.random.default_rng(len(X))
    owners = [owner.copy() for owner in np.split(X, [len(X) // 4, len(X) // 2])]
    for owner, part in zip(owners, parts, strict=True):
        owner[random.random(owner.shape) < part] = np.nan
    return owners


def opened(owners: list[Floats]) -> list[Any]:
    return [open_table(owner, missing="mean") for owner in owners]


def imputed(owners: list[Floats]) -> Floats:
    return np.asarray(SimpleImputer(strategy="mean").fit_transform(np.vstack(owners)))


def check(pca: PCA, owners: list[Floats]) -> None:
    joined = imputed(owners)
    accuracy = accuracy_of(pca, joined)
    assert accuracy.broken(PROMISED) == [], accuracy
    assert pca.verified_
    assert pca.n_samples_ == len(joined)
    np.testing.assert_allclose(pca.mean_, joined.mean(axis=0), rtol=1e-12)


@pytest.mark.parametrize("standardize", [False, True], ids=["raw", "standardised"])
@pytest.mark.parametrize("parts", MISSING)
@pytest.mark.parametrize("name", DATA)
def test_real_data(lockstep_servers: LockstepServers, name: str, parts: str, standardize: bool) -> None:
    """Sorted by the first column, so that the owners' means are far apart."""
    X = DATA[name][np.argsort(DATA[name][:, 0])]
    owners = with_holes(X, MISSING[parts])
    check(PCA(standardize=standardize, servers=lockstep_servers).fit(opened(owners)), owners)


@pytest.mark.parametrize("standardize", [False, True], ids=["raw", "standardised"])
def test_means_of_ten_million_deviations(lockstep_servers: LockstepServers, standardize: bool) -> None:
    """The truth is that of the same values less a number that they have in common, where doubles have digits left."""
    X = np.round(np.ldexp(np.random.default_rng(3).standard_normal((300, 4)) @ np.diag([1.0, 2, 3, 4]), 20))
    X[:75] += 2.0**21
    owners = with_holes(X, MISSING["unlike"])
    far = [owner + 1e7 * 2.0**21 for owner in owners]
    pca = PCA(standardize=standardize, servers=lockstep_servers).fit(opened(far))
    assert accuracy_of(pca, imputed(owners)).broken(PROMISED) == []
    np.testing.assert_allclose(pca.mean_, imputed(owners).mean(axis=0) + 1e7 * 2.0**21, rtol=1e-15)


def test_one_owner_is_enough_to_say_so(lockstep_servers: LockstepServers) -> None:
    """Owners that miss nothing may open their tables as they like; those that refuse missing values still do."""
    owners = with_holes(DATA["wine"], MISSING["unlike"])
    owners[2] = DATA["wine"][len(DATA["wine"]) // 2 :]
    first = open_table(owners[0], missing="mean")
    check(PCA(servers=lockstep_servers).fit([first, owners[1], open_table(owners[2], missing="drop")]), owners)
    owners[1][7, 3] = np.nan
    with pytest.raises(BadValue, match=r"owner 2: column 4 has a missing value .* row 8"):
        PCA(servers=lockstep_servers).fit(
            [open_table(owners[0], missing="mean"), open_table(owners[1], label="owner 2")]
        )


def test_servers_see_the_same_of_whole_and_of_missing_values(lockstep_servers: LockstepServers) -> None:
    """Rounds, openings and public parameters of a job with a fixed number of iterations; openings are those of any fit."""
    runs = []
    for owners in (with_holes(DATA["wine"], (0.0, 0.0, 0.0)), with_holes(DATA["wine"], MISSING["many"])):
        pca = PCA(3, fixed_iterations=14, servers=lockstep_servers).fit(opened(owners))
        runs.append((pca.account_.rounds, pca.account_.bytes_sent, pca.openings_, lockstep_servers.public[-1]))
    assert runs[0] == runs[1]
    plain = PCA(3, fixed_iterations=14, servers=lockstep_servers).fit(np.split(DATA["wine"], [44, 89]))
    assert (plain.account_.rounds, plain.openings_) == (runs[0][0], runs[0][2])


def test_column_without_values_is_refused(lockstep_servers: LockstepServers) -> None:
    owners = [pd.DataFrame(np.arange(12.0).reshape(3, 4), columns=NAMES) for _ in range(2)]
    owners[1]["c"] = np.nan
    with pytest.raises(BadValue, match="south: column 'c' has no value in any row") as caught:
        PCA(servers=lockstep_servers).fit(
            [
                open_table(one, label=label, missing="mean")
                for one, label in zip(owners, ("north", "south"), strict=True)
            ]
        )
    assert caught.value.__notes__ == ["PCA(columns=[...]) chooses columns"]
    assert lockstep_servers.audits == []


# -- kept sums -----------------------------------------------------------------------------------------------------------


def test_partial_fit(lockstep_servers: LockstepServers) -> None:
    owners = with_holes(DATA["wine"], MISSING["unlike"])
    tables = opened(owners)
    pca = PCA(servers=lockstep_servers, keep="m").fit(tables[:1])
    check(pca.partial_fit(tables[1:]), owners)


def test_sums_of_another_kind_are_refused(lockstep_servers: LockstepServers) -> None:
    whole, (holes, *_) = DATA["wine"][:50], with_holes(DATA["wine"], MISSING["many"])
    kept = {"plain": PCA(2, servers=lockstep_servers, keep="plain").fit(whole)}
    kept["means"] = PCA(2, servers=lockstep_servers, keep="means").fit(opened([holes]))
    runs = len(lockstep_servers.public)
    with pytest.raises(ValueError, match="did not count as the joint mean in the fit"):
        kept["plain"].partial_fit(opened([holes]))
    with pytest.raises(ValueError, match="counted as the joint mean in the fit"):
        kept["means"].partial_fit(whole)
    assert len(lockstep_servers.public) == runs  # nothing was sent
    for name, wrong in (("plain", "means"), ("means", "plain")):
        fitted = kept[name]._fitted
        missing = "mean" if wrong == "means" else "refuse"  # a client that is wrong about it
        fitted.job = replace(fitted.job, data=replace(fitted.job.data, missing=missing))
        with pytest.raises(
            Refusal, match=r"count as the joint mean in the sums kept as '(plain|means)'.*fit all owners again"
        ):
            kept[name].partial_fit(opened([holes]) if wrong == "means" else whole)


def test_inference_refuses_missing_values(lockstep_servers: LockstepServers) -> None:
    (holes, *_) = owners = with_holes(DATA["wine"], MISSING["many"])
    model = PCA(2, servers=lockstep_servers, keep="m").fit(opened(owners)).shared_model()
    for work in (model.transform, lambda rows: model.detect(rows, threshold=1.0)):
        with pytest.raises(BadValue, match="columns have missing values"):
            work(open_table(holes, missing="mean"))


# -- column owners ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alignment", ["psi", "aligned"])
def test_owners_of_columns_fill_in_the_mean_of_all_their_rows(
    lockstep_servers: LockstepServers, alignment: str
) -> None:
    """With psi also of rows that the other owner does not have."""
    X = DATA["wine"][:, :4].copy()
    X[np.random.default_rng(4).random(X.shape) < 0.2] = np.nan
    ids, known = np.arange(len(X)), np.arange(len(X)) if alignment == "aligned" else np.arange(20, len(X))
    tables = [with_ids(X[:, :2], NAMES[:2], ids), with_ids(X[known, 2:], NAMES[2:], ids[known])]
    way = Columns("id", alignment=alignment)
    pca = PCA(partition=way, servers=lockstep_servers, keep="m", allow=("transform",))
    pca.fit([open_table(table, id="id", missing="mean") for table in tables])
    filled = [SimpleImputer().fit_transform(part) for part in (X[:, :2], X[known, 2:])]
    joined = np.hstack([filled[0][known], filled[1]])
    assert accuracy_of(pca, joined).broken(PROMISED) == []
    np.testing.assert_allclose(pca.mean_, joined.mean(axis=0), rtol=1e-6)
    with pytest.raises(BadValue, match="columns have missing values"):
        pca.shared_model().transform_columns([open_table(table, id="id", missing="mean") for table in tables], way)


def test_owners_of_columns_that_cannot_fill_in(lockstep_servers: LockstepServers) -> None:
    good, bad = with_ids(np.ones((20, 1)), ["a"], np.arange(20)), np.full((20, 2), np.nan)
    bad[:, 0] = 0.1
    bad[3, 0] = np.nan
    pca = PCA(partition=Columns("id"), servers=lockstep_servers)
    with pytest.raises(BadValue, match="column 'c' has no value in any row"):
        pca.fit([good, open_table(with_ids(bad, ["b", "c"], np.arange(20)), id="id", missing="mean")])
    bad[:, 1] = np.arange(20.0)
    pca.fit([good, open_table(with_ids(bad, ["b", "c"], np.arange(20)), id="id", missing="mean")])
    assert pca.mean_[1] == pytest.approx(0.1)  # a constant column stays one
    assert np.abs(pca.components_[0, 1]) < 1e-9
    bad[5, 1] = np.inf
    with pytest.raises(BadValue, match="column 'c' has an infinite value"):
        pca.fit([good, open_table(with_ids(bad, ["b", "c"], np.arange(20)), id="id", missing="mean")])


@pytest.mark.parametrize("standardize", [False, True], ids=["raw", "standardised"])
@pytest.mark.parametrize("deviation", [0.5, 10])
@pytest.mark.parametrize("by_columns", [False, True], ids=["rows", "columns"])
def test_integers_that_doubles_do_not_tell_apart(
    lockstep_servers: LockstepServers, by_columns: bool, deviation: float, standardize: bool
) -> None:
    """The mean that fills in has a fraction, far below what doubles about 2^63 tell apart."""
    random = np.random.default_rng(8)
    near = np.rint((random.standard_normal((90, 3)) @ np.array([[1, 0.7, 0.2], [0, 1, 0.5], [0, 0, 1]])) * deviation)
    near[30:60] += np.rint(2 * deviation)
    holes = random.random(near.shape) < 0.2
    frame = pd.DataFrame({f"c{k}": pd.array([int(v) + 2**63 for v in near[:, k]], "UInt64") for k in range(3)})
    frame = frame.mask(holes)
    if by_columns:
        owners = [frame[["c0"]].assign(id=range(90)), frame[["c1", "c2"]].assign(id=range(90))]
        pca = PCA(standardize=standardize, servers=lockstep_servers, partition=Columns("id"))
        pca.fit([open_table(owner, missing="mean", id="id") for owner in owners])
    else:
        pca = PCA(standardize=standardize, servers=lockstep_servers)
        pca.fit([open_table(part, missing="mean") for part in (frame[:30], frame[30:60], frame[60:])])
    filled = SimpleImputer().fit_transform(np.where(holes, np.nan, near))
    truth = PlainPCA().fit(filled / filled.std(axis=0) if standardize else filled)
    assert np.abs(pca.explained_variance_ratio_ - truth.explained_variance_ratio_).max() < 1e-6
    assert np.abs(pca.explained_variance_ - truth.explained_variance_).max() < 1e-6 * truth.explained_variance_[0]
