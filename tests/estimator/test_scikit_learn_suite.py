"""scikit-learn's own tests of PCA and IncrementalPCA pass, or are listed in docs/reference/scikit-learn.md with the reason."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import sklearn

from harness.sklearn_suite import NOT_APPLICABLE, Adapted, RememberingServers

ROOT = Path(__file__).resolve().parents[2]
SECTION = (
    (ROOT / "docs" / "reference" / "scikit-learn.md")
    .read_text()
    .partition("## scikit-learn's own tests")[2]
    .partition("\n## ")[0]
)
VERSION = re.search(r"scikit-learn (\d+\.\d+) ", SECTION)
MODULES = ("test_pca", "test_incremental_pca")


def summary(outcomes: Counter[str]) -> str:
    return ", ".join(f"{outcomes[kind]} {kind}" for kind in ("passed", "failed", "skipped", "not applicable"))


@pytest.mark.release
@pytest.mark.processes
@pytest.mark.timeout(3600)
def test_every_test_passes_or_is_listed_with_a_reason(tmp_path: Path) -> None:
    counts = tmp_path / "counts.json"
    path = os.pathsep.join(map(str, (ROOT / "tests", ROOT)))
    more = {"PYTHONPATH": path, "SCIPY_ARRAY_API": "1", "SKLEARN_RUN_FLOAT32_TESTS": "1"}
    options = ["-c", os.devnull, "--rootdir", str(tmp_path), "-p", "harness.sklearn_suite", "-p", "no:cacheprovider"]
    tests = [f"sklearn.decomposition.tests.{name}" for name in MODULES]
    call = [sys.executable, "-m", "pytest", *options, "-q", "-W", "ignore", "--counts", str(counts), "--pyargs", *tests]
    done = subprocess.run(call, capture_output=True, text=True, env=os.environ | more, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]

    found = json.loads(counts.read_text())
    outcomes = Counter(outcome for outcome, _ in found.values())
    reasons = Counter(why for outcome, why in found.values() if outcome == "not applicable")
    print(summary(outcomes), *(f"{number}: {why}" for why, number in reasons.items()), sep="\n")
    assert outcomes.keys() <= {"passed", "not applicable"}, summary(outcomes)
    if VERSION is not None and sklearn.__version__.startswith(f"{VERSION[1]}."):  # other versions have other tests
        shown = re.findall(r"^\| (\d+) \| (.*) \|$", SECTION, re.MULTILINE)
        assert {why: int(number) for number, why in shown} == dict(reasons)
        assert f"{len(found)} tests: {outcomes['passed']} pass, {outcomes['not applicable']} do not apply" in SECTION


def test_every_reason_is_shown() -> None:
    """Also in `make test`, which does not run scikit-learn's tests."""
    shown = re.findall(r"^\| \d+ \| (.*) \|$", SECTION, re.MULTILINE)
    assert sorted(shown) == sorted(reason.why for reason in NOT_APPLICABLE)


@pytest.mark.parametrize("shape", [(20, 4), (4, 20)], ids=["tall", "wide"])
def test_servers_run_equal_jobs_of_several_tests_once(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int]) -> None:
    monkeypatch.setattr(RememberingServers, "results", {})
    monkeypatch.setattr(RememberingServers, "used", Counter())
    X = np.random.default_rng(0).standard_normal(shape)
    first, second = (Adapted(2).fit(X).components_ for _ in range(2))
    assert len(RememberingServers.results) == 2  # each fit within a test is a job of its own
    RememberingServers.used.clear()
    again = [Adapted(2, svd_solver=solver).fit(X).components_ for solver in ("full", "randomized")]
    assert len(RememberingServers.results) == 2
    assert np.array_equal(again, [first, second])
    RememberingServers.used.clear()
    Adapted(2).fit(X + 1)
    Adapted(3).fit(X)
    assert len(RememberingServers.results) == 4
