"""`ppca trial` as a newcomer runs it, for row owners and of columns; and that its result cannot be changed unnoticed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.commands import ppca
from harness.waiting import PATIENCE
from ppca.cli.fetch import verified
from ppca.cli.trial import TrialRun
from ppca.member.fetching import EVIDENCE, Evidence

pytestmark = pytest.mark.processes


def real_ppca(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "ppca.cli.main", *words], cwd=cwd, capture_output=True, text=True)


def holds(result: Path) -> bool:
    """Whether `ppca verify` would say so, without the time that a command takes to start."""
    try:
        verified(result, Evidence.load(result / EVIDENCE))
    except ValueError:
        return False
    return True


@pytest.mark.release
@pytest.mark.timeout(900)
def test_owners_of_rows(tmp_path: Path) -> None:
    """Every command is a process, as a newcomer runs it. No file of the result can be changed unnoticed."""
    done = real_ppca("trial", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Beside scikit-learn on the pooled table" in done.stdout
    result = tmp_path / "trial" / "result"
    good = real_ppca("verify", str(result), cwd=tmp_path)
    assert good.returncode == 0, good.stderr
    assert "was not checked: say so with -f" in good.stdout
    good = real_ppca("verify", str(result), "-f", "trial/north/federation.toml", cwd=tmp_path)
    assert "its operators are those of" in good.stdout
    dice = random.Random(0)
    files = sorted(path for path in result.rglob("*") if path.is_file())
    assert {"model.json", "report.html", "components.csv"} <= {path.name for path in files}
    for path in files:
        data = path.read_bytes()
        place = dice.randrange(len(data))
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        assert not holds(result), (path, place)
        path.unlink()
        assert not holds(result), path
        path.write_bytes(data)
    assert holds(result)
    path = dice.choice(files)
    path.write_bytes(path.read_bytes() + b"\n")
    assert real_ppca("verify", str(result), cwd=tmp_path).returncode == 1
    path.write_bytes(path.read_bytes()[:-1])
    (result / "extra.txt").write_text("not of this result")
    assert "does not belong" in real_ppca("verify", str(result), cwd=tmp_path).stderr


def test_owners_of_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The four servers are processes; the members' commands run in this one."""

    def run(self: TrialRun, member: str, *words: str, shown: bool = True) -> str:
        state = str((self.folder / member / "state").resolve())
        done = ppca(self.folder / member, *words, PPCA_STATE=state, COLUMNS="110")
        assert done.returncode == 0, done.stderr
        return done.stdout

    monkeypatch.setattr(TrialRun, "run", run)
    monkeypatch.setattr("ppca.cli.trial.START_SECONDS", PATIENCE)
    done = ppca(tmp_path, "trial", "--vertical")
    assert done.returncode == 0, done.stderr
    assert "Beside scikit-learn on the pooled table" in done.stdout
    assert holds(tmp_path / "trial" / "result")
    good = ppca(tmp_path, "verify", "trial/result", "-f", "trial/clinic/federation.toml")
    assert "its operators are those of" in good.stdout


def test_other_folders_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "trial").mkdir()
    (tmp_path / "trial" / "mine.txt").write_text("mine")
    done = ppca(tmp_path, "trial")
    assert done.returncode == 1
    assert "no earlier trial" in done.stderr
    assert (tmp_path / "trial" / "mine.txt").read_text() == "mine"


@pytest.mark.release
def test_sigterm_ends_the_servers_of_a_trial_that_stays(tmp_path: Path) -> None:
    """Also in the middle: the signal comes when all four servers run."""
    trial = subprocess.Popen(
        [sys.executable, "-m", "ppca.cli.main", "trial", "--stay"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    assert trial.stdout is not None
    children: list[int] = []
    for line in trial.stdout:
        if "The receiver proposes a job" in line:
            listed = subprocess.run(["pgrep", "-P", str(trial.pid), "-f", "server run"], capture_output=True, text=True)
            children = [int(word) for word in listed.stdout.split()]
            trial.terminate()
    code = trial.wait(60)
    left = [child for child in children if Path(f"/proc/{child}").exists()]
    for child in left:
        os.kill(child, signal.SIGKILL)
    assert (code, len(children), left) == (128 + signal.SIGTERM, 4, [])
