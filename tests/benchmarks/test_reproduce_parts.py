"""What the parts of the evaluation compute around their measurements: resampled rows, projections, errors, slow links."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import mp_spdz
from benchmarks.peers import PeerError
from benchmarks.reproduce import convergence, front, paper_sets, peer_runs, peers, table3, wan, writing
from benchmarks.reproduce.result import Options
from benchmarks.slow import SlowServers
from ppca import PCA
from ppca.runtime import LocalServers


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
    monkeypatch.setattr(paper_sets, "MAX_IN_MEMORY", 100)
    found = paper_sets.tables_of(small(5000), None, 10_000, tmp_path)
    assert all(isinstance(table, Path) for table in found.owners)
    X = np.vstack([np.load(table) for table in found.owners]).astype(np.float64)
    exact = np.corrcoef(X[:, :3].T) * 5000 / 4999  # as StandardScaler and PCA have it
    np.testing.assert_allclose(paper_sets.correlation(found.owners)[:3, :3], exact, atol=1e-12)


def test_exponent_of_a_power() -> None:
    records = [{"solver": "s", "distribution": "n", "d": d, "median": 3 * d**0.75} for d in (10, 20, 40)]
    assert convergence.exponent(records, "s", "n") == pytest.approx(0.75)


def test_exponents_above_the_papers_say_so() -> None:
    counts = {solver: {"allpairs": 0.2, "qr": 0.79}.get(solver, 1.3) for solver in convergence.SOLVERS}
    records = [
        {"solver": solver, "distribution": name, "d": d, "median": 3 * d**power}
        for solver, power in counts.items()
        for name in convergence.DISTRIBUTIONS
        for d in (10, 20)
    ]
    shown = {row[0]: row[1] for row in convergence.exponent_table(records).rows}
    assert shown["all-pairs Jacobi (ours)"] == "0.20"
    assert shown["the paper's QR shift, corrected"] == "0.79"
    assert shown["the paper's Jacobi with EO-reduction, corrected"] == "1.30 (above the paper)"


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
        mp_spdz.measure(tmp_path, mp_spdz.PROTOCOLS[0], mp_spdz.TUNED, np.eye(2), 1)


@pytest.mark.parametrize("d", [4, 5])
def test_steps_of_exact_rotations_are_as_many_as_needed(d: int) -> None:
    """The padding of an odd dimension is an eigenvalue apart, so that it takes no steps of its own."""
    A = peer_runs.separated(d)
    many = [peer_runs.exact_steps(A, tol) for tol in (1.0, 1e-3, 1e-8)]
    assert many[0] == 0
    assert 0 < many[1] < many[2] <= 8 * (d + d % 2 - 1)
    assert peer_runs.exact_steps(np.diag(np.arange(1.0, d + 1)), 1e-12) == 0


def test_peers_are_compared_on_the_same_kind_of_channels() -> None:
    shared = {"d": 20, "rounds": 10, "messages": None, "bytes": 1000, "steps": 5, "projected": False, "parties": "3"}
    shared |= {"residual": 1e-8, "eigenvalue_error": 1e-9}
    seconds = {("PPCA", "all-pairs"): 1, ("PPCA", "cyclic Jacobi"): 2, ("MP-SPDZ Rep3", "cyclic Jacobi, tuned"): 8}
    seconds[("MP-SPDZ Rep3", "cyclic Jacobi, simple")] = 20
    records = []
    for channel, factor in (("plain", 1), ("TLS", 3)):
        runs = [
            shared | {"system": who, "method": method, "channel": channel, "seconds": float(factor * time)}
            for (who, method), time in seconds.items()
        ]
        records += peers.compared(runs)
    assert [record["ratio"] for record in records] == [1, 2, 8, 20] * 2
    alike = peers.like_for_like(records).records
    assert [(one["system"], one["channel"], one["ratio"]) for one in alike] == [
        ("PPCA", "plain", 1),
        ("MP-SPDZ Rep3", "plain", 4),
        ("PPCA", "TLS", 1),
        ("MP-SPDZ Rep3", "TLS", 4),
    ]
    shown = front.front({"peers": {"tables": [{"records": records}]}})
    assert "over each kind of channels: d = 20: MP-SPDZ Rep3 8 (plain) and 8 (TLS)." in shown
    assert "(projected)" not in shown


def test_no_speed_up_for_a_smaller_table() -> None:
    record = {"rows": 10, "paper_rows": 20}
    assert table3.faster(record, 1.0, 8.0) == ""
    assert table3.faster(record | {"rows": 20}, 1.0, 8.0) == ", 8x faster"


@pytest.mark.parametrize(("real", "said"), [(20, ""), (5, " (resampled, 25 % real)"), (0, " (synthetic)")])
def test_tables_say_where_rows_are_resampled(real: int, said: str) -> None:
    assert table3.resampled({"rows": 20, "real_rows": real}) == said


@pytest.mark.release
@pytest.mark.processes
def test_slow_links_delay_every_round() -> None:
    """A lower bound: no load makes a round shorter than the way of its messages."""
    delay = 0.01
    rows = np.random.default_rng(0).standard_normal((30, 3))
    with SlowServers(timeout=60, delay=delay, rate=1e9) as slow:
        assert isinstance(slow, LocalServers)
        account = PCA(servers=slow).fit([rows]).account_
    assert account.seconds > 0.95 * delay * account.rounds


@pytest.mark.release
@pytest.mark.processes
def test_prediction_starts_from_the_proxies_alone(tmp_path: Path) -> None:
    """What the proxies cost a machine is in every measured time, so it must be in the predicted ones."""
    done = wan.run(Options(tmp_path, scale="tiny"))
    for job in ("d = 6, all components", "d = 12, two largest"):
        here, alone, slow = (record for record in done.tables[0].records if record["work"] == job)
        assert (here["network"], here["predicted"], alone["predicted"]) == ("loopback", None, None)
        expected = alone["seconds"] + 0.0002 * slow["rounds"] + 8 * slow["busiest_link"] / 1e9
        assert slow["predicted"] == pytest.approx(expected)
        assert max(here["ratio_error"], alone["ratio_error"], slow["ratio_error"]) < 1e-8
    assert any("solver allpairs" in sentence for sentence in done.conditions)
    assert any(f"tolerance {PCA().tol:g}" in sentence for sentence in done.conditions)


@pytest.mark.parametrize(("factor", "said"), [(0.5, ", 2x faster"), (2.0, " (behind the paper: 2x)")])
def test_the_whole_of_table_3_says_where_we_fall_short(factor: float, said: str) -> None:
    record = {"name": "Wine", "rows": 5, "columns": 2, "owners": 2, "paper": dict.fromkeys(table3.STEPS, 1.0)}
    record |= {"real_rows": 5, "paper_rows": 5, "whole": 9.0}
    (row,) = table3.times([record | dict.fromkeys(table3.STEPS, factor)]).rows
    assert row[-2].endswith(said)
    assert row[-1] == "9.0 s"


def test_projections_stand_beside_the_papers() -> None:
    record = {"name": "Wine", "columns": 11, "inferred": 100, "inference": 0.05, "inference_standardised": 0.2}
    (row,) = table3.projections([record | {"paper": {"inference": 0.1}}]).rows
    assert row == ["Wine", "100 x 11", "50 ms", "500 µs", "200 ms (behind the paper: 2x)", "0.1 s"]


def test_load_is_spoken_of_where_times_are_shown() -> None:
    data = {
        "title": "t",
        "command": "c",
        "seconds": 1.0,
        "machine": {"cores": 1, "processor": "p", "load": 9.0},
        "conditions": [],
        "scale": "full",
        "tables": [],
        "plots": [],
    }
    assert "busy" in writing.section(data | {"part": "table3"}, "")
    counted = writing.section(data | {"part": "convergence"}, "")
    assert "busy" not in counted
    assert "1 core of p, load 9.0" in counted


def test_command_names_the_data_where_they_are_used(tmp_path: Path) -> None:
    options = Options(tmp_path, data=tmp_path, scale="quick", mp_spdz=tmp_path)
    assert writing.command("table1", options) == "ppca bench reproduce table1 --quick"
    assert writing.command("wan", options) == "ppca bench reproduce wan --data DATA --quick --mp-spdz TREE"


def test_front_shows_the_best_program_of_every_peer() -> None:
    ours = {
        "system": "PPCA",
        "method": "all-pairs",
        "channel": "plain",
        "parties": "4, semi-honest",
        "d": 20,
        "rounds": 117,
    }
    ours |= {
        "messages": None,
        "seconds": 3.0,
        "projected": False,
        "bytes": 2e6,
        "eigenvalue_error": 1e-11,
        "ratio": 1.0,
    }
    ours["fastest"] = (2.0, "SPU")
    cyclic = ours | {"method": "cyclic Jacobi", "seconds": 4.0}
    peer = ours | {"system": "SPU", "method": "cyclic Jacobi, simple", "parties": "3, semi-honest", "rounds": None}
    peer |= {"messages": 900, "seconds": 2.0, "projected": True}
    slower = peer | {"seconds": 5.0, "rounds": 7}
    smaller, encrypted = ours | {"d": 10}, ours | {"channel": "TLS"}
    records = [smaller, ours, cyclic, slower, peer, encrypted]
    shown = front.front({"peers": {"tables": [{"records": records}]}})
    rows = [line for line in shown.splitlines() if "semi-honest" in line]
    assert [row.split(" | ")[:4] for row in rows] == [
        ["| eigendecomposition alone, d = 20: 4 servers, semi-honest", "3.0 s (behind SPU: 1.5x)", "", "117"],
        ["| the same by SPU: 3 servers, semi-honest", "2.0 s (projected)", "", "900 messages"],
    ]
    assert "(projected): extended from short runs" in shown


def test_the_comparison_names_peers_that_are_faster() -> None:
    ours = {
        "system": "PPCA",
        "method": "all-pairs",
        "channel": "plain",
        "parties": "4, semi-honest, one of four",
        "d": 50,
    }
    ours |= {"rounds": 117, "messages": None, "seconds": 3.0, "projected": False, "bytes": 2e6, "ratio": 1.0}
    ours |= {"eigenvalue_error": 1e-11, "fastest": (3.0, "PPCA")}
    peer = ours | {"system": "SPU", "parties": "3, malicious, one of three", "seconds": 9.0, "ratio": 3.0}
    smaller = [ours | {"d": 11}, peer | {"d": 11, "seconds": 1.5, "ratio": 0.5}]
    kept = {"peers": {"tables": [{"records": [*smaller, ours, peer]}], "machine": {"load": 9.3, "cores": 2}}}
    lines = front.comparison(kept).splitlines()
    assert lines[0] == "| eigendecomposition of a 50 x 50 matrix | PPCA | SPU |"
    assert "| one server may be | semi-honest | **malicious** |" in lines
    assert "With 11 columns SPU is faster: 0.5 of the time of PPCA." in lines
    assert any("load 9" in line for line in lines)


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
    record |= {"real_rows": 5, "whole": 9.0}
    kept = {"table3": {"tables": [{"records": [record | steps | {"paper": paper, "plain": 8.0}]}], "plots": []}}
    shown = front.front(kept)
    assert "| 4.0 s (behind the paper: 2x) | 9.0 s |" in shown


def test_front_says_which_times_are_of_a_busy_machine() -> None:
    machines = {"table3": 0.4, "peers": 9.3, "wan": 2.7}
    kept = {part: {"tables": [], "machine": {"load": load, "cores": 2}} for part, load in machines.items()}
    said = (
        "busy with other things during the decompositions (load 9) and the jobs over slow links (load 3): a quiet one"
    )
    assert said in front.front(kept)
    assert "busy" not in front.front({"table3": kept["table3"]})
