"""The workers of `make test` set up each module fixture once."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

MAKEFILE = Path(__file__).resolve().parent.parent / "Makefile"
MODULE = """
import os
from pathlib import Path

import pytest

@pytest.fixture(scope="module")
def expensive():
    with Path("set-ups").open("a") as file:
        file.write(f"{__name__} {os.environ['PYTEST_XDIST_WORKER']}\\n")

@pytest.mark.parametrize("number", range(20))
def test_something(expensive, number):
    pass
"""


@pytest.mark.processes
def test_a_module_fixture_is_set_up_once(tmp_path: Path) -> None:
    """--dist loadgroup of xdist 3.8 does not group with pytest 9; --dist loadfile keeps the tests of a file together."""
    found = re.search(r"^WORKERS := (.*)$", MAKEFILE.read_text(), re.MULTILINE)
    assert found is not None
    options = found[1].replace("--numprocesses auto", "--numprocesses 2").split()
    for name in ("test_one.py", "test_two.py"):
        (tmp_path / name).write_text(MODULE)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    done = subprocess.run(command, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = (tmp_path / "set-ups").read_text().split("\n")[:-1]
    assert sorted(line.split()[0] for line in lines) == ["test_one", "test_two"]
    assert len({line.split()[1] for line in lines}) == 2, "both workers take part"
