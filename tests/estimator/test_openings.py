"""The audit of whole jobs equals docs/reference/openings.md: nothing more is opened, nothing more often."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from harness.jobs import fit_job, run_inputs
from harness.lockstep import LockstepServers
from ppca import PCA
from ppca.algorithms import decomposition, topk
from ppca.algorithms.allpairs import is_checked
from ppca.algorithms.decomposition import resolution
from ppca.algorithms.jacobi import enough_steps
from ppca.owner.moments import moments
from ppca.owner.rows import share_sums
from ppca.owner.tables.opening import open_table
from ppca.runtime import LocalServers

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "openings.md"
N, D, K = 40, 5, 2
EVERYTHING = ("transform", "flags", "scores", "inverse")
OWNERS = [np.random.default_rng(i).standard_normal((n, D)) * np.arange(1, D + 1) for i, n in enumerate((9, 13, 18))]


def documented(title: str) -> list[tuple[str, str, str]]:
    """(what, shape, when) of the table under a heading."""
    section = PAGE.read_text().partition(f"## {title}\n")[2].partition("\n## ")[0]
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("|")
    ]
    return [(cells[0], cells[1], cells[2]) for cells in lines[2:]]


SERVERS, RECEIVER = documented("To the servers"), documented("To the receiver")


def shape_of(text: str, rows: int = 0, components: int = K) -> tuple[int, ...]:
    letters = {"n": N, "d": D, "k": components, "r": rows, "1": 1}
    return tuple(letters[part.strip()] for part in text.strip("()").split(",") if part.strip())


def expected(*when: str, rows: int = 0, components: int = K) -> Counter[tuple[str, tuple[int, ...], str]]:
    """What the page says is opened, once each, in the named cases."""
    lines = [(*line, "servers") for line in SERVERS] + [(*line, "client") for line in RECEIVER]
    return Counter((what, shape_of(shape, rows, components), to) for what, shape, case, to in lines if case in when)


def found(audit: list[dict[str, Any]]) -> Counter[tuple[str, tuple[int, ...], str]]:
    return Counter((line["what"], tuple(line["shape"]), line["to"]) for line in audit)


def checks(iterations: int) -> int:
    """How often all-pairs looks whether it is done; it then finishes the iteration."""
    return sum(is_checked(done, 0) for done in range(iterations))


RAW, STANDARD = "every fit, raw", "every fit, standardised"
ALWAYS = ("every fit of rows", "every fit", "every fit, d > 1")
REVEALED, REVEALED_STANDARD = "fit with `reveal`", "fit with `reveal`, standardised"
FEWER = "fit with `reveal`, components left out"
BIT = ("convergence bit", (), "servers")

JOBS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "raw": ({}, (RAW, REVEALED, FEWER)),
    "standardised": ({"standardize": True}, (STANDARD, REVEALED, REVEALED_STANDARD, FEWER)),
    "fraction": ({"n_components": 0.8}, (RAW, REVEALED, FEWER, "`n_components` in (0, 1)")),
    "all components": ({"n_components": None}, (RAW, REVEALED)),
    "as many components as columns": ({"n_components": D}, (RAW, REVEALED)),
    "fixed iterations": ({"fixed_iterations": 14}, (RAW, REVEALED, FEWER)),
    "nothing revealed": ({"reveal": False, "keep": "model"}, (RAW,)),
    "jacobi": ({"solver": "jacobi"}, (RAW, REVEALED, FEWER)),
}


@pytest.mark.parametrize("job", JOBS)
def test_fit(lockstep_servers: LockstepServers, job: str) -> None:
    parameters, when = JOBS[job]
    pca = PCA(**({"n_components": K, "servers": lockstep_servers} | parameters)).fit(OWNERS)
    opened = found(pca.openings_)
    bits = opened.pop(BIT, 0)
    assert opened == expected(*ALWAYS, *when, components=int(pca.n_components_))
    if job == "fixed iterations":
        assert bits == 0
    elif job == "jacobi":
        assert 0 < bits <= pca.n_iter_
    else:
        assert bits == checks(pca.n_iter_)
    for audits in lockstep_servers.audits:
        assert all(audit == audits[0] for audit in audits)


def test_fit_by_topk(lockstep_servers: LockstepServers) -> None:
    """Levels and shuffles come with every loop."""
    pca = PCA(1, solver="topk", servers=lockstep_servers).fit(OWNERS)
    opened = found(pca.openings_)
    assert opened.pop(BIT) > 0
    (level,) = (key for key in opened if key[0] == "convergence level")
    assert opened.pop(level) == pca.n_iter_ + 1
    wanted = expected(*ALWAYS, RAW, REVEALED, FEWER, "`topk`, until converged", components=1)
    assert wanted.pop(level) == 1
    ranks = ("shuffled ranks", (D,), "servers")  # the block has as many columns as the tables
    assert opened.pop(ranks) == pca.n_iter_ + 1
    assert wanted.pop(ranks) == 1
    assert opened == wanted


def test_fit_by_topk_that_gives_up(lockstep_servers: LockstepServers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing more is opened: the tolerance that was reached follows from the last level. A warning names it."""
    monkeypatch.setattr(decomposition, "FALLBACK_MAX_COLUMNS", 0)
    monkeypatch.setattr(topk, "block_size", lambda k, d: 3)  # the start then leaves 1e-8 to 1e-6
    monkeypatch.setattr(topk, "DEGREES", ())  # no loops
    with pytest.warns(ConvergenceWarning, match="topk reached a tolerance of"):
        pca = PCA(1, solver="topk", tol=1e-9, servers=lockstep_servers).fit(OWNERS)
    assert pca.verified_
    assert not pca.fell_back_
    assert 1e-9 < pca.tolerance_ <= decomposition.MAX_WIDE_TOLERANCE
    assert pca.resolution_ == resolution(D, pca.tolerance_, certified=True)
    assert pca.model_.tolerance == pca.tolerance_
    opened = found(pca.openings_)
    assert opened.pop(BIT) > 0
    wanted = expected(*ALWAYS, RAW, REVEALED, FEWER, "`topk`, until converged", components=1)
    assert opened.pop(("shuffled ranks", (3,), "servers")) == wanted.pop(("shuffled ranks", (D,), "servers")) == 1
    assert opened == wanted


