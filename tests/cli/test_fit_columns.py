"""`ppca fit --vertical`, `ppca transform` and `ppca detect` of its model: files in, files out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import Result
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler
from typer.testing import CliRunner

from ppca.cli.main import app
from ppca.cli.result import FILES
from ppca.receiver import PCAModel

WINE = load_wine(as_frame=True).data
RANDOM = np.random.default_rng(8)
NUMBERS = [f"{i:04d}" for i in range(len(WINE))]
CUTS = [(0, 3), (3, 9), (9, 13)]


def ppca(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


def write(folder: Path, rows: np.ndarray, name: str) -> tuple[list[Path], list[int]]:
    """Three owners' files, each without a few of the rows and in its own order; and the rows that all have."""
    files, known = [], []
    for number, ((start, stop), ending) in enumerate(zip(CUTS, ("csv", "parquet", "csv"), strict=True)):
        at = RANDOM.permutation(rows)[: len(rows) - 2 - number]
        table = WINE.iloc[at, start:stop].reset_index(drop=True)
        table.insert(0, "student_id", [NUMBERS[row] for row in at])
        path = folder / f"{name}_{number}.{ending}"
        table.to_csv(path, index=False) if ending == "csv" else table.to_parquet(path, index=False)
        files.append(path)
        known.append(set(at.tolist()))
    return files, sorted(set.intersection(*known))


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int], str]:
    folder = tmp_path_factory.mktemp("vertical")
    files, common = write(folder, np.arange(150), "old")
    options = [
        "--vertical",
        "--id",
        "student_id",
        "-k",
        3,
        "--standardize",
        "--keep",
        "--allow",
        "transform,flags,scores",
        "--chunks",
        2,
        "--workers",
        1,
    ]
    done = ppca("fit", *options, *files, "-o", folder / "result")
    assert done.exit_code == 0, done.output
    return folder / "result", common, done.stdout


def truth(common: list[int]) -> tuple[StandardScaler, PCA]:
    scaler = StandardScaler().fit(WINE.to_numpy()[common])
    return scaler, PCA(3).fit(scaler.transform(WINE.to_numpy()[common]))


@pytest.mark.processes
def test_fit(fitted: tuple[Path, list[int], str]) -> None:
    folder, common, printed = fitted
    model = PCAModel.load(folder / "model.json")
    _, plain = truth(common)
    assert model.rows == len(common)
    assert model.feature_names == list(WINE.columns)
    assert np.abs(model.explained_variance_ratio - plain.explained_variance_ratio_).max() < 1e-6
    assert np.abs(np.abs((model.components * plain.components_).sum(axis=1)) - 1).max() < 1e-6
    assert {path.name for path in folder.iterdir()} >= set(FILES)
    assert "match pattern of" in printed
    page = (folder / "report.html").read_text()
    assert "by columns" in page
    assert "psi" in page
    assert not any(number in (folder / "model.json").read_text() for number in ("student_id", "0042"))


@pytest.mark.processes
def test_transform_and_detect(fitted: tuple[Path, list[int], str], tmp_path: Path) -> None:
    folder, common, _ = fitted
    files, new = write(tmp_path, np.arange(140, len(WINE)), "new")
    done = ppca("transform", folder, *files, "--id", "student_id", "--receiver", files[1], "-o", tmp_path / "z.csv")
    assert done.exit_code == 0, done.output
    found = pd.read_csv(tmp_path / "z.csv", dtype={"student_id": str}).set_index("student_id")
    assert set(found.index) == {NUMBERS[row] for row in new}
    scaler, plain = truth(common)
    rows = scaler.transform(WINE.loc[[int(number) for number in found.index]].to_numpy())
    assert np.abs(np.abs(found.to_numpy()) - np.abs(plain.transform(rows))).max() < 1e-5
    options = ["--id", "student_id", "--contamination", 0.2, "--scores", "-o", tmp_path / "flags.parquet"]
    done = ppca("detect", folder, *files, *options)
    assert done.exit_code == 0, done.output
    flags = pd.read_parquet(tmp_path / "flags.parquet").set_index("student_id").loc[found.index]
    scores = ((rows - plain.inverse_transform(plain.transform(rows))) ** 2).sum(axis=1)
    assert np.allclose(flags["score"], scores, rtol=1e-5, atol=1e-5)
    assert flags["anomaly"].sum() == np.ceil(0.2 * len(new))


@pytest.mark.usefixtures("lockstep_commands")
def test_aligned_and_namespace(tmp_path: Path) -> None:
    for start, stop in CUTS:
        WINE.iloc[:, start:stop].assign(n=np.arange(len(WINE))).to_csv(tmp_path / f"{start}.csv", index=False)
    files = [tmp_path / f"{start}.csv" for start, _ in CUTS]
    scaler = PCA().fit(WINE.to_numpy())
    for number, options in enumerate((["--alignment", "aligned"], ["--alignment", "namespace", "--namespace", 178])):
        done = ppca("fit", "--vertical", "--id", "n", *options, *files, "-o", tmp_path / str(number))
        assert done.exit_code == 0, done.output
        model = PCAModel.load(tmp_path / str(number) / "model.json")
        assert np.abs(model.explained_variance_ratio - scaler.explained_variance_ratio_).max() < 1e-6


@pytest.mark.usefixtures("lockstep_commands")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--vertical"], "Name it with --id"),
        (["--id", "student_id"], "add --vertical"),
        (["--vertical", "--id", "nobody"], "there is no id column 'nobody'"),
        (["--vertical", "--id", "student_id", "--alignment", "magic"], "choose from psi, aligned, namespace"),
        (["--vertical", "--id", "student_id", "--alignment", "aligned"], "numbers differ"),
        (["--vertical", "--id", "student_id", "--alignment", "namespace"], "--namespace: must be the number of ids"),
        (["--vertical", "--id", "student_id", "--minimum", "1000"], "fewer than 1000 ids are common"),
        (["--vertical", "--id", "student_id", "--columns", "alcohol,nonsense"], "no owner has a column 'nonsense'"),
        (["--vertical", "--id", "student_id", "-k", "40"], "-k 40: must be at most 13"),
    ],
)
def test_refused_with_nothing_written(tmp_path: Path, options: list[str], message: str) -> None:
    files, _ = write(tmp_path, np.arange(40), "x")
    done = ppca("fit", *options, *files, "-o", tmp_path / "out")
    assert done.exit_code == 1
    assert message in " ".join(done.stderr.split())
    assert not (tmp_path / "out").exists()


@pytest.mark.processes
def test_inference_refused(fitted: tuple[Path, list[int], str], tmp_path: Path) -> None:
    folder = fitted[0]
    files, _ = write(tmp_path, np.arange(140, len(WINE)), "new")
    for options, message in (
        (files, "Name it with --id"),
        ([*files, "--id", "student_id", "--revealed"], "--revealed needs all columns in one table"),
        ([*files, "--id", "student_id", "--receiver", "x.csv"], "none of the owners' files"),
        ([*files[::-1], "--id", "student_id"], "in the order of the fit"),
    ):
        done = ppca("transform", folder, *options, "-o", tmp_path / "z.csv")
        assert done.exit_code == 1
        assert message in " ".join(done.stderr.split())
        assert not (tmp_path / "z.csv").exists()
