"""`ppca fit --keep`, `ppca transform`, `ppca detect`: inference with model and rows both secret, across commands."""

from __future__ import annotations

import json
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import Result
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler
from typer.testing import CliRunner

from harness.commands import CommandServers, in_lockstep
from ppca.cli.main import app
from ppca.cli.result import FILES, KEPT
from ppca.receiver import SharedFacts
from ppca.runtime import LocalServers

WINE = load_wine(as_frame=True).data
TRUTH = PCA(3).fit(StandardScaler().fit_transform(WINE))
COORDINATES = TRUTH.transform(StandardScaler().fit_transform(WINE))
SCORES = ((StandardScaler().fit_transform(WINE) - TRUTH.inverse_transform(COORDINATES)) ** 2).sum(axis=1)
CLOSE = 1e-6  # of the revealed model; rows add the rounding of 40 fractional bits, far below


def ppca(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


@pytest.fixture(scope="module", autouse=True)
def lockstep() -> Iterator[None]:
    with in_lockstep():
        yield


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Server processes instead of servers in lock-step; they read the shares that those have kept."""
    monkeypatch.setattr("ppca.runtime.LocalServers", LocalServers)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two owners, new rows with a column too many and in another order, and a kept model of three components."""
    place = tmp_path_factory.mktemp("kept")
    WINE[:60].to_csv(place / "a.csv", index=False)
    WINE[60:].to_parquet(place / "b.parquet")
    WINE[WINE.columns[::-1]].assign(cellar="north").to_csv(place / "new.csv", index=False)
    options = ["-k", 3, "--standardize", "--keep", "--allow", "transform,flags", "--allow", "scores"]
    done = ppca("fit", place / "a.csv", place / "b.parquet", *options, "-o", place / "result")
    assert done.exit_code == 0, done.output
    assert "the shares of all four servers lie with one user" in done.stdout
    return place


def kept(result: Path, state: Path) -> list[Path]:
    """The files of a result's model on the four servers."""
    name = json.loads((result / "shared.json").read_text())["name"]
    return [state / "ppca" / f"server-{seat}" / "local" / f"{name}.npz" for seat in range(4)]


def signed_alike(found: Any, wanted: Any) -> None:
    """Equal up to one sign per component."""
    signs = np.sign((found * wanted).sum(axis=0))
    np.testing.assert_allclose(found * signs, wanted, rtol=0, atol=CLOSE)


def test_kept_files(folder: Path, state_home: Path) -> None:
    """A result can be mailed around: what servers keep is not in it, only a name that no one can guess."""
    result = folder / "result"
    assert sorted(path.name for path in result.iterdir()) == sorted([*FILES, "shared.json"])
    for path in kept(result, state_home):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert list(path.parent.glob("*.sums.npz")) == []  # no command fits partially
    assert stat.S_IMODE((state_home / "ppca").stat().st_mode) == 0o700
    facts = json.loads((result / "shared.json").read_text())
    assert len(facts["name"]) == 32
    assert facts["allowed"] == {"transform": ["client"], "flags": ["client"], "scores": ["client"]}
    assert facts["rows"] == 178
    assert facts["components"] == 3
    assert not {60, 118} & {value for value in facts.values() if isinstance(value, int)}  # single owners' row counts
    # Nothing of the model's content.
    assert [name for name, value in facts.items() if isinstance(value, float)] == ["tolerance"]


def test_transform_on_shares_does_not_use_the_revealed_model(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "result", tmp_path / "result")
    for name in FILES:
        (tmp_path / "result" / name).unlink()
    done = ppca("transform", tmp_path / "result", folder / "new.csv", "-o", tmp_path / "out.csv")
    assert done.exit_code == 0, done.output
    found = pd.read_csv(tmp_path / "out.csv")
    assert list(found.columns) == ["pca0", "pca1", "pca2"]
    signed_alike(found.to_numpy(), COORDINATES)
    assert "178 rows projected onto 3 components on shares" in done.stdout
    assert "coordinates" in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.csv", "result"]


def test_transform_in_the_clear(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CommandServers, "start", lambda self: pytest.fail("servers were started"))
    done = ppca("transform", folder / "result", folder / "new.csv", "-o", tmp_path / "out.parquet", "--revealed")
    assert done.exit_code == 0, done.output
    np.testing.assert_allclose(pd.read_parquet(tmp_path / "out.parquet"), COORDINATES, rtol=0, atol=CLOSE)


@pytest.mark.parametrize("revealed", [False, True])
def test_detect(folder: Path, tmp_path: Path, revealed: bool) -> None:
    extra = ["--revealed"] if revealed else []
    command = ["detect", folder / "result", folder / "new.csv", *extra]
    done = ppca(*command, "--contamination", 0.05, "--scores", "-o", tmp_path / "share.csv")
    assert done.exit_code == 0, done.output
    found = pd.read_csv(tmp_path / "share.csv")
    np.testing.assert_allclose(found["score"], SCORES, rtol=0, atol=CLOSE * SCORES.max())
    np.testing.assert_array_equal(found["anomaly"], np.sort(SCORES)[-9] <= SCORES)  # 9 = ceil(0.05 * 178)
    assert "9 flagged" in done.stdout

    done = ppca(*command, "--threshold", 12, "-o", tmp_path / "limit.csv")
    assert done.exit_code == 0, done.output
    found = pd.read_csv(tmp_path / "limit.csv")
    assert list(found.columns) == ["anomaly"]  # scores were not asked for
    np.testing.assert_array_equal(found["anomaly"], SCORES > 12)
    assert ("anomaly scores" in done.stdout) is False


def test_nobody_receives_the_model(folder: Path, tmp_path: Path) -> None:
    result = tmp_path / "secret"
    done = ppca("fit", folder / "a.csv", folder / "b.parquet", "-k", 3, "--no-reveal", "-o", result)
    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in result.iterdir()) == sorted(KEPT)
    assert "This model was not revealed to anyone" in done.stdout
    audit = json.loads((result / "shared.json").read_text())["audit"]
    assert {line["what"] for line in audit if line["to"] != "servers"} == {"number of rows", "scale exponents"}

    shown = ppca("inspect", result)
    assert shown.exit_code == 0
    assert "This model was not revealed to anyone" in shown.stdout.replace("\n", " ")
    assert "allowed: transform for client; flags for client" in shown.stdout

    assert ppca("transform", result, folder / "new.csv", "-o", tmp_path / "out.csv").exit_code == 0
    raw = PCA(3).fit(WINE)
    found = pd.read_csv(tmp_path / "out.csv").to_numpy()
    wanted = raw.transform(WINE)
    signs = np.sign((found * wanted).sum(axis=0))
    np.testing.assert_allclose(found * signs, wanted, rtol=0, atol=CLOSE * np.abs(wanted).max())

    refused = ppca("transform", result, folder / "new.csv", "-o", tmp_path / "clear.csv", "--revealed")
    assert refused.exit_code == 1
    assert "was not revealed" in refused.stderr


