"""Dask frames and arrays as owners: streamed here, or summed by a cluster of two worker processes; as in one pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

from harness.lockstep import LockstepServers
from ppca import PCA
from ppca.owner.errors import BadColumns, BadValue, OwnerError
from ppca.owner.missing_moments import moments_with_missing
from ppca.owner.moments import Moments, moments
from ppca.owner.rows import missing_moments_of, sums_of
from ppca.owner.tables.opening import open_table
from ppca.owner.tables.records import Records

distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed: pip install 'ppca[dask]'")
dask_array = pytest.importorskip("dask.array")
dask_frame = pytest.importorskip("dask.dataframe")

X = np.random.default_rng(0).normal(size=(7000, 5)) @ np.random.default_rng(1).normal(size=(5, 5)) + np.arange(5)
NAMES = list("abcde")


@pytest.fixture(scope="module", params=["streamed", pytest.param("on workers", marks=pytest.mark.processes)])
def client(request: pytest.FixtureRequest) -> Iterator[Any]:
    """None: there is no cluster, partitions are computed here."""
    if request.param == "streamed":
        yield None
        return
    options = {"threads_per_worker": 1, "processes": True, "dashboard_address": None, "memory_limit": 0}
    with (
        distributed.LocalCluster(n_workers=2, host="127.0.0.1", **options) as workers,
        distributed.Client(workers) as one,
    ):
        yield one


def frame(values: Any = X) -> Any:
    return dask_frame.from_pandas(pd.DataFrame(values, columns=NAMES), npartitions=5)


def assert_equal(sums: Moments, x: Any = X) -> None:
    """Within the rounding of a few merges."""
    whole = moments(open_table(x))
    assert sums.count == len(x)
    assert np.allclose(sums.mean, whole.mean, rtol=0, atol=1e-14)
    assert np.abs(sums.gram - whole.gram).max() <= 1e-14 * whole.gram.max()


def test_arrays_and_frames(client: Any) -> None:
    assert_equal(sums_of(open_table(dask_array.from_array(X, chunks=(900, 2)))))
    seen: list[int] = []
    sums = sums_of(open_table(frame(), label="north"), lambda done, total: seen.append(done))
    assert_equal(sums)
    assert (sums.label, sums.names) == ("north", NAMES)
    assert len(seen) == 5  # partitions
    assert seen[-1] == 7000
    assert_equal(sums_of(open_table(frame(), columns=["b", "a"])), X[:, [1, 0]])
    some = frame().map_partitions(lambda part: part[part.index >= 3000])  # the first partitions are empty now
    assert_equal(sums_of(open_table(some)), X[3000:])


def test_errors_reach_the_owner(client: Any) -> None:
    bad = X.copy()
    bad[5000, 1] = np.nan
    with pytest.raises(BadValue, match=r"owner 1(, partition 4)?: column 'b' has a missing value"):
        sums_of(open_table(frame(bad)))
    torn = [part if number != 2 else part.drop(columns="c") for number, part in enumerate(frame().to_delayed())]
    torn = dask_frame.from_delayed(torn, meta=frame()._meta, verify_meta=False)
    with pytest.raises(BadColumns, match=r"owner 1, partition 3: there is no column 'c'"):
        sums_of(open_table(torn))
    with pytest.raises(BadColumns, match="there is no column 'z'"):
        open_table(frame(), columns=["z"])
    with pytest.raises(BadColumns, match="3 dimension"):
        open_table(dask_array.ones((2, 2, 2)))
    with pytest.raises(OwnerError, match="the table is empty"):
        sums_of(open_table(frame().map_partitions(lambda part: part[:0])))


def test_ids_of_a_dask_frame(client: Any) -> None:
    people = [f"{i:05d}" for i in range(7000)]
    data = dask_frame.from_pandas(pd.DataFrame(X, columns=NAMES).assign(who=people), npartitions=3)
    records = Records.of(open_table(data, id="who"))
    assert list(records.ids) == people
    assert (records.values == X).all()


def test_a_fit_takes_dask_owners(client: Any) -> None:
    owners = [frame(X[:3000]), dask_array.from_array(X[3000:5000], chunks=(500, 5)), X[5000:]]
    found = PCA(3, servers=LockstepServers()).fit(owners)
    wanted = PCA(3, servers=LockstepServers()).fit([X])
    assert found.n_samples_ == 7000
    assert found.feature_names_in_.tolist() == NAMES
    assert np.abs(found.explained_variance_ratio_ - wanted.explained_variance_ratio_).max() < 1e-6


def test_integers_that_doubles_do_not_tell_apart(client: Any) -> None:
    """Partitions have means of their own; what doubles lack of them is merged, too."""
    x = 2**62 + np.random.default_rng(2).integers(0, 4, (4000, 5)) + np.arange(4000)[:, None] // 1000
    small = moments(open_table(x - 2**62))
    for data in (dask_array.from_array(x, chunks=(900, 2)), frame(x)):
        sums = sums_of(open_table(data))
        assert np.abs(sums.gram - small.gram).max() <= 1e-12 * small.gram.max()
        assert np.abs((sums.mean - 2.0**62) + sums.rest - small.mean).max() <= 2.0**-41


def test_gaps(client: Any) -> None:
    holes = X.copy()
    holes[np.random.default_rng(2).random(X.shape) < 0.2] = np.nan
    holes[:3000, 3] = np.nan  # partitions without a value in this column
    wanted = moments_with_missing(open_table(holes, missing="mean"))
    for data in (frame(holes), dask_array.from_array(holes, chunks=(900, 2))):
        found = missing_moments_of(open_table(data, missing="mean"))
        assert found.counts.tolist() == wanted.counts.tolist()
        assert np.allclose(found.mean, wanted.mean, rtol=0, atol=1e-14)
        assert np.abs(found.gram - wanted.gram).max() <= 1e-14 * wanted.gram.max()
    holes[:, 3] = np.nan
    with pytest.raises(BadValue, match="column 'd' has no value in any row"):
        missing_moments_of(open_table(frame(holes), missing="mean"))
