"""Loadings: every column owner gets what belongs of the components to its own columns, with the signs of all, and no more.

Values against scikit-learn on the joint table: 1e-6 for entries of components, whose gaps are wide here; 1e-7 of the largest for
variances, as in `tests/estimator/test_wide.py`.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.decomposition import PCA as PlainPCA  # noqa: N811 - scikit-learn's
from sklearn.preprocessing import StandardScaler

from harness.jobs import for_receivers, make_plan
from harness.lockstep import LockstepServers
from harness.tables import with_ids
from ppca import PCA, Columns
from ppca.estimator.job import Job
from ppca.estimator.partition import fit_columns
from ppca.owner.contribute import Source
from ppca.owner.tables.owners import open_columns
from ppca.receiver.parts import Parts
from ppca.receiver.unsealing import received

Floats = NDArray[np.float64]
K, CUTS = 3, (2, 5)
OWN = {"owner-1": [0, 2], "owner-2": [2, 5], "owner-3": [5, -1]}
RECEIVERS = {
    "client": ["model"],
    "owner-1": ["loadings"],
    "owner-2": ["loadings", "variances"],
    "owner-3": ["loadings", "variances", "means", "deviations"],
}
VARIANCES = {"explained variance": (K,), "total variance": (), "scale of the variance": ()}
SHAPES = {"tall": (60, 8), "wide": (12, 30)}


def table(shape: str) -> Floats:
    n, d = SHAPES[shape]
    random = np.random.default_rng(1)
    common = random.standard_normal((n, 4)) * [9, 5, 2, 1] @ random.standard_normal((4, d))
    return np.asarray(common + 0.1 * random.standard_normal((n, d)) + 7)


def owners(X: Floats) -> list[Any]:
    ends = [0, *CUTS, X.shape[1]]
    ids = np.arange(len(X))
    return [with_ids(X[:, a:b], [f"c{i}" for i in range(a, b)], ids) for a, b in itertools.pairwise(ends)]


class Recording(Job):
    """A job that remembers what the servers returned, to all receivers."""

    last: Any = None

    def run_job(self, spec: Any, chunks: Any) -> Any:
        self.last = super().run_job(spec, chunks)
        return self.last


def fit(lockstep_servers: LockstepServers, X: Floats, way: str, standardize: bool, receivers: Any = RECEIVERS) -> Any:
    partition = Columns("id", way, minimum=2)
    sources = [Source(each) for each in open_columns(owners(X), "id")]
    plan = make_plan(K, standardize=standardize, partition=partition)
    job = Recording(lockstep_servers)
    fit_columns(job, sources, partition, lambda data: for_receivers(plan.job(data, 3), receivers), lambda rows: None)
    return job.last


def revealed(lockstep_servers: LockstepServers, receiver: str) -> dict[str, tuple[int, ...]]:
    lines = [line for line in lockstep_servers.openings[0] if line.to == receiver]
    assert len({line.what for line in lines}) == len(lines), "everything once"
    return {line.what: tuple(line.shape) for line in lines}


both = pytest.mark.parametrize("standardize", [False, True], ids=["raw", "standardised"])


@pytest.mark.parametrize("way", ["aligned", "psi"])
@pytest.mark.parametrize("shape", SHAPES)
@both
def test_every_owner_gets_its_own_columns_and_nothing_of_others(
    lockstep_servers: LockstepServers, shape: str, way: str, standardize: bool
) -> None:
    X = table(shape)
    result = fit(lockstep_servers, X, way, standardize)
    width = X.shape[1]
    scaler = StandardScaler(with_std=standardize).fit(X)
    truth = PlainPCA(K, svd_solver="full").fit(scaler.transform(X))

    # What is revealed, and how much of it: of what there is for every column, the owner's own columns only.
    scale = {"own scale exponents": (width - 5,)} if standardize else {"scale exponents": (1,)}
    own = {"own means": (width - 5,), "own scale of the means": (width - 5,)}
    if standardize:
        own |= {"own deviations": (width - 5,), "own scale of the deviations": (width - 5,)}
    assert revealed(lockstep_servers, "owner-1") == {"loadings": (K, 2)}
    assert revealed(lockstep_servers, "owner-2") == {
        "loadings": (K, 3),
        **VARIANCES,
        **({} if standardize else {"scale exponents": (1,)}),
    }
    assert revealed(lockstep_servers, "owner-3") == {"loadings": (K, width - 5), **VARIANCES, **scale, **own}
    assert not any(
        "own" in line.what or line.what == "loadings" for line in lockstep_servers.openings[0] if line.to == "servers"
    )

    # What it is worth. The first owner alone: its loadings, and that is all.
    assert set(result["to"]["owner-1"]) == {"loadings"}
    assert np.shape(result["to"]["owner-1"]["loadings"]) == (K, 2)
    exponents = np.broadcast_to(np.asarray(result["to"]["client"]["exponents"], np.int64), (width,))
    whole = Parts.of(received(result, "client"), exponents)
    assert whole.components is not None
    parts = {name: Parts.of(received(result, name), exponents[slice(*own_of(name, width))]) for name in OWN}
    for name, part in parts.items():
        columns = slice(*own_of(name, width))
        np.testing.assert_array_equal(part.loadings, whole.components[:, columns])
        np.testing.assert_allclose(part.loadings, truth.components_[:, columns], atol=1e-6)
        assert part.components is None
    largest = truth.explained_variance_[0]
    for name in ("owner-2", "owner-3"):
        np.testing.assert_allclose(parts[name].variances, truth.explained_variance_, atol=1e-7 * largest)
    third = parts["owner-3"]
    assert whole.mean is not None
    np.testing.assert_array_equal(third.mean, whole.mean[5:])
    np.testing.assert_allclose(third.mean, X[:, 5:].mean(axis=0), atol=2.0**-24 * np.ptp(X))  # the grid of uploads
    if standardize:
        assert whole.deviation is not None
        np.testing.assert_array_equal(third.deviation, whole.deviation[5:])
        np.testing.assert_allclose(third.deviation, scaler.scale_[5:], rtol=1e-6)
    assert set(third.tables([f"c{i}" for i in range(5, width)])) == {
        *("loadings.csv", "explained_variance.csv", "means.csv"),
        *(["deviations.csv"] if standardize else []),
    }


def own_of(name: str, width: int) -> tuple[int, int]:
    start, stop = OWN[name]
    return start, stop if stop > 0 else width


def test_what_loadings_tell_an_owner(lockstep_servers: LockstepServers) -> None:
    """The page about it (threat-model.md): sums of products of the others' loadings, exactly; and where the components are all
    that varies, coordinates of all rows, from the owner's own columns."""
    random = np.random.default_rng(2)
    X = np.asarray(random.standard_normal((12, K)) * [5, 3, 2] @ random.standard_normal((K, 30)))
    result = fit(lockstep_servers, X, "aligned", False)
    V = np.asarray(result["to"]["client"]["components"])
    L = np.asarray(result["to"]["owner-2"]["loadings"])
    others = np.delete(V, slice(2, 5), axis=1)
    np.testing.assert_allclose(others @ others.T, np.eye(K) - L @ L.T, atol=1e-8)
    centred = X - X.mean(axis=0)
    coordinates = centred[:, 2:5] @ np.linalg.pinv(L)
    signs = np.sign(np.sum(L * V[:, 2:5], axis=1))
    np.testing.assert_allclose(coordinates, centred @ V.T * signs, atol=1e-5)


def test_the_estimator_cuts_components_by_owner(lockstep_servers: LockstepServers) -> None:
    pca = PCA(K, partition=Columns("id", "aligned"), servers=lockstep_servers).fit(owners(table("tall")))
    assert [each.shape for each in pca.loadings_] == [(K, 2), (K, 3), (K, 3)]
    np.testing.assert_array_equal(np.hstack(pca.loadings_), pca.components_)
