"""transform and detect for column owners: each gives its part of new rows, one of them receives the result by its ids."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.decomposition import PCA as PlainPCA  # noqa: N811 - scikit-learn's
from sklearn.preprocessing import StandardScaler

from harness.lockstep import LockstepServers
from ppca import PCA, Columns
from ppca.estimator.shared_model import SharedModel
from ppca.jobs.matching import MatchError
from ppca.jobs.spool import Spool
from ppca.owner.errors import BadColumns, BadValue
from ppca.runtime import LocalServers

DATA = load_breast_cancer().data.copy()
DATA[:, 4] += 2000  # a mean far beyond the spread, as of a year
PATIENTS = np.array([f"P{i:04d}" for i in range(len(DATA))])
FIRST, LATER = np.arange(400), np.arange(380, len(DATA))
RANDOM = np.random.default_rng(6)
K = 4
BY_PATIENT = Columns("patient")


def owners(rows: Any, part: float) -> tuple[list[pd.DataFrame], list[int]]:
    """Three owners that know this part of the rows each, in any order; and the rows that all know."""
    frames, known = [], []
    for k in range(3):
        at = RANDOM.permutation(rows)[: round(part * len(rows))]
        columns = [f"c{i}" for i in range(10 * k, 10 * k + 10)]
        frames.append(pd.DataFrame(DATA[at, 10 * k : 10 * k + 10], columns=columns).assign(patient=PATIENTS[at]))
        known.append(set(at.tolist()))
    return frames, sorted(set.intersection(*known))


@pytest.fixture(scope="module", params=[False, True], ids=["raw", "standardised"])
def fitted(request: pytest.FixtureRequest, servers: LocalServers) -> tuple[SharedModel, Any, Any]:
    frames, common = owners(FIRST, 0.97)
    # The directions of small components are as exact as the solver is, times the largest variance over the gap: hence tol.
    options: dict[str, Any] = {
        "partition": BY_PATIENT,
        "servers": servers,
        "keep": "m",
        "reveal": False,
        "allow": ("transform", "flags", "scores"),
    }
    pca = PCA(K, standardize=request.param, tol=1e-8, **options)
    scaler = StandardScaler(with_std=request.param).fit(DATA[common])
    return pca.fit(frames).shared_model(), scaler, PlainPCA(K).fit(scaler.transform(DATA[common]))


@pytest.mark.parametrize("receiver", [0, 2])
def test_transform(fitted: tuple[SharedModel, Any, Any], receiver: int) -> None:
    model, scaler, truth = fitted
    frames, common = owners(LATER, 0.9)
    found = model.transform_columns(frames, BY_PATIENT, receiver=receiver)
    assert set(found.ids) == set(PATIENTS[common])
    where = {patient: i for i, patient in enumerate(PATIENTS)}
    wanted = truth.transform(scaler.transform(DATA[[where[patient] for patient in found.ids]]))
    signs = np.sign((found.coordinates * wanted).sum(axis=0))  # no one has seen the components to choose signs
    assert np.abs(found.coordinates * signs - wanted).max() < 1e-6 * np.abs(wanted).max()
    audit = model.job.account.audit
    assert [(line["what"], line["to"]) for line in audit[-1:]] == [("coordinates", f"owner-{receiver + 1}")]


def test_detect(fitted: tuple[SharedModel, Any, Any]) -> None:
    model, scaler, truth = fitted
    frames, common = owners(LATER, 0.95)
    where = {patient: i for i, patient in enumerate(PATIENTS)}
    found = model.detect_columns(frames, BY_PATIENT, contamination=0.1, scores=True)
    rows = scaler.transform(DATA[[where[patient] for patient in found.ids]])
    wanted = ((rows - truth.inverse_transform(truth.transform(rows))) ** 2).sum(axis=1)
    assert np.abs(found.scores - wanted).max() < 1e-4 * wanted.max()  # tol of the solver times the largest variance
    assert found.flags.sum() == np.ceil(0.1 * len(common))
    assert set(np.flatnonzero(found.flags)) == set(np.argsort(-wanted)[: found.flags.sum()])
    level = float(np.median(wanted) * 2)
    above = model.detect_columns(frames, BY_PATIENT, threshold=level, receiver=1)
    assert above.scores is None
    flagged = dict(zip(above.ids, above.flags, strict=True))
    assert [flagged[patient] for patient in found.ids] == (wanted > level).tolist()


@pytest.mark.parametrize("way", ["aligned", "namespace"])
def test_other_ways(way: str) -> None:
    """In lock-step; without ids an aligned result comes in the common order."""
    seats, X = LockstepServers(), RANDOM.standard_normal((30, 4)) * [4, 2, 1, 0.5] + 1
    partition = Columns("n", way, 30 if way == "namespace" else None)
    frames = [pd.DataFrame(X[:, :1]).assign(n=np.arange(30)), pd.DataFrame(X[:, 1:]).assign(n=np.arange(30))]
    for frame in frames:
        frame.columns = [f"x{name}" if name != "n" else "n" for name in frame.columns]
    pca = PCA(2, partition=partition, servers=seats, keep="m", tol=1e-8).fit(frames)
    model = pca.shared_model()
    found = model.transform_columns(frames, partition, receiver=1)
    assert list(found.ids) == list(range(30))
    wanted = PlainPCA(2).fit_transform(X)
    assert np.abs(np.abs(found.coordinates) - np.abs(wanted)).max() < 1e-6
    if way == "aligned":
        plain = [frame.drop(columns="n") for frame in frames]
        found = model.transform_columns(plain, Columns(alignment="aligned"))
        assert found.ids is None
        assert np.abs(np.abs(found.coordinates) - np.abs(wanted)).max() < 1e-6


def test_the_rows_are_forgotten_and_batches_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    seats, X, before = LockstepServers(), RANDOM.standard_normal((25, 4)), Spool.in_memory
    frames = [pd.DataFrame(X[:, :2], columns=["a", "b"]), pd.DataFrame(X[:, 2:], columns=["c", "d"])]
    frames = [frame.assign(n=np.arange(25)) for frame in frames]
    model = PCA(2, partition=Columns("n"), servers=seats, keep="m").fit(frames).shared_model()
    whole = model.transform_columns(frames, Columns("n"))
    monkeypatch.setattr("ppca.jobs.new_rows.NUMBERS", 12)
    monkeypatch.setattr("ppca.owner.columns.CHUNK_NUMBERS", 10)
    chunks = model.transform_columns(frames, Columns("n"))
    by_id = [dict(zip(found.ids, found.coordinates, strict=True)) for found in (whole, chunks)]
    for patient in range(25):
        assert np.allclose(by_id[0][patient], by_id[1][patient], atol=1e-9)
    with pytest.raises(MatchError):
        model.transform_columns([frames[0][:5], frames[1][5:]], Columns("n"))
    assert seats.held == [0] * 4
    model.detect_columns(frames, Columns("n"), threshold=1.0)
    assert seats.held == [0] * 4
    assert Spool.in_memory == before


def test_refused(fitted: tuple[SharedModel, Any, Any]) -> None:
    model = fitted[0]
    frames, _ = owners(LATER, 1.0)
    swapped = [frames[1], frames[0], frames[2]]
    huge = [frames[0].assign(c3=1e12), *frames[1:]]
    with pytest.raises(BadColumns, match="column 1 is 'c10' here and 'c0' in the model"):
        model.transform_columns(swapped, BY_PATIENT)
    with pytest.raises(BadColumns, match="the owners have 20 columns, the model 30"):
        model.transform_columns(frames[:2], BY_PATIENT)
    with pytest.raises(BadValue, match="owner 1: column 'c3' has 1e"):
        model.transform_columns(huge, BY_PATIENT)
    with pytest.raises(ValueError, match="receiver=3: there are 3 owners"):
        model.transform_columns(frames, BY_PATIENT, receiver=3)
    with pytest.raises(ValueError, match="nothing to compute"):
        model.detect_columns(frames, BY_PATIENT)
    with pytest.raises(ValueError, match="not both"):
        model.detect_columns(frames, BY_PATIENT, threshold=1.0, contamination=0.1)
