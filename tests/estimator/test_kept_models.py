"""Models that servers keep: rows that come later, and inference of secret rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn import decomposition
from sklearn.datasets import load_wine

from benchmarks.accuracy import standardised
from benchmarks.data_sets import split
from harness.accuracy import check, check_components, random
from harness.lockstep import LockstepServers
from ppca import PCA, Columns
from ppca.jobs import inference
from ppca.runtime import LocalServers

CLOSE = 1e-6
WINE = load_wine(as_frame=True).data
EVERYTHING = ("transform", "flags", "scores", "inverse")


# -- rows that come later ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("standardize", [False, True], ids=["raw", "standardised"])
def test_partial_fit_equals_fit_of_all(servers: LocalServers, standardize: bool) -> None:
    X = random(300, 6) @ random(6, 6, seed=1) + 50
    parts = split(X, 4)
    pca = PCA(standardize=standardize, servers=servers, keep="growing").fit(parts[:2])
    for part in parts[2:]:
        pca.partial_fit(part)
    assert pca.n_samples_ == 300
    check(pca, X)
    all_at_once = PCA(standardize=standardize, servers=servers).fit(parts)
    check_components(pca, all_at_once.components_, X)
    np.testing.assert_allclose(pca.mean_, all_at_once.mean_, rtol=1e-9)


def test_rows_of_another_size_are_added(servers: LocalServers) -> None:
    """Scales are made anew from those of all owners; a refused addition leaves the sums unharmed."""
    frame = pd.DataFrame(random(50, 3), columns=["a", "b", "c"])
    pca = PCA(servers=servers, keep="scale").fit([frame])
    with pytest.raises(ValueError, match="X has 2 features, but PCA is expecting 3 features"):
        pca.partial_fit(frame[["a", "b"]].to_numpy())
    large = frame.assign(b=frame["b"] * 1e6 + 1e9)
    pca.partial_fit(large)
    assert pca.n_samples_ == 100
    check(pca, np.vstack([frame, large]))


def test_partial_fit_needs_servers_that_keep_sums() -> None:
    assert not hasattr(PCA(), "partial_fit")
    assert not hasattr(PCA(servers=LockstepServers(), keep="m", partition=Columns(id="id")), "partial_fit")
    with pytest.raises(AttributeError) as caught:
        PCA().partial_fit(random(10, 2))
    assert "pass servers=... and keep='name'" in str(caught.value.__cause__)


# -- inference on shares -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("standardize", [False, True], ids=["raw", "standardised"])
def test_shared_model(servers: LocalServers, standardize: bool) -> None:
    """Model and rows both secret; the same numbers as scikit-learn in the clear, up to signs of components."""
    X = random(150, 6) @ random(6, 6, seed=1) * np.geomspace(0.1, 10, 6) + 3
    X[7] *= 6
    pca = PCA(3, standardize=standardize, servers=servers, keep="shared", reveal=False, allow=EVERYTHING).fit(
        split(X, 3)
    )
    assert not hasattr(pca, "components_")
    told = {line["what"] for line in pca.openings_ if line["to"] != "servers"}
    assert told == {"number of rows", "scale exponents"}
    reference = standardised(X) if standardize else X
    truth = decomposition.PCA(3).fit(reference)
    wanted = truth.transform(reference)
    scores = ((reference - truth.inverse_transform(wanted)) ** 2).sum(axis=1)
    model = pca.shared_model()
    found = model.transform(X)
    signs = np.sign((found * wanted).sum(axis=0))
    np.testing.assert_allclose(found * signs, wanted, rtol=0, atol=CLOSE * np.abs(wanted).max())
    np.testing.assert_allclose(model.score_samples(X), scores, rtol=0, atol=CLOSE * scores.max())
    np.testing.assert_array_equal(model.detect(X, contamination=0.1), scores >= np.sort(scores)[-15])
    middle = float(np.sort(scores)[100:102].mean())
    np.testing.assert_array_equal(model.detect(X, threshold=middle), scores > middle)
    rebuilt = model.inverse_transform(found)
    np.testing.assert_allclose(rebuilt, truth.inverse_transform(wanted), rtol=0, atol=CLOSE * np.abs(reference).max())


@pytest.mark.parametrize("standardize", [False, True], ids=["raw", "standardised"])
def test_coordinates_on_shares_have_the_signs_of_the_revealed_model(standardize: bool) -> None:
    X = WINE.to_numpy()
    pca = PCA(3, standardize=standardize, servers=LockstepServers(), keep="m").fit(split(X, 3))
    wanted = pca.transform(X[:20])
    found = pca.shared_model().transform(X[:20])
    np.testing.assert_allclose(found, wanted, rtol=0, atol=CLOSE * np.abs(wanted).max())


def test_a_shared_model_with_a_constant_column(servers: LocalServers) -> None:
    """It counts for nothing, whatever new rows have there: as the model in the clear, whose deviation is 1 there."""
    X = np.column_stack([random(60, 3), np.full(60, 7.0)])
    pca = PCA(2, standardize=True, servers=servers, keep="constant").fit(split(X, 2))
    found, wanted = pca.shared_model().transform(X), pca.transform(X)
    signs = np.sign((found * wanted).sum(axis=0))
    np.testing.assert_allclose(found * signs, wanted, rtol=0, atol=CLOSE * np.abs(wanted).max())


def test_nothing_is_anomalous_where_all_columns_are_constant() -> None:
    seats = LockstepServers()
    model = PCA(1, servers=seats, keep="m").fit([np.ones((5, 2))]).shared_model()
    assert model.detect(np.array([[1.0, 1.0], [2.0, 9.0]]), threshold=0.5).tolist() == [False, False]


@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("offset", [0.0, 1e8, 1e13])
def test_no_row_is_too_far_away_to_be_flagged(offset: float, standardize: bool) -> None:
    """Scores that have no room are the largest: of rows that owners may just send, and of those without an offset of the fit."""
    X = np.random.default_rng(0).standard_normal((80, 64)) + np.r_[offset, np.zeros(63)]
    seats = LockstepServers()
    model = PCA(1, standardize=standardize, servers=seats, keep="m", allow=("flags", "scores")).fit([X]).shared_model()
    rows = np.vstack([np.ldexp(0.97, model.scale + 20), np.zeros(64)])
    assert model.detect(rows, threshold=1e6).tolist() == [True, bool(offset)]
    assert model.score_samples(rows)[0] == inference.MAX_SCORE * model.unit**2


def test_signs_of_a_kept_model_if_loadings_tie() -> None:
    """Opposite columns have loadings of equal magnitude. With more columns than rows their last bits differ by split of the
    shares: the receiver must not decide anew which is larger."""
    x = random(20, 60) * np.geomspace(1, 50, 60)
    partition = Columns(alignment="aligned")
    pca = PCA(12, servers=LockstepServers(), keep="ties", partition=partition).fit([x, -x])
    found = pca.shared_model().transform_columns([x, -x], partition).coordinates
    assert found is not None
    np.testing.assert_allclose(found, pca.transform(np.hstack([x, -x])), atol=CLOSE * np.abs(found).max())


def test_a_kept_model_of_fewer_rows_than_columns() -> None:
    """Servers keep as many components as columns; the result has those that there are, as the revealed model."""
    X = random(8, 13)
    pca = PCA(servers=LockstepServers(), keep="few", allow=("transform", "inverse")).fit(split(X, 2))
    assert pca.components_.shape == (8, 13)
    found = pca.shared_model().transform(X)
    np.testing.assert_allclose(found, pca.transform(X), atol=CLOSE)
    np.testing.assert_allclose(pca.shared_model().inverse_transform(found), X, atol=CLOSE)


def test_score_of_a_row_far_away(servers: LocalServers) -> None:
    """Scores stay right up to 2^45: here a row of 1e6 deviations, whose squares are 1e12."""
    X = random(2000, 4)
    X[0, 3] = 30.0  # the scale leaves room for 32 times as much
    X[:, 3] *= 1e-3
    X[0, 3] = 1.0
    pca = PCA(1, standardize=True, servers=servers, keep="far", allow=("scores",)).fit([X])
    rows = X[:5].copy()
    rows[2, 3] = 31.0
    wanted = pca.model_.scores(rows)
    np.testing.assert_allclose(pca.shared_model().score_samples(rows), wanted, rtol=1e-5)


def test_rows_that_do_not_fit_a_shared_model(servers: LocalServers) -> None:
    pca = PCA(2, servers=servers, keep="narrow").fit([WINE])
    model = pca.shared_model()
    with pytest.raises(ValueError, match="column 'hue' has 1e\\+12 in row 2"):
        model.transform(WINE.assign(hue=[1.0, 1e12] + [1.0] * 176))
    with pytest.raises(ValueError, match="4 columns, the model 13"):
        model.transform(WINE.to_numpy()[:, :4])
    with pytest.raises(ValueError, match="nothing to compute"):
        model.detect(WINE)
