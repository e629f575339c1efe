"""`ppca regress` and `ppca job regress`: numbers, files, the report and the job of a federation."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import statsmodels.api as sm
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge

from harness.commands import ppca
from harness.federation import MEMBERSHIP
from ppca.federation.membership import write_signatures
from ppca.federation.proposal import ProposedJob
from ppca.jobs.regression import JointRegression
from ppca.receiver.regression import RegressionModel

FRAME: pandas.DataFrame = load_diabetes(as_frame=True, scaled=False).frame.iloc[:, [0, 2, 3, 8, 10]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three row owners, two column owners with ids, and a federation."""
    made = tmp_path_factory.mktemp("regress")
    for name, part in zip("abc", np.array_split(np.arange(len(FRAME)), 3), strict=True):
        FRAME.iloc[part].to_csv(made / f"{name}.csv", index=False)
    with_ids = FRAME.assign(id=[f"p{row}" for row in range(len(FRAME))])
    with_ids[["id", "age", "bmi"]].to_csv(made / "left.csv", index=False)
    with_ids[["id", "bp", "s5", "target"]].sample(frac=1.0, random_state=1).to_csv(made / "right.csv", index=False)
    (made / "federation.toml").write_bytes(MEMBERSHIP.data)
    write_signatures(made / "federation.sigs", MEMBERSHIP.signatures)
    return made


ROWS = ("a.csv", "b.csv", "c.csv")
OWNERS = ("--owner", "north,south,west", "--receiver", "analyst", "--expires", "2030-01-01T00:00:00Z")


def regress(folder: Path, *words: str) -> Any:
    done = ppca(folder, "regress", *words)
    assert done.returncode == 0, done.stderr + done.stdout
    return done


def truth() -> Any:
    X = FRAME.drop(columns="target").to_numpy()
    return sm.OLS(FRAME["target"].to_numpy(), sm.add_constant(X, prepend=False)).fit()


@pytest.mark.usefixtures("lockstep_commands")
def test_the_files_hold_the_numbers_of_statsmodels(folder: Path) -> None:
    done = regress(folder, *ROWS, "--target", "target", "--reveal", "correlation,vif", "-o", "rows", "--title", "<b>")
    wanted = truth()
    assert {path.name for path in (folder / "rows").iterdir()} == {
        *("coefficients.csv", "correlation.csv", "regression.json", "report.html")
    }
    with (folder / "rows" / "coefficients.csv").open(newline="") as file:
        head, *rows = csv.reader(file)
    assert head == ["term", "coefficient", "standard_error", "t", "p", "low", "high", "vif"]
    assert [row[0] for row in rows] == ["age", "bmi", "bp", "s5", "intercept"]
    numbers = np.array([row[1:7] for row in rows], float)
    expected = np.column_stack([wanted.params, wanted.bse, wanted.tvalues, wanted.pvalues, wanted.conf_int()])
    np.testing.assert_allclose(numbers, expected, rtol=1e-7, atol=1e-9)
    model = RegressionModel.load(folder / "rows" / "regression.json")
    np.testing.assert_array_equal(model.table()["coefficient"], numbers[:, 0])
    assert "Linear regression of target" in done.stdout
    assert "R squared: " in done.stdout
    assert "condition bit" in done.stdout
    page = (folder / "rows" / "report.html").read_text()
    assert "<script" not in page
    assert " style=" not in page
    assert "&lt;b&gt;" in page
    assert "verification bit" in page
    assert len(re.findall(r'<circle class="dot[^"]*"', page)) == 4
    again = ppca(folder, "regress", *ROWS, "--target", "target", "-o", "rows")
    assert again.returncode != 0
    assert "--force" in again.stderr + again.stdout


@pytest.mark.usefixtures("lockstep_commands")
def test_column_owners_and_json(folder: Path) -> None:
    words = [
        "left.csv",
        "right.csv",
        "--vertical",
        "--id",
        "id",
        "--target",
        "right:target",
        "-o",
        "columns",
        "--json",
    ]
    found = json.loads(regress(folder, *words).stdout)
    assert found["rows"] == len(FRAME)
    assert found["coefficients"]["term"] == ["age", "bmi", "bp", "s5", "intercept"]
    np.testing.assert_allclose(found["coefficients"]["coefficient"], truth().params, rtol=1e-4)
    assert found["r2"] == pytest.approx(truth().rsquared, abs=1e-6)
    assert {line["to"] for line in found["openings"]} == {"servers", "client"}


