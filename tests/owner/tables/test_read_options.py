"""Options for reading tables: thousands, codes of missing values, columns without names; all bad columns are named at once."""

from __future__ import annotations

import gc
import weakref
from dataclasses import fields
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from ppca.jobs.checks import SpecError
from ppca.owner.errors import BadColumns, BadValue, OwnerError, UnreadableData
from ppca.owner.moments import moments
from ppca.owner.tables.opening import open_table
from ppca.owner.tables.options import ReadOptions
from ppca.owner.tables.owners import open_rows


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_text(text, encoding=encoding)
    return path


def rows_of(data: Any, **options: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    return open_table(data, **options).read()[0]


def test_python_has_the_same_options() -> None:
    """Pin the structure: `open_table` has each option of `ReadOptions`, with the same default."""
    parameters = signature(open_table).parameters
    for field in fields(ReadOptions):
        assert parameters[field.name].default == field.default, field.name


# -- thousands ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("thousands", "decimal", "cells"),
    [
        (",", ".", ['"1,234.5"', '"-1,234,567"', "12", '"12,34,567.25"', '"1,234e3"']),
        (".", ",", ['"1.234,5"', "-1.234.567", "12", '"12.34.567,25"', "1.234e3"]),
        ("'", ".", ["1'234.5", "-1\u2019234\u2019567", "12", "12'34'567.25", "1'234e3"]),
        (" ", ",", ['"1 234,5"', "-1\u00a0234\u202f567", "12", '"12 34 567,25"', "1 234e3"]),
        ("\u00a0", ",", ['"1 234,5"', "-1\u00a0234\u202f567", "12", '"12 34 567,25"', "1 234e3"]),
    ],
)
@pytest.mark.parametrize("block", [1 << 23, 20])
def test_thousands(
    thousands: str, decimal: str, cells: list[str], block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ppca.owner.tables.text.CSV_BLOCK", block)
    path = write(tmp_path / "x.csv", "a;b\n" + "".join(f"{cell};{k}\n" for k, cell in enumerate(cells)))
    found = rows_of(path, thousands=thousands, decimal=decimal)
    np.testing.assert_array_equal(found, [[1234.5, 0], [-1234567, 1], [12, 2], [1234567.25, 3], [1234000, 4]])


def test_a_wrong_group_of_thousands_is_refused(tmp_path: Path) -> None:
    """1,5 must never become 15."""
    path = write(tmp_path / "x.csv", 'a;b\n1,234;2\n"1,5";3\n')
    with pytest.raises(BadValue, match=r"column 'a' has text '1,5' in row 2, which is a number with a decimal comma"):
        open_table(path, thousands=",")


def test_thousands_beyond_the_first_block_are_suggested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "x.csv", "a;b\n" + "1;2\n" * 50 + "1 234;2\n")
    monkeypatch.setattr("ppca.owner.tables.text.CSV_BLOCK", 40)
    with pytest.raises(BadValue, match=r"text '1 234' in row 51, which is a number with separators") as caught:
        moments(open_table(path))
    assert caught.value.options == ("thousands",)
    assert rows_of(path, thousands=" ")[50].tolist() == [1234, 2]


def test_large_integers_with_thousands_are_exact(tmp_path: Path) -> None:
    table = open_table(write(tmp_path / "x.csv", "a\n9 007 199 254 740 993\n9 007 199 254 740 995\n"), thousands=" ")
    values, rest, _ = table.read_exactly()
    assert rest is not None
    exact = [int(value) + int(more) for value, more in zip(values[:, 0], rest[:, 0], strict=True)]
    assert exact == [9007199254740993, 9007199254740995]


