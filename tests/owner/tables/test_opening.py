"""Every kind of file and frame gives the same sums; columns are chosen, ordered and matched by name."""

from __future__ import annotations

import ctypes
import decimal
import gzip
import os
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from ppca.owner.errors import BadColumns, UnreadableData
from ppca.owner.moments import moments
from ppca.owner.tables.opening import open_table
from ppca.owner.tables.owners import check_compatible, open_columns, open_rows
from ppca.owner.tables.records import Records
from ppca.owner.tables.table import Table

NAMES = ["age", "MI_dir_L0.1_weight", "blood pressure", "größe"]
X = (np.random.default_rng(0).normal(size=(2500, 4)) * [10, 1e9, 1e-9, 1] + [50, 0, 0, 1e4]).astype(np.float64)
FRAME = pd.DataFrame(X, columns=NAMES)
TABLE = pa.Table.from_pandas(FRAME, preserve_index=False)


def ipc(path: Path, *, stream: bool = False, **options: Any) -> None:
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    with new(path, TABLE.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(TABLE, max_chunksize=300)


def gz(path: Path) -> None:
    with gzip.open(path, "wt") as file:
        FRAME.to_csv(file, index=False)


WRITERS: dict[str, Callable[[Path], Any]] = {
    "a.csv": lambda path: FRAME.to_csv(path, index=False),
    "windows.csv": lambda path: FRAME.to_csv(path, index=False, encoding="utf-8-sig", lineterminator="\r\n"),
    "semicolon.csv": lambda path: FRAME.to_csv(path, index=False, sep=";"),
    "quoted.csv": lambda path: FRAME.to_csv(path, index=False, quoting=1),
    "a.tsv": lambda path: FRAME.to_csv(path, index=False, sep="\t"),
    "a.csv.gz": gz,
    "A.CSV": lambda path: FRAME.to_csv(path, index=False),
    "a.parquet": lambda path: pa.parquet.write_table(TABLE, path, row_group_size=700, compression="zstd"),
    "pandas.parquet": lambda path: FRAME.set_index(FRAME.index[::-1]).to_parquet(path),
    "polars.parquet": lambda path: pl.from_pandas(FRAME).write_parquet(path),
    "a.arrow": ipc,
    "stream.arrow": lambda path: ipc(path, stream=True),
    "a.feather": lambda path: pa.feather.write_feather(TABLE, path),
    "compressed.feather": lambda path: ipc(path, compression="zstd"),
    "a.npy": lambda path: np.save(path, X),
    "fortran.npy": lambda path: np.save(path, np.asfortranarray(X)),
    "big_endian.npy": lambda path: np.save(path, X.astype(">f8")),
    "a.npz": lambda path: np.savez(path, X),
    "keyed.npz": lambda path: np.savez_compressed(path, X=X, y=np.ones(3)),
    "fortran.npz": lambda path: np.savez_compressed(path, np.asfortranarray(X)),
}

FRAMES: dict[str, Any] = {
    "numpy": X,
    "strided numpy": np.repeat(X, 2, axis=0)[::2],
    "masked numpy": np.ma.MaskedArray(X),
    "objects": X.astype(object),
    "pandas": FRAME,
    "pandas objects": FRAME.astype(object),
    "pandas arrow": FRAME.convert_dtypes(dtype_backend="pyarrow"),
    "polars": pl.from_pandas(FRAME),
    "pyarrow": TABLE,
    "pyarrow batch": TABLE.combine_chunks().to_batches()[0],
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_file_gives_the_same_sums(name: str, tmp_path: Path) -> None:
    WRITERS[name](tmp_path / name)
    table = open_table(tmp_path / name)
    assert table.label == name
    assert_same(table, named=".np" not in name)
    assert_same(pickle.loads(pickle.dumps(table)), named=".np" not in name)


@pytest.mark.parametrize("kind", FRAMES)
def test_every_frame_gives_the_same_sums(kind: str) -> None:
    table = open_table(FRAMES[kind])
    assert table.label == "owner 1"
    assert table.rows == 2500
    assert_same(table, named=kind[:2] in ("pa", "po", "py"))


def assert_same(table: Table, *, named: bool) -> None:
    """Bit by bit: formats keep float64 exactly, and the order of operations is the same."""
    assert table.names == (NAMES if named else None)
    assert table.n_columns == 4
    assert table.rows in (2500, None)
    for rows in (None, 999):
        expected, sums = moments(open_table(X), chunk_rows=rows), moments(table, chunk_rows=rows)
        assert sums.count == 2500
        assert (sums.mean == expected.mean).all()
        assert (sums.gram == expected.gram).all()
    chunks = list(table.chunks(1000))
    assert [len(chunk) for chunk in chunks] == [1000, 1000, 500]
    assert (np.concatenate(chunks) == X).all()


INTEGERS = np.arange(-60, 60).reshape(40, 3)


@pytest.mark.parametrize("kind", ["bool", "int8", "uint8", "int16", "uint32", "int64", "float16", "float32", "float64"])
def test_number_types(kind: str, tmp_path: Path) -> None:
    x = np.abs(INTEGERS).astype(kind)
    expected = moments(open_table(x.astype(np.float64)))
    frame = pd.DataFrame(x, columns=list("abc"))
    np.save(tmp_path / "x.npy", x)
    pa.feather.write_feather(pa.Table.from_pandas(frame), tmp_path / "x.feather")
    frame.to_parquet(tmp_path / "x.parquet")
    frame.to_csv(tmp_path / "x.csv", index=False)
    small = kind not in ("uint32", "int64", "float64")
    for data in (x, frame, *tmp_path.iterdir()):
        table = open_table(data)
        assert (moments(table).gram == expected.gram).all()
        is_csv = isinstance(data, Path) and data.suffix == ".csv"
        assert is_csv or next(table.chunks()).dtype == (np.float32 if small else np.float64)


def test_decimals_dictionaries_and_mixed_types() -> None:
    table = pa.table(
        {
            "decimal": pa.array([decimal.Decimal("1.25"), decimal.Decimal("-3.50")]),
            "dictionary": pa.array([7, 9]).dictionary_encode(),
            "flag": pa.array([True, False]),
            "large": pa.array([2**63, 2**64 - 1], pa.uint64()),
        }
    )
    chunk = next(open_table(table).chunks())
    assert chunk.tolist() == [[1.25, 7, 1, 2.0**63], [-3.5, 9, 0, 2.0**64]]
    categories = pd.DataFrame({"a": pd.Categorical([3, 5, 3]), "b": pd.array([1, 2, 3], "Int64"), "c": [1.5, 2, 1]})
    assert next(open_table(categories).chunks()).tolist() == [[3, 1, 1.5], [5, 2, 2], [3, 3, 1]]


def test_csv_types_that_show_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole numbers in the first block, fractions after it; true and false; spaces around numbers."""
    monkeypatch.setattr("ppca.owner.tables.text.CSV_BLOCK", 400)
    lines = [f"{n}, {n} ,{'true' if n % 2 else 'false'}" for n in range(100)]
    (tmp_path / "late.csv").write_text("\n".join(["a,b,c", *lines, "0.5,1e3,true", ""]))
    chunk = next(open_table(tmp_path / "late.csv").chunks())
    assert chunk.shape == (101, 3)
    assert chunk[[0, 3, 100]].tolist() == [[0, 0, 0], [3, 3, 1], [0.5, 1000, 1]]


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.arrow", "stream.arrow", "pandas", "polars", "pyarrow"])
def test_columns_are_chosen_by_name_in_the_order_asked(name: str, tmp_path: Path) -> None:
    data = FRAMES.get(name, tmp_path / name)
    if name in WRITERS:
        WRITERS[name](data)
    table = open_table(data, columns=["größe", "MI_dir_L0.1_weight"])
    assert table.names == ["größe", "MI_dir_L0.1_weight"]
    assert (np.concatenate(list(table.chunks(700))) == X[:, [3, 1]]).all()


def test_a_single_large_batch_of_an_arrow_file_is_not_copied(tmp_path: Path) -> None:
    """The batch is a view of the mapped file, whatever its size: Arrow allocates nothing for it."""
    table = pa.table({name: np.arange(500_000.0) for name in "abcde"})
    with pa.ipc.new_file(tmp_path / "x.arrow", table.schema) as writer:
        writer.write_table(table)
    before = pa.total_allocated_bytes()
    table = open_table(tmp_path / "x.arrow", columns=["b", "e"])
    assert table.rows == 500_000
    for chunk in table.chunks(10_000):
        assert chunk.shape == (10_000, 2)
        assert pa.total_allocated_bytes() - before < 1e6


def test_text_in_a_column_that_was_not_chosen_is_no_error(tmp_path: Path) -> None:
    frame = FRAME.assign(device="doorbell", when=pd.Timestamp("2020-01-01"))
    frame.to_csv(tmp_path / "x.csv", index=False)
    frame.to_parquet(tmp_path / "x.parquet")
    for data in (frame, pl.from_pandas(frame), *tmp_path.iterdir()):
        assert moments(open_table(data, columns=NAMES)).count == 2500


def test_compatible_owners_are_put_into_the_order_of_the_first() -> None:
    tables = [open_table(FRAME, label="north"), open_table(FRAME[NAMES[::-1]], label="south"), open_table(X)]
    north, south, third = check_compatible(tables)
    assert north.notes == ()
    assert south.names == third.names == NAMES
    assert (next(south.chunks()) == X).all()
    assert south.notes == ("the columns of south were put into the order of north",)
    assert third.notes == ("owner 1 does not have column names; its columns were taken in the order of north",)
    assert tables[1].names == NAMES[::-1]
    assert moments(third).names == NAMES
    assert [table.names for table in check_compatible([tables[2], tables[2]])] == [None, None]


def test_incompatible_owners() -> None:
    north = open_table(FRAME, label="north")
    south = open_table(FRAME.rename(columns={"age": "Age"}), label="south")
    with pytest.raises(BadColumns, match=r"north and south .* only north has 'age'; only south has 'Age'"):
        check_compatible([north, south])
    west = open_table(FRAME[NAMES[:2]], label="west")
    with pytest.raises(BadColumns, match="north and west have different columns: only north has 'blood pressure', 'gr"):
        check_compatible([north, west])
    east = open_table(X[:, :2], label="east")
    with pytest.raises(BadColumns, match="north and east have different numbers of columns: 4 and 2"):
        check_compatible([north, east])


# -- one owner in many files ---------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five Parquet files, one with its columns in another order, and what Spark leaves beside them."""
    place = tmp_path / "north"
    place.mkdir()
    for number, rows in enumerate(np.split(X, 5)):
        frame = pd.DataFrame(rows, columns=NAMES)
        frame[NAMES[::-1] if number == 3 else NAMES].to_parquet(place / f"part-{number}.parquet")
    (place / "_SUCCESS").touch()
    (place / ".part-0.parquet.crc").write_bytes(b"no data")
    return place


def test_a_folder_and_a_pattern_are_one_owner(folder: Path) -> None:
    for data in (folder, str(folder / "*.parquet"), str(folder / "part-[0-4].parquet")):
        table = open_table(data)
        assert table.rows == 2500
        assert table.names == NAMES
        assert (np.concatenate(list(table.chunks())) == X).all()
        assert np.allclose(moments(table).gram, moments(open_table(X)).gram, rtol=1e-12, atol=0)
    some = open_table(folder / "part-[01].parquet", columns=["age"])
    assert (np.concatenate(list(some.chunks())) == X[:1000, :1]).all()
    assert [table.label for table in open_rows([folder, FRAME])] == ["north", "owner 2"]


def test_folders_that_are_no_table(folder: Path, tmp_path: Path) -> None:
    FRAME.rename(columns={"age": "Age"}).to_parquet(folder / "part-9.parquet")
    with pytest.raises(BadColumns, match=r"north: part-9.parquet and north: part-0.parquet have different columns"):
        open_table(folder)
    with pytest.raises(UnreadableData, match=r"the pattern .*x\*.csv finds no data files"):
        open_table(tmp_path / "x*.csv")


# -- ids apart from numbers ----------------------------------------------------------------------------------------------

PEOPLE = [f"{i:05d}" for i in range(2500)]


@pytest.mark.parametrize(
    "name", ["a.csv", "a.csv.gz", "a.parquet", "a.arrow", "stream.arrow", "folder", "pandas", "polars"]
)
def test_ids_come_with_the_rows(name: str, tmp_path: Path) -> None:
    """As they stand in the data, whatever they look like: 007 is no number."""
    frame = FRAME.assign(who=PEOPLE)
    data: Any = tmp_path / name
    match name:
        case "a.csv" | "a.csv.gz":
            frame.to_csv(data, index=False)
        case "a.parquet":
            frame.to_parquet(data)
        case "a.arrow" | "stream.arrow":
            table = pa.Table.from_pandas(frame, preserve_index=False)
            with (pa.ipc.new_stream if "stream" in name else pa.ipc.new_file)(data, table.schema) as writer:
                writer.write_table(table, max_chunksize=300)
        case "folder":
            data.mkdir()
            frame[:1000].to_csv(data / "1.csv", index=False)
            frame[1000:].to_parquet(data / "2.parquet", index=False)
        case _:
            data = frame if name == "pandas" else pl.from_pandas(frame)
    records = Records.of(open_table(data, id="who"))
    assert list(map(str, np.asarray(records.ids))) == PEOPLE
    assert (records.values == X).all()
    assert records.names == NAMES
    chosen = Records.of(open_table(data, columns=["age"], id="who"))
    assert chosen.values.shape == (2500, 1)


def test_a_stored_pandas_index_can_be_the_id(tmp_path: Path) -> None:
    FRAME.assign(who=PEOPLE).set_index("who").to_parquet(tmp_path / "x.parquet")
    records = Records.of(open_table(tmp_path / "x.parquet", id="who"))
    assert records.ids.to_pylist() == PEOPLE
    assert records.names == NAMES


def test_each_owner_gives_the_columns_it_has(tmp_path: Path) -> None:
    FRAME.assign(who=PEOPLE, text="a").to_csv(tmp_path / "a.csv", index=False)
    other = pd.DataFrame({"who": PEOPLE, "height": X[:, 0], "age": X[:, 1]})
    a, b = open_columns([tmp_path / "a.csv", other], "who", drop=["age", "text"])
    assert (a.names, b.names) == (NAMES[1:], ["height"])
    a, b = open_columns({"north": tmp_path / "a.csv", "south": other}, "who", columns=["age", "height", "größe"])
    assert (a.label, a.names, b.label, b.names) == ("north", ["age", "größe"], "south", ["age", "height"])
    with pytest.raises(BadColumns, match=r"no owner has a column 'Height'\. Did you mean 'height'"):
        open_columns([tmp_path / "a.csv", other], "who", columns=["Height"])
    with pytest.raises(BadColumns, match="owner 2: none of its columns were chosen"):
        open_columns([tmp_path / "a.csv", other], "who", columns=["größe"])


# -- how often a file is opened ------------------------------------------------------------------------------------------


OPEN, READ, CLOSE = 0x20, 0x1, 0x10
"""Of inotify. Equal events in a row are reported once, so what lies between two openings is watched, too."""


class Opens:
    """Counts how often files are opened, as the kernel sees it."""

    def __init__(self, path: Path) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._handle = self._libc.inotify_init1(os.O_NONBLOCK)
        assert self._libc.inotify_add_watch(self._handle, os.fsencode(path), OPEN | READ | CLOSE) >= 0

    def count(self) -> int:
        try:
            events = os.read(self._handle, 1 << 20)
        except BlockingIOError:
            return 0
        return sum(bool(mask & OPEN) for _, mask, _, _ in struct.iter_unpack("iIII", events))  # files carry no name


@pytest.mark.parametrize(
    "name", ["a.csv", "a.csv.gz", "a.tsv", "a.parquet", "a.arrow", "stream.arrow", "a.npy", "a.npz"]
)
def test_a_file_is_opened_once_for_its_schema_and_once_for_its_rows(name: str, tmp_path: Path) -> None:
    WRITERS[name](tmp_path / name)
    opens = Opens(tmp_path / name)
    (table,) = open_rows([tmp_path / name], columns=None if ".np" in name else NAMES[:2])
    assert opens.count() == 1
    for _ in table.chunks(700):
        pass
    assert opens.count() == 1


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.arrow"])
def test_ids_and_left_out_columns_cost_no_further_opening(name: str, tmp_path: Path) -> None:
    WRITERS[name](tmp_path / name)
    opens = Opens(tmp_path / name)
    owners = open_columns([tmp_path / name, FRAME], "age", drop=["größe"])
    records = [Records.of(table) for table in owners]
    assert records[0].values.shape == (2500, 2)
    assert len(records[0].ids) == 2500
    assert opens.count() == 2
