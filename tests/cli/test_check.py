"""`ppca check`: all problems of all files at once, with advice that works; it fails exactly if `ppca fit` does."""

from __future__ import annotations

import json
import random
import shlex
from collections.abc import Callable
from dataclasses import fields
from inspect import signature
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from harness.commands import ppca
from ppca.cli.check import check
from ppca.cli.draft import DraftOptions
from ppca.cli.fit import fit
from ppca.receiver import PCAModel

pytestmark = pytest.mark.usefixtures("lockstep_commands")

DICE = random.Random(1)
ROWS = [(DICE.gauss(50, 10), DICE.gauss(170, 8), DICE.gauss(1500, 300)) for _ in range(30)]
TABLE = pd.DataFrame(ROWS, columns=["age", "height", "income"]).round(2)


def lines(row: Callable[[int, float, float, float], str]) -> str:
    return "".join(f"{row(number, *values)}\n" for number, values in enumerate(ROWS))


def comma(value: float) -> str:
    return f"{value:.2f}".replace(".", ",")


MESSY = {
    "German": ("Alter;Größe\n" + lines(lambda i, a, b, c: f"{comma(a)};{comma(b)}")).encode("latin-1"),
    "byte order mark": ("\ufeffage,height\r\n" + lines(lambda i, a, b, c: f"{a},{b}\r")).encode(),
    "no-break spaces": ("age;income\n" + lines(lambda i, a, b, c: f"{a:.0f};{10 * c:,.0f},5".replace(",", "\u00a0", 1))).encode(),
    "dates and text": ("visit,age,height,sex\n" + lines(lambda i, a, b, c: f"2024-01-1{i % 10},{a},{b},{'mf'[i % 2]}")).encode(),
    "empty lines": ("age,height\n" + lines(lambda i, a, b, c: f"{a},{b}\n")).encode(),
    "separator at the end": ("age;height;\n" + lines(lambda i, a, b, c: f"{a};{b};")).encode(),
    "row index": (",age,height\n" + lines(lambda i, a, b, c: f"{i},{a},{b}")).encode(),
    "codes": ("age,height\n" + lines(lambda i, a, b, c: f"{a},{'n/k' if i == 7 else b}")).encode(),
    "percentages": ("age,height,share\n" + lines(lambda i, a, b, c: f"{a},{b},{i}%")).encode(),
    "American": ("age,income\n" + lines(lambda i, a, b, c: f'{a},"{10 * c:,.2f}"')).encode(),
    "spaces": ("age , height\n" + lines(lambda i, a, b, c: f" {a} , {b} ")).encode(),
}  # fmt: skip

ADVICE = {
    "German": ["--encoding latin-1", "--decimal ,"],
    "no-break spaces": ["--thousands ' '", "--decimal ,"],
    "dates and text": ["--drop visit,sex"],
    "separator at the end": ["--drop 'unnamed 3'"],
    "row index": ["--drop 'unnamed 1'"],
    "codes": ["--na-values n/k", "--missing drop"],
    "percentages": ["--drop share"],
    "American": ["--thousands ,"],
}
"""What the command says, step by step if one problem hides another; following it leads to a table that can be analysed."""


@pytest.mark.parametrize("case", MESSY)
def test_the_advice_works(case: str, tmp_path: Path) -> None:
    (tmp_path / "messy.csv").write_bytes(MESSY[case])
    options: list[str] = []
    wanted = ADVICE.get(case, [])
    for _ in range(len(wanted) + 1):
        done = ppca(tmp_path, "check", "messy.csv", *options)
        if done.returncode == 0:
            break
        advised = [option for option in wanted if option in done.stdout]
        assert advised, done.stdout
        options += [word for option in advised for word in shlex.split(option)]
    assert sorted(options) == sorted(word for option in wanted for word in shlex.split(option))
    assert done.returncode == 0, done.stdout
    assert "No problems. ppca fit takes about" in done.stdout
    assert ppca(tmp_path, "fit", "messy.csv", *options, "-o", "result", "-q").returncode == 0
    model = PCAModel.load(tmp_path / "result" / "model.json")
    assert (model.rows, len(model.mean)) == (29 if case == "codes" else 30, 2)
    scale = 10 if case in ("no-break spaces", "American") else 1
    column = 2 if scale == 10 else 1
    left = [row[column] * scale for number, row in enumerate(ROWS) if case != "codes" or number != 7]
    rounded = 1.0 if case == "no-break spaces" else 0.005  # what the digits in the file leave of a value
    assert abs(model.mean[1] - np.mean(left)) <= rounded


