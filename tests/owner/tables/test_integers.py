"""Integers beyond 2^53 keep all their digits, whatever kind of table holds them: against Python's integers."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ppca.owner.errors import BadValue
from ppca.owner.tables.integers import rest_of
from ppca.owner.tables.opening import open_table
from ppca.owner.tables.table import Table

WHOLE = [2**62 + 1, 2**62 + 3, -(2**62) - 1, 2**53 + 1, -5, 2**63 - 1, -(2**63), 0]
LARGE = [2**64 - 1, 2**63 + 1, 2**53 + 1, 0, 2**64 - 1025, 2**63 - 1, 7, 2**60 + 1]
"""int64 and uint64: ends, odd numbers, ties of rounding, and doubles among them."""


def integers_of(table: Table, rows: int = 3) -> list[list[int]]:
    """Chunks and rests, added as Python's integers."""
    found = []
    for chunk, rest in table.chunks_with_rest(rows):
        left = np.zeros(chunk.shape, int) if rest is None else rest.astype(int)
        found += [[int(a) + int(b) for a, b in zip(*row, strict=True)] for row in zip(chunk, left, strict=True)]
    return found


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1), st.lists(st.integers(0, 2**64 - 1), min_size=1))
def test_what_rounding_leaves(signed: list[int], unsigned: list[int]) -> None:
    for numbers, kind in ((signed, np.int64), (unsigned, np.uint64)):
        rest = rest_of(np.array(numbers, kind))
        expected = [number - int(float(number)) for number in numbers]
        assert ([0] * len(numbers) if rest is None else rest.tolist()) == expected


def test_doubles_have_no_rest() -> None:
    for array in (
        np.array([2**53, -(2**53)]),
        np.array([1e300]),
        np.array([2**31 - 1], np.int32),
        np.empty(0, np.int64),
    ):
        assert rest_of(array) is None
    assert [rest for _, rest in open_table(np.array([[1, 2], [2**53, 4]])).chunks_with_rest()] == [None]


ARRAYS: dict[str, Any] = {
    "array": lambda x, _: x,
    "by columns": lambda x, _: np.asfortranarray(x),
    "other byte order": lambda x, _: x.astype(x.dtype.newbyteorder()),
    "objects": lambda x, _: x.astype(object),
    "sparse": lambda x, _: scipy.sparse.csr_array(x),
    "npy": lambda x, path: np.save(path / "x.npy", x) or path / "x.npy",
    "npz": lambda x, path: np.savez_compressed(path / "x.npz", x) or path / "x.npz",
    "npz by columns": lambda x, path: np.savez(path / "x.npz", np.asfortranarray(x)) or path / "x.npz",
}


@pytest.mark.parametrize("kind", ARRAYS)
@pytest.mark.parametrize("numbers", [WHOLE, LARGE], ids=["int64", "uint64"])
def test_arrays(kind: str, numbers: list[int], tmp_path: Path) -> None:
    x: NDArray[Any] = np.array([numbers, numbers[::-1]], np.int64 if numbers is WHOLE else np.uint64).T
    assert integers_of(open_table(ARRAYS[kind](x, tmp_path))) == x.tolist()


def parquet_folder(frame: pd.DataFrame, path: Path) -> Path:
    folder = path / "sales" / "key=4611686018427387905"
    folder.mkdir(parents=True)
    frame[:2].to_parquet(folder / "part-0.parquet")
    frame[2:].to_parquet(folder / "part-1.parquet")
    return path / "sales"


def csv(frame: pd.DataFrame, path: Path) -> Path:
    frame.to_csv(path / "x.csv", index=False)
    return path / "x.csv"


def csv_gz(frame: pd.DataFrame, path: Path) -> Path:
    (path / "x.csv.gz").write_bytes(gzip.compress(frame.to_csv(index=False).encode()))
    return path / "x.csv.gz"


