"""What `PCA` takes and refuses: names of columns, a second table in the place of y, parameters that cannot be."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn.decomposition
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import ppca
from harness.lockstep import LockstepServers
from ppca import PCA, Columns
from ppca.estimator.advice import REMEDIES
from ppca.jobs.checks import SpecError
from ppca.owner.errors import BadColumns, OwnerError
from ppca.receiver.facts import SharedFacts
from ppca.runtime import Account
from ppca.web.report import write_report

NAMES = ["age", "height", "weight"]
FRAME = pd.DataFrame(np.random.default_rng(0).normal(size=(40, 3)) @ np.diag([3.0, 2.0, 1.0]), columns=NAMES)
PARTS = [FRAME[:25], FRAME[25:]]


class Untouched:
    """Servers that must not be used."""

    running = True
    member = None

    def start(self) -> None:
        pytest.fail("servers were started")

    def run_job(self, job: Any, chunks: Any, progress: Any = None) -> None:
        pytest.fail("a job was run")


def test_transform_refuses_columns_in_another_order_as_scikit_learn_does(lockstep_servers: LockstepServers) -> None:
    pca = PCA(2, servers=lockstep_servers).fit(PARTS)
    theirs = sklearn.decomposition.PCA(2).fit(FRAME)
    np.testing.assert_allclose(pca.transform(FRAME), theirs.transform(FRAME), atol=1e-6)
    for other in (FRAME[NAMES[::-1]], FRAME.rename(columns={"age": "years"}), FRAME[NAMES[:2]]):
        with pytest.raises(ValueError, match=r".") as expected:
            theirs.transform(other)
        for rows in (other, pl.from_pandas(other)):
            with pytest.raises(ValueError, match=r".") as caught:
                pca.transform(rows)
            assert str(caught.value) == str(expected.value)
    with pytest.warns(UserWarning, match="X does not have valid feature names, but PCA was fitted with feature names"):
        pca.transform(FRAME.to_numpy())


def test_names_that_are_no_text_are_compared_as_text(
    lockstep_servers: LockstepServers, recwarn: pytest.WarningsRecorder
) -> None:
    numbered = pd.DataFrame(FRAME.to_numpy())
    pca = PCA(2, servers=lockstep_servers).fit([numbered[:20], numbered[20:]])
    pca.transform(numbered)
    assert not [warning for warning in recwarn if "feature names" in str(warning.message)]


def test_rows_of_several_owners_are_transformed_in_their_order(lockstep_servers: LockstepServers) -> None:
    pca = PCA(2, servers=lockstep_servers)
    found = pca.fit_transform({"north": PARTS[0], "south": PARTS[1]})
    np.testing.assert_array_equal(found, pca.transform(FRAME))


def test_partial_fit_matches_columns_by_name(lockstep_servers: LockstepServers) -> None:
    whole = PCA(2, servers=lockstep_servers, keep="whole").fit(PARTS)
    grown = PCA(2, servers=lockstep_servers, keep="grown").fit(PARTS[0]).partial_fit(PARTS[1][NAMES[::-1]])
    np.testing.assert_allclose(grown.components_, whole.components_, atol=1e-6)
    with pytest.raises(
        BadColumns, match="the fit and owner 1 have different columns: only the fit has 'age'; only owner 1"
    ):
        grown.partial_fit(PARTS[1].rename(columns={"age": "years"}))


def test_shared_models_match_columns_by_name(lockstep_servers: LockstepServers) -> None:
    pca = PCA(2, servers=lockstep_servers, keep="m").fit(PARTS)
    shared = pca.shared_model()
    np.testing.assert_array_equal(
        shared.transform(FRAME).round(6), shared.transform(FRAME[NAMES[::-1]].assign(more="text")).round(6)
    )
    with pytest.raises(BadColumns, match="no column 'age'"):
        shared.transform(FRAME.drop(columns="age"))


def test_a_later_session_uses_a_kept_model_by_its_facts(lockstep_servers: LockstepServers, tmp_path: Path) -> None:
    pca = PCA(2, servers=lockstep_servers, keep="m").fit(PARTS)
    facts = pca.shared_facts()
    assert (facts.name, facts.components, facts.rows, facts.feature_names) == ("m", 2, len(FRAME), NAMES)
    facts.save(tmp_path / "shared.json")
    assert SharedFacts.load(tmp_path / "shared.json") == facts
    with pytest.raises(NotFittedError):
        PCA(2, servers=lockstep_servers, keep="m").shared_facts()


@pytest.mark.parametrize("second", [FRAME, FRAME.to_numpy(), "south.csv", Path("south.csv"), {"south": FRAME}, PARTS])
def test_a_second_table_is_no_y(second: Any) -> None:
    with pytest.raises(ValueError, match=r"fit\(\[A, B\]\), or fit\({'north': A, 'south': B}\)"):
        PCA(servers=Untouched()).fit(FRAME, second)


@pytest.mark.parametrize("shape", [(40,), (40, 1), (40, 2), (40, 5)])
def test_y_of_a_pipeline_is_ignored(lockstep_servers: LockstepServers, shape: tuple[int, ...]) -> None:
    """A y of two dimensions, too, unless it has the columns of an owner's table."""
    y = np.zeros(shape)
    PCA(1, servers=lockstep_servers).fit(FRAME, y)
    pipeline = make_pipeline(StandardScaler(), PCA(1, servers=lockstep_servers), LinearRegression())
    assert pipeline.fit(FRAME, y).predict(FRAME).shape[0] == 40
    PCA(1, servers=lockstep_servers).fit(FRAME, y.tolist())