def test_partial_fit(lockstep_servers: LockstepServers) -> None:
    """As a fit of all owners: the earlier ones send nothing again."""
    pca = PCA(K, servers=lockstep_servers, keep="model").fit(OWNERS[:2])
    pca.partial_fit(OWNERS[2])
    opened = found(pca.openings_)
    assert opened.pop(BIT) == checks(pca.n_iter_)
    assert opened == expected(*ALWAYS, RAW, REVEALED, FEWER)


def test_fit_of_enough_rows(lockstep_servers: LockstepServers) -> None:
    """What jobs of a federation ask for beside."""
    packets = [packet for owner in OWNERS for packet in share_sums(moments(open_table(owner)), len(OWNERS))]
    job = fit_job(OWNERS[0].shape[1], len(OWNERS), rows_at_least=N, n_components=K, fixed_iterations=14)
    run_inputs(lockstep_servers, job, *packets)
    assert found(lockstep_servers.audits[-1][0]) == expected(*ALWAYS, RAW, REVEALED, FEWER, "`rows_at_least`")


@pytest.mark.parametrize("standardize", [False, True])
def test_inference(lockstep_servers: LockstepServers, standardize: bool) -> None:
    model = (
        PCA(K, standardize=standardize, servers=lockstep_servers, keep="model", reveal=False, allow=EVERYTHING)
        .fit(OWNERS)
        .shared_model()
    )
    new = OWNERS[0]

    def opened(before: int) -> Counter[tuple[str, tuple[int, ...], str]]:
        lines: Counter[tuple[str, tuple[int, ...], str]] = Counter()
        for audits in lockstep_servers.audits[before:]:
            assert all(audit == audits[0] for audit in audits)
            lines += found(audits[0])
        return lines

    jobs = {
        "`transform` on shares": lambda: model.transform(new),
        "`inverse_transform` on shares": lambda: model.inverse_transform(np.ones((len(new), K))),
        "`detect` with scores": lambda: model.score_samples(new),
        "`detect` with a threshold or contamination": lambda: model.detect(new, threshold=1.0),
    }
    for case, work in jobs.items():
        before = len(lockstep_servers.audits)
        work()
        assert opened(before) == expected(case, rows=len(new)), case
    before = len(lockstep_servers.audits)
    model.detect(new, contamination=0.2)
    assert opened(before) == expected("`detect` with a threshold or contamination", rows=len(new))


