"""Commands in bad surroundings: closed streams, a removed folder, a place that takes no files, signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.commands import ppca
from harness.waiting import PATIENCE
from ppca.cli.folder import FolderRefused, check_file, check_free
from ppca.cli.trial import ended_by_signals

TABLE = "a,b\n1,2\n3,5\n4,4\n"


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    line = f'ppca() {{ {sys.executable} -m ppca.cli.main "$@"; }}; {command}'
    return subprocess.run(["/bin/bash", "-c", line], capture_output=True, text=True, timeout=PATIENCE, cwd=folder)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("closed", "text"),
    [
        (">&-", "error: standard output is closed. Redirect it"),
        ("2>&-", "error: standard error is closed. Redirect it"),
    ],
)
def test_closed_streams(closed: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(TABLE)
    done = shell(f"ppca check x.csv {closed}", tmp_path)
    assert done.returncode == 1
    assert text in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.processes
def test_closed_standard_input_is_not_needed(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(TABLE)
    assert shell("ppca check x.csv <&-", tmp_path).returncode == 0
    assert shell("ppca check x.csv <&- >&- 2>&-", tmp_path).returncode == 1


def test_a_removed_folder(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    here = Path.cwd()
    os.chdir(gone)
    try:
        gone.rmdir()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("contextlib.chdir.__enter__", lambda self: None)
            patch.setattr("contextlib.chdir.__exit__", lambda self, *_: None)
            done = ppca(gone, "fit", str(tmp_path / "x.csv"))
    finally:
        os.chdir(here)
    assert done.returncode == 1
    assert (
        "the current folder cannot be used (No such file or directory): it was removed. Change to another"
        in done.stderr
    )


@pytest.mark.parametrize("place", ["/proc/result", "x" * 300, "/proc/self/result"])
def test_a_place_that_takes_no_files_is_refused_before_the_work(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.csv").write_text(TABLE)

    def opened(*_: object, **__: object) -> None:
        raise AssertionError("the tables were opened")

    monkeypatch.setattr("ppca.owner.tables.owners.open_rows", opened)
    done = ppca(tmp_path, "fit", "x.csv", "-o", place)
    assert done.returncode == 1
    assert "cannot be made: " in done.stderr
    assert "Choose another place with -o." in done.stderr
    assert "Errno" not in done.stderr
    with pytest.raises(FolderRefused, match="takes no new folder"):
        check_free(Path(place), (), replace=False)
    with pytest.raises(FolderRefused, match="takes no new folder"):
        check_file(Path(place).with_suffix(".csv"), [".csv"], replace=False)
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv"]


@pytest.mark.processes
def test_without_loopback_local_servers_say_so_at_once(tmp_path: Path) -> None:
    """In a network of its own, whose loopback interface is down. Servers that wait for each other give another reason."""
    apart = ["unshare", "--map-root-user", "--net", "--"]
    if subprocess.run([*apart, "true"], capture_output=True).returncode:
        pytest.skip("no network namespaces here")
    (tmp_path / "x.csv").write_text(TABLE)
    done = subprocess.run(
        [*apart, sys.executable, "-m", "ppca.cli.main", "fit", "x.csv", "-o", "result"],
        capture_output=True, text=True, timeout=PATIENCE, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 1
    assert "local servers cannot connect to each other at 127.0.0.1: Network is unreachable." in done.stderr
    assert "ip link set lo up" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_trial_with_its_clean_up(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    cleaned = []

    def run() -> None:
        with ended_by_signals():
            try:
                os.kill(os.getpid(), number)
                time.sleep(PATIENCE)
            finally:
                os.kill(os.getpid(), number)  # impatient: the clean-up goes on
                cleaned.append(True)

    with pytest.raises(SystemExit) as caught:
        run()
    assert (caught.value.code, cleaned) == (128 + number, [True])
    assert signal.getsignal(number) is before