@pytest.mark.parametrize(
    ("options", "message"),
    [({"thousands": "x"}, "must be ',', '.'"), ({"thousands": "."}, "is the decimal separator, too"),
     ({"thousands": ",", "decimal": ","}, "set the decimal separator to '.'")],
)  # fmt: skip
def test_refused_separators(options: dict[str, str], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        ReadOptions(**options)  # type: ignore[arg-type]


# -- codes of missing values --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("thousands", ["", ","])
@pytest.mark.parametrize("block", [1 << 23, 20])
def test_codes_of_missing_values(thousands: str, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ppca.owner.tables.text.CSV_BLOCK", block)
    path = write(tmp_path / "x.csv", "a,b\n" + "1,2\n" * 9 + "n/k,3\n4, n/k \n NA ,5\n-999,6\n-999.0,7\n")
    options = {"na_values": ["n/k", "-999"], "thousands": thousands}
    assert rows_of(path, missing="drop", **options).tolist() == [[1, 2]] * 9
    with pytest.raises(BadValue, match=r"'a' \(4 values, the first in row 10\), 'b' \(row 11\)"):
        moments(open_table(path, **options))


@pytest.mark.parametrize("kind", ["csv", "parquet", "npy", "pandas", "folder"])
def test_numbers_that_mean_missing_in_any_table(kind: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [1.0, -999.0, 3.0], "b": [4, 5, -999]})
    data: Any = frame
    if kind in ("csv", "folder"):
        frame.to_csv(tmp_path / "x.csv", index=False)
    elif kind == "parquet":
        frame.to_parquet(tmp_path / "x.parquet")
    elif kind == "npy":
        np.save(tmp_path / "x.npy", frame.to_numpy())
    if kind != "pandas":
        data = tmp_path if kind == "folder" else tmp_path / f"x.{kind}"
    assert rows_of(data).shape == (3, 2)
    assert rows_of(data, missing="drop", na_values="-999").tolist() == [[1, 4]]
    mean = open_rows([open_table(data, missing="mean", na_values=["-999"])])[0]
    assert mean.mean_for_missing
    assert np.isnan(mean.read_exactly(check=False)[0]).sum() == 2


def test_a_code_that_looks_like_a_missing_value_is_suggested(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "a,b\n1,2\n?,3\n4,5\n-,6\n7,8\n")
    with pytest.raises(BadValue) as caught:
        open_table(path)
    assert "column 'a' has text '?' in row 2 (2 such cells in all)" in str(caught.value)
    assert (caught.value.options, caught.value.values) == (("na_values", "drop"), ("?", "-"))


# -- all bad columns at once ------------------------------------------------------------------------------------------


def test_all_columns_of_text_are_named(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"name": ["Anna", "Bo"], "a": [1.0, 2.0], "when": ["2024-01-05", "2024-01-06"], "part": ["5%", "7 %"]}
    )
    wanted = [
        "3 columns hold cells that are not numbers: 'name' (text 'Anna' in row 1: not a number)",
        "'when' (text '2024-01-05' in row 1: a date)",
        "'part' (text '5%' in row 1: a percentage)",
    ]
    frame.to_csv(tmp_path / "x.csv", index=False)
    frame.to_parquet(tmp_path / "x.parquet")
    for data in (tmp_path / "x.csv", tmp_path / "x.parquet", frame):
        with pytest.raises(BadValue) as caught:
            moments(open_table(data))
        assert caught.value.columns == ("name", "when", "part")
        assert all(text in str(caught.value) for text in wanted), str(caught.value)


def test_all_columns_with_missing_or_infinite_values_are_named(tmp_path: Path) -> None:
    x = np.arange(40.0).reshape(10, 4)
    x[3, 0] = x[[5, 7], 2] = np.nan
    x[9, 3] = np.inf
    with pytest.raises(BadValue) as caught:
        moments(open_table(x), chunk_rows=2)
    assert str(caught.value) == (
        "owner 1: 2 columns have missing values (empty or NaN): column 1 (row 4), column 3 (2 values, the first in row 6); "
        "column 4 has an infinite value (inf) in row 10 (1 such value in all). Remove these rows or fill the values in, then "
        "run again. Remove the rows with infinite values, or correct them."
    )
    assert caught.value.columns == ("1", "3", "4")


def test_all_duplicate_and_unknown_names_are_listed(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "a,b,a,b,a\n1,2,3,4,5\n")
    with pytest.raises(BadColumns, match=r"columns 1, 3 and 5 are all named 'a', columns 2 and 4 are both named 'b'\."):
        open_table(path)
    path = write(tmp_path / "y.csv", "age,weight\n1,2\n")
    with pytest.raises(
        BadColumns, match=r"no column 'wieght' \(Did you mean 'weight'\?\), 'x'\. The columns are 'age'"
    ):
        open_table(path, columns=["wieght", "x"])


# -- columns without a name, lines of another length --------------------------------------------------------------------


@pytest.mark.parametrize("block", [1 << 23, 12])
def test_a_column_without_a_name_can_be_left_out(block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ppca.owner.tables.text.CSV_BLOCK", block)
    path = write(tmp_path / "x.csv", ",a,b\n0,1,2\n1,3,4\n2,5,6\n")
    with pytest.raises(BadColumns, match=r"column 1 has no name. Is it a row index\?") as caught:
        open_table(path)
    assert (caught.value.options, caught.value.columns) == (("drop", "columns"), ("unnamed 1",))
    (table,) = open_rows([path], drop=["unnamed 1"])
    assert table.read()[0].tolist() == [[1, 2], [3, 4], [5, 6]]
    assert rows_of(path, columns=["unnamed 1", "b"]).tolist() == [[0, 2], [1, 4], [2, 6]]


def test_a_separator_at_the_end_of_the_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "a;b;\n1;2;\n3;4;\n")
    with pytest.raises(BadColumns, match=r"column 3 has no name. Is there a separator at the end"):
        open_table(path)
    (table,) = open_rows([path], drop=["unnamed 3"])
    assert table.read()[0].tolist() == [[1, 2], [3, 4]]


