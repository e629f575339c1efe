"""Commands in scripts: JSON, quiet, pipes that close, terminals without Unicode, and no import that no one needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sklearn.decomposition

import ppca as package
from harness.commands import in_lockstep, ppca

NAMES = ["a", "b", "c"]
ASCII_LOCALE = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
FRAME = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 3)), columns=NAMES).assign(patient=np.arange(60))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Two row owners, two of columns, and new rows with an id; a kept model. Commands run here in lock-step."""
    folder = tmp_path_factory.mktemp("terminal")
    FRAME[:40][NAMES].to_csv(folder / "north.csv", index=False)
    FRAME[40:][NAMES].to_csv(folder / "south.csv", index=False)
    FRAME[["patient", "a", "b"]].to_csv(folder / "clinic.csv", index=False)
    FRAME[10:][["patient", "c"]].rename(columns={"patient": "Nr"}).to_csv(folder / "lab.csv", index=False)
    FRAME.assign(ward="W7").to_csv(folder / "new.csv", index=False)
    with in_lockstep():
        done = ppca(folder, "fit", "north.csv", "south.csv", "-k", "2", "--keep", "-o", "kept", "--quiet")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        yield folder


def real_ppca(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command as its own process."""
    return subprocess.run(
        [sys.executable, "-m", "ppca.cli.main", *arguments],
        capture_output=True, text=True, timeout=120, cwd=folder, env=os.environ | variables,
    )  # fmt: skip


def test_fit_as_json(place: Path) -> None:
    done = ppca(place, "fit", "north.csv", "south.csv", "-k", "2", "-o", "r1", "--json")
    found = json.loads(done.stdout)
    model = package.load(place / "r1")
    assert found["rows"] == 60
    assert found["columns"] == NAMES
    assert found["owners"] == ["north", "south"]
    assert found["explained_variance_ratio"] == model.explained_variance_ratio_.tolist()
    assert [line["what"] for line in found["openings"]] == [line["what"] for line in model.openings_]
    assert found["written"] == "r1"
    assert json.loads(ppca(place, "inspect", "r1", "--json").stdout)["components"] == model.components_.tolist()


def test_progress_in_a_log_is_plain_lines(place: Path) -> None:
    done = ppca(place, "fit", "north.csv", "south.csv", "-o", "r2")
    lines = done.stderr.splitlines()
    assert lines[0].startswith("note: two owners: ")
    assert lines[1] == "owners, north: 40 rows"
    assert "servers" in lines
    assert all(line.isascii() and line == line.strip() for line in lines)


def test_owners_of_columns_see_their_rows_and_the_common_ones(place: Path) -> None:
    call = ["fit", "--vertical", "--id", "patient", "--id", "Nr", "clinic.csv", "lab.csv", "-o", "r3"]
    done = ppca(place, *call)
    assert done.returncode == 0, done.stderr
    assert "rows: clinic 60, lab 50; 50 common to all" in done.stdout
    found = json.loads(ppca(place, *call, "--force", "--json").stdout)
    assert (found["rows"], found["rows_of_owners"]) == (50, [60, 50])


def test_few_common_ids_are_doubted(place: Path) -> None:
    wrong = FRAME[["patient", "c"]].assign(patient=[f"{'p' if i < 20 else 'P'}{i}" for i in range(60)])
    wrong.to_csv(place / "ids.csv", index=False)
    FRAME[["patient", "a"]].assign(patient=[f"p{i}" for i in range(60)]).to_csv(place / "right.csv", index=False)
    done = ppca(place, "fit", "--vertical", "--id", "patient", "right.csv", "ids.csv", "-o", "r9")
    assert done.returncode == 0, done.stderr
    assert (
        "note: only 20 of at least 60 ids are common: ids have letters, whose case is significant. --fold-case"
        in done.stderr
    )
    refused = ppca(place, "fit", "--vertical", "--id", "Nr", "right.csv", "lab.csv", "-o", "r10")
    assert "--id may be given once for each owner" in refused.stderr


@pytest.mark.processes
def test_a_reader_that_leaves_is_no_error(place: Path) -> None:
    done = subprocess.run(
        f"set -o pipefail; {sys.executable} -m ppca.cli.main fit north.csv south.csv -o r4 -q --json | head -c 1; "
        f"{sys.executable} -m ppca.cli.main inspect kept | head -n 1",
        shell=True, executable="/bin/bash", capture_output=True, text=True, timeout=120, cwd=place,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.processes
def test_terminals_without_unicode(place: Path) -> None:
    done = real_ppca(place, "fit", "north.csv", "south.csv", "-o", "r5", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert (done.stdout + done.stderr).isascii()
    for variables in ({"PYTHONIOENCODING": "ascii"}, ASCII_LOCALE):
        shown = real_ppca(place, "inspect", "kept", **variables)
        assert "2 x 3" in shown.stdout
        assert shown.stdout.isascii()


@pytest.mark.processes
def test_files_are_utf8_whatever_the_terminal(place: Path) -> None:
    """Column names of any script, in a locale that has only ASCII: every file of the result is UTF-8, and is read again."""
    names = ["größe", "身長", "вес"]
    FRAME[NAMES].set_axis(names, axis=1).to_csv(place / "names.csv", index=False)
    done = real_ppca(place, "fit", "names.csv", "-k", "2", "-o", "scripts", **ASCII_LOCALE)
    assert done.returncode == 0, done.stderr
    assert (done.stdout + done.stderr).isascii()
    assert (place / "scripts" / "components.csv").read_text(encoding="utf-8").splitlines()[0] == ",".join(names)
    assert all(name in (place / "scripts" / "report.html").read_text(encoding="utf-8") for name in names)
    assert package.load(place / "scripts").feature_names_in_.tolist() == names
    call = ["transform", "scripts", "names.csv", "--revealed", "-o", "coordinates.csv"]
    assert real_ppca(place, *call, **ASCII_LOCALE).returncode == 0
    assert (place / "coordinates.csv").read_text(encoding="utf-8").startswith("pca0,pca1\n")


@pytest.mark.processes
@pytest.mark.parametrize(
    "options", [["north.csv", "south.csv"], ["--vertical", "--id", "patient", "clinic.csv", "lab2.csv"]]
)
def test_fit_imports_nothing_heavy(place: Path, options: list[str]) -> None:
    FRAME[["patient", "c"]].to_csv(place / "lab2.csv", index=False)
    code = (
        "import sys; from ppca.cli.main import app; app(sys.argv[1:], standalone_mode=False); "
        "print(sorted({'sklearn', 'matplotlib', 'pandas', 'scipy', 'polars'} & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "fit", *options, "-o", "r6", "--force", "-q"],
        capture_output=True, text=True, timeout=120, cwd=place,
    )  # fmt: skip
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.processes
def test_the_package_imports_the_protocol_only() -> None:
    code = "import sys, ppca; print({name.split('.')[1] for name in sys.modules if name.startswith('ppca.')})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert eval(done.stdout) == {"protocol", "native"}, done.stderr


def test_kept_columns_stand_beside_the_result(place: Path) -> None:
    for more in ([], ["--revealed"]):
        done = ppca(
            place, "transform", "kept", "new.csv", "--keep-columns", "patient,ward", "-o", "p.csv", "--force", *more
        )
        assert done.returncode == 0, done.stderr
        found = pd.read_csv(place / "p.csv")
        assert list(found.columns) == ["patient", "ward", "pca0", "pca1"]
        assert found["patient"].tolist() == list(range(60))
    done = ppca(place, "detect", "kept", "new.csv", "--contamination", "0.1", "--keep-columns", "patient", "--json")
    told = json.loads(done.stdout)
    assert (told["rows"], told["flagged"], told["columns"]) == (60, 6, ["patient", "anomaly"])
    assert list(pd.read_csv(place / "flags.csv").columns) == ["patient", "anomaly"]


def test_new_rows_with_missing_values(place: Path) -> None:
    """--missing drop leaves rows out of the result and of the kept columns, also if the kept column is one of the model's."""
    holes = FRAME.assign(ward=[f"{i:03}" for i in range(60)])
    holes.iloc[[3, 5], 0] = np.nan
    holes.to_csv(place / "new-holes.csv", index=False)
    call = ["transform", "kept", "new-holes.csv", "--keep-columns", "patient,ward,b", "-o", "drop.parquet", "--force"]
    assert "--missing drop leaves out rows" in ppca(place, *call).stderr
    assert "--missing mean: is for fits" in ppca(place, *call, "--missing", "mean").stderr
    for more in ([], ["--revealed"]):
        done = ppca(place, *call, "--missing", "drop", *more)
        assert done.returncode == 0, done.stderr
        assert "note: new-holes.csv: 2 rows with a missing value left out" in done.stderr
        found = pd.read_parquet(place / "drop.parquet")
        left = holes.drop(index=[3, 5])
        assert found["patient"].tolist() == left["patient"].tolist()
        assert (found["patient"].dtype, found["ward"].tolist()) == (np.int64, left["ward"].tolist())
        np.testing.assert_array_equal(found["b"], left["b"])
        assert len(found["pca0"]) == 58


def test_kept_columns_of_any_name(place: Path) -> None:
    FRAME.rename(columns={"patient": "pca0"}).to_csv(place / "odd.csv", index=False)
    call = ["transform", "kept", "odd.csv", "--revealed", "--force", "-o", "odd-out.csv"]
    assert ppca(place, *call, "--keep-columns", "pca0").returncode == 0
    found = pd.read_csv(place / "odd-out.csv")
    assert list(found.columns) == ["pca0 (own)", "pca0", "pca1"]
    assert found["pca0 (own)"].tolist() == list(range(60))
    assert (
        "there is no column to keep named 'pca7'. Did you mean 'pca0'?"
        in ppca(place, *call, "--keep-columns", "pca7").stderr
    )
    FRAME[["patient", "a", "b"]].rename(columns={"patient": "no, left"}).to_csv(place / "left.csv", index=False)
    call = ["--id", "no, left", "--id", "Nr", "left.csv", "lab.csv", "-q"]
    assert ppca(place, "fit", "--vertical", "-k", "1", "--keep", "-o", "comma", *call).returncode == 0
    done = ppca(place, "transform", "comma", "left.csv", "lab.csv", *call[:4], "-q", "-o", "comma.csv")
    assert done.returncode == 0, done.stderr
    assert list(pd.read_csv(place / "comma.csv").columns) == ["no, left", "pca0"]


def test_text_files_of_other_countries(place: Path) -> None:
    FRAME[["a", "b"]].rename(columns={"a": "größe"}).to_csv(place / "d.csv", sep=";", decimal=",", encoding="latin-1")
    refused = ppca(place, "fit", "d.csv", "-o", "r7")
    assert "--encoding names another encoding, such as --encoding latin-1" in refused.stderr
    refused = ppca(place, "fit", "d.csv", "-o", "r7", "--encoding", "latin-1", "--columns", "größe,b")
    assert "--decimal , reads decimal commas" in refused.stderr
    call = ["fit", "d.csv", "-o", "r7", "--encoding", "latin-1", "--decimal", ",", "--columns", "größe,b"]
    assert ppca(place, *call).returncode == 0


def test_rows_with_missing_values(place: Path) -> None:
    holes = FRAME[NAMES].copy()
    holes.iloc[[3, 5], 0] = np.nan
    holes.to_csv(place / "holes.csv", index=False)
    assert "--missing drop leaves out rows" in ppca(place, "fit", "holes.csv", "-o", "r8").stderr
    done = ppca(place, "fit", "holes.csv", "-o", "r8", "--missing", "drop")
    assert "note: holes: 2 rows with a missing value left out" in done.stderr
    assert "missing" not in done.stdout + (place / "r8" / "report.html").read_text()
    assert package.load(place / "r8").n_samples_ == 58


def test_missing_values_as_means(place: Path) -> None:
    """Joint means of row owners; with --vertical each column's owner fills in its own."""
    owners = [FRAME[:40][NAMES] + 3, FRAME[40:][NAMES]]
    owners[0] = owners[0].mask(np.random.default_rng(1).random((40, 3)) < 0.3)
    for name, owner in zip(("gaps", "full"), owners, strict=True):
        owner.to_csv(place / f"{name}.csv", index=False)
    assert "--missing mean counts it as the mean" in ppca(place, "fit", "gaps.csv", "full.csv", "-o", "means").stderr
    done = ppca(place, "fit", "gaps.csv", "full.csv", "-o", "means", "--missing", "mean")
    assert done.returncode == 0, done.stderr
    joined = pd.concat(owners)
    found = package.load(place / "means")
    wanted = sklearn.decomposition.PCA().fit(joined.fillna(joined.mean()))
    assert found.n_samples_ == 60
    np.testing.assert_allclose(found.mean_, wanted.mean_, rtol=1e-9)
    np.testing.assert_allclose(found.explained_variance_, wanted.explained_variance_, rtol=1e-6)
    assert "count as the joint mean of their column" in (place / "means" / "report.html").read_text()
    joined.assign(patient=FRAME["patient"])[["patient", "a"]].to_csv(place / "left.csv", index=False)
    done = ppca(
        place,
        "fit",
        "--vertical",
        "--id",
        "patient",
        "left.csv",
        "clinic.csv",
        "--columns",
        "a,b",
        "-o",
        "r10",
        "--missing",
        "mean",
    )
    assert done.returncode == 0, done.stderr
    report = (place / "r10" / "report.html").read_text()
    assert "count as the mean of their column at its owner" in report
    owners[0]["b"] = np.nan
    owners[0].to_csv(place / "gaps.csv", index=False)
    refused = ppca(place, "fit", "gaps.csv", "full.csv", "-o", "r11", "--missing", "mean")
    assert "gaps: column 'b' has no value in any row" in refused.stderr
    assert "--drop b leaves the column out" in refused.stderr
    assert not (place / "r11").exists()