def test_a_kept_result_can_be_replaced_and_forgotten(folder: Path, tmp_path: Path) -> None:
    """What the servers kept of it is erased; and so it is by `ppca forget`."""
    state = tmp_path / "state"
    command = ["fit", folder / "a.csv", "-k", 2, "-o", tmp_path / "result", "--servers-state", state]
    done = ppca(*command, "--keep")
    assert done.exit_code == 0, done.output
    first = sorted(state.glob("server-*/local/*"))
    assert len(first) == 4
    first[0].with_suffix(".part").touch()  # as a killed server may leave it
    assert ppca(*command, "--keep", "--force").exit_code == 0
    second = sorted(state.glob("server-*/local/*"))
    assert len(second) == 4
    assert not {*first} & {*second}
    done = ppca("forget", tmp_path / "result", "--servers-state", state)
    assert done.exit_code == 0, done.output
    assert "erased: the shares of 4 servers" in done.stdout
    assert list(state.glob("server-*/local/*")) == []
    assert sorted(path.name for path in (tmp_path / "result").iterdir()) == sorted(FILES)
    refused("names no kept model", "forget", tmp_path / "result", "--servers-state", state, place=tmp_path)
    assert ppca(*command, "--keep", "--force").exit_code == 0
    assert ppca(*command, "--force").exit_code == 0
    assert list(state.glob("server-*/local/*")) == []


