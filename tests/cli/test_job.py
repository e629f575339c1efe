"""`ppca job new`: what its options write into the job's file."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from typer.testing import CliRunner

from harness.federation import MEMBERSHIP
from ppca import PCA, Columns
from ppca.cli.draft import LifetimeOptions
from ppca.cli.job import JobOptions
from ppca.cli.main import app
from ppca.federation.membership import write_signatures
from ppca.federation.proposal import Proposal, ProposedJob
from ppca.jobs.pca import JointPCA
from ppca.jobs.spec import ROWS, Align, Data

COLUMNS = ["--columns", "north=a,b", "--columns", "south=c", "--columns", "west=d,e"]


@pytest.fixture
def federation(tmp_path: Path) -> Path:
    path = tmp_path / "federation.toml"
    path.write_bytes(MEMBERSHIP.data)
    write_signatures(path.with_suffix(".sigs"), MEMBERSHIP.signatures)
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
    assert "north.csv does not have the column 'hight'. Did you mean 'height'?" in " ".join(text.split())
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


UNTIL = "2031-01-01T00:00:00Z"
MEMBERS = ["--owner", "north,south,west", "--receiver", "analyst:components,variances"]
LIFE = ["--expires", "2030-01-01T00:00:00Z", "--erase-after", "3d", "--rows-at-least", "50"]
SAME = [
    ["-k", "2", "--standardize", "--missing", "mean"],
    ["-k", "0.9", "--solver", "jacobi", "--tol", "1e-6", "--max-iterations", "90", "--missing", "drop"],
    ["--wide", "--until-converged", "-k", "1"],
    ["--keep-for", UNTIL, "--allow", "transform:analyst", "--allow", "flags:north", "--fixed-iterations", "9"],
]
BY_COLUMNS = [
    ["--alignment", "psi", "--minimum", "7", "--fold-case", "--row-share-at-most", "0.5"],
    ["--alignment", "namespace", "--namespace", "99", "--chunks", "3", "-k", "2"],
    ["--wide", "--standardize"],
]


def drafts(federation: Path, columns: list[str], files: list[str], more: list[str]) -> tuple[bytes, bytes]:
    """The job.toml of `ppca job new` and of `ppca fit --draft`."""
    folder = federation.parent
    made, drafted = folder / "new.toml", folder / "draft.toml"
    common = [*MEMBERS, *LIFE, *more]
    commands = [
        ["job", "new", "study", *columns, *common, "-f", str(federation), "-o", str(made)],
        ["fit", *files, *common, "--name", "study", "--federation", str(federation), "--draft", str(drafted)],
    ]
    for command in commands:
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output
    return made.read_bytes(), drafted.read_bytes()


@pytest.mark.parametrize("more", SAME)
def test_a_fit_drafts_the_same_bytes_as_a_new_job(federation: Path, more: list[str]) -> None:
    table = federation.parent / "north.csv"
    table.write_text("age,pressure,name\n40,120,x\n")
    files = [str(table), "--drop", "name"]
    made, drafted = drafts(federation, ["--columns", "age,pressure"], files, more)
    assert made == drafted
    assert ProposedJob(drafted).spec.data.columns == ("age", "pressure")


@pytest.mark.parametrize("more", BY_COLUMNS)
def test_a_fit_of_columns_drafts_the_same_bytes_as_a_new_job(federation: Path, more: list[str]) -> None:
    files = []
    for owner, names in (("north", "a,b"), ("south", "c"), ("west", "d,e")):
        path = federation.parent / f"{owner}.csv"
        path.write_text(f"id,{names}\n1,{','.join('2' for _ in names.split(','))}\n")
        files.append(str(path))
    made, drafted = drafts(federation, COLUMNS, [*files, "--vertical", "--id", "id"], more)
    assert made == drafted


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--owner", "north"], "--owner: only a job of a federation has this. Add --draft job.toml"),
        (["--draft", "job.toml", "--owner", "north"], "--draft needs --name, --owner and --receiver"),
        (["--draft", "job.toml", "--keep"], "with --draft give --keep-for and --allow"),
        (["--draft", "job.toml", "--name", "n", *MEMBERS, "--vertical", "--id", "a"], "3 owners for 1 files"),
        (["--draft", "job.toml", "--name", "n", *MEMBERS, "-k", "7"], "-k 7: must be at most 2"),
        (["--draft", "job.toml", "--name", "n", *MEMBERS, "--tol", "1"], "--tol 1.0: must lie between"),
        (
            ["--draft", "job.toml", "--name", "n", "--owner", "North", *MEMBERS[2:]],
            "--owner North: must consist of a-z",
        ),
        (["--draft", "job.toml", "--name", "n", *MEMBERS, "--expires", "soon"], "'soon' is not a time"),
    ],
)
def test_options_that_make_no_draft(federation: Path, words: list[str], told: str) -> None:
    table = federation.parent / "north.csv"
    table.write_text("a,b\n1,2\n")
    done = CliRunner().invoke(app, ["fit", str(table), *words, "--federation", str(federation)])
    assert done.exit_code == 1
    assert told in " ".join(done.output.split())
    assert not (federation.parent / "job.toml").exists()


def test_the_default_values_of_options_are_those_of_jobs() -> None:
    """The command line shows them in --help without an import of jobs."""
    options, estimator = JobOptions(), PCA()
    assert options.analysis == JointPCA()
    assert options.align(options.minimum, None) == Align()
    names = ("solver", "tol", "fixed_iterations", "max_iterations")
    assert [getattr(estimator, name) for name in names] == [getattr(JointPCA(), name) for name in names]
    data = Data(form=ROWS, owners=("north",), columns=("a",))
    assert (options.standardize, options.read.missing, options.chunks) == (data.standardize, data.missing, data.chunks)
    assert Columns().align == Align()
    (erase_after,) = [field.default for field in fields(Proposal) if field.name == "erase_after"]
    assert LifetimeOptions().erase_after == erase_after
