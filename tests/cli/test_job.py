"""`ppca job new`: what its options write into the job's file."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from harness.federation import ROSTER
from ppca.cli.main import app
from ppca.federation.proposal import ProposedJob
from ppca.federation.roster import write_signatures
from ppca.jobs.pca import JointPCA

COLUMNS = ["--columns", "north=a,b", "--columns", "south=c", "--columns", "west=d,e"]


@pytest.fixture
def federation(tmp_path: Path) -> Path:
    path = tmp_path / "federation.toml"
    path.write_bytes(ROSTER.data)
    write_signatures(path.with_suffix(".sigs"), ROSTER.signatures)
    return path


def new(federation: Path, *words: str) -> tuple[int, str, Path]:
    output = federation.parent / "job.toml"
    command = ["job", "new", "n", "--owner", "north,south,west", "-f", str(federation), "-o", str(output), *words]
    done = CliRunner().invoke(app, command)
    return done.exit_code, done.output, output


def test_loadings_for_owners_and_variances_for_the_receiver(federation: Path) -> None:
    whom = ["--receiver", "analyst:variances", "--receiver", "north:loadings", "--receiver", "west:loadings,variances"]
    code, text, output = new(federation, *COLUMNS, *whom)
    assert code == 0, text
    file = ProposedJob.load(output).proposal
    assert file.job.data.form == "columns"
    assert file.reveals["north"] == ("loadings",)
    assert file.reveals["west"][:2] == ("scale exponents", "loadings")
    assert "loadings" not in file.reveals["analyst"]


def test_loadings_are_not_for_a_receiver_without_columns(federation: Path) -> None:
    code, text, output = new(federation, *COLUMNS, "--receiver", "analyst:loadings")
    assert code != 0
    assert "--receiver loadings: are for a column owner" in " ".join(text.split())
    assert not output.exists()


@pytest.mark.parametrize(("columns", "form"), [(COLUMNS, "wide-columns"), (["--columns", "a,b,c"], "wide-rows")])
def test_more_columns_than_rows(federation: Path, columns: list[str], form: str) -> None:
    code, text, output = new(federation, *columns, "--receiver", "analyst", "--wide")
    assert code == 0, text
    file = ProposedJob.load(output).proposal
    assert file.job.data.form == form
    assert "verification of components" in file.opens
    assert ("rounded numbers of rows" in file.opens) == ("rows" in form)


def test_joint_means_of_missing_values_need_the_covariance(federation: Path) -> None:
    code, text, _ = new(federation, "--columns", "a,b,c", "--receiver", "analyst", "--wide", "--missing", "mean")
    assert code != 0
    assert "--missing mean: is not possible" in " ".join(text.split())


def test_columns_of_a_table_that_needs_options_to_be_read(federation: Path) -> None:
    table = federation.parent / "north.csv"
    table.write_bytes("Größe;Alter;Name\n1,5;2;x\n".encode("latin-1"))
    whom = ["--receiver", "analyst", "--columns-from", str(table), "--drop", "Name"]
    code, text, output = new(federation, *whom)
    assert code == 1
    assert "--encoding names another encoding, such as --encoding latin-1" in text
    code, text, output = new(federation, *whom, "--encoding", "latin-1", "--decimal", ",")
    assert code == 0, text
    assert ProposedJob.load(output).spec.data.columns == ("Größe", "Alter")


def test_columns_to_leave_out_must_be_there(federation: Path) -> None:
    table = federation.parent / "north.csv"
    table.write_text("age,height\n1,2\n")
    code, text, output = new(federation, "--receiver", "analyst", "--columns-from", str(table), "--drop", "hight")
    assert code == 1
    assert "north.csv has no column 'hight'. Did you mean 'height'?" in " ".join(text.split())
    assert not output.exists()


@pytest.mark.parametrize(
    ("words", "fixed"),
    [((), True), (("--until-converged",), False), (("--until-converged", "--fixed-iterations", "9"), True)],
)
def test_iterations_are_fixed_unless_asked_otherwise(federation: Path, words: tuple[str, ...], fixed: bool) -> None:
    code, text, output = new(federation, *COLUMNS, "--receiver", "analyst", "--missing", "mean", *words)
    assert code == 0, text
    job = ProposedJob.load(output).spec
    fit = job.analysis
    assert isinstance(fit, JointPCA)
    assert job.data.missing == "mean"
    assert (fit.fixed_iterations is not None) == fixed
    assert fit.fixed_iterations == 9 or "--fixed-iterations" not in words
