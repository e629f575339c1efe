"""Bad input: each case has one clear error that names the file, the column and the row, and says what to do."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from ppca.owner.errors import BadColumns, BadValue, OwnerError, UnreadableData
from ppca.owner.moments import moments
from ppca.owner.tables.opening import open_table


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.csv", b"", "x.csv: the file is empty"),
        ("x.csv", b"\n1,2\n", "x.csv: the file is empty or starts with an empty line"),
        ("x.csv", b"a,b\n1,2\n3\n", "x.csv: the first line names 2 columns, but row 2 has 1. Remove lines"),
        ("x.csv", b"\xff\xfe\x00a\x00,\n", "x.csv"),
        ("x.csv.gz", gzip.compress(b"a,b\n1,2\n" * 999, mtime=0)[:-20], "x.csv.gz: the file cannot be read"),
        ("x.csv.gz", b"a,b\n1,2\n", "x.csv.gz: the file cannot be read"),
        ("x.parquet", b"a,b\n1,2\n", "x.parquet: the file cannot be read .*Check that it is complete"),
        ("x.arrow", b"a,b\n1,2\n", "x.arrow: the file cannot be read"),
        ("x.feather", b"ARROW1 and nothing", "x.feather: the file cannot be read"),
        ("x.npy", b"a,b\n1,2\n", "x.npy: the file cannot be read"),
        ("x.npz", b"a,b\n1,2\n", "x.npz: the file cannot be read"),
        ("x.xlsx", b"PK", r"x.xlsx: files ending in '.xlsx' are not read. Known: .csv, .tsv"),
        ("x.npy.gz", b"PK", "x.npy.gz: files ending in '.gz' are not read"),
        ("x", b"1", "x: files ending in 'nothing' are not read"),
    ],
)
def test_unreadable_files(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(OwnerError, match=message):
        moments(open_table(tmp_path / name))


def test_no_such_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(UnreadableData, match=r"absent.csv: there is no such file \(.*absent.csv\). Check the path"):
        open_table(tmp_path / "absent.csv")
    with pytest.raises(UnreadableData, match=r"the folder .* holds no data files \(.csv"):
        open_table(str(tmp_path))


def test_forbidden_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests may run as a user that may read everything, so the refusal of the system is played."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    path = write(tmp_path / "x.csv", "a\n1\n")
    monkeypatch.setattr("ppca.owner.tables.text.first_lines", refuse)
    with pytest.raises(UnreadableData, match=r"x.csv: there is no permission to read the file"):
        open_table(path)


def test_truncated_array_file(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((100, 3)))
    whole = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(whole[:-50])
    with pytest.raises(UnreadableData, match=r"x.npy: the file ends in the middle of the array"):
        open_table(tmp_path / "x.npy")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (np.ones(3), r"has 1 dimension\(s\), a table has two; reshape\(-1, 1\)"),
        (np.ones((1, 2, 3)), r"has 3 dimension\(s\)"),
        (np.ones((3, 0)), "there are no columns"),
        (np.ones((0, 3)), "the table is empty. An owner needs at least one row"),
        (np.ones((3, 2), complex), "the array holds complex128, not numbers"),
        (np.array([["1", "2"]]), "the array holds <U1, not numbers"),
        (np.array([[1, 2], [3, "4"]], object), "column 2 has '4' in row 2, which is not a number"),
        (pd.DataFrame({"a": []}), "the table is empty"),
        (pd.DataFrame(index=[1, 2]), "no columns"),
        (pl.DataFrame({"a": []}, schema={"a": pl.Float64}), "the table is empty"),
        (pa.table({}), "no columns"),
        (pl.Series([1]), "the array has 1 dimension"),
        ([1.0, 2.0], r"a builtins.list is not read. Give a path \(.csv"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "columns 1 and 2 are both named 'a'"),
        (pa.table([[1], [2]], names=["a", "a"]), "columns 1 and 2 are both named 'a'"),
    ],
)
def test_bad_shapes_and_kinds_in_memory(data: Any, message: str) -> None:
    with pytest.raises(OwnerError, match=f"^north: .*{message}"):
        open_table(data, label="north")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b,a\n1,2,3\n", "columns 1 and 3 are both named 'a'"),
        (",a,b\n0,1,2\n", "column 1 has no name. Is it a row index"),
        ("1.5,2.5\n3,4\n", r"first line holds numbers \(1.5, 2.5, ...\) where column names should be"),
        ("a,b\n", "the table is empty"),
    ],
)
def test_bad_headers(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(OwnerError, match=f"x.csv: .*{message}"):
        moments(open_table(write(tmp_path / "x.csv", text)))


def test_header_of_positions_is_a_header(tmp_path: Path) -> None:
    assert open_table(write(tmp_path / "x.csv", "0,1,2\n5,6,7\n")).names == ["0", "1", "2"]


def test_unknown_column_suggests_close_ones(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "age,weight,height\n1,2,3\n")
    with pytest.raises(BadColumns, match=r"x.csv: there is no column 'Wieght'. Did you mean 'weight' or 'height'\?"):
        open_table(path, columns=["age", "Wieght"])
    with pytest.raises(BadColumns, match=r"no column 'zzz'. The columns are 'age', 'weight', 'height'\."):
        open_table(path, columns=["zzz"])
    with pytest.raises(BadColumns, match=r"'age' was chosen twice"):
        open_table(path, columns=["age", "age"])
    with pytest.raises(BadColumns, match=r"no columns were chosen"):
        open_table(path, columns=[])
    with pytest.raises(BadColumns, match=r"not have column names, so columns cannot be chosen by name"):
        open_table(np.ones((2, 2)), columns=["a"])


def text_cases(tmp_path: Path) -> dict[str, Any]:
    """Text in row 1234 of column 'b' (of the chosen a, b), 'c' holding text from row 1."""
    frame = pd.DataFrame({"a": np.arange(2000.0), "b": np.arange(2000.0)}).astype({"b": object})
    frame.loc[1233, "b"] = "n/k"
    frame.to_csv(tmp_path / "x.csv", index=False)
    return {"pandas": frame, "x.csv": tmp_path / "x.csv"}


@pytest.mark.parametrize("kind", ["pandas", "x.csv"])
@pytest.mark.parametrize("block", [1 << 23, 2000])
def test_text_in_a_numeric_column(kind: str, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the text comes after the block from which types are inferred."""
    monkeypatch.setattr("ppca.owner.tables.text.CSV_BLOCK", block)
    data = text_cases(tmp_path)[kind]
    with pytest.raises(BadValue) as caught:
        moments(open_table(data))
    label = "owner 1" if kind == "pandas" else kind
    assert f"{label}: column 'b' has text 'n/k' in row 1,234, which is not a number" in str(caught.value)
    assert "Leave the column out, or correct the value." in str(caught.value)
    assert caught.value.options == (("drop",) if kind == "pandas" else ("na_values", "drop"))
    assert (caught.value.columns, caught.value.row) == (("b",), 1234)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_columns_of_text_are_refused_when_opened(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "device": [None, "bell", "cam"]})
    frame.to_parquet(tmp_path / "x.parquet")
    pl.from_pandas(frame).write_ipc(tmp_path / "x.arrow")
    frame.to_csv(tmp_path / "x.csv", index=False)
    for data in (frame, pl.from_pandas(frame), *tmp_path.iterdir()):
        with pytest.raises(BadValue, match=r"column 'device' has text 'bell' in row 2"):
            open_table(data)
    when = pa.table({"when": pa.array([0, 1], pa.timestamp("s"))})
    with pytest.raises(BadValue, match=r"column 'when' has 1970-01-01 00:00:00 \(timestamp\[s\]\) in row 1"):
        open_table(when)


