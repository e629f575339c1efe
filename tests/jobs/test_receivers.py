"""Several receivers of one fit: each gets the parts that are for it, and nothing else is revealed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.jobs import fit_job, run_inputs
from harness.lockstep import LockstepServers
from ppca import PCA
from ppca.jobs import analysis, pca
from ppca.jobs.errors import Refusal
from ppca.jobs.kept import NotAllowed
from ppca.owner.moments import moments
from ppca.owner.rows import share_sums
from ppca.owner.tables.opening import open_table
from ppca.protocol import OpeningRefused
from ppca.receiver import PCAModel
from ppca.receiver.parts import Parts
from ppca.receiver.unsealing import received

X = np.random.default_rng(3).standard_normal((50, 3)) * np.array([4.0, 2, 1]) + 9
FACTS = {"number of rows", "scale exponents"}
VARIANCES = {"explained variance", "total variance", "scale of the variance"}
MEANS = {"means", "scale of the means"}
DEVIATIONS = {"deviations", "scale of the deviations"}


def fit(
    lockstep_servers: LockstepServers, receivers: dict[str, list[str]], data: Any = X, **chosen: Any
) -> dict[str, Any]:
    job = fit_job(data.shape[1], 2, receivers, fixed_iterations=8, **chosen)
    packets = [packet for part in np.array_split(data, 2) for packet in share_sums(moments(open_table(part)), 2)]
    found: dict[str, Any] = run_inputs(lockstep_servers, job, *packets)
    return found


def revealed(lockstep_servers: LockstepServers) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for line in lockstep_servers.openings[0]:
        if line.to != "servers":
            found.setdefault(line.to, set()).add(line.what)
    return found


def test_every_receiver_gets_its_parts(lockstep_servers: LockstepServers) -> None:
    receivers = {
        "whole": ["components", "variances", "means", "deviations"],
        "spectrum": ["variances"],
        "middle": ["means"],
        "user": [],
    }
    result = fit(lockstep_servers, receivers, standardize=True)
    assert revealed(lockstep_servers) == {
        "whole": {"components"} | FACTS | VARIANCES | MEANS | DEVIATIONS,
        "spectrum": FACTS | VARIANCES,
        "middle": FACTS | MEANS,
        "user": FACTS,
    }
    scale = np.asarray(result["to"]["user"]["exponents"], np.int64)
    whole = PCAModel.from_result(received(result, "whole"), scale=scale, names=None, audit=[])
    np.testing.assert_allclose(whole.mean, X.mean(0), rtol=1e-9)
    spectrum = Parts.of(received(result, "spectrum"), scale)
    np.testing.assert_array_equal(spectrum.variances, whole.explained_variance)
    assert spectrum.missing == ["components", "means", "deviations"]
    np.testing.assert_array_equal(Parts.of(received(result, "middle"), scale).mean, whole.mean)
    assert set(result["to"]["user"]) == {"rows", "exponents"}


def test_deviations_of_raw_data_are_nobodys(lockstep_servers: LockstepServers) -> None:
    fit(lockstep_servers, {"a": ["deviations"]})
    assert revealed(lockstep_servers) == {"a": FACTS}


def test_nobody_may_receive_anything(lockstep_servers: LockstepServers) -> None:
    result = fit(lockstep_servers, {}, keep="m")
    assert result["to"] == {}
    assert revealed(lockstep_servers) == {}


def test_an_unknown_part_is_refused(lockstep_servers: LockstepServers) -> None:
    with pytest.raises(Refusal, match="is not a part of the result; choose from components, loadings"):
        fit(lockstep_servers, {"a": ["components", "covariance"]})


def test_a_partial_fit_gives_nobody_more_than_the_fit(lockstep_servers: LockstepServers) -> None:
    fit(lockstep_servers, {"a": ["variances"], "b": []}, keep="m")
    for receivers, why in (
        ({"a": ["variances", "components"]}, "for a with components"),
        ({"b": ["means"]}, "for b with means"),
        ({"c": []}, "for c: results may go to a and b"),
    ):
        with pytest.raises(NotAllowed, match=why):
            fit(lockstep_servers, receivers, X[:9], add_to="m")
    fit(lockstep_servers, {"a": ["variances"]}, X[:9], add_to="m")
    assert revealed(lockstep_servers) == {"a": FACTS | VARIANCES}


def test_a_local_job_opens_nothing_that_it_does_not_list(
    lockstep_servers: LockstepServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Local servers enforce the list of a job, as servers of a federation do."""
    solve = analysis.solved

    async def opens_more(party: Any, matrix: Any, job: Any) -> Any:
        await matrix.open(what="covariance", why="planted")
        return await solve(party, matrix, job)

    monkeypatch.setattr(analysis, "solved", opens_more)
    with pytest.raises(OpeningRefused, match="'covariance' to 'servers' is not in the list of openings of this job"):
        PCA(2, servers=lockstep_servers).fit(np.array_split(X, 2))


def test_a_local_job_opens_nothing_more_often_than_it_lists(
    lockstep_servers: LockstepServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pca, "max_convergence_bits", lambda *_: 1)
    with pytest.raises(OpeningRefused, match="'convergence bit' to 'servers' was opened as often as this job allows"):
        PCA(servers=lockstep_servers, solver="qr").fit(np.array_split(X, 2))