def test_all_problems_of_all_files_at_once(tmp_path: Path) -> None:
    bad = TABLE.astype(object)
    bad.loc[3, "age"] = "old"
    bad.loc[[5, 9], "height"] = np.nan
    bad.loc[2, "income"] = "inf"
    bad.to_csv(tmp_path / "a.csv", index=False)
    TABLE.rename(columns={"income": "salary"}).to_csv(tmp_path / "b.csv", index=False)
    TABLE.assign(name="x").to_parquet(tmp_path / "c.parquet")
    (tmp_path / "d.csv").write_bytes(b"")
    TABLE.to_csv(tmp_path / "good.csv", index=False)
    call = ("check", "a.csv", "b.csv", "c.parquet", "d.csv", "absent.csv", "good.csv", "-k", "9")
    done = ppca(tmp_path, *call)
    assert done.returncode == 1
    text = done.stdout
    for wanted in (
        "a: column 'age' has text 'old' in row 4",
        "a: column 'height' has a missing value (empty or NaN) in row 6 (2 such values in all); column 'income' has an infinite",
        "only b has 'salary'",
        "--columns age,height chooses columns",
        "only c has 'name'",
        "c: column 'name' has text 'x' in row 1",
        "d: the file is empty",
        "absent: there is no such file",
        "-k 9: must be at most 3",
        "good: 30 rows, 3 columns",
        "8 problems in 6 files: ppca fit would fail.",
    ):
        assert wanted in text, text
    found = json.loads(ppca(tmp_path, *call, "--json").stdout)
    assert (found["ok"], len(found["problems"]), found["forecast"]) == (False, 8, None)
    assert {"label": "good", "rows": 30, "columns": 3, "dropped": 0} in found["tables"]


def test_the_estimate_is_that_of_the_fit(tmp_path: Path) -> None:
    TABLE[:10].to_csv(tmp_path / "a.csv", index=False)
    TABLE[10:].to_parquet(tmp_path / "b.parquet")
    found = json.loads(ppca(tmp_path, "check", "a.csv", "b.parquet", "--standardize", "--json").stdout)
    assert found["ok"]
    fitted = json.loads(ppca(tmp_path, "fit", "a.csv", "b.parquet", "--standardize", "-o", "result", "--json").stdout)
    assert 0.5 < fitted["rounds"] / found["forecast"]["rounds"] < 2
    assert 0.5 < max(fitted["bytes_sent"]) / found["forecast"]["bytes"] < 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "b.parquet", "result"]


def test_rows_and_variance(tmp_path: Path) -> None:
    TABLE[:1].to_csv(tmp_path / "one.csv", index=False)
    TABLE.iloc[[0, 0]].to_csv(tmp_path / "same.csv", index=False)
    TABLE.assign(age=7).to_csv(tmp_path / "age.csv", index=False)
    assert "all owners together have 1 row" in ppca(tmp_path, "check", "one.csv").stdout
    assert "no column varies in the 2 rows of all owners" in ppca(tmp_path, "check", "same.csv").stdout
    done = ppca(tmp_path, "check", "age.csv", "age.csv")
    assert done.returncode == 0
    assert "note: column 'age' does not vary in any table" in done.stdout
    assert "note: age.csv is given more than once" in done.stdout


