"""The short form of `ppca bench chaos`: a few kills; no job hangs, goes wrong or leaves anything behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.release
@pytest.mark.processes
@pytest.mark.timeout(900)
def test_a_few_kills(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "chaos", "--kills", "3", "--seed", "1", "-o", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "jobs that ended: done" in done.stdout
