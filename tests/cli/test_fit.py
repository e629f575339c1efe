"""`ppca fit`: the files hold scikit-learn's numbers; bad input ends with a message, a non-zero exit and nothing written."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler
from typer.testing import CliRunner

from ppca.cli.main import app
from ppca.cli.result import FILES
from ppca.receiver import PCAModel
from ppca.runtime import LocalServers

WINE = load_wine(as_frame=True).data
TOLERANCE = 1e-6  # what the issue asks for; relative to the largest value where it is not a ratio


def ppca(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


@pytest.fixture(scope="module")
def owners(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three owners with unequal parts, in two formats; one has its columns in another order."""
    folder = tmp_path_factory.mktemp("owners")
    files = [folder / "a.csv", folder / "b.csv", folder / "c.parquet"]
    WINE[:60].to_csv(files[0], index=False)
    WINE[60:75][list(WINE.columns[::-1])].to_csv(files[1], index=False)
    WINE[75:].to_parquet(files[2])
    return files


@pytest.fixture(scope="module")
def fitted(owners: list[Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """A standardised fit with five components."""
    folder = tmp_path_factory.mktemp("fit") / "result"
    done = ppca("fit", *owners, "-k", 5, "--standardize", "-o", folder, "--profile", "--title", "Wine <of> three")
    assert done.exit_code == 0, done.output
    return folder, done


def read(path: Path) -> tuple[list[str], np.ndarray[Any, np.dtype[np.float64]]]:
    with path.open(newline="") as file:
        head, *rows = csv.reader(file)
    return head, np.array(rows, dtype=float)


@pytest.mark.processes
def test_files_hold_the_numbers_of_scikit_learn(fitted: tuple[Path, Result]) -> None:
    folder, _ = fitted
    truth = PCA(5).fit(StandardScaler().fit_transform(WINE))
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    assert [path.name for path in folder.parent.iterdir()] == ["result"]

    names, components = read(folder / "components.csv")
    assert names == list(WINE.columns)
    np.testing.assert_allclose(components, truth.components_, rtol=0, atol=TOLERANCE)

    _, variance = read(folder / "explained_variance.csv")
    np.testing.assert_array_equal(variance[:, 0], [1, 2, 3, 4, 5])
    np.testing.assert_allclose(variance[:, 1], truth.explained_variance_, rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(variance[:, 2], truth.explained_variance_ratio_, rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(variance[:, 3], np.cumsum(truth.explained_variance_ratio_), rtol=0, atol=5 * TOLERANCE)
    np.testing.assert_allclose(variance[:, 4], truth.singular_values_, rtol=TOLERANCE)

    model = PCAModel.load(folder / "model.json")
    np.testing.assert_array_equal(model.components, components)
    np.testing.assert_allclose(model.mean, WINE.mean(), rtol=TOLERANCE)
    assert model.rows == len(WINE)
    assert "Wine &lt;of&gt; three" in (folder / "report.html").read_text()


@pytest.mark.processes
def test_terminal_shows_result_and_course(fitted: tuple[Path, Result]) -> None:
    _, done = fitted
    for wanted in ("cumulative", "Everything that was opened", "verified on shares", "rounds", "Profile", "written:"):
        assert wanted in done.stdout, wanted
    for stage in ("owners", "servers", "covariance", "eigendecomposition", "result"):
        assert stage in done.stderr, stage
    assert "the columns of b were put into the order of a" in done.stderr


@pytest.mark.processes
def test_nothing_about_single_owners_is_written(fitted: tuple[Path, Result]) -> None:
    """Row counts of owners (60, 15, 103) are in no file: only their sum is opened."""
    folder, _ = fitted
    model = json.loads((folder / "model.json").read_text())
    assert model["rows"] == 178
    written = {value for name, value in model.items() if isinstance(value, int) and name != "iterations"}
    assert not {60, 15, 103} & written
    assert "178" in (folder / "report.html").read_text()


@pytest.mark.processes
def test_inspect(fitted: tuple[Path, Result]) -> None:
    folder, _ = fitted
    for place in (folder, folder / "model.json"):
        done = ppca("inspect", place)
        assert done.exit_code == 0, done.output
        for wanted in ("178 rows and 13 columns", "flavanoids", "convergence bit", "cumulative"):
            assert wanted in done.stdout, wanted


def test_inspect_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "model.json").write_text("{}")
    for place, cause in ((tmp_path, "not in the format ppca-model-2"), (tmp_path / "absent", "there is no")):
        done = ppca("inspect", place)
        assert done.exit_code == 1
        assert cause in done.stderr


@pytest.mark.processes
def test_options(owners: list[Path], tmp_path: Path) -> None:
    """Covariance, a fraction of variance, chosen columns, no convergence bits, TLS; --force replaces a result."""
    result = tmp_path / "result"
    result.mkdir()
    (result / "model.json").write_text("old")
    columns = ["alcohol", "ash", "hue", "color_intensity"]
    chosen = ["--columns", "alcohol,ash", "--columns", "hue, color_intensity"]
    options = ["-k", 0.9, "--fixed-iterations", 14, "--tls", "-o", result, "--force", "--scores"]
    done = ppca("fit", *owners, *chosen, *options)
    assert done.exit_code == 0, done.output
    truth = PCA(0.9).fit(WINE[columns])
    names, components = read(result / "components.csv")
    assert names == columns
    np.testing.assert_allclose(components, truth.components_, rtol=0, atol=TOLERANCE)
    opened = [line["what"] for line in PCAModel.load(result / "model.json").audit]
    assert "convergence bit" not in opened
    assert "number of components" in opened
    across = np.array(
        re.findall(r'<circle cx="([\d.]+)" cy="[\d.]+" r="2.6"/>', (result / "report.html").read_text()), float
    )
    np.testing.assert_allclose(
        np.corrcoef(across, truth.transform(WINE[columns])[:, 0])[0, 1], 1.0, atol=1e-5
    )  # places are written to 0.1 of 440
    refused = ppca("fit", *owners, "--scores", "--missing", "mean", "-o", tmp_path / "other")
    assert (refused.exit_code, "--scores needs" in refused.stderr) == (1, True)


# -- bad input -----------------------------------------------------------------------------------------------------------


def bad_tables(folder: Path) -> dict[str, Path]:
    good = WINE[:20].iloc[:, :4]
    text, missing = good.astype(object), good.copy()
    text.iloc[6, 2] = "n/k"
    missing.iloc[4, 1] = np.nan
    frames = {
        "more columns": WINE[:20].iloc[:, :5],
        "other names": good.rename(columns={"ash": "cinder"}),
        "text": text,
        "missing": missing,
        "no rows": good[:0],
    }
    files = {}
    for name, frame in frames.items():
        files[name] = folder / f"{name.replace(' ', '-')}.csv"
        frame.to_csv(files[name], index=False)
    files["text in parquet"] = folder / "text.parquet"
    good.assign(ash="heavy").to_parquet(files["text in parquet"])
    files["empty"] = folder / "empty.csv"
    files["empty"].write_bytes(b"")
    files["damaged"] = folder / "damaged.parquet"
    files["damaged"].write_bytes(b"PAR1" + os.urandom(200))
    files["absent"] = folder / "absent.csv"
    files["good"] = folder / "good.csv"
    good.to_csv(files["good"], index=False)
    return files


BAD: list[tuple[str, list[str], str]] = [
    ("more columns", [], "only more-columns has 'magnesium'"),
    ("other names", [], "only other-names has 'cinder'"),
    (
        "text",
        [],
        "'n/k' in row 7, which is not a number. Leave the column out, or correct the value. --na-values n/k ",
    ),
    ("text in parquet", [], "text: column 'ash'"),
    ("missing", [], "column 'malic_acid' has a missing value (empty or NaN) in row 5"),
    ("no rows", [], "the table is empty"),
    ("empty", [], "empty: the file is empty"),
    ("damaged", [], "damaged: the file cannot be read"),
    ("absent", [], "there is no such file"),
    ("good", ["-k", "5"], "-k 5: must be at most 4, the number of columns"),
    ("good", ["-k", "0"], "-k 0: must be a whole number, at least 1"),
    ("good", ["-k", "1.5"], "strictly between 0 and 1"),
    ("good", ["-k", "many"], "give a whole number, a fraction of the variance between 0 and 1, or 'all'"),
    ("good", ["--solver", "magic"], "choose from auto, topk, allpairs"),
    ("good", ["--tol", "1"], "--tol 1.0: must lie between"),
    ("good", ["--columns", "alcohol,asch"], "Did you mean 'ash'"),
    ("good", ["--drop", "asch"], "Did you mean 'ash'"),
    ("good", ["--drop", "ash", "--columns", "ash"], "exclude each other"),
    ("good", ["--timeout", "-1"], "timeout must be a positive number"),
]


FOUND_LATER = ("missing", "no rows")
"""What is found while rows are read, as the servers start in the background."""


@pytest.mark.parametrize(
    ("table", "options", "cause"), BAD, ids=[" ".join([table, *options]) for table, options, _ in BAD]
)
def test_bad_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, options: list[str], cause: str) -> None:
    started: list[LocalServers] = []
    monkeypatch.setattr(LocalServers, "start", lambda self: started.append(self))
    files = bad_tables(tmp_path)
    before = sorted(tmp_path.iterdir())
    done = ppca("fit", files["good"], files[table], *options, "-o", tmp_path / "result")
    assert done.exit_code == 1
    assert cause in done.stderr
    assert "error: " in done.stderr
    assert "Traceback" not in done.output
    assert done.stdout == ""
    assert sorted(tmp_path.iterdir()) == before
    assert len(started) == (table in FOUND_LATER)


def test_existing_output_is_refused(owners: list[Path], tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    for options in ([], ["--force"]):
        done = ppca("fit", *owners, "-o", tmp_path, *options)
        assert done.exit_code == 1
        assert "Choose another folder with -o" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_text_column_can_be_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only up to the start of the servers: opening the files is what this is about."""
    WINE[:20].iloc[:, :3].assign(cellar="north").to_parquet(tmp_path / "a.parquet")
    WINE[20:40].iloc[:, :3].assign(cellar="south").to_csv(tmp_path / "b.csv", index=False)

    class Reached(Exception):
        pass

    def start(self: LocalServers) -> None:
        raise Reached

    monkeypatch.setattr(LocalServers, "start", start)
    with pytest.raises(Reached):
        ppca("fit", tmp_path / "a.parquet", tmp_path / "b.csv", "--drop", "cellar", "-o", tmp_path / "result")


@pytest.mark.usefixtures("lockstep_commands")
def test_one_row(tmp_path: Path) -> None:
    WINE[:1].to_csv(tmp_path / "one.csv", index=False)
    done = ppca("fit", tmp_path / "one.csv", "-o", tmp_path / "result")
    assert done.exit_code == 1
    assert "a covariance needs at least 2" in done.stderr
    assert not (tmp_path / "result").exists()


@pytest.mark.processes
def test_killed_server(owners: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server killed in the middle: a clear error and nothing written; the same command then works."""
    command = ["fit", *owners, "-k", 2, "-o", tmp_path / "result"]
    real, killed = LocalServers.run_job, []

    def run_job(self: LocalServers, job: Any, chunks: Any, progress: Callable[..., None]) -> Any:
        def kill(text: str, fraction: float | None, rounds: int) -> None:
            progress(text, fraction, rounds)
            if text.startswith("covariance") and not killed:
                os.kill(self.pids[2], signal.SIGKILL)
                killed.append(text)

        return real(self, job, chunks, kill)

    with monkeypatch.context() as patch:
        patch.setattr(LocalServers, "run_job", run_job)
        done = ppca(*command)
    assert killed
    assert done.exit_code == 1
    assert "server 2" in done.stderr  # the server that was killed
    assert "killed" in done.stderr.lower()
    assert list(tmp_path.iterdir()) == []

    assert ppca(*command).exit_code == 0
    _, components = read(tmp_path / "result" / "components.csv")
    np.testing.assert_allclose(components, PCA(2).fit(WINE).components_, rtol=0, atol=TOLERANCE)


@pytest.mark.processes
def test_names_are_safe_for_the_terminal(tmp_path: Path, fitted: tuple[Path, Result]) -> None:
    model = PCAModel.load(fitted[0] / "model.json")
    model.feature_names = [f"\x1b[2J[red]{name}" for name in WINE.columns]
    model.save(tmp_path / "model.json")
    done = ppca("inspect", tmp_path)
    assert done.exit_code == 0
    assert "\x1b" not in done.stdout
    assert "[red]flavanoids" in done.stdout.replace("\n", "")


@pytest.mark.processes
def test_workers_of_a_cluster_read_the_files(owners: list[Path], fitted: tuple[Path, Result], tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="dask.distributed is not installed: pip install 'ppca[dask]'")
    first = f"file://{owners[0]}"
    done = ppca("fit", first, *owners[1:], "-k", 5, "--standardize", "-o", tmp_path / "result", "--dask", "local:1")
    assert done.exit_code == 0, done.output
    wanted, found = (PCAModel.load(folder / "model.json") for folder in (fitted[0], tmp_path / "result"))
    assert np.abs(found.components - wanted.components).max() < TOLERANCE
    assert found.feature_names == wanted.feature_names


def test_clusters_and_addresses_that_are_refused(owners: list[Path], tmp_path: Path) -> None:
    for options, message in (
        (["--dask", "nowhere"], "write tls://host:port"),
        (["--dask", "tcp://192.0.2.1:8786"], "not be encrypted or authenticated"),
        (["--dask-ca", "ca.pem"], "are for a cluster: name it with --dask"),
        (["--dask", "tls://127.0.0.1:9", "--dask-ca", "ca.pem"], "all three or none"),
    ):
        done = ppca("fit", owners[0], "-o", tmp_path / "result", *options)
        assert done.exit_code == 1
        assert message in " ".join(done.stderr.split())
    done = ppca("fit", "nowhere://bucket/x.parquet", "-o", tmp_path / "result")
    assert "there is no such kind of address" in " ".join(done.stderr.split())
    assert not (tmp_path / "result").exists()


@pytest.mark.usefixtures("lockstep_commands")
def test_no_column_varies(tmp_path: Path) -> None:
    WINE[:1].loc[[0, 0, 0]].to_csv(tmp_path / "same.csv", index=False)
    done = ppca("fit", tmp_path / "same.csv", "-o", tmp_path / "result")
    assert done.exit_code == 1
    assert "no column varies: the joint variance of all 13 columns is 0 in 3 rows," in " ".join(done.stderr.split())
    assert "< 0" not in done.output
    assert not (tmp_path / "result").exists()


@pytest.mark.usefixtures("lockstep_commands")
def test_names_like_formulas_are_escaped_in_csv(tmp_path: Path) -> None:
    """A spreadsheet runs a cell that begins with one of these characters; the model keeps the names as they are."""
    names = ["=1+1", "+a", "-log10(p)", "@b", "c=1"]
    WINE[:40].iloc[:, :5].set_axis(names, axis=1).to_csv(tmp_path / "x.csv", index=False)
    done = ppca("fit", tmp_path / "x.csv", "-k", 2, "-o", tmp_path / "result")
    assert done.exit_code == 0, done.output
    assert read(tmp_path / "result" / "components.csv")[0] == ["'=1+1", "'+a", "'-log10(p)", "'@b", "c=1"]
    assert PCAModel.load(tmp_path / "result" / "model.json").feature_names == names
    out = tmp_path / "projected.csv"
    done = ppca("transform", tmp_path / "result", tmp_path / "x.csv", "--revealed", "--keep-columns", "=1+1", "-o", out)
    assert done.exit_code == 0, done.output
    assert read(out)[0] == ["'=1+1", "pca0", "pca1"]


@pytest.mark.processes
def test_small_groups(tmp_path: Path) -> None:
    """What two owners learn of each other is said before the run; an owner of few rows is refused, and --min-rows named."""
    WINE[:60].to_csv(tmp_path / "a.csv", index=False)
    WINE[60:69].to_csv(tmp_path / "b.csv", index=False)
    call = ["fit", tmp_path / "a.csv", tmp_path / "b.csv", "-o", tmp_path / "result"]
    done = ppca(*call)
    assert done.exit_code == 1
    assert "b: 9 rows, fewer than the minimum of 10 rows per owner" in " ".join(done.stderr.split())
    assert "--min-rows sets the minimum" in " ".join(done.stderr.split())
    done = ppca(*call, "--min-rows", "5")
    assert done.exit_code == 0, done.output
    assert "two owners: anyone with the result" in " ".join(done.stderr.split())
    assert "almost only column 'proline'" in " ".join(done.stderr.split())