def test_more_columns_than_rows(tmp_path: Path) -> None:
    """The fit sends rows instead of sums, and refuses other values."""
    wide = pd.DataFrame(np.random.default_rng(0).normal(size=(4, 40)), columns=[f"c{k}" for k in range(40)])
    wide.to_csv(tmp_path / "a.csv", index=False)
    wide[:0].to_csv(tmp_path / "b.csv", index=False)
    wide.replace(wide.iloc[1, 1], 1e200).to_csv(tmp_path / "c.csv", index=False)
    for file, text in (("b.csv", "b: the table is empty"), ("c.csv", "c: values are too large to be squared")):
        for command in (["check"], ["fit", "-o", "result"]):
            done = ppca(tmp_path, *command, file)
            assert done.returncode == 1
            assert text in done.stdout + done.stderr
    assert ppca(tmp_path, "check", "a.csv").returncode == 0


@pytest.mark.parametrize("seed", range(12))
def test_it_fails_exactly_if_the_fit_does(seed: int, tmp_path: Path) -> None:
    """Random tables, defects and options. The first error of the fit is one of the problems."""
    dice, numbers = random.Random(seed), np.random.default_rng(seed)
    names = [f"c{k}" for k in range(dice.choice([1, 2, 5, 40]))]
    files = []
    for owner in range(dice.choice([1, 2, 3])):
        table = pd.DataFrame(numbers.normal(size=(dice.choice([1, 30, 30]), len(names))), columns=names).astype(object)
        for _ in range(dice.choice([0, 0, 1, 2])):
            cell = dice.choice([np.nan, "x", "inf", "1e200", "-999", "5%", " NA ", "1 234"])
            table.iloc[dice.randrange(len(table)), dice.randrange(len(names))] = cell
        table.to_csv(tmp_path / f"{owner}.csv", index=dice.random() < 0.1, sep=dice.choice(",;"))
        files.append(f"{owner}.csv")
    options = [word for words in (["-k", "2"], ["--missing", "drop"], ["--na-values", "x,-999"], ["--thousands", " "])
               if dice.random() < 0.4 for word in words]  # fmt: skip
    checked = ppca(tmp_path, "check", *files, *options)
    fitted = ppca(tmp_path, "fit", *files, *options, "-o", "result", "-q")
    assert checked.returncode == fitted.returncode, (checked.stdout, fitted.stderr)
    if fitted.returncode:
        error = fitted.stderr.partition("error: ")[2].splitlines()[0]
        assert error in checked.stdout


def test_owners_of_columns(tmp_path: Path) -> None:
    ids = [f"P{number}" for number in range(30)]
    TABLE[["age"]].assign(id=ids).to_csv(tmp_path / "a.csv", index=False)
    TABLE[["height"]].assign(id=ids)[5:].to_csv(tmp_path / "b.csv", index=False)
    TABLE[["income"]].assign(id=[name.lower() for name in ids]).to_csv(tmp_path / "c.csv", index=False)
    TABLE[["income"]].assign(id="P1").to_csv(tmp_path / "d.csv", index=False)
    call = ("check", "--vertical", "--id", "id")
    done = ppca(tmp_path, *call, "a.csv", "b.csv")
    assert done.returncode == 0, done.stdout
    assert "note: 25 rows are common to all owners" in done.stdout
    done = ppca(tmp_path, *call, "a.csv", "c.csv")
    assert done.returncode == 1
    assert "fewer than 10 ids are common to all 2 owners" in done.stdout
    assert "--fold-case lets ids differ in case" in done.stdout
    assert "more than once" in ppca(tmp_path, *call, "a.csv", "d.csv").stdout
    assert "there is no id column 'id'" in ppca(tmp_path, *call[:3], "Id", "a.csv", "b.csv").stdout.replace(
        "'Id'", "'id'"
    )