def test_every_documented_opening_occurs() -> None:
    """The page lists nothing that no job opens: every case is used by a test above."""
    used = {*ALWAYS, RAW, STANDARD, REVEALED, REVEALED_STANDARD, FEWER, "until converged", "`n_components` in (0, 1)"}
    used |= {"`rows_at_least`"}
    used |= {
        "a federation's fit of two or more owners; its use of a kept model on columns of two or more owners",
        "a federation's use of a kept model",
        "`row_share_at_most`",
    }  # in tests/member
    used |= {"`transform` on shares", "`inverse_transform` on shares", "`detect` with scores"}
    used |= {"`detect` with a threshold or contamination", "`topk`, until converged"}
    assert {case for _, _, case in SERVERS + RECEIVER} == used


@pytest.mark.processes
def test_the_same_on_real_servers(lockstep_servers: LockstepServers) -> None:
    """Four processes record what four servers in one thread record."""
    with LocalServers() as servers:
        real = PCA(K, standardize=True, fixed_iterations=12, servers=servers).fit(OWNERS).openings_
    assert real == PCA(K, standardize=True, fixed_iterations=12, servers=lockstep_servers).fit(OWNERS).openings_


# -- fall-back -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("standardize", [False, True])
def test_fall_back_to_jacobi(lockstep_servers: LockstepServers, standardize: bool) -> None:
    """One iteration of all-pairs cannot pass the verification: Jacobi takes over and the answer is right."""
    from benchmarks.accuracy import PROMISED, accuracy_of

    pca = PCA(standardize=standardize, max_iterations=1, servers=lockstep_servers).fit(OWNERS)
    assert pca.fell_back_
    assert pca.model_.fell_back
    assert pca.verified_
    assert accuracy_of(pca, np.vstack(OWNERS)).broken(PROMISED) == []
    opened = found(pca.openings_)
    assert opened[("verification bit", (), "servers")] == opened[("shuffled ranks", (D,), "servers")] == 2


@pytest.mark.parametrize("solver", ["allpairs", "power"])
@pytest.mark.parametrize("components", [K, 0.8, None])
def test_fall_back_after_fixed_iterations_opens_no_convergence_bit(
    lockstep_servers: LockstepServers, components: int | float | None, solver: str
) -> None:
    """What fixed_iterations promises holds of the fall-back, too: it makes a number of steps that depends on d alone."""
    from benchmarks.accuracy import PROMISED, accuracy_of

    pca = PCA(components, fixed_iterations=1, solver=solver, servers=lockstep_servers).fit(OWNERS)
    assert pca.fell_back_
    assert pca.verified_
    assert pca.n_iter_ == enough_steps(D)
    assert accuracy_of(pca, np.vstack(OWNERS)).broken(PROMISED) == []
    opened = found(pca.openings_)
    fraction = ("`n_components` in (0, 1)",) if components == 0.8 else ()
    twice = expected("every fit", "every fit, d > 1")
    fewer = () if components is None else (FEWER,)
    assert opened == expected(*ALWAYS, RAW, REVEALED, *fewer, *fraction, components=int(pca.n_components_)) + twice


def test_fall_back_is_said(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from harness.commands import in_lockstep
    from ppca.cli.main import app

    np.savetxt(tmp_path / "a.csv", OWNERS[0], delimiter=",", header="a,b,c,d,e", comments="")
    command = ["fit", str(tmp_path / "a.csv"), "--max-iterations", "1", "-o", str(tmp_path / "result")]
    with in_lockstep():
        done = CliRunner().invoke(app, command, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "after falling back to another solver" in done.stdout
    opened = found(json.loads((tmp_path / "result" / "model.json").read_text())["audit"])
    assert opened[("verification bit", (), "servers")] == 2
    shown = CliRunner().invoke(app, ["inspect", str(tmp_path / "result")], catch_exceptions=False)
    assert "after falling back to another solver" in shown.stdout