def test_names_of_several_lines_and_with_spaces(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", '"age\n(years)", height ,\n1,2,3\n4,5,6\n')
    assert open_table(path, columns=["age\n(years)", "height"]).read()[0].tolist() == [[1, 2], [4, 5]]
    with pytest.raises(BadColumns, match="columns 1 and 2 are both named 'a'"):
        open_table(write(tmp_path / "y.csv", "a, a\n1,2\n"))


def test_a_column_that_counts_the_rows_is_noted(tmp_path: Path) -> None:
    frame = pd.DataFrame({"Unnamed: 0": range(20), "a": np.sin(np.arange(20)), "day": [1, 2] * 10})
    frame.to_csv(tmp_path / "x.csv", index=False)
    wanted = "x: column 'Unnamed: 0' counts the rows; leave it out if it is an index"
    assert [note for table in open_rows([tmp_path / "x.csv"]) for note in table.notes] == [wanted]
    assert open_rows([tmp_path / "x.csv"], drop=["Unnamed: 0"])[0].notes == ()


@pytest.mark.parametrize("code", ["n/k", "-", ".", "?", "(none)", "a|b", "*", "–", "#", "x y"])
def test_codes_of_missing_values_with_special_characters(code: str, tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", f'a;b\n1;2\n"{code}";3\n')
    assert rows_of(path, na_values=code, missing="drop").tolist() == [[1, 2]]
    assert rows_of(path, na_values=code, missing="drop", thousands=",").tolist() == [[1, 2]]


def test_lines_with_another_number_of_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ppca.owner.tables.text.CSV_BLOCK", 24)
    path = write(tmp_path / "x.csv", "a,b\n" + "1,2\n" * 20 + "3\n1,2\n4,5,6\n")
    with pytest.raises(OwnerError, match=r"first line names 2 columns, but row 21 has 1, row 23 has 3\. Remove lines"):
        moments(open_table(path))


# -- columns as they stand ------------------------------------------------------------------------------------------------


def test_columns_keep_their_types(tmp_path: Path) -> None:
    path = write(
        tmp_path / "x.csv",
        "a;id;code;when;at;share;note\n1;7;007;2024-01-05;2024-01-05 10:00:00;1,5;x\n;8;010;2024-02-29;2024-02-29 11:30:00;;\n",
    )
    names = ["id", "code", "when", "at", "share", "note"]
    found = open_table(path, columns=["a"], decimal=",").as_given(names)
    kinds = [pa.int64(), pa.string(), pa.date32(), pa.timestamp("s"), pa.float64(), pa.string()]
    assert [found[name].type for name in names] == kinds
    assert found["code"].to_pylist() == ["007", "010"]
    assert found["share"].to_pylist() == [1.5, None]
    whole = open_table(path, columns=["a"], decimal=",", missing="drop").as_given(["id", "a"])
    assert (whole["id"].to_pylist(), whole["a"].to_pylist()) == ([7], [1])
    pd.DataFrame({"a": [1.0, 2.0], "id": pd.array([7, 8], "Int32")}).to_parquet(tmp_path / "x.parquet")
    assert open_table(tmp_path / "x.parquet", columns=["a"]).as_given(["id"])["id"].type == pa.int32()


# -- the same table twice -------------------------------------------------------------------------------------------------


def test_the_same_table_twice_in_a_folder_is_refused(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]})
    frame.to_csv(tmp_path / "x.csv", index=False)
    frame.to_csv(tmp_path / "x (1).csv", index=False)
    with pytest.raises(
        UnreadableData, match=r"x \(1\).csv and x.csv hold the same bytes, so .* would count twice. Remove"
    ):
        open_table(tmp_path)
    (tmp_path / "x (1).csv").unlink()
    frame.to_parquet(tmp_path / "x.parquet")
    with pytest.raises(UnreadableData, match=r"x.csv and x.parquet have the same name in two formats"):
        open_table(tmp_path)
    assert rows_of(f"{tmp_path}/*.csv").shape == (2, 2)


def test_files_of_one_table_that_only_look_alike_are_read(tmp_path: Path) -> None:
    """Files without rows, files of the same size, and equal files of different partitions."""
    for name, text in (("1.csv", "a,b\n"), ("2.csv", "a,b\n"), ("3.csv", "a,b\n1,2\n"), ("4.csv", "a,b\n1,3\n")):
        write(tmp_path / name, text)
    for month in ("1", "2"):
        (tmp_path / f"month={month}").mkdir()
        write(tmp_path / f"month={month}" / "part.csv", "a,b\n5,6\n")
    assert rows_of(tmp_path).shape == (4, 2)


def test_no_thread_of_arrow_destroys_a_handler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Destroyed by a thread of Arrow while the interpreter exits, a handler aborts the process: exit code 134."""
    handlers = []

    def options(**given: Any) -> Any:
        if given["invalid_row_handler"] is not None:
            handlers.append(weakref.ref(given["invalid_row_handler"]))
        return made(**given)

    made = pa.csv.ParseOptions
    monkeypatch.setattr(pa.csv, "ParseOptions", options)
    (tmp_path / "t.csv").write_text("a,b\n1,x\n2,3\n")
    with pytest.raises(BadValue):
        moments(open_table(tmp_path / "t.csv"))
    gc.collect()
    assert len(handlers) >= 2  # of the first lines, and of the pass that lists all text
    assert all(handler() is not None for handler in handlers)
