"""Results of every analysis take one path: a receiver fetches and verifies them, and tampered values are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.federation import MEMBERSHIP, OWNERS, RECEIVER
from harness.whole import FourServers, WholeJob
from ppca.cli.fetch import verified, write_fetched
from ppca.federation.errors import FederationError
from ppca.federation.proposal import ProposedJob, propose
from ppca.jobs.build import pca_job, regression_job
from ppca.jobs.pca import JointPCA
from ppca.jobs.registry import ANALYSES, register
from ppca.jobs.regression import JointRegression
from ppca.jobs.spec import ROWS, Data, JobSpec
from ppca.receiver.plausible import ImpossibleResult
from ppca.receiver.regression import RegressionModel
from ppca.receiver.results import READERS, NoReader, PCAResult, Received, register_reader, result_of
from ppca.web.member.results import Results

from .test_outside import JointMeans

COLUMNS = ("a", "b", "y")
RANDOM = np.random.default_rng(8)
TABLE = RANDOM.standard_normal((90, 3)) @ [[1.0, 0.3, 0.5], [0.0, 2.0, 1.0], [0.0, 0.0, 0.5]] + [3.0, -1.0, 10.0]
Change = Callable[[int, dict[str, Any]], Any]


class Means:
    """Result of the example analysis: the reader of an analysis from outside the package."""

    def __init__(self, found: Received) -> None:
        values = np.ldexp(np.asarray(found.values["mean"], float), np.asarray(found.values["exponents"], int))
        if values.shape != (found.job.data.width,) or not np.isfinite(values).all():
            raise ImpossibleResult("means are not one finite number for every column")
        self.names, self.means = found.names, values

    def tables(self) -> dict[str, dict[str, Any]]:
        return {"joint_means.csv": {"column": self.names, "mean": self.means}}


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    register(JointMeans)
    register_reader(JointMeans.NAME, Means)
    yield
    del ANALYSES[JointMeans.NAME], READERS[JointMeans.NAME]


class Jobs:
    """Jobs that a federation in this process has run, by name."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.servers, self.done = folder, FourServers(folder / "servers"), dict[str, WholeJob]()
        for owner, rows in zip(OWNERS, np.array_split(TABLE, 3), strict=True):
            np.savetxt(folder / f"{owner}.csv", rows, delimiter=",", header=",".join(COLUMNS), comments="", fmt="%.17g")

    def __getitem__(self, name: str) -> WholeJob:
        if name not in self.done:
            whole = self.done[name] = WholeJob(
                self.servers, ProposedJob(propose(MEMBERSHIP.digest, name, SPECS[name]).data)
            )
            for owner in OWNERS:
                assert whole.contribute(owner, self.folder / f"{owner}.csv") == [""] * 4
            whole.run()
        return self.done[name]


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    made = Jobs(tmp_path_factory.mktemp("results"))
    yield made
    made.servers.close()


def means_job() -> JobSpec:
    data = Data(form=ROWS, owners=OWNERS, columns=COLUMNS, check_inputs=True)
    return JobSpec(data=data, analysis=JointMeans(), receivers={RECEIVER: ("means",)})


ALL = ("result", "correlation", "vif")
SPECS = {
    "regression": regression_job(OWNERS, COLUMNS, {RECEIVER: ALL}, JointRegression(target="y"), federated=True),
    "pca": pca_job(OWNERS, COLUMNS, {RECEIVER: ["model"]}, JointPCA(components=2), federated=True, fixed=True),
    "means": means_job(),
}


@pytest.mark.parametrize("name", SPECS)
def test_a_result_is_fetched_and_verified(name: str, jobs: Jobs, tmp_path: Path) -> None:
    evidence = jobs[name].evidence(RECEIVER)
    evidence.check()
    write_fetched(tmp_path, evidence)
    assert verified(tmp_path, evidence)[-1].endswith("equal byte by byte")
    names = {path.name for path in tmp_path.iterdir()}
    expected = {
        "regression": {"coefficients.csv", "correlation.csv", "regression.json", "report.html"},
        "pca": {"components.csv", "explained_variance.csv", "model.json", "report.html"},
        "means": {"joint_means.csv"},
    }
    assert expected[name] | {"evidence"} <= names


