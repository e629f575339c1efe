"""Tables as users have them: lazy frames, sparse matrices, lists, folders of Spark, decimal commas, other encodings, gaps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse

from ppca.jobs.checks import SpecError
from ppca.owner.errors import BadColumns, BadValue, OwnerError, UnreadableData
from ppca.owner.tables.opening import open_table
from ppca.owner.tables.owners import labels_of, open_columns, open_rows
from ppca.owner.tables.reading import CompleteRows

VALUES = np.random.default_rng(0).normal(size=(30, 3)).round(3)
FRAME = pd.DataFrame(VALUES, columns=["a", "b", "c"])


def rows_of(table: Any) -> Any:
    return np.concatenate(list(table.chunks(7)))


@pytest.mark.parametrize(
    "data",
    [
        pl.LazyFrame(VALUES, schema=["a", "b", "c"]).filter(pl.col("a") < 100),
        scipy.sparse.csc_matrix(VALUES),
        scipy.sparse.coo_array(VALUES),
        VALUES.tolist(),
        tuple(map(tuple, VALUES.tolist())),
    ],
    ids=["lazy", "csc", "coo", "lists", "tuples"],
)
def test_other_kinds_hold_the_same_rows(data: Any) -> None:
    np.testing.assert_array_equal(rows_of(open_table(data)), VALUES)
    (table,) = open_rows(data)
    assert table.label == "owner 1"


def test_nested_lists_are_one_owner_or_several() -> None:
    assert len(open_rows([[1, 2], [3, 4]])) == 1
    assert len(open_rows([[[1, 2], [3, 4]], [[5, 6]]])) == 2
    with pytest.raises(BadColumns, match=r"its rows have different lengths \(1 to 2\)"):
        open_rows([[1, 2], [3]])
    with pytest.raises(BadValue, match="column 2 has 'x' in row 2"):
        open_rows([[1, 2], [3, "x"]])


def test_lazy_frames_choose_columns() -> None:
    lazy = pl.LazyFrame(VALUES, schema=["a", "b", "c"]).with_columns(name=pl.lit("x"))
    np.testing.assert_array_equal(rows_of(open_table(lazy, columns=["c", "a"])), VALUES[:, [2, 0]])
    with pytest.raises(BadValue, match="column 'name' has text 'x' in row 1"):
        open_table(lazy)


def spark_folder(place: Path) -> Path:
    """What Spark writes: a folder for every month, a marker of success, check sums."""
    for month in ("1", "2"):
        folder = place / "sales" / "year=2024" / f"month={month}"
        folder.mkdir(parents=True)
        part = FRAME[:15] if month == "1" else FRAME[15:]
        part.assign(customer=np.arange(len(part))).to_parquet(folder / "part-0000.snappy.parquet", index=False)
        (folder / ".part-0000.snappy.parquet.crc").write_bytes(b"x")
    (place / "sales" / "_SUCCESS").touch()
    (place / "sales" / "_temporary").mkdir()
    (place / "sales" / "_temporary" / "half.parquet").write_bytes(b"half")
    return place / "sales"


def test_a_folder_of_spark_is_one_owner(tmp_path: Path) -> None:
    folder = spark_folder(tmp_path)
    table = open_table(folder, columns=["a", "b", "c"])
    assert table.label == "sales"
    np.testing.assert_array_equal(rows_of(table), VALUES)
    assert open_table(folder).names == ["a", "b", "c", "customer"]  # partition columns only if chosen
    (chosen,) = open_rows([folder], columns=["month", "a"])
    np.testing.assert_array_equal(rows_of(chosen)[:, 0], np.repeat([1.0, 2.0], 15))
    np.testing.assert_array_equal(rows_of(open_table(folder, columns=["year"])), np.full((30, 1), 2024.0))
    values, ids = open_table(folder, columns=["month", "b"], id="customer").read()
    np.testing.assert_array_equal(values[:, 1], VALUES[:, 1])
    assert ids.to_pylist() == [*range(15), *range(15)]


def test_decimal_commas(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    FRAME.to_csv(path, index=False, sep=";", decimal=",")
    np.testing.assert_array_equal(rows_of(open_table(path, decimal=",")), VALUES)
    with pytest.raises(BadValue, match="a number with a decimal comma") as caught:
        open_table(path)
    assert caught.value.options == ("decimal",)
    path.write_text("a;b\n1.5;2\n")
    with pytest.raises(BadValue, match=r"text '1.5' in row 1, which is a number with a decimal point. Write all files"):
        open_table(path, decimal=",")
    path.write_text("a;b\n1,5;2\n1.234;2\n")
    for options in ({}, {"thousands": " "}):
        with pytest.raises(BadValue, match=r"text '1.234' in row 2"):  # 1234 in Germany, never 1.234
            open_table(path, decimal=",", **options)
    np.testing.assert_array_equal(rows_of(open_table(path, decimal=",", thousands=".")), [[1.5, 2], [1234, 2]])
    path.write_text("a;b\n1,5;2\n1,5;zwei\n")
    with pytest.raises(BadValue, match="column 'b' has text 'zwei' in row 2"):
        open_table(path, decimal=",")


@pytest.mark.parametrize(("encoding", "named"), [("latin-1", "probably Latin-1"), ("utf-16", "is UTF-16 text")])
def test_encodings(tmp_path: Path, encoding: str, named: str) -> None:
    path = tmp_path / "x.csv"
    FRAME.rename(columns={"a": "größe"}).to_csv(path, index=False, encoding=encoding)
    table = open_table(path, encoding=encoding)
    assert table.names == ["größe", "b", "c"]
    np.testing.assert_array_equal(rows_of(table), VALUES)
    with pytest.raises(UnreadableData, match=f"x.csv: .*{named}") as caught:
        open_table(path)
    assert caught.value.options == ("encoding",)


def test_unknown_ways_of_reading() -> None:
    for how in ({"decimal": ";"}, {"encoding": "klingon"}, {"missing": "fill"}):
        with pytest.raises(SpecError, match=next(iter(how))):
            open_table(VALUES, **how)  # type: ignore[arg-type]


def test_comment_lines_are_named(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("# exported on Monday\na,b\n1,2\n")
    with pytest.raises(UnreadableData, match="starts with a comment line"):
        open_table(path)
    path.write_text("#a,b\n1,2\n")
    assert open_table(path).names == ["#a", "b"]


@pytest.mark.parametrize("kind", ["pandas", "csv", "parquet", "numpy", "polars"])
def test_rows_with_missing_values_can_be_dropped(tmp_path: Path, kind: str) -> None:
    holes = FRAME.copy()
    holes.iloc[[3, 17], 1] = np.nan
    holes.iloc[29, 0] = np.nan
    data: Any = holes.to_numpy() if kind == "numpy" else pl.from_pandas(holes) if kind == "polars" else holes
    if kind in ("csv", "parquet"):
        data = tmp_path / f"x.{kind}"
        getattr(holes, f"to_{kind}")(data, index=False)
    with pytest.raises(BadValue, match="missing value") as caught:
        rows_of(open_table(data))
    assert caught.value.options == ("missing",)
    table = open_table(data, missing="drop")
    assert isinstance(table, CompleteRows)
    np.testing.assert_array_equal(rows_of(table), VALUES[[i for i in range(30) if i not in (3, 17, 29)]])
    assert table.dropped == 3


def test_ids_of_dropped_rows_are_dropped() -> None:
    holes = FRAME.assign(id=[f"p{i}" for i in range(30)])
    holes.iloc[4, 0] = np.nan
    for data in (holes, pa.Table.from_pandas(holes), holes.set_index("id")):
        values, ids = open_table(data, id="id", missing="drop").read()
        assert len(values) == len(ids) == 29
        assert "p4" not in pa.array(ids).to_pylist() if not isinstance(ids, pa.ChunkedArray) else ids.to_pylist()


def test_infinite_values_and_empty_tables_are_not_dropped() -> None:
    table = open_table(np.array([[np.nan, 1.0], [np.inf, 2.0]]), missing="drop")
    with pytest.raises(BadValue, match=r"column 1 has an infinite value .* in row 2"):
        rows_of(table)
    with pytest.raises(OwnerError, match="every row misses a value"):
        rows_of(open_table(np.full((3, 2), np.nan), missing="drop"))


def test_levels_of_an_index_are_columns_if_chosen() -> None:
    indexed = FRAME.assign(site="north", visit=np.arange(30)).set_index(["site", "visit"])
    assert open_table(indexed).names == ["a", "b", "c"]
    (table,) = open_columns([indexed], "visit")
    assert pa.array(table.read()[1]).to_pylist() == list(range(30))
    np.testing.assert_array_equal(rows_of(open_table(indexed, columns=["visit", "c"]))[:, 0], np.arange(30))


def test_owners_have_names_of_their_own() -> None:
    assert labels_of(["data/north.csv", "data/south.csv.gz", VALUES]) == ["north", "south", "owner 3"]
    assert labels_of(["a/x.csv", "a/x.parquet", "a/y.csv"]) == ["x.csv", "x.parquet", "y"]
    assert labels_of(["a/x.csv", "b/x.csv"]) == ["a/x.csv", "b/x.csv"]
    assert labels_of(["a/x.csv", "a/x.csv"]) == ["a/x.csv (1)", "a/x.csv (2)"]
    assert labels_of(["owner 2", VALUES]) == ["owner 2 (1)", "owner 2 (2)"]
    with pytest.raises(OwnerError, match="two owners have the same name"):
        open_rows({1: VALUES, "1": VALUES})