def test_parameters_of_scikit_learn_are_ignored(lockstep_servers: LockstepServers) -> None:
    pca = PCA(1, svd_solver="full", random_state=3, servers=lockstep_servers).fit(FRAME)
    assert pca.get_params()["random_state"] == 3
    assert pca.n_components_ == 1


class Table(pd.DataFrame):
    """A subclass of frames, as geopandas and others have."""


class Stream:
    """What DuckDB and narwhals offer: an Arrow stream, and nothing else."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.frame = pl.from_pandas(frame).to_arrow()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.frame.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize("kind", ["subclass", "stream", "sparse"])
def test_frames_of_other_libraries(lockstep_servers: LockstepServers, kind: str) -> None:
    few = FRAME.where(FRAME > 0, 0.0)
    table: Any = {
        "subclass": lambda: Table(few),
        "stream": lambda: Stream(few),
        "sparse": lambda: few.astype(pd.SparseDtype(float, 0.0)),
    }[kind]()
    found = PCA(2, servers=lockstep_servers).fit([table])
    assert list(found.feature_names_in_) == NAMES
    np.testing.assert_allclose(found.mean_, few.mean(), rtol=1e-12)


def test_a_pickled_estimator_remembers_that_it_had_servers(lockstep_servers: LockstepServers) -> None:
    """It must not fit on four local processes instead; neither must its clones."""
    fitted = PCA(2, servers=lockstep_servers, keep="m").fit(PARTS)
    for pca in (
        pickle.loads(pickle.dumps(fitted)),
        clone(pickle.loads(pickle.dumps(PCA(2, servers=lockstep_servers)))),
    ):
        for use in (lambda pca=pca: pca.fit(PARTS), lambda pca=pca: pca.set_params(tol=1e-8).fit(PARTS)):
            with pytest.raises(ValueError, match=r"not pickled.*set_params\(servers=\.\.\.\)"):
                use()
        assert pca.set_params(servers=lockstep_servers).fit(PARTS).n_components_ == 2
    back = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(back.transform(FRAME), fitted.transform(FRAME))
    with pytest.raises(ValueError, match="not pickled"):
        back.shared_model()
    grown = back.set_params(servers=lockstep_servers).partial_fit(PARTS[1])
    assert grown.n_samples_ == 55
    assert pickle.loads(pickle.dumps(PCA(2))).servers is None


def test_a_pickle_holds_the_model_once(lockstep_servers: LockstepServers) -> None:
    X = np.random.default_rng(0).normal(size=(80, 30))
    pca = PCA(servers=lockstep_servers).fit(X)
    alone = len(pickle.dumps(pca.components_))
    assert len(pickle.dumps(pca)) < 2.5 * alone + 20_000


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        *(("n_components", value) for value in ("mle", "2", [2], True, np.True_, 0, -1, 1.5, np.nan, 2.0)),
        *(("tol", value) for value in ("1e-6", None, True, 1.0, np.nan)),
        *(("solver", value) for value in ("magic", None, ["qr"])),
        *(("fixed_iterations", value) for value in (0, 2.5, "3", True)),
        *(("max_iterations", value) for value in (0, 2.5, "3", True)),
        *((name, "yes") for name in ("standardize", "whiten", "reveal")),
    ],
)
def test_parameters_that_cannot_be_are_refused_before_anything_runs(parameter: str, value: Any) -> None:
    with pytest.raises(SpecError) as caught:
        PCA(servers=Untouched(), **{parameter: value}).fit("there is no such file.csv")
    assert str(caught.value).startswith(f"{parameter}={value!r}: ")


def test_a_model_that_nobody_would_have_is_refused(lockstep_servers: LockstepServers) -> None:
    with pytest.raises(SpecError, match="reveal=False: needs keep, a name under which"):
        PCA(servers=Untouched(), reveal=False).fit(FRAME)
    with pytest.raises(SpecError, match="keep=5: must be a name"):
        PCA(servers=Untouched(), keep=5).fit(FRAME)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"this model was not revealed to anyone .* shared_model"):
        PCA(2, servers=lockstep_servers, keep="m", reveal=False).fit(FRAME).transform(FRAME)


def test_files_and_lazy_frames_are_transformed_by_name(lockstep_servers: LockstepServers, tmp_path: Path) -> None:
    FRAME[NAMES[::-1]].assign(more="text").to_csv(tmp_path / "new.csv", index=False)
    pca = PCA(2, servers=lockstep_servers).fit(PARTS)
    for rows in (tmp_path / "new.csv", pl.from_pandas(FRAME[NAMES[::-1]]).lazy()):
        np.testing.assert_allclose(pca.transform(rows), pca.transform(FRAME))
    np.testing.assert_allclose(pca.transform([str(tmp_path / "new.csv"), FRAME])[40:], pca.transform(FRAME))
    np.testing.assert_allclose(
        PCA(2, servers=lockstep_servers).fit(FRAME.to_numpy()).transform(FRAME.to_numpy().tolist()),
        pca.transform(FRAME),
        atol=1e-6,
    )


def test_python_notes_what_may_help() -> None:
    with pytest.raises(ValueError, match="missing value") as caught:
        PCA(servers=Untouched()).fit(FRAME.mask(FRAME > 2))
    assert caught.value.__notes__ == [REMEDIES["missing"]]


def test_numbers_of_numpy_are_numbers(lockstep_servers: LockstepServers) -> None:
    assert PCA(np.int64(2), servers=lockstep_servers, tol=np.float32(1e-5)).fit(PARTS).n_components_ == 2
    assert PCA(np.float64(0.99), servers=lockstep_servers).fit(PARTS).n_components_ == 3


# -- what scikit-learn's PCA offers besides -----------------------------------------------------------------------------


@pytest.mark.parametrize("standardize", [False, True], ids=["raw", "standardised"])
def test_probabilistic_model(lockstep_servers: LockstepServers, standardize: bool) -> None:
    pca = PCA(2, servers=lockstep_servers, standardize=standardize).fit(PARTS)
    scaler = StandardScaler().fit(FRAME) if standardize else None
    X = FRAME if scaler is None else scaler.transform(FRAME)
    theirs = sklearn.decomposition.PCA(2).fit(X)
    units = np.ones(3) if scaler is None else scaler.scale_
    np.testing.assert_allclose(pca.get_covariance(), theirs.get_covariance() * np.outer(units, units), rtol=1e-5)
    np.testing.assert_allclose(
        pca.get_precision(), theirs.get_precision() / np.outer(units, units), rtol=1e-5, atol=1e-8
    )
    density = np.log(units).sum()  # of the standardised values, per unit of the data
    np.testing.assert_allclose(pca.score_samples(FRAME), theirs.score_samples(X) - density, rtol=1e-5)
    assert pca.score(FRAME) == pytest.approx(theirs.score(X) - density, rel=1e-5)


def test_a_singular_model_has_no_density(lockstep_servers: LockstepServers) -> None:
    flat = FRAME.assign(copy=FRAME["age"])
    pca = PCA(servers=lockstep_servers).fit(flat)
    np.testing.assert_allclose(pca.get_covariance(), flat.cov(), atol=1e-6)
    for use in (pca.get_precision, lambda: pca.score(flat)):
        with pytest.raises(ValueError, match=r"singular.*resolution.*Fit with fewer components"):
            use()


def test_names_of_the_output(lockstep_servers: LockstepServers) -> None:
    pca = PCA(2, servers=lockstep_servers).fit(PARTS)
    assert list(pca.get_feature_names_out()) == ["pca0", "pca1"]
    found = pca.set_output(transform="pandas").transform(FRAME)
    assert list(found.columns) == ["pca0", "pca1"]
    assert list(found.index) == list(FRAME.index)


def test_load(lockstep_servers: LockstepServers, tmp_path: Path) -> None:
    pca = PCA(2, standardize=True, servers=lockstep_servers).fit(PARTS)
    pca.model_.save(tmp_path / "model.json")
    for place in (tmp_path, str(tmp_path / "model.json")):
        loaded = ppca.load(place)
        np.testing.assert_array_equal(loaded.transform(FRAME), pca.transform(FRAME))
        np.testing.assert_array_equal(loaded.feature_names_in_, NAMES)
        assert (loaded.n_components_, loaded.n_samples_, loaded.n_features_in_) == (2, 40, 3)
    with pytest.raises(ValueError, match="was not revealed"):
        ppca.load(tmp_path / "elsewhere")


def test_everything_public_is_listed() -> None:
    """Pin the structure: names of `__all__` are imported when they are first used, so a wrong one fails only then."""
    assert set(ppca.__all__) <= set(dir(ppca))
    assert all(getattr(ppca, name) is not None for name in ppca.__all__)


# -- column owners --------------------------------------------------------------------------------------------------


def columns_of(ids: list[Any], other: list[Any], **how: Any) -> tuple[PCA, list[pd.DataFrame]]:
    values = np.random.default_rng(1).normal(size=(len(ids), 2))
    left = pd.DataFrame(values, columns=["a", "b"]).assign(customer=ids)
    right = pd.DataFrame(values[::-1] ** 2, columns=["c", "d"]).assign(client_no=other)
    partition = Columns(**{"id": ["customer", "client_no"], **how})
    return PCA(2, partition=partition, servers=LockstepServers()), [left, right]


@pytest.mark.parametrize("id", [["customer", "client_no"], {"owner 1": "customer", "owner 2": "client_no"}])
def test_ids_may_be_called_differently(id: Any) -> None:
    pca, owners = columns_of(list(range(20)), list(range(20)), id=id)
    pca.fit(owners)
    assert pca.n_samples_ == 20
    assert pca.rows_of_owners_ == [20, 20]


def test_names_of_ids_must_fit_the_owners() -> None:
    for id, cause in ((["a", "b", "c"], "3 id columns for 2 owners"), ({"owner 1": "a"}, "no id column of 'owner 2'")):
        pca, owners = columns_of(list(range(20)), list(range(20)), id=id)
        with pytest.raises(SpecError, match=cause):
            pca.fit(owners)


def test_a_named_index_can_be_the_id() -> None:
    pca, owners = columns_of(list(range(20)), list(range(20)))
    pca.fit([owners[0].set_index("customer"), owners[1].set_index("client_no")])
    assert list(pca.feature_names_in_) == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("ids", "other", "said", "options"),
    [
        ([str(i) for i in range(20)], [f"{i}.0" for i in range(20)], "ids of 'owner 2' end in '.0'", {"minimum"}),
        ([f"{i:03}" for i in range(20)], [str(i) for i in range(20)], "'owner 1' begin with zeros", {"minimum"}),
        (
            [f"x{i}" for i in range(20)],
            [f"X{i}" for i in range(20)],
            "whose case is significant",
            {"minimum", "fold_case"},
        ),
        (list(range(20)), list(range(100, 120)), "use the same ids.", {"minimum"}),
    ],
)
def test_ids_that_do_not_match(ids: list[Any], other: list[Any], said: str, options: set[str]) -> None:
    pca, owners = columns_of(ids, other)
    with pytest.raises(ValueError, match="fewer than 10 ids are common to all 2 owners") as caught:
        pca.fit(owners)
    assert said in str(caught.value)
    assert set(vars(caught.value)["options"]) == options
    assert ("zeros" in str(caught.value)) == ("zeros" in said)


def test_a_small_match_is_doubted() -> None:
    pca, owners = columns_of([f"x{i}" for i in range(40)], [f"{'x' if i < 12 else 'X'}{i}" for i in range(40)])
    said = r"only 12 of at least 40 ids are common: ids have letters, whose case is significant\. Columns\(fold_case=True\) lets"
    with pytest.warns(UserWarning, match=said):
        pca.fit(owners)


# -- scales ---------------------------------------------------------------------------------------------------------------


def test_a_component_that_is_one_column_is_warned_of(lockstep_servers: LockstepServers, tmp_path: Path) -> None:
    """Raw wine: "99.8 % explained" by the column with the largest numbers."""
    wine = load_wine(as_frame=True).data
    parts = [wine[:90], wine[90:]]
    said = r"component 1 explains 99.81 % of the variance and is almost only column 'proline' .*PCA\(standardize=True\)"
    with pytest.warns(UserWarning, match=said):
        raw = PCA(2, servers=lockstep_servers).fit(parts)
    account = Account(0.0, 1, [0] * 4, [{"total": {}, "stages": {}} for _ in range(4)], [])
    write_report(tmp_path / "r.html", raw.model_, account, title="t", settings={}, owners=["a", "b"])
    assert "almost only column &#x27;proline&#x27;" in (tmp_path / "r.html").read_text()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PCA(2, standardize=True, servers=lockstep_servers).fit(parts)
        PCA(2, servers=lockstep_servers).fit(PARTS)


def test_a_component_with_a_second_small_loading_is_warned_of(lockstep_servers: LockstepServers) -> None:
    """As in the table of wine quality: 95 % explained, squared loadings 0.945 and 0.053, and nothing else."""
    rng = np.random.default_rng(0)
    dioxide = 56 * rng.normal(size=80)
    X = np.column_stack(
        [0.24 * dioxide + 12 * rng.normal(size=80), dioxide, rng.normal(size=(80, 3)) * [4.7, 1.2, 0.1]]
    )
    with pytest.warns(
        UserWarning, match=r"component 1 explains 95\.\d\d % .* almost only column 2 .* standardise them"
    ):
        pca = PCA(2, servers=lockstep_servers).fit([X[:40], X[40:]])
    assert 0.94 < pca.components_[0, 1] ** 2 < 0.95


# -- small groups ---------------------------------------------------------------------------------------------------------


def test_an_owner_of_few_rows_without_a_minimum_is_warned_of(lockstep_servers: LockstepServers) -> None:
    """Before, an owner of one row was accepted silently."""
    X = FRAME.to_numpy()
    said = r"fewer than 10 rows: owner 1\. Others could compute much .* ppca.open_table\(data, min_rows=10\) refuses"
    with pytest.warns(UserWarning, match=said):
        pca = PCA(2, standardize=True, servers=lockstep_servers, keep="few").fit([X[:1], X[1:]])
    with pytest.warns(UserWarning, match="fewer than 10 rows: owner 1"):
        pca.partial_fit(X[:1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PCA(2, standardize=True, servers=lockstep_servers).fit(
            X[:9]
        )  # a sole owner has no one to protect its rows from
        PCA(2, standardize=True, servers=lockstep_servers).fit([ppca.open_table(X[:9], min_rows=5), X[9:]])


@pytest.mark.parametrize("partition", ["rows", "missing", "columns"])
def test_an_owner_of_few_rows_is_refused_before_anything_is_sent(partition: str) -> None:
    few, many = FRAME[:9], FRAME[9:]
    said = "9 rows, fewer than the minimum of 10 rows per owner. .* Nothing was sent"
    options: dict[str, Any] = {"missing": "mean"} if partition == "missing" else {}
    tables = [ppca.open_table(part, min_rows=10, label="small", **options) for part in (few, many)]
    pca = PCA(servers=Untouched())
    if partition == "columns":
        pca.set_params(partition=Columns(alignment="aligned"))
        tables = [ppca.open_table(few.to_numpy(), min_rows=10), ppca.open_table(few.to_numpy(), min_rows=10)]
    with pytest.raises(ValueError, match=said) as caught:
        pca.fit(tables)
    assert caught.value.__notes__ == [REMEDIES["min_rows"]]


@pytest.mark.parametrize("missing", ["refuse", "mean"])
@pytest.mark.parametrize("fault", ["infinite value", "few rows"])
def test_row_owners_read_all_tables_before_anything_is_sent(missing: str, fault: str) -> None:
    """A fault in the last table is told before the first table is sent."""
    last = FRAME[25:].replace(FRAME["age"][30], np.inf) if fault == "infinite value" else FRAME[25:30]
    parts = {"first": FRAME[:25], "second": last}
    tables = [ppca.open_table(part, label=label, min_rows=10, missing=missing) for label, part in parts.items()]
    told = "has an infinite value" if fault == "infinite value" else "fewer than the minimum of 10 rows"
    with pytest.raises(OwnerError, match=f"second: .*{told}"):
        PCA(servers=Untouched()).fit(tables)


def test_servers_of_a_fit_run_no_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that `PCA` starts itself run jobs only, as those of `ppca fit`; those of `ppca.Job` run programs."""
    started = []

    class Reached(Exception):
        pass

    def start(self: ppca.LocalServers) -> None:
        started.append(self.developer)
        raise Reached

    monkeypatch.setattr(ppca.LocalServers, "start", start)
    with pytest.raises(Reached):
        PCA(2).fit(PARTS)
    with pytest.raises(Reached):
        PCA(2, partition=Columns(alignment="aligned")).fit([FRAME[NAMES[:2]].to_numpy(), FRAME[NAMES[2:]].to_numpy()])
    with pytest.raises(Reached), ppca.Job() as job:
        job.run("module:program")
    assert started == [False, False, True]