@pytest.mark.usefixtures("lockstep_commands")
def test_ridge(folder: Path) -> None:
    words = ["--method", "ridge", "--alpha", "10", "-o", "ridge", "-q"]
    regress(folder, *ROWS, "--target", "target", *words)
    model = RegressionModel.load(folder / "ridge" / "regression.json")
    plain = Ridge(10.0).fit(FRAME.drop(columns="target"), FRAME["target"])
    np.testing.assert_allclose(model.coefficients, plain.coef_, rtol=1e-7)
    page = (folder / "ridge" / "report.html").read_text()
    assert "alpha = 10" in page
    assert "no standard errors or tests" in page


FAULTS = {
    "--target nothing": "There is no 'nothing'",
    "--target target --alpha 3": "--alpha and --standardize are for the penalty of --method ridge",
    "--target target --method lasso": "--method lasso: is unknown; choose from ols, ridge",
    "--target target --method ridge --alpha 0": "--alpha 0.0: is the penalty of ridge",
    "--target target --reveal all": "--reveal all: is unknown",
    "--target target --id x": "add --vertical",
    "--target target --owner north": "only a job of a federation has this",
    "--target target --draft job.toml": "--draft needs --name, --owner and --receiver",
}


@pytest.mark.parametrize("words", FAULTS)
def test_faults_are_named_and_nothing_is_written(words: str, folder: Path) -> None:
    done = ppca(folder, "regress", *ROWS, *words.split(), "-o", "wrong")
    assert done.returncode != 0
    text = " ".join((done.stderr + done.stdout).replace("│", " ").split())
    assert FAULTS[words] in text
    assert not (folder / "wrong").exists()


def test_dependent_columns_are_refused_with_advice(folder: Path, lockstep_commands: None) -> None:
    FRAME.assign(twice=2 * FRAME["bmi"]).to_csv(folder / "dependent.csv", index=False)
    done = ppca(folder, "regress", "dependent.csv", "--target", "target", "-o", "wrong")
    assert done.returncode != 0
    assert "linearly dependent" in " ".join((done.stderr + done.stdout).replace("│", " ").split())
    assert not (folder / "wrong").exists()


@pytest.mark.parametrize("vertical", [False, True])
def test_both_commands_write_the_same_job(vertical: bool, folder: Path) -> None:
    """From files, and from a list of columns."""
    first, second = (folder / f"{name}-{vertical}.toml" for name in ("files", "list"))
    more = ["--target", "target", "--reveal", "vif", "-f", "federation.toml", *OWNERS]
    if vertical:
        more[more.index("north,south,west")] = "north,south"
        given = ["left.csv", "right.csv", "--vertical", "--id", "id"]
        columns = ["--columns", "north=age,bmi", "--columns", "south=bp,s5,target"]
    else:
        given, columns = list(ROWS), ["--columns", "age,bmi,bp,s5,target"]
    federation = ["--federation" if word == "-f" else word for word in more]
    done = ppca(folder, "regress", *given, *federation, "--draft", str(first), "--name", "n")
    assert done.returncode == 0, done.stdout + done.stderr
    done = ppca(folder, "job", "regress", "n", *columns, *more, "-o", str(second))
    assert done.returncode == 0, done.stdout + done.stderr
    assert first.read_bytes() == second.read_bytes()
    spec = ProposedJob.load(first).spec
    assert spec.analysis == JointRegression(target="target")
    assert dict(spec.receivers) == {"analyst": ("result", "vif")}
    assert spec.data.by_columns == vertical


def test_parts_and_penalty_of_a_job(folder: Path) -> None:
    words = [
        "--columns",
        "north=a,b",
        "--columns",
        "south=y",
        "--target",
        "south:y",
        "--method",
        "ridge",
        "--standardize",
    ]
    whom = ["--owner", "north,south", "--receiver", "analyst:coefficients,r2", "--receiver", "north"]
    done = ppca(folder, "job", "regress", "n", *words, *whom, "-f", "federation.toml", "-o", "parts.toml")
    assert done.returncode == 0, done.stdout + done.stderr
    spec = ProposedJob.load(folder / "parts.toml").spec
    assert spec.analysis == JointRegression(target="y", method="ridge", alpha=1.0, scaled=True)
    assert dict(spec.receivers) == {"analyst": ("coefficients", "r2"), "north": ("result",)}
