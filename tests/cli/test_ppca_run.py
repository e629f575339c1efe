"""`ppca run` as its user sees it: results on standard output, errors on standard error with exit code 1, no left-overs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from harness.waiting import PATIENCE, until
from ppca.cli.main import app

PROGRAMS = """
import os
import numpy as np
import ppca

async def scaled(party, x, y, *, scale=1, name="none"):
    product, smaller = await ppca.together(x * y, x < y)
    bits = await smaller.open(what="[x] < y", why="test")
    return {"out": {"product": (product * scale).reveal(why="test"), "file": bits}, "rest": [name, None, [1, 2], scale]}

async def one(party, x):
    return x.reveal(to="client", what="x", why="test")

async def fails(party, x):
    x[7]

async def forever(party, x):
    with open(f"pid-{party.seat}", "w") as file:
        file.write(str(os.getpid()))
    while True:
        x = (await (x * x)).within(1.0)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a file of programs and two inputs."""
    (tmp_path / "mine.py").write_text(PROGRAMS)
    np.save(tmp_path / "x.npy", [1.5, -2.0, 3.25])
    (tmp_path / "y.csv").write_text("4\n0.5\n3\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


def ppca(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["run", *arguments], env={"COLUMNS": "200"})


@pytest.mark.processes
def test_a_run_prints_the_result_and_what_was_opened(folder: Path) -> None:
    before = sorted(folder.iterdir())
    ran = ppca("mine:scaled", "x.npy", "y.csv", "-p", "scale=2", "-p", "name=[two", "-o", "result.npz", "--tls")
    assert ran.exit_code == 0, ran.stderr
    assert "out.product = [12.  -2.  19.5]\n" in ran.stdout
    assert "out.file = [1 1 0]\n" in ran.stdout
    assert "4 rounds (one of them for key agreement)" in ran.stdout
    assert "[x] < y" in ran.stdout  # shown as it is, not taken as markup
    assert ran.stderr.strip() == "written: result.npz"
    with np.load("result.npz") as saved:
        result: dict[str, Any] = {name: saved[name].tolist() for name in saved}
    assert result.pop("out.product") == pytest.approx([12.0, -2.0, 19.5], rel=0, abs=4 * 2.0**-40)
    rest = {"rest[0]": "[two", "rest[1]": "None", "rest[2]": [1, 2], "rest[3]": 2}
    assert result == {"out.file": [1, 1, 0], **rest}
    made = {path.name for path in folder.iterdir() if path not in before}
    assert made - {"__pycache__"} == {"result.npz"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing.py:main"], "file not found: 'nothing.py'"),
        (["mine"], "write 'module:function' or 'file.py:function'"),
        (["mine.py:scaled", "none.npy"], "cannot read none.npy: No such file"),
        (["mine.py:scaled", "empty.csv"], "cannot read empty.csv"),
        (["mine.py:scaled", "names.csv"], "no line of names"),
        (["mine.py:scaled", "mine.py"], "only .npy and .csv can be read"),
        (["mine.py:scaled", "holes.csv"], "holes.csv[1] is nan: fill or drop missing"),
        (["mine.py:scaled", "-o", "no/such/folder.npz"], "cannot be made: there is no folder"),
        (["mine.py:scaled", "-o", "taken.npz"], "is a folder. Give the name of a file"),
        (["mine.py:scaled", "--timeout", "0"], "timeout must be a positive number"),
    ],
)
def test_mistakes_are_told_before_any_server_starts(
    folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.setattr(subprocess, "Popen", None)
    (folder / "empty.csv").write_text("")
    (folder / "names.csv").write_text("a,b\n1,2\n")
    (folder / "holes.csv").write_text("1\nnan\n")
    (folder / "taken.npz").mkdir()
    ran = ppca(*arguments)
    assert ran.exit_code == 1
    assert ran.stdout == ""
    assert message in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["-p", "noequals"], "name=value"), (["-p", "a=1", "-p", "a=2"], "twice")],
)
def test_wrong_parameters_are_usage_errors(folder: Path, arguments: list[str], message: str) -> None:
    ran = ppca("mine.py:scaled", *arguments)
    assert ran.exit_code == 2
    assert message in ran.stderr


@pytest.mark.processes
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mine.py:fails", "x.npy"], "x[7]"),  # the traceback shows the line, brackets and all
        (["mine.py:scaled", "x.npy"], "takes (party, x, y, *, scale=1, name='none') but was given the party, 1 secret"),
    ],
)
def test_a_failed_run_writes_nothing(folder: Path, arguments: list[str], message: str) -> None:
    ran = ppca(*arguments, "-o", "result.npz")
    assert ran.exit_code == 1
    assert ran.stdout == ""
    assert message in ran.stderr
    assert not list(folder.glob("*result*")) + list(folder.glob(".*"))


@pytest.mark.processes
def test_ctrl_c_ends_the_command_and_its_servers(folder: Path) -> None:
    command = [sys.executable, "-m", "ppca.cli.main", "run", "mine.py:forever", "x.npy", "-o", "result.npz"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    files = [folder / f"pid-{seat}" for seat in range(4)]
    until(lambda: all(file.exists() and file.read_text() for file in files))
    pids = [int(file.read_text()) for file in files]
    running.send_signal(signal.SIGINT)
    stdout, _ = running.communicate(timeout=PATIENCE)
    assert running.returncode not in (0, -signal.SIGINT)
    assert stdout == b""
    assert not (folder / "result.npz").exists()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_help_shows_an_example() -> None:
    ran = ppca("--help")
    assert ran.exit_code == 0
    assert "ppca run analysis.py:program x.npy y.csv -p scale=2 -o result.npz" in ran.stdout


@pytest.mark.usefixtures("lockstep_commands")
@pytest.mark.parametrize("ending", ["npz", "json", "npy"])
def test_the_ending_says_what_is_written(folder: Path, ending: str) -> None:
    """And an earlier file is only replaced with --force; before anything runs."""
    output = f"found.{ending}"
    program = "mine.py:one" if ending == "npy" else "mine.py:scaled"
    inputs = ["x.npy"] if ending == "npy" else ["x.npy", "y.csv", "-p", "scale=2", "-p", "name=[two"]
    assert ppca(program, *inputs, "-o", output).exit_code == 0
    if ending == "json":
        assert json.loads(Path(output).read_text())
    else:
        assert len(np.load(output))
    again = ppca(program, *inputs, "-o", output)
    assert again.exit_code == 1
    assert "replace it with --force" in again.stderr
    assert again.stdout == ""
    assert ppca(program, *inputs, "-o", output, "--force").exit_code == 0
    several = ppca("mine.py:scaled", "x.npy", "y.csv", "-p", "scale=2", "-p", "name=[two", "-o", "several.npy")
    assert several.exit_code == 1
    assert "a .npy file holds one" in several.stderr
    assert not Path("several.npy").exists()