REFUSED = {
    "result that exists": ["-o", "old"],
    "result that is a file": ["-o", "a.csv"],
    "result in a file": ["-o", "a.csv/result"],
    "tolerance": ["--tol", "0.5"],
    "components": ["-k", "0"],
    "solver": ["--solver", "topk"],
    "use of a model that is not kept": ["--allow", "scores"],
    "unknown use of a model": ["--keep", "--allow", "theft"],
    "column owner as receiver": ["--keep", "--allow", "transform:2"],
    "folder of shares": ["--keep", "--servers-state", "a.csv"],
    "kept by a federation": ["--keep", "--federation", "federation.toml"],
    "federation": ["--federation", "absent.toml"],
    "iterations": ["--max-iterations", "0"],
    "files of a cluster": ["--dask-ca", "a.csv"],
    "Dask cluster": ["--dask", "local:none"],
    "id of row owners": ["--id", "age"],
    "columns and drop": ["--columns", "age", "--drop", "height"],
    "alignment": ["--vertical", "--id", "age", "--alignment", "guess"],
    "no id": ["--vertical"],
    "workers": ["--vertical", "--id", "age", "--workers", "many"],
    "one column owner": ["--vertical", "--id", "age"],
}


@pytest.mark.parametrize("case", REFUSED)
def test_options_that_a_fit_refuses(case: str, tmp_path: Path) -> None:
    """The check fails with the words of the fit, and neither writes anything."""
    TABLE.to_csv(tmp_path / "a.csv", index=False)
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "model.json").write_text("{}")
    before = sorted(tmp_path.rglob("*"))
    fitted = ppca(tmp_path, "fit", "a.csv", *REFUSED[case])
    checked = ppca(tmp_path, "check", "a.csv", *REFUSED[case])
    assert fitted.returncode > 0
    assert checked.returncode == fitted.returncode, checked.stdout
    error = fitted.stderr.partition("error: ")[2].splitlines()
    assert not error or error[0] in checked.stdout or error[0] in checked.stderr, (error, checked.stdout)
    assert sorted(tmp_path.rglob("*")) == before


def test_the_check_takes_the_command_line_of_the_fit(tmp_path: Path) -> None:
    only_fit = {"draft", "name"} | {field.name for field in fields(DraftOptions)}
    assert signature(check).parameters.keys() | only_fit == signature(fit).parameters.keys()
    TABLE.astype({"age": int}).assign(age=[7, *["x"] * 29]).to_csv(tmp_path / "a.csv", index=False)
    done = ppca(
        tmp_path, "check", "a.csv", "-k", "0", "--tol", "1", "-o", "a.csv", "--title", "T", "--profile", "--tls"
    )
    assert "3 problems in 1 file: ppca fit would fail." in done.stdout, done.stdout
    for text in ("column 'age' has text 'x'", "a.csv is a file", "-k 0: must be a whole number, at least 1"):
        assert text in done.stdout


@pytest.mark.parametrize("options", [[], ["-k", "2", "--standardize"], ["--vertical", "--alignment", "aligned"]])
def test_the_estimate_for_more_columns_than_rows(options: list[str], tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(20, 90)) / np.arange(1, 91)
    halves = np.hsplit(rows, 2) if "--vertical" in options else [rows[:11], rows[11:]]
    for name, half in zip("ab", halves, strict=True):
        columns = [f"{name if '--vertical' in options else ''}{k}" for k in range(half.shape[1])]
        pd.DataFrame(half, columns=columns).to_csv(tmp_path / f"{name}.csv", index=False)
    call = ("a.csv", "b.csv", *options, "--min-rows", "5", "--json")
    found = json.loads(ppca(tmp_path, "check", *call).stdout)
    fitted = json.loads(ppca(tmp_path, "fit", *call).stdout)
    assert 0.5 < fitted["rounds"] / found["forecast"]["rounds"] < 2
    assert 0.5 < max(fitted["bytes_sent"]) / found["forecast"]["bytes"] < 2


def test_the_first_error_of_a_fit_names_the_check(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_bytes(b"")
    done = ppca(tmp_path, "fit", "d.csv", "-o", "result")
    assert "note: ppca check, with the same files and options, lists all problems of all files" in done.stderr
