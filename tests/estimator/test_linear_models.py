"""Joint regression with scikit-learn's conventions: against scikit-learn and statsmodels, for row owners and of columns.

Tolerances: see tests/jobs/test_regression.py. Column owners share rows on a grid of 2^-24 of the largest distance of a
column from its mean.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import statsmodels.api as sm
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge as PlainRidge
from sklearn.preprocessing import StandardScaler

import ppca
from harness.lockstep import LockstepServers
from ppca import Columns, LinearRegression, Ridge, open_table
from ppca.jobs.checks import SpecError
from ppca.jobs.errors import Refusal
from ppca.owner.errors import OwnerError

Floats = NDArray[np.float64]
DATA = [parent / "shared" / "data" for parent in Path(__file__).resolve().parents]
"""Places where the data sets of the evaluation can be."""


def diabetes() -> pandas.DataFrame:
    frame: pandas.DataFrame = load_diabetes(as_frame=True, scaled=False).frame
    return frame


def wine() -> pandas.DataFrame:
    path = next((file for place in DATA if (file := place / "wine_quality.parquet").exists()), None)
    if path is None:
        pytest.skip("wine_quality.parquet of the evaluation is not here")
    frame = pandas.read_parquet(path).select_dtypes("number").astype(float)
    return frame.rename(columns={"quality": "target"})


def housing() -> pandas.DataFrame:
    """Like the housing data of California: skewed columns of very different units."""
    random = np.random.default_rng(20)
    rows = 1500
    income, age = random.gamma(4.0, 1.0, rows), random.integers(1, 52, rows).astype(float)
    rooms, people = random.gamma(6.0, 0.9, rows), random.lognormal(7.0, 0.7, rows)
    latitude = random.uniform(32.5, 42.0, rows)
    longitude = -119.6 - 0.8 * (latitude - 35.6) + random.standard_normal(rows)
    price = 0.45 * income + 0.01 * age - 0.1 * rooms + 3e-5 * people - 0.4 * latitude - 0.4 * longitude
    names = ["income", "age", "rooms", "people", "latitude", "longitude", "target"]
    noisy = price + 0.7 * random.standard_normal(rows)
    return pandas.DataFrame(dict(zip(names, [income, age, rooms, people, latitude, longitude, noisy], strict=True)))


FRAMES = {"diabetes": diabetes, "wine": wine, "housing": housing}


def cut(frame: pandas.DataFrame, owners: int) -> list[pandas.DataFrame]:
    return [frame.iloc[part] for part in np.array_split(np.arange(len(frame)), owners)]


def truth(frame: pandas.DataFrame) -> Any:
    X = frame.drop(columns="target").to_numpy(float)
    return sm.OLS(frame["target"].to_numpy(float), sm.add_constant(X, prepend=False)).fit()


def check(found: LinearRegression, frame: pandas.DataFrame, *, relative: float = 1e-8, others: float = 1e-6) -> None:
    wanted = truth(frame)
    assert list(found.feature_names_in_) == [name for name in frame.columns if name != "target"]
    assert (found.n_samples_, found.n_features_in_) == (len(frame), frame.shape[1] - 1)
    np.testing.assert_allclose(found.coef_, wanted.params[:-1], rtol=relative, atol=relative * 1e-2)
    assert found.intercept_ == pytest.approx(wanted.params[-1], rel=relative)
    np.testing.assert_allclose(found.standard_errors_, wanted.bse, rtol=others)
    np.testing.assert_allclose(found.t_values_, wanted.tvalues, rtol=others, atol=others)
    np.testing.assert_allclose(found.p_values_, wanted.pvalues, rtol=others, atol=others)
    np.testing.assert_allclose(found.conf_int(0.9), wanted.conf_int(0.1), rtol=others, atol=others)
    assert found.r2_ == pytest.approx(wanted.rsquared, abs=others)
    assert found.residual_variance_ == pytest.approx(wanted.mse_resid, rel=others)
    X = frame.drop(columns="target")
    np.testing.assert_allclose(found.predict(X), wanted.fittedvalues, rtol=others, atol=others)
    assert found.score(X, frame["target"]) == pytest.approx(wanted.rsquared, abs=others)


@pytest.mark.parametrize("owners", [2, 5, 9])
@pytest.mark.parametrize("name", FRAMES)
def test_owners_of_rows(name: str, owners: int) -> None:
    frame = FRAMES[name]()
    model = LinearRegression(servers=LockstepServers()).fit(cut(frame, owners), target="target")
    check(model, frame)
    assert {line["what"] for line in model.openings_ if line["to"] == "servers"} == {
        "condition bit",
        "verification bit",
    }


@pytest.mark.parametrize("way", ["aligned", "psi"])
@pytest.mark.parametrize("name", FRAMES)
def test_owners_of_columns(name: str, way: str) -> None:
    """With psi the second owner has its rows in another order. The grid of the rows limits the digits."""
    frame = FRAMES[name]().iloc[:600].reset_index(drop=True)
    frame.insert(0, "id", [f"p{row:04}" for row in range(len(frame))])
    half = frame.shape[1] // 2
    first, second = frame.iloc[:, :half], frame[["id", *frame.columns[half:]]]
    partition = Columns("id", way)
    if way == "psi":
        second = second.sample(frac=1.0, random_state=3)
    model = LinearRegression(servers=LockstepServers(), partition=partition).fit([first, second], target="target")
    check(model, frame.drop(columns="id"), relative=2e-5, others=1e-4)


@pytest.mark.parametrize("standardize", [False, True])
def test_ridge(standardize: bool) -> None:
    frame = diabetes()
    X, y = frame.drop(columns="target"), frame["target"]
    model = Ridge(3.0, standardize=standardize, servers=LockstepServers()).fit(cut(frame, 3), target="target")
    scaler = StandardScaler(with_std=standardize).fit(X)
    plain = PlainRidge(3.0).fit(scaler.transform(X), y)
    scale = scaler.scale_ if standardize else 1.0
    np.testing.assert_allclose(model.coef_, plain.coef_ / scale, rtol=1e-7)
    np.testing.assert_allclose(model.predict(X), plain.predict(scaler.transform(X)), rtol=1e-8)
    assert model.score(X, y) == pytest.approx(plain.score(scaler.transform(X), y), abs=1e-8)
    assert model.standard_errors_ is None
    assert model.residual_variance_ is None
    with pytest.raises(ValueError, match="there are no confidence intervals"):
        model.conf_int()


def test_ways_to_give_the_target() -> None:
    frame = diabetes().iloc[:80, [0, 1, 2, 10]]
    X, y = frame.drop(columns="target"), frame["target"]
    one = LinearRegression(servers=LockstepServers()).fit(cut(frame, 2), target="target")
    moved = frame[["age", "target", "sex", "bmi"]].to_numpy()
    halves = [frame.iloc[:40], frame.iloc[40:]]
    for found in (
        LinearRegression(servers=LockstepServers()).fit(X, y),
        LinearRegression(servers=LockstepServers()).fit([X.iloc[:40], X.iloc[40:]], [y[:40], y[40:]]),
        LinearRegression(servers=LockstepServers()).fit(X.to_numpy(), y.to_numpy()[:, None]),
        LinearRegression(servers=LockstepServers()).fit([moved[:40], moved[40:]], target=1),
        LinearRegression(servers=LockstepServers()).fit([moved], target=np.int64(-3)),
        LinearRegression(servers=LockstepServers()).fit({"north": halves[0], "south": halves[1]}, target="target"),
        LinearRegression(servers=LockstepServers()).fit({"n": X[:40], "s": X[40:]}, {"s": y[40:], "n": y[:40]}),
    ):
        np.testing.assert_allclose(found.coef_, one.coef_, rtol=1e-10)
    some = LinearRegression(columns=["age", "bmi"], servers=LockstepServers()).fit([frame], target="target")
    assert list(some.feature_names_in_) == ["age", "bmi"]
    two = LinearRegression(servers=LockstepServers(), partition=Columns(None, "aligned"))
    both = two.fit({"a": frame[["age", "sex"]], "b": frame[["bmi", "target"]]}, target="b:target")
    np.testing.assert_allclose(both.coef_, one.coef_, rtol=1e-4)
    assert both.model_.target == "target"


def test_faults_are_named() -> None:
    frame = diabetes().iloc[:60, [0, 1, 2, 10]]
    model = LinearRegression(servers=LockstepServers())
    for call, text in (
        (lambda: model.fit([frame]), "give either y, or target"),
        (lambda: model.fit([frame], np.ones(60), target="age"), "give either y, or target"),
        (lambda: model.fit([frame], target="ages"), "There is no 'ages'. Did you mean 'age'"),
        (lambda: model.fit([frame], target=4), "target=4: is not the position of one of 4 columns"),
        (lambda: model.fit([frame.to_numpy()], target="age"), "columns without names"),
        (lambda: model.fit([frame, frame], [np.ones(60)]), "must hold 2 arrays of targets: one for each owner"),
        (lambda: model.fit(frame, np.ones(59)), "one number for each row"),
        (lambda: LinearRegression(reveal="all").fit([frame], target="age"), "reveal='all': is unknown"),
        (lambda: LinearRegression(reveal=()).fit([frame], target="age"), "at least one part"),
        (lambda: Ridge(0.0).fit([frame], target="age"), "alpha=0.0: is the penalty of ridge"),
        (lambda: Ridge(reveal="vif").fit([frame], target="age"), "reveal='vif': is not possible with ridge"),
        (lambda: LinearRegression(missing="zero").fit([frame], target="age"), "missing='zero'"),
        (lambda: LinearRegression(partition="ids").fit([frame], target="age"), "partition='ids'"),
    ):
        with pytest.raises(SpecError) as refused:
            call()
        assert text in str(refused.value)
        assert "--" not in str(refused.value)
    twice = Columns(None, "aligned")
    with pytest.raises(SpecError, match="is a column of several owners; name one of 'a:age' and 'b:age'"):
        LinearRegression(partition=twice).fit({"a": frame[["age", "bmi"]], "b": frame[["age"]]}, target="age")


def test_missing_values() -> None:
    frame = diabetes().iloc[:100, [0, 1, 2, 10]].reset_index(drop=True)
    holes = frame.copy()
    holes.loc[::7, "bmi"] = np.nan
    with pytest.raises(OwnerError, match="missing value"):
        LinearRegression(servers=LockstepServers()).fit(cut(holes, 2), target="target")
    dropped = LinearRegression(servers=LockstepServers(), missing="drop").fit(cut(holes, 2), target="target")
    check(dropped, holes.dropna())
    filled = holes.fillna(holes.mean())
    mean = LinearRegression(servers=LockstepServers(), missing="mean").fit(cut(holes, 2), target="target")
    check(mean, filled)
    tables = [open_table(part, missing="mean") for part in cut(holes, 2)]
    again = LinearRegression(servers=LockstepServers()).fit(tables, target="target")
    np.testing.assert_allclose(again.coef_, mean.coef_, rtol=1e-10)


def test_parts_that_are_not_revealed_are_none() -> None:
    frame = diabetes().iloc[:100]
    model = LinearRegression(reveal=("coefficients", "vif"), servers=LockstepServers()).fit([frame], target="target")
    assert model.coef_ is not None
    assert model.vif_ is not None
    assert (model.intercept_, model.r2_, model.standard_errors_, model.correlation_) == (None, None, None, None)
    with pytest.raises(ValueError, match="predictions need the coefficients and the intercept"):
        model.predict(frame.drop(columns="target"))


def test_more_columns_than_rows_are_refused_by_the_condition() -> None:
    """Not as a wide table, which has no regression."""
    random = np.random.default_rng(2)
    rows = random.standard_normal((4, 6))
    with pytest.raises(Refusal, match="does not have a reliable solution"):
        LinearRegression(servers=LockstepServers()).fit([rows[:2], rows[2:]], target=0)
    halves = Columns(None, "aligned", minimum=1)
    with pytest.raises(Refusal, match="does not have a reliable solution"):
        LinearRegression(servers=LockstepServers(), partition=halves).fit([rows[:, :3], rows[:, 3:]], target=0)


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_y_is_refused_if_a_frame_has_a_column_named_target(kind: str) -> None:
    """The column would be replaced, and the last column of X, here bmi, would be the target."""
    frame = diabetes().iloc[:60][["age", "target", "bmi"]]
    if kind == "polars":
        frame = pytest.importorskip("polars").DataFrame({name: frame[name].to_numpy() for name in frame})
    with pytest.raises(SpecError, match='X has a column target already: rename it, or pass target="target"'):
        LinearRegression(servers=LockstepServers()).fit([frame], np.ones(60))


def test_conventions_of_scikit_learn() -> None:
    frame = diabetes().iloc[:60]
    model = Ridge(alpha=2, servers=LockstepServers()).fit([frame], target="target")
    assert clone(model).get_params()["alpha"] == 2
    again = pickle.loads(pickle.dumps(model))
    X = frame.drop(columns="target")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    with pytest.raises(ValueError, match="connection to servers is not pickled"):
        again.fit([frame], target="target")
    with pytest.raises(ValueError, match="feature names"):
        model.predict(X.rename(columns={"age": "years"}))
    assert "LinearRegression" in ppca.__all__