FRAMES: dict[str, Any] = {
    "pandas": lambda x, _: x,
    "pandas, nullable": lambda x, _: x.convert_dtypes(),
    "pandas, objects": lambda x, _: x.astype(object),
    "polars": lambda x, _: pl.DataFrame(dict(x)),
    "polars, lazy": lambda x, _: pl.LazyFrame(dict(x)),
    "arrow": lambda x, _: pa.Table.from_pandas(x),
    "arrow, dictionaries": lambda x, _: pa.table({name: pa.array(x[name]).dictionary_encode() for name in x}),
    "feather": lambda x, path: pyarrow.feather.write_feather(x, str(path / "x.feather")) or path / "x.feather",
    "parquet": lambda x, path: x.to_parquet(path / "x.parquet") or path / "x.parquet",
    "folder": parquet_folder,
    "csv": csv,
    "csv.gz": csv_gz,
}


@pytest.mark.parametrize("kind", FRAMES)
def test_frames_and_files(kind: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": WHOLE, "b": np.array(LARGE, np.uint64), "c": np.arange(8.0)})
    expected = [list(row) for row in zip(WHOLE, LARGE, range(8), strict=True)]
    table = open_table(FRAMES[kind](frame, tmp_path))
    assert integers_of(table) == expected
    values, rest, _ = table.read_exactly()
    assert rest is not None
    assert [[int(v) + int(r) for v, r in zip(*row, strict=True)] for row in zip(values, rest, strict=True)] == expected


def test_objects_that_are_no_integers_of_64_bits() -> None:
    mixed = pd.DataFrame({"a": pd.Series([2**63 + 1, 1.5, 2**70, None], dtype=object)})
    found = np.concatenate([chunk for chunk, _ in open_table(mixed).chunks_with_rest(check=False)])[:, 0]
    assert found[:3].tolist() == [2.0**63, 1.5, 2.0**70]
    assert integers_of(open_table(np.array([[2**70], [2**63 + 1]], object))) == [[2**70], [2**63 + 1]]


def test_folders_as_columns(tmp_path: Path) -> None:
    folder = parquet_folder(pd.DataFrame({"a": [1.0, 2, 3]}), tmp_path)
    assert integers_of(open_table(folder, columns=["key", "a"])) == [[2**62 + 1, k] for k in (1, 2, 3)]


@pytest.mark.parametrize("kind", ["arrow", "csv", "masked"])
def test_rows_that_miss_a_value_are_dropped_with_their_rest(kind: str, tmp_path: Path) -> None:
    numbers = [None, *WHOLE[:3], None, *WHOLE[3:]]
    data: Any = pa.table({"a": numbers, "b": range(10)})
    if kind == "csv":
        data = tmp_path / "x.csv"
        data.write_text("a,b\n" + "".join(f"{'' if n is None else n},{k}\n" for k, n in enumerate(numbers)))
    if kind == "masked":
        filled = np.array([[n or 0, k] for k, n in enumerate(numbers)])
        data = np.ma.masked_array(filled, [[n is None, False] for n in numbers])
    kept = [[n, k] for k, n in enumerate(numbers) if n is not None]
    assert integers_of(open_table(data, missing="drop")) == kept
    with pytest.raises(BadValue, match=r"missing value .* in row 1 "):
        integers_of(open_table(data))


def written(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(["a;id", *lines, ""]))
    return path


def test_text_that_changes_its_kind_on_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Signed, then beyond 2^63, then with a fraction: every block as exactly as it can be; ids stay text."""
    monkeypatch.setattr("ppca.owner.tables.text.CSV_BLOCK", 80)
    lines = [f" {2**63 - 5 + k} ;0{k}" for k in range(12)]
    table = open_table(written(tmp_path / "x.csv", *lines), id="id")
    ids: list[Any] = []
    list(table.chunks_with_rest(ids=ids))
    assert table.joined_ids(ids).to_pylist() == [f"0{k}" for k in range(12)]
    assert integers_of(table) == [[2**63 - 5 + k] for k in range(12)]
    mixed = open_table(written(tmp_path / "y.csv", *lines, *["0,5;x"] * 20), id="id", decimal=",")
    assert np.concatenate(list(mixed.chunks()))[-1, 0] == 0.5
    with pytest.raises(BadValue, match=r"column 'a' has text 'many' in row 15"):
        list(open_table(written(tmp_path / "z.csv", *lines, "1;x", "2;x", "many;x"), id="id").chunks())