def test_the_results_are_right(jobs: Jobs) -> None:
    found = jobs["regression"].evidence(RECEIVER).result()
    assert isinstance(found, RegressionModel)
    assert (found.target, found.columns, found.rows) == ("y", ["a", "b"], 90)
    X = np.column_stack([TABLE[:, :2], np.ones(90)])
    np.testing.assert_allclose(found.estimates, np.linalg.lstsq(X, TABLE[:, 2], rcond=None)[0], rtol=1e-10)
    np.testing.assert_allclose(found.correlation, np.corrcoef(TABLE.T), atol=1e-8)
    fit = jobs["pca"].evidence(RECEIVER).result()
    assert isinstance(fit, PCAResult)
    values = np.linalg.eigvalsh(np.cov(TABLE.T))[::-1]
    np.testing.assert_allclose(fit.model.explained_variance, values[:2], rtol=1e-8)
    np.testing.assert_allclose(jobs["means"].evidence(RECEIVER).result().means, TABLE.mean(axis=0), rtol=1e-12)


def set_all(name: str, values: Any) -> Change:
    """Every server signs another public value instead of a part that was revealed."""
    return lambda server, part: part.update({name: np.asarray(values)})


TAMPERED: dict[str, tuple[str, Change]] = {
    "not finite": ("coefficients has numbers", set_all("coefficients", [np.nan, 0.5])),
    "above 1": ("coefficients has numbers up to 3", set_all("coefficients", [3.0, 0.5])),
    "shape": (r"coefficients has shape \(3,\)", set_all("coefficients", [0.5, 0.5, 0.5])),
    "exponents": ("scale of the intercept", set_all("scale of the intercept", [5000])),
    "R squared": ("R squared is -1", set_all("unexplained share of the variance", [2.0])),
    "squares": ("standard errors: a square is negative", set_all("standard errors", [0.5, -0.5, 0.5])),
    "residuals": ("residual sum of squares: a square is negative", set_all("residual sum of squares", [-0.5])),
    "correlation": ("a correlation is above 1", set_all("correlation matrix", [1.0, 1.5, 0, 1.0, 0, 1.0])),
    "diagonal": ("that of a column with itself", set_all("correlation matrix", [0.9, 0.5, 0, 1.0, 0, 1.0])),
    "vif": ("factors: one is below 1", set_all("variance inflation factors", [0.5, 1.5])),
    "rows": ("the number of rows is 1", set_all("rows", 1)),
    "absent": ("standard errors are missing", lambda server, part: part.pop("standard errors")),
    "junk": ("does not hold what a regression reveals", set_all("rows", "many")),
    "one server": ("differs in form", lambda server, part: part.update({"rows": 90} if server == 1 else {})),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_a_tampered_regression_is_refused(name: str, jobs: Jobs) -> None:
    text, change = TAMPERED[name]
    with pytest.raises(FederationError, match=f"the result of 'regression' is not used: .*{text}"):
        jobs["regression"].evidence(RECEIVER, change).result()


def test_tampered_results_of_other_analyses_are_refused(jobs: Jobs) -> None:
    with pytest.raises(FederationError, match="components has shape"):
        jobs["pca"].evidence(RECEIVER, set_all("components", np.zeros((3, 3)))).result()
    with pytest.raises(FederationError, match="means are not one finite number"):
        jobs["means"].evidence(RECEIVER, set_all("mean", [0.5, np.inf, 0.5])).result()


def test_an_analysis_without_a_reader_is_named(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    evidence = jobs["means"].evidence(RECEIVER)
    monkeypatch.delitem(READERS, JointMeans.NAME)
    with pytest.raises(NoReader, match=r"analysis means/1 cannot be read here: only those of infer/1, pca/1, reg"):
        evidence.result()
    with pytest.raises(ValueError, match="has a reader already"):
        register_reader("pca/1", Means)


def test_local_results_are_checked_too(jobs: Jobs) -> None:
    """Also a local fit refuses impossible values; one that was not verified is given to callers who report it."""
    whole = jobs["pca"].evidence(RECEIVER).result()
    here = Received(whole.job, RECEIVER, whole.values | {"total": -1.0}, whole.account, None, unverified=True)
    with pytest.raises(ImpossibleResult, match="total variance"):
        result_of(here)
    here.values["verified"] = False
    assert isinstance(result_of(here), PCAResult)
    here.unverified = False
    with pytest.raises(ImpossibleResult, match="could not verify"):
        result_of(here)


def test_a_page_of_a_member_shows_a_regression(jobs: Jobs, tmp_path: Path) -> None:
    evidence = jobs["regression"].evidence(RECEIVER)
    results = Results(tmp_path, lambda place, job: ["checked"])
    results.place(evidence.job).mkdir()
    write_fetched(results.place(evidence.job), evidence)
    found = results.of(evidence.job)
    assert found is not None
    assert not found.fault
    assert "linear regression of y on 2 columns" in found.summary
    assert "<svg" in found.charts["forest"]
