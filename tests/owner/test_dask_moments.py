"""The sums on a Dask cluster of two worker processes equal those of one pass."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ppca.owner import BadColumns, BadValue, Moments, OwnerError, UnreadableData
from ppca.owner.dask_moments import moments_on_dask

distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed: pip install 'ppca[dask]'")

X = np.random.default_rng(0).normal(size=(7000, 5)) @ np.random.default_rng(1).normal(size=(5, 5)) + np.arange(5)
NAMES = list("abcde")


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1", memory_limit=0
    ) as servers:
        yield servers.scheduler_address


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seven Parquet files; one has its columns in another order."""
    folder = tmp_path_factory.mktemp("parts")
    for number, rows in enumerate(np.split(X, 7)):
        frame = pd.DataFrame(rows, columns=NAMES)
        frame[NAMES[::-1] if number == 4 else NAMES].to_parquet(folder / f"part-{number}.parquet")
    (folder / "_SUCCESS").touch()
    return folder


def assert_equal(sums: Moments, x: Any = X) -> None:
    """Within the rounding of a few merges."""
    whole = Moments.of_rows(x)
    assert sums.count == len(x)
    assert np.allclose(sums.mean, whole.mean, rtol=0, atol=1e-14)
    assert np.abs(sums.gram - whole.gram).max() <= 1e-14 * whole.gram.max()
    assert (sums.largest == whole.largest).all()


def test_folder_and_list_of_files(scheduler: str, folder: Path) -> None:
    seen: list[int] = []
    sums = moments_on_dask(folder, scheduler, progress=lambda done, total: seen.append(done), label="north")
    assert_equal(sums)
    assert (sums.label, sums.names) == ("north", NAMES)
    assert len(seen) == 7
    assert seen[-1] == 7000
    assert_equal(moments_on_dask(sorted(folder.glob("*.parquet"))[:3], scheduler, columns=["b", "a"]), X[:3000, [1, 0]])
    assert_equal(moments_on_dask(str(folder / "part-0.parquet"), scheduler), X[:1000])


def test_dask_array_and_frame(scheduler: str) -> None:
    dask_array = pytest.importorskip("dask.array")
    assert_equal(moments_on_dask(dask_array.from_array(X, chunks=(900, 2)), scheduler))
    dask_frame = pytest.importorskip("dask.dataframe")
    frame = dask_frame.from_pandas(pd.DataFrame(X, columns=NAMES), npartitions=5)
    sums = moments_on_dask(frame, scheduler)
    assert_equal(sums)
    assert sums.names == NAMES
    some = frame.map_partitions(lambda part: part[part.index >= 3000])  # the first partitions are empty now
    assert_equal(moments_on_dask(some, scheduler), X[3000:])


def test_errors_reach_the_owner(scheduler: str, tmp_path: Path) -> None:
    for name, text in (("a.csv", "x,y\n1,2\n"), ("b.csv", "x,y\n1,2\n3,\n"), ("c.csv", "x,z\n1,2\n")):
        (tmp_path / name).write_text(text)
    with pytest.raises(BadValue, match=r"b.csv: column 'y' has a missing value .* in row 2") as caught:
        moments_on_dask([tmp_path / "a.csv", tmp_path / "b.csv"], scheduler)
    assert caught.value.row == 2
    with pytest.raises(BadColumns, match=r"a.csv and c.csv have different columns: only a.csv has 'y'"):
        moments_on_dask([tmp_path / "a.csv", tmp_path / "c.csv"], scheduler)
    with pytest.raises(UnreadableData, match=r"absent.csv: there is no such file"):
        moments_on_dask(tmp_path / "absent.csv", scheduler)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UnreadableData, match=r"the folder holds no data files"):
        moments_on_dask(tmp_path / "empty", scheduler)


def test_no_scheduler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("ppca.owner.dask_moments.CONNECT_SECONDS", 0.3)
    with pytest.raises(OwnerError, match=r"scheduler at tcp://127.0.0.1:9 cannot be reached .*Check the address"):
        moments_on_dask(tmp_path, "tcp://127.0.0.1:9")