@pytest.mark.parametrize("kind", ["csv", "parquet", "arrow", "npy", "npz", "pandas", "polars", "numpy", "masked"])
@pytest.mark.parametrize("checked", [True, False])
def test_missing_values(kind: str, checked: bool, tmp_path: Path) -> None:
    x = np.arange(4000.0).reshape(2000, 2)
    x[[1500, 1600, 1601], 1] = np.nan
    frame = pd.DataFrame(x, columns=["a", "b"])
    path = tmp_path / f"x.{kind}"
    data: Any = path
    match kind:
        case "csv":
            frame.to_csv(path, index=False)
        case "parquet":
            frame.astype("Int64").to_parquet(path)
        case "arrow":
            pl.from_pandas(frame).write_ipc(path)
        case "npy":
            np.save(path, x)
        case "npz":
            np.savez(path, x)
        case "pandas":
            data = frame
        case "polars":
            data = pl.from_pandas(frame, nan_to_null=True)
        case "numpy":
            data = x
        case "masked":
            data = np.ma.MaskedArray(np.nan_to_num(x).astype(int), mask=np.isnan(x))
    label = "owner 1" if data is not path else path.name
    column = "column 2" if kind in ("npy", "npz", "numpy", "masked") else "column 'b'"
    table = open_table(data)
    use = (lambda: list(table.chunks(900))) if checked else (lambda: moments(table, chunk_rows=900))
    with pytest.raises(BadValue) as caught:
        use()
    assert str(caught.value).startswith(
        f"{label}: {column} has a missing value (empty or NaN) in row 1,501 (3 such values in all). Remove these rows"
    )
    assert caught.value.row == 1501


def test_infinite_in_csv_and_empty_column(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match=r"column 'b' has an infinite value \(-inf\) in row 2"):
        moments(open_table(write(tmp_path / "x.csv", "a,b\n1,2\n3,-inf\n")))
    with pytest.raises(BadValue, match=r"column 'b' has a missing value .* in row 1 "):
        moments(open_table(write(tmp_path / "y.csv", "a,b\n1,\n3,NA\n")))


def test_archive_with_several_arrays(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", train=np.ones((2, 2)), test=np.ones((2, 2)))
    with pytest.raises(UnreadableData, match=r"holds 'train', 'test'; it must hold one array, or one named 'X'"):
        open_table(tmp_path / "x.npz")
    np.save(tmp_path / "objects.npy", np.array([[1, "a"]], object))
    with pytest.raises(UnreadableData, match=r"objects.npy: the array holds object, not numbers"):
        open_table(tmp_path / "objects.npy")


def test_column_major_archive_too_large_to_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ppca.owner.tables.arrays.WHOLE_BYTES", 100)
    np.savez(tmp_path / "x.npz", np.asfortranarray(np.ones((20, 2))))
    with pytest.raises(UnreadableData, match=r"stored column by column.*numpy.save \(.npy\)"):
        open_table(tmp_path / "x.npz")


def test_a_header_of_a_million_columns_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    """Such a file of 12 MB took 8.6 GB."""
    path = tmp_path / "wide.csv"
    path.write_text(",".join(map(str, range(200_000))) + "\n" + ",".join(["1"] * 200_000) + "\n")
    with pytest.raises(BadColumns, match=r"200,000 columns; at most 131,072 can be read"):
        open_table(path)


def test_a_header_of_npy_with_keys_of_several_types_is_refused(tmp_path: Path) -> None:
    """NumPy raised a TypeError; found by `ppca bench fuzz` (tables, input 5021476)."""
    path = tmp_path / "x.npy"
    np.save(path, np.ones((2, 2)))
    path.write_bytes(path.read_bytes().replace(b"'shape'", b"1234567"))
    with pytest.raises(UnreadableData, match="header of the array is damaged"):
        open_table(path)
