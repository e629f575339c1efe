"""Tables in a store: fsspec's memory:// stands for s3:// and its like, file:// is a path."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from harness.lockstep import LockstepServers
from ppca import PCA
from ppca.owner.errors import BadColumns, BadValue, UnreadableData
from ppca.owner.moments import moments
from ppca.owner.tables.addresses import shown
from ppca.owner.tables.opening import open_table
from ppca.owner.tables.owners import labels_of

fsspec = pytest.importorskip("fsspec")

X = np.random.default_rng(0).normal(size=(900, 4))
FRAME = pd.DataFrame(X, columns=list("abcd"))


@pytest.fixture
def store() -> Iterator[Any]:
    """An empty store of this process."""
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    memory.pseudo_dirs[:] = [""]
    yield memory
    memory.store.clear()
    memory.pseudo_dirs[:] = [""]


def put(store: Any, path: str, frame: pd.DataFrame = FRAME) -> None:
    table = pa.Table.from_pandas(frame, preserve_index=False)
    with store.open(path, "wb") as file:
        if path.endswith(".parquet"):
            pa.parquet.write_table(table, file, row_group_size=100)
        elif path.endswith(".arrow"):
            with pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table, max_chunksize=100)
        elif path.endswith(".feather"):
            pa.feather.write_feather(table, file)
        else:
            text = frame.to_csv(index=False).encode()
            file.write(gzip.compress(text) if path.endswith(".gz") else text)


@pytest.mark.parametrize("name", ["x.parquet", "x.arrow", "x.feather", "x.csv", "x.csv.gz"])
def test_a_file_is_read_as_it_is_on_disk(store: Any, name: str, tmp_path: Path) -> None:
    put(store, f"/bucket/{name}")
    table = open_table(f"memory://bucket/{name}", columns=["c", "a"])
    assert table.names == ["c", "a"]
    values, _ = table.read()
    assert (values == X[:, [2, 0]]).all()
    (tmp_path / name).write_bytes(store.cat(f"/bucket/{name}"))
    here, there = moments(open_table(f"file://{tmp_path / name}")), moments(open_table(f"memory://bucket/{name}"))
    assert (here.gram == there.gram).all()


def test_an_arrow_stream(store: Any) -> None:
    table = pa.Table.from_pandas(FRAME, preserve_index=False)
    with store.open("/bucket/x.arrow", "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=70)
    assert (open_table("memory://bucket/x.arrow").read()[0] == X).all()


def test_folders_patterns_and_partitions(store: Any) -> None:
    for number, part in enumerate(np.array_split(np.arange(900), 3)):
        put(store, f"/bucket/year={2020 + number}/part.parquet", FRAME.iloc[part])
    put(store, "/bucket/_metadata/other.parquet", FRAME[["a"]])
    table = open_table("memory://bucket")
    assert table.rows == 900
    assert (table.read()[0] == X).all()
    years = open_table("memory://bucket", columns=["year", "a"]).read()[0][:, 0]
    assert np.unique(years).tolist() == [2020, 2021, 2022]
    some = open_table("memory://bucket/year=202[01]/*.parquet")
    assert some.rows == 600
    found = PCA(2, servers=LockstepServers()).fit(["memory://bucket", X])
    assert found.n_samples_ == 1800


def test_what_is_refused(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    put(store, "/bucket/a.parquet")
    put(store, "/bucket/b.parquet", FRAME.rename(columns={"d": "e"}))
    with pytest.raises(BadColumns, match=r"b\.parquet and bucket: a\.parquet have different columns"):
        open_table("memory://bucket")
    with pytest.raises(UnreadableData, match=r"there is no such file \(memory://.*none\.parquet\)"):
        open_table("memory://bucket/none.parquet")
    with pytest.raises(UnreadableData, match=r"memory://bucket/\*\.csv: there are no data files"):
        open_table("memory://bucket/*.csv")
    with pytest.raises(UnreadableData, match=r"nowhere://x.parquet: there is no such kind of address.*s3://bucket"):
        open_table("nowhere://x.parquet")
    store.pipe("/bucket/x.npy", b"\x93NUMPY")
    with pytest.raises(UnreadableData, match=r"read on this machine only. Copy the file here"):
        open_table("memory://bucket/x.npy")
    holes = FRAME.copy()
    holes.loc[7, "b"] = np.nan
    put(store, "/bucket/holes.parquet", holes)
    with pytest.raises(BadValue, match=r"holes.parquet: column 'b' has a missing value .* in row 8 "):
        moments(open_table("memory://bucket/holes.parquet"))
    store.pipe("/bucket/torn.parquet", store.cat("/bucket/a.parquet")[:-50])
    with pytest.raises(UnreadableData, match=r"torn.parquet: the file cannot be read"):
        open_table("memory://bucket/torn.parquet")

    def refuses(path: str) -> bool:
        raise PermissionError("key:secret@bucket is not yours, see https://me:mine@host/x")

    monkeypatch.setattr(store, "isdir", refuses)
    with pytest.raises(
        UnreadableData, match=r"refuses \(PermissionError: .*https://host/x\). Check the address, and the keys"
    ):
        open_table("memory://bucket")


def test_packages_that_are_not_there_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(UnreadableData, match=r"s3://bucket/x.parquet: the package .* \(.*s3fs"):
        open_table("s3://bucket/x.parquet")
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(UnreadableData, match=r"pip install 'ppca\[store\]'"):
        open_table("s3://bucket/x.parquet")


def test_labels_show_no_password() -> None:
    assert labels_of(["s3://me:secret@bucket/x.parquet", "gs://bucket/x.parquet"]) == [
        "s3://bucket/x.parquet",
        "gs://bucket/x.parquet",
    ]
    assert shown("ftp://me:secret@host/x") == "ftp://host/x"
