"""Joint regressions on shares: against statsmodels and scikit-learn, what they open, what they refuse, and in a federation.

Tolerances: with row owners the covariance errs by about 2^-46 of the deviations; times inflation factors below 100 that is
far below 1e-10. Products of standard errors keep 2^-54 of numbers up to 2^24. R squared and the intercept's error go through
reciprocals with 1e-9. Column owners share rows on a grid of 2^-24 of the largest distance from a mean, as `GRID_ERROR` says.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm
from numpy.typing import NDArray
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler
from statsmodels.stats.outliers_influence import variance_inflation_factor

from harness.federation import MEMBERSHIP, OWNERS, RECEIVER
from harness.lockstep import LockstepServers
from harness.whole import FourServers, WholeJob
from ppca import open_table
from ppca.estimator.job import Job
from ppca.estimator.partition import Columns, column_data
from ppca.estimator.rows import row_data
from ppca.estimator.runs import run
from ppca.federation.approval_text import in_words, terms
from ppca.federation.errors import FileRefused
from ppca.federation.proposal import ProposedJob, propose
from ppca.jobs.build import regression_job
from ppca.jobs.checks import SpecError
from ppca.jobs.errors import Refusal
from ppca.jobs.registry import openings
from ppca.jobs.regression import OPENED, JointRegression
from ppca.jobs.spec import CLIENT, COLUMNS, ROWS, JobSpec, Keep
from ppca.owner.contribute import Source
from ppca.receiver.regression import RegressionModel
from ppca.receiver.unsealing import received

Floats = NDArray[np.float64]
RANDOM = np.random.default_rng(5)
ALL = ("result", "correlation", "vif")


def diabetes() -> Floats:
    """442 rows; the target, column 4 here, stands between the others."""
    X, y = load_diabetes(return_X_y=True, scaled=False)
    return np.insert(X, 4, y, axis=1)


TABLE, TARGET = diabetes(), 4
GRID_ERROR = 2.0**-24 * 6 / np.sqrt(len(TABLE)) * 8
"""A grid of 2^-24 of six deviations, rounded in every row, for inflation factors up to 64: in deviations of the target."""


def spec_of(data: Any, target: int, parts: Any = ALL, **parameters: Any) -> JobSpec:
    return JobSpec(
        data=data, analysis=JointRegression(target=f"c{target + 1}", **parameters), receivers={CLIENT: tuple(parts)}
    )


def fitted(
    tables: list[Floats],
    target: int,
    parts: Any = ALL,
    *,
    servers: Any = None,
    columns: bool = False,
    **parameters: Any,
) -> RegressionModel:
    """A regression on servers in lock-step, by row owners or of columns (`aligned`)."""
    sources = [Source(open_table(table)) for table in tables]
    if columns:
        ways = Columns(None, "aligned")
        data = column_data(COLUMNS, [table.shape[1] for table in tables], ways, standardize=True)
    else:
        data = row_data(ROWS, len(tables), tables[0].shape[1], standardize=True)
    spec = spec_of(data, target, parts, **parameters)
    job = Job(servers or LockstepServers())
    answer = run(job, spec, sources).answer
    found = RegressionModel.from_result(received(answer), spec.analysis, data.column_names, job.account.audit)
    allowed = [(line.what, line.to) for line in openings(spec)]
    assert [(line["what"], line["to"]) for line in found.audit] == allowed
    return found


def others(table: Floats, target: int) -> tuple[Floats, Floats]:
    return np.delete(table, target, axis=1), table[:, target]


def check(found: RegressionModel, table: Floats, target: int, *, relative: float, error: float = 0.0) -> None:
    """Everything of a model. relative: of coefficients; error: in deviations of the target, of one deviation of a column."""
    X, y = others(table, target)
    wanted = sm.OLS(y, sm.add_constant(X, prepend=False)).fit()
    unit = np.append(y.std() / X.std(axis=0), y.std() + np.abs(X.mean(axis=0)) @ (y.std() / X.std(axis=0)))
    assert found.estimates is not None
    assert found.errors is not None
    assert found.intervals() is not None
    assert found.rows == len(table)
    assert np.all(np.abs(found.estimates - wanted.params) <= relative * np.abs(wanted.params) + error * unit)
    np.testing.assert_allclose(found.errors, wanted.bse, rtol=max(1e-9, error))
    moved = error * unit / wanted.bse  # what the error of a coefficient changes of its t value
    np.testing.assert_allclose(found.t_values, wanted.tvalues, rtol=1e-9 + error, atol=max(1e-9, float(moved.max())))
    np.testing.assert_allclose(found.p_values, wanted.pvalues, rtol=1e-7, atol=max(1e-9, float(moved.max())))
    np.testing.assert_allclose(
        found.intervals(0.9), wanted.conf_int(0.1), rtol=1e-9, atol=2 * float((error * unit).max()) + 1e-9
    )
    assert found.r2 == pytest.approx(wanted.rsquared, abs=1e-9 + error)
    assert found.adjusted_r2 == pytest.approx(wanted.rsquared_adj, abs=1e-8 + 2 * error)
    assert found.residual_variance == pytest.approx(wanted.mse_resid, rel=1e-10 + error)
    assert found.f_test is not None
    assert found.f_test[0] == pytest.approx(wanted.fvalue, rel=1e-8 + 10 * error)
    assert found.correlation is not None
    np.testing.assert_allclose(found.correlation, np.corrcoef(np.column_stack([X, y]).T), atol=4e-9 + error)
    vif = [variance_inflation_factor(sm.add_constant(X, prepend=False), j) for j in range(X.shape[1])]
    np.testing.assert_allclose(found.inflation, vif, rtol=1e-10 + 10 * error)


@pytest.mark.parametrize("owners", [1, 2, 5, 9])
def test_rows(owners: int) -> None:
    check(fitted(np.array_split(TABLE, owners), TARGET), TABLE, TARGET, relative=1e-11)


@pytest.mark.parametrize("cut", [2, 4, 7])
def test_columns(cut: int) -> None:
    """The owner of the target is the first, the second, or has nothing else on its left."""
    found = fitted([TABLE[:, :cut], TABLE[:, cut:]], TARGET, columns=True)
    check(found, TABLE, TARGET, relative=0, error=GRID_ERROR)


def test_scales_and_offsets() -> None:
    """Columns from 1e-6 to 1e9, offsets of 1e9 deviations: digits that doubles have are not lost."""
    X = RANDOM.standard_normal((300, 4)) * [1e-6, 1.0, 1e9, 3.0] + [5.0, 1e9, -2e9, 0.0]
    y = X @ [2e6, -1.0, 3e-9, 0.5] + RANDOM.standard_normal(300)
    found = fitted(np.array_split(np.column_stack([X, y]), 3), 4)
    centred = X - X.mean(axis=0)
    unit = centred.std(axis=0)
    wanted = np.linalg.lstsq(centred / unit, y - y.mean(), rcond=None)[0] / unit
    assert found.coefficients is not None
    assert found.intercept is not None
    np.testing.assert_allclose(found.coefficients, wanted, rtol=1e-9)
    assert found.intercept == pytest.approx(y.mean() - X.mean(axis=0) @ wanted, rel=1e-9)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("alpha", [1e-3, 1.0, 300.0, 1e5])
@pytest.mark.parametrize("columns", [False, True])
def test_ridge(alpha: float, scaled: bool, columns: bool) -> None:
    tables = [TABLE[:, :3], TABLE[:, 3:]] if columns else np.array_split(TABLE, 3)
    found = fitted(tables, TARGET, ["result"], columns=columns, method="ridge", alpha=alpha, scaled=scaled)
    X, y = others(TABLE, TARGET)
    scale = StandardScaler().fit(X).scale_ if scaled else np.ones(X.shape[1])
    wanted = Ridge(alpha=alpha, solver="svd").fit(X / scale, y)
    assert found.coefficients is not None
    assert found.standard_errors is None
    error = GRID_ERROR if columns else 3e-9 if scaled else 1e-11  # the division of n by n + alpha errs by 1e-9
    np.testing.assert_allclose(
        found.coefficients,
        wanted.coef_ / scale,
        rtol=0 if columns else error,
        atol=error * max(y.std() / X.std(axis=0)),
    )
    assert found.intercept == pytest.approx(wanted.intercept_, rel=max(1e-8, 100 * error))
    assert found.r2 == pytest.approx(wanted.score(X / scale, y), abs=2e-9 + error)


def test_a_regression_on_one_column() -> None:
    table = TABLE[:, [2, 4]]
    check(fitted(np.array_split(table, 2), 1), table, 1, relative=1e-11)


REFUSED = ["duplicate", "constant", "constant target", "sum", "nearly the same", "dummies"]


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize("columns", [False, True])
def test_designs_without_a_solution_are_refused(what: str, columns: bool) -> None:
    """One bit is opened, and nothing is revealed."""
    X, y = RANDOM.standard_normal((60, 4)) + 0.1, RANDOM.standard_normal(60)
    kinds = np.eye(3)[RANDOM.integers(0, 3, 60)]
    changed = {
        "duplicate": (3, X[:, 1] * 3),
        "constant": (3, 0.1),
        "sum": (3, X[:, 0] + X[:, 1] - X[:, 2]),
        "nearly the same": (3, X[:, 1] + 1e-6 * X[:, 3]),
    }
    if what in changed:
        X[:, changed[what][0]] = changed[what][1]
    elif what == "dummies":
        X[:, :3] = kinds
    else:
        y[:] = 0.1
    table, servers = np.column_stack([X, y]), LockstepServers()
    tables = [table[:, :2], table[:, 2:]] if columns else np.array_split(table, 3)
    with pytest.raises(Refusal, match=r"not have a reliable solution.*ridge regression"):
        fitted(tables, 4, servers=servers, columns=columns)
    assert [line["what"] for audits in servers.audits for line in audits[0]] == ["condition bit"]


def test_ridge_solves_what_least_squares_refuses() -> None:
    X = RANDOM.standard_normal((60, 3))
    table = np.column_stack([X, X[:, 0], X @ [1.0, 2.0, 3.0] + RANDOM.standard_normal(60)])
    found = fitted(np.array_split(table, 2), 4, ["result"], method="ridge", alpha=5.0)
    wanted = Ridge(alpha=5.0, solver="svd").fit(table[:, :4], table[:, 4])
    np.testing.assert_allclose(found.coefficients, wanted.coef_, rtol=1e-10)


def test_penalties_out_of_range_are_refused() -> None:
    tables = np.array_split(TABLE * 1e-6, 2)
    with pytest.raises(Refusal, match="penalty"):
        fitted(tables, TARGET, ["result"], method="ridge", alpha=1e8)


def test_an_exact_fit_has_no_standard_errors() -> None:
    X = RANDOM.standard_normal((50, 3))
    found = fitted(np.array_split(np.column_stack([X, X @ [1.0, -2.0, 0.5] + 3]), 2), 3)
    np.testing.assert_allclose(found.estimates, [1.0, -2.0, 0.5, 3.0], rtol=1e-11)
    assert np.isnan(found.standard_errors).all()
    assert "below the resolution" in found.remarks()[0]
    few = fitted(np.array_split(np.column_stack([X, RANDOM.standard_normal(50)])[:4], 2), 3)
    assert "no degree of freedom" in few.remarks()[0]
    assert few.residual_variance is None
    assert few.f_test is None


def test_receivers_get_their_parts_only() -> None:
    for part, whats in OPENED.items():
        found = fitted(np.array_split(TABLE, 2), TARGET, [part])
        more = ["unexplained share of the variance"] if part == "errors" else []
        assert [line["what"] for line in found.audit[2:]] == ["number of rows", *whats, *more]
        assert (found.coefficients is not None) == (part == "coefficients")
        with pytest.raises(ValueError, match="predictions need"):
            found.predict(TABLE[:, :10])


def test_results_are_kept_as_files(tmp_path: Path) -> None:
    found = fitted(np.array_split(TABLE, 2), TARGET)
    found.save(tmp_path / "regression.json")
    again = RegressionModel.load(tmp_path / "regression.json")
    assert again.table().keys() == {"term", "coefficient", "standard_error", "t", "p", "low", "high", "vif"}
    for name, values in again.table().items():
        np.testing.assert_array_equal(values, found.table()[name])
    np.testing.assert_array_equal(again.predict(TABLE[:, :10]), found.predict(TABLE[:, :10]))
    (tmp_path / "regression.json").write_text("{}")
    with pytest.raises(ValueError, match=r"cannot read .*ppca-regression-1"):
        RegressionModel.load(tmp_path / "regression.json")


def test_faults_are_refused_by_field() -> None:
    data = row_data(ROWS, 2, 3, standardize=True)
    faults: list[tuple[str, dict[str, Any]]] = [
        ("analysis.target", {"target": "z"}),
        ("analysis.method", {"method": "lasso"}),
        ("analysis.alpha", {"alpha": 1.0}),
        ("analysis.alpha", {"method": "ridge"}),
        ("analysis.alpha", {"method": "ridge", "alpha": 1e9}),
        ("analysis.scaled", {"method": "ridge", "alpha": 1.0, "scaled": 1}),
    ]
    for field, parameters in faults:
        with pytest.raises(SpecError) as refused:
            JobSpec(
                data=data, analysis=JointRegression(**{"target": "c1"} | parameters), receivers={CLIENT: ("result",)}
            )
        assert refused.value.field == field
    fine = JointRegression(target="c1")
    ridge = JointRegression(target="c1", method="ridge", alpha=1.0)
    others: list[tuple[str, dict[str, Any]]] = [
        ("data.standardize", {"data": row_data(ROWS, 2, 3)}),
        ("data.columns", {"data": row_data(ROWS, 2, 1, standardize=True)}),
        ("data.columns", {"data": row_data(ROWS, 2, 2000, standardize=True)}),
        ("keep", {"keep": Keep(name="model", allow={})}),
        ("receivers.client", {"receivers": {CLIENT: ("components",)}}),
        ("receivers.client", {"analysis": ridge, "receivers": {CLIENT: ("errors",)}}),
    ]
    for field, parts in others:
        with pytest.raises(SpecError) as refused:
            JobSpec(**{"data": data, "analysis": fine, "receivers": {CLIENT: ("result",)}} | parts)
        assert refused.value.field == field


def test_a_federation(tmp_path: Path) -> None:
    """Three owners, two receivers with different parts; servers check the owners' numbers first."""
    names = [f"x{j}" if j != TARGET else "y" for j in range(TABLE.shape[1])]
    whom = {RECEIVER: ["result"], "spare": ["coefficients"]}
    job = regression_job(OWNERS, names, whom, JointRegression(target="y"), federated=True)
    made = propose(MEMBERSHIP.digest, "regression", job)
    assert (
        b'[analysis]\nname = "regression/1"\ntarget = "y"\nmethod = "ols"\nalpha = 0.0\nscaled = false\n' in made.data
    )
    again = ProposedJob(made.data)
    assert again.spec == job
    assert "linear regression of 'y' on 10 columns, by least squares" in terms(again.spec, "north")
    assert any("standard errors" in line for line in in_words(again.spec))
    with pytest.raises(FileRefused, match=r"analysis\.target"):
        ProposedJob(made.data.replace(b'target = "y"', b'target = "z"'))
    servers = FourServers(tmp_path / "servers")
    try:
        whole = WholeJob(servers, again)
        for owner, table in zip(OWNERS, np.array_split(TABLE, 3), strict=True):
            path = tmp_path / f"{owner}.csv"
            np.savetxt(path, table, delimiter=",", header=",".join(names), comments="", fmt="%.17g")
            assert whole.contribute(owner, path) == [""] * 4
        answer = whole.run()
    finally:
        servers.close()
    assert [(line["what"], line["to"]) for line in whole.audit] == [(line.what, line.to) for line in openings(job)]
    assert isinstance(job.analysis, JointRegression)
    found = RegressionModel.from_result(received(answer, RECEIVER), job.analysis, names, whole.audit)
    X, y = others(TABLE, TARGET)
    wanted = sm.OLS(y, sm.add_constant(X, prepend=False)).fit()
    np.testing.assert_allclose(found.estimates, wanted.params, rtol=1e-11)
    np.testing.assert_allclose(found.errors, wanted.bse, rtol=1e-9)
    of_owner = RegressionModel.from_result(received(answer, "spare"), job.analysis, names, whole.audit)
    assert of_owner.intercept is None
    np.testing.assert_array_equal(of_owner.coefficients, found.coefficients)