def test_the_advice_after_a_model_was_forgotten(folder: Path, tmp_path: Path) -> None:
    """It names only what is still possible: the revealed model if there is one, a new fit if not."""
    state, result, rows = tmp_path / "state", tmp_path / "result", folder / "new.csv"
    command = ["fit", folder / "a.csv", "-k", 2, "-o", result, "--servers-state", state]
    use = ["transform", result, rows, "-o", tmp_path / "out.csv", "--servers-state", state]
    assert ppca(*command, "--keep").exit_code == 0
    done = ppca("forget", result, "--servers-state", state)
    assert "The revealed model stays in" in done.stdout.replace("\n", " ")
    assert "Add --revealed to use the revealed model here" in ppca(*use).stderr
    assert ppca(*use, "--revealed").exit_code == 0
    assert ppca(*command, "--no-reveal", "--force").exit_code == 0
    done = ppca("forget", result, "--servers-state", state)
    assert "This model was not revealed, so nothing of it is left. To use it, fit again with --keep." in done.stdout
    assert not result.exists()
    for again in (ppca(*use, "--force"), ppca("forget", result, "--servers-state", state)):
        assert again.exit_code == 1
        assert "there is no folder" in again.stderr
        assert "--revealed" not in again.stderr


def test_a_fit_that_fails_leaves_no_shares(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError("the disk is full")

    state = tmp_path / "state"
    monkeypatch.setattr(SharedFacts, "save", full)
    done = ppca("fit", folder / "a.csv", "-k", 2, "--keep", "-o", tmp_path / "result", "--servers-state", state)
    assert done.exit_code == 1
    assert list(state.glob("server-*/local/*")) == []
    assert not (tmp_path / "result").exists()


def test_shares_stay_when_only_the_printing_fails(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hung_up(*_: object) -> None:
        raise BrokenPipeError

    state = tmp_path / "state"
    monkeypatch.setattr("ppca.cli.result.print_openings", hung_up)
    command = ["fit", folder / "a.csv", "-k", 2, "--keep", "-o", tmp_path / "result", "--servers-state", state]
    assert ppca(*command).exit_code == 0  # who reads the output has left, which is no error
    assert (tmp_path / "result" / "shared.json").exists()
    assert len(list(state.glob("server-*/local/*.npz"))) == 4


def test_only_what_was_allowed(folder: Path, tmp_path: Path) -> None:
    """Scores are not allowed unless the fit said so; the command says it before servers start."""
    state = ["--servers-state", tmp_path / "state"]
    files = [folder / "a.csv", folder / "b.parquet"]
    for options, allowed in (([], {"transform", "flags"}), (["--allow", "flags"], {"flags"})):
        done = ppca("fit", *files, "-k", 2, "--keep", *options, *state, "-o", tmp_path / "result", "--force")
        assert done.exit_code == 0, done.output
        assert set(json.loads((tmp_path / "result" / "shared.json").read_text())["allowed"]) == allowed
    rows = [tmp_path / "result", folder / "new.csv", *state]
    refused("kept without 'transform': it allows flags", "transform", *rows, place=tmp_path)
    refused("kept without 'scores'", "detect", *rows, "--threshold", 1, "--scores", place=tmp_path)
    assert ppca("detect", *rows, "--threshold", 1, "-o", tmp_path / "flags.csv").exit_code == 0


def test_bad_allowances(folder: Path, tmp_path: Path) -> None:
    command = ["fit", folder / "a.csv", "-o", tmp_path / "result", "--servers-state", tmp_path / "state"]
    (tmp_path / "state").mkdir(mode=0o700)
    for options, cause in (
        (["--allow", "scores"], "add --keep"),
        (["--keep", "--allow", "everything"], "'everything' is not an operation of a kept model"),
        (["--keep", "--allow", "partial_fit"], "there is no command for partial fits"),
        (["--keep", "--allow", "transform:x"], "operation:N"),
        (["--keep", "--allow", "transform:1"], "'owner-1' is not a receiver"),
        (["--keep", "--allow", "transform:1,flags"], "with every operation, or with none"),
    ):
        refused(cause, *command, *options, place=tmp_path)
    (tmp_path / "state").chmod(0o755)
    refused("others may look into", *command, "--keep", place=tmp_path)


# -- bad input -----------------------------------------------------------------------------------------------------------


def refused(cause: str, *arguments: object, place: Path) -> None:
    before = sorted(place.rglob("*"))
    done = ppca(*arguments)
    assert done.exit_code == 1, done.output
    assert cause in done.stderr
    assert "error: " in done.stderr
    assert "Traceback" not in done.output
    assert done.stdout == ""
    assert sorted(place.rglob("*")) == before


def test_results_without_shares(folder: Path, tmp_path: Path, state_home: Path) -> None:
    result = tmp_path / "result"
    shutil.copytree(folder / "result", result)
    shutil.copytree(state_home / "ppca", tmp_path / "ppca")
    kept(result, tmp_path)[2].unlink()
    out = ["-o", tmp_path / "out.csv"]
    there = [*out, "--servers-state", tmp_path / "ppca"]
    refused("the shares of server 2 are missing", "transform", result, folder / "new.csv", *there, place=tmp_path)
    (result / "shared.json").write_text("{}")
    refused(
        "it is not in the format ppca-shared-2", "detect", result, folder / "new.csv", *out, "--scores", place=tmp_path
    )
    (result / "shared.json").unlink()
    for command in (["transform"], ["detect", "--scores"]):
        refused("or fit again with --keep", *command, result, folder / "new.csv", *out, place=tmp_path)
    refused("there is no folder", "transform", tmp_path / "absent", folder / "new.csv", *out, place=tmp_path)


@pytest.mark.processes
@pytest.mark.usefixtures("processes")
def test_damaged_shares(folder: Path, tmp_path: Path, state_home: Path) -> None:
    shutil.copytree(state_home / "ppca", tmp_path / "ppca")
    kept(folder / "result", tmp_path)[1].write_bytes(b"PK garbage")
    there = ["-o", tmp_path / "out.csv", "--servers-state", tmp_path / "ppca"]
    done = ppca("transform", folder / "result", folder / "new.csv", *there)
    assert done.exit_code == 1
    assert "cannot read the record" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out.csv").exists()


BAD_OPTIONS: list[tuple[list[object], str]] = [
    (["--threshold", 1, "--contamination", 0.1], "not both"),
    (["--contamination", 0.9], "must be above 0 and at most 0.5"),
    (["--threshold", -1], "at least 0"),
    (["--threshold", "nan"], "at least 0"),
    ([], "ppca detect needs one of --threshold, --contamination or --scores"),
    (["--scores", "-o", "flags.txt"], "the ending must be .csv or .parquet"),
]


@pytest.mark.parametrize(("options", "cause"), BAD_OPTIONS, ids=[cause for _, cause in BAD_OPTIONS])
def test_bad_options(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[object], cause: str
) -> None:
    monkeypatch.setattr(CommandServers, "start", lambda self: pytest.fail("servers were started for bad input"))
    monkeypatch.chdir(tmp_path)
    refused(cause, "detect", folder / "result", folder / "new.csv", *options, place=tmp_path)


def test_bad_rows(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CommandServers, "start", lambda self: pytest.fail("servers were started for bad input"))
    out = ["-o", tmp_path / "out.csv"]
    tables = {
        "there is no column 'ash'": WINE.drop(columns="ash"),
        "missing value": WINE.assign(hue=[*WINE["hue"][:-1], np.nan]),
        "the table is empty": WINE[:0],
        "column 'hue' has 1e+12 in row 3; this model takes magnitudes below": WINE.assign(hue=[1, 1, 1e12] + [1] * 175),
    }
    for number, table in enumerate(tables.values()):
        table.to_csv(tmp_path / f"{number}.csv", index=False)
    np.save(tmp_path / "narrow.npy", WINE.to_numpy()[:, :5])
    for number, cause in enumerate(tables):
        refused(cause, "transform", folder / "result", tmp_path / f"{number}.csv", *out, place=tmp_path)
    refused("5 columns, the model 13", "transform", folder / "result", tmp_path / "narrow.npy", *out, place=tmp_path)
    (tmp_path / "out.csv").write_text("mine")
    refused("exists. Choose another name", "transform", folder / "result", folder / "new.csv", *out, place=tmp_path)
    assert (tmp_path / "out.csv").read_text() == "mine"


@pytest.mark.processes
@pytest.mark.usefixtures("processes")
def test_killed_server(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written, the kept shares are unharmed, and the same command then works."""
    real = LocalServers.start

    def start(self: LocalServers) -> Any:
        started = real(self)
        self._servers[3].process.kill()
        return started

    command = ["transform", folder / "result", folder / "new.csv", "-o", tmp_path / "out.csv"]
    with monkeypatch.context() as patch:
        patch.setattr(LocalServers, "start", start)
        done = ppca(*command)
    assert done.exit_code == 1
    assert "server 3" in done.stderr
    assert list(tmp_path.iterdir()) == []
    assert ppca(*command).exit_code == 0
