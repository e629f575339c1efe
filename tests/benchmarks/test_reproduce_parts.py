"""What the parts of the evaluation compute around their measurements: resampled rows, projections, errors, slow links."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import mp_spdz
from benchmarks.peers import PeerError
from benchmarks.reproduce import convergence, front, paper_sets, peer_runs
from benchmarks.slow import SlowServers
from ppca import PCA
from ppca.servers import LocalServers


def small(rows: int) -> paper_sets.PaperSet:
    sample = np.random.default_rng(0).standard_normal((50, 4)) * [1, 2, 3, 0] + [0, 10, -5, 7]
    return paper_sets.PaperSet("small", rows, 4, 2, {}, lambda data: [sample[:20], sample[20:]])


def test_complete_data_are_taken_as_they_are(tmp_path: Path) -> None:
    found = paper_sets.tables_of(small(50), None, 1000, tmp_path)
    assert found.note == "real, all 50 rows"
    assert [len(table) for table in found.owners] == [20, 30]


def test_resampled_rows_are_real_ones_and_noise(tmp_path: Path) -> None:
    one = small(5000)
    found = paper_sets.tables_of(one, None, 10_000, tmp_path)
    assert "50 rows resampled to 5,000" in found.note
    assert [len(table) for table in found.owners] == [2000, 3000]
    for table, real in zip(found.owners, one.load(None), strict=True):
        nearest = np.abs(table[:, None, :] - real[None]).sum(axis=2).argmin(axis=1)
        off = (table - real[nearest]) / np.where(real.std(axis=0) > 0, real.std(axis=0), 1)
        assert off.std(axis=0)[:3] == pytest.approx([paper_sets.NOISE] * 3, rel=0.1)  # 2000 draws: 4 sigma are 6 %
        assert not off[:, 3].any()  # a constant column stays constant


def test_many_rows_go_to_files_with_the_same_correlation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paper_sets, "MOST_IN_MEMORY", 100)
    found = paper_sets.tables_of(small(5000), None, 10_000, tmp_path)
    assert all(isinstance(table, Path) for table in found.owners)
    X = np.vstack([np.load(table) for table in found.owners]).astype(np.float64)
    exact = np.corrcoef(X[:, :3].T) * 5000 / 4999  # as StandardScaler and PCA have it
    np.testing.assert_allclose(paper_sets.correlation(found.owners)[:3, :3], exact, atol=1e-12)


def test_exponent_of_a_power() -> None:
    records = [{"solver": "s", "distribution": "n", "d": d, "median": 3 * d**0.75} for d in (10, 20, 40)]
    assert convergence.exponent(records, "s", "n") == pytest.approx(0.75)


def runs(many: Any) -> list[dict[str, Any]]:
    return [{"seconds": 1 + 0.5 * n, "bytes_per_party": 10 * n, "rounds": 7 * n} for n in many]


def test_projection_goes_on_as_the_short_runs_did() -> None:
    found = peer_runs.whole(np.eye(2), 101, budget=1.0, runs=runs)
    assert found["projected"]
    assert found["seconds"] == pytest.approx(1 + 0.5 * 101)
    assert (found["bytes"], found["rounds"]) == (1010, 707)
    assert found["residual"] is None


def test_errors_leave_the_padding_out() -> None:
    A = np.cov(np.random.default_rng(1).standard_normal((3, 20)))
    values, V = np.linalg.eigh(np.pad(A, (0, 1)))
    found = peer_runs.errors(A, values[::-1], V[:, ::-1])
    assert max(found.values()) < 1e-14
    assert peer_runs.errors(A, values[::-1] * 1.01, V[:, ::-1])["eigenvalue_error"] == pytest.approx(0.01)


def test_tree_without_its_machine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PeerError, match=r"no replicated-ring-party.x in .*; build it there"):
        mp_spdz.measure(tmp_path, mp_spdz.PROTOCOLS[0], np.eye(2), 1)


def test_slow_links_delay_every_round() -> None:
    """A lower bound: no load makes a round shorter than the way of its messages."""
    delay = 0.01
    rows = np.random.default_rng(0).standard_normal((30, 3))
    with SlowServers(timeout=60, delay=delay, rate=1e9) as slow:
        assert isinstance(slow, LocalServers)
        account = PCA(servers=slow).fit([rows]).account_
    assert account.seconds > 0.95 * delay * account.rounds


def test_front_says_where_we_fall_short() -> None:
    record = {
        "name": "Wine",
        "rows": 5,
        "columns": 2,
        "owners": 2,
        "rounds": 9,
        "bytes_per_server": 10,
        "ratio_error": 1e-9,
    }
    steps = dict.fromkeys(("covariance", "decomposition", "sort", "inference"), 1.0)
    paper = dict.fromkeys(steps, 0.5)
    kept = {"table3": {"tables": [{"records": [record | steps | {"paper": paper, "plain": 8.0}]}], "plots": []}}
    shown = front.front(kept)
    assert "| 4.0 s (behind the paper: 2x) |" in shown
