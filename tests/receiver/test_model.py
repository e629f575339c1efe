"""The revealed model: units and signs put back as scikit-learn has them, and files that are whole or refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.decomposition import PCA as PlainPCA  # noqa: N811 - scikit-learn's
from sklearn.preprocessing import StandardScaler

from ppca.receiver import PCAModel, SharedFacts
from ppca.receiver.parts import Parts
from ppca.receiver.unsealing import unsealed
from ppca.receiver.verdicts import flags_of

RANDOM = np.random.default_rng(5)
X = RANDOM.standard_normal((50, 4)) @ np.diag([40.0, 9.0, 3.0, 1.0]) @ RANDOM.standard_normal((4, 4)) + 7
SCALE = np.full(4, 7)
"""Exponents of the columns, as a fit has them: |x| < 2^7."""

OPENING = {"what": "means", "shape": [2], "to": "receiver", "why": "the result"}
CLOSE = 1e-12  # a few roundings of doubles


def answer(k: int, standardize: bool, ratio: float | None = None) -> dict[str, Any]:
    """What servers would reveal of X: in units of 2^7, times `ratio` (None: 50 / 64) and a secret factor; signs as they fall."""
    times = 50 / 64 if ratio is None else ratio
    scaled = X / 2.0**SCALE
    C = np.cov(scaled.T, bias=True)
    deviation = np.sqrt(np.diagonal(C))
    matrix = C / np.outer(deviation, deviation) if standardize else C
    factor, shift = 2.0**-3, 12
    values, vectors = np.linalg.eigh(matrix * factor / 2.0**shift * (1 if standardize else times))
    found = {
        "components": -vectors.T[::-1][:k],
        "values": values[::-1][:k],
        "total": values.sum(),
        "factor": factor * 2.0**-100,
        "shift": shift,
        "ratio": ratio,
        "rows": np.int64(len(X)),
        "mean": np.frexp(X.mean(axis=0))[0],
        "mean_exponents": np.frexp(X.mean(axis=0))[1],
        "standardized": standardize,
        "solver": "allpairs",
        "iterations": 9,
        "verified": True,
        "fell_back": False,
        "resolution": 1e-6,
        "certificate": None,
        "tolerance": 1e-9,
        "errors": {"residual": 2e-9, "rounding": 1e-11, "column": 2.0**-46, "scaling": 0.0},
    }
    power = 2.0 ** np.array([3, 4, 5, 6])
    return found | (
        {"inverse": 1 / deviation / power / np.sqrt(times), "power": power * 2.0**-60} if standardize else {}
    )


def model(k: int, standardize: bool, ratio: float | None = None) -> PCAModel:
    return PCAModel.from_result(answer(k, standardize, ratio), scale=SCALE, names=list("abcd"), audit=[])


@pytest.mark.parametrize("standardize", [False, True], ids=["raw", "standardised"])
def test_means_that_doubles_hold_too_coarsely(standardize: bool) -> None:
    """Rows in the clear are doubles: refused where these are 2^-10 of a deviation apart, of the components or of what is left."""
    whole = model(3, standardize)
    largest = np.abs(X).max(axis=0)
    for far, good in ((2.0**30, True), (2.0**62, False)):
        moved = replace(whole, mean=whole.mean + far * np.array([0, 0, 1, 0]))
        for use in (moved.project, moved.scores, moved.log_likelihood):
            if good:
                assert np.isfinite(use(X + largest)).all()
                continue
            with pytest.raises(ValueError, match=r"column 'c' has a mean of 4.61e\+18, where doubles are 1e\+03 apart"):
                use(X)
    # A column without any part in the component: coordinates are right, distances to the plane are not.
    small = replace(model(1, standardize), components=np.array([[1.0, 0, 0, 0]]), mean=moved.mean)
    assert np.isfinite(small.project(X)).all()
    with pytest.raises(ValueError, match="column 'c' has a mean"):
        small.scores(X)


def test_with_all_components_no_row_can_stand_out() -> None:
    """What is left of a row is then rounding: flags would be chosen by chance."""
    assert model(3, False).scores(X).min() > 0
    with pytest.raises(ValueError, match="keeps all 4 components, which describe every row exactly"):
        model(4, False).scores(X)


@pytest.mark.parametrize("oriented", [False, True])
def test_signs_that_servers_have_given_stay(oriented: bool) -> None:
    """A kept model and loadings have them, too, and entries of nearly equal magnitude must not decide anew."""
    found = answer(1, False) | {"components": np.array([[0.6, -0.6 - 2.0**-40, 0.5, 0.1]]), "oriented": oriented}
    first = Parts.of(found, SCALE).components
    assert first is not None
    assert (first[0, 0] > 0) == oriented


@pytest.mark.parametrize("ratio", [None, 1.0, (50 / 64) ** 2])
@pytest.mark.parametrize("standardize", [False, True], ids=["raw", "standardised"])
def test_units_and_signs_are_those_of_scikit_learn(standardize: bool, ratio: float | None) -> None:
    found = model(3, standardize, ratio)
    scaler = StandardScaler(with_std=standardize).fit(X)
    truth = PlainPCA(3, svd_solver="full").fit(scaler.transform(X))
    np.testing.assert_allclose(found.explained_variance, truth.explained_variance_, rtol=1e-10)
    np.testing.assert_allclose(found.explained_variance_ratio, truth.explained_variance_ratio_, rtol=1e-10)
    np.testing.assert_allclose(found.singular_values, truth.singular_values_, rtol=1e-10)
    np.testing.assert_allclose(found.noise_variance, truth.noise_variance_, rtol=1e-8)
    np.testing.assert_allclose(found.mean, X.mean(axis=0), rtol=CLOSE)
    largest = found.components[np.arange(3), np.abs(found.components).argmax(axis=1)]
    assert np.all(largest > 0)
    signs = np.sign((found.components * truth.components_).sum(axis=1))[:, None]
    np.testing.assert_allclose(found.components * signs, truth.components_, atol=1e-8)
    assert (found.scale is None) == (not standardize)
    if found.scale is not None:
        np.testing.assert_allclose(found.scale, scaler.scale_, rtol=CLOSE)
    rows = scaler.transform(X[:7])
    np.testing.assert_allclose(found.project(X[:7]) * signs.T, truth.transform(rows), atol=1e-7)
    rest = rows - truth.inverse_transform(truth.transform(rows))
    np.testing.assert_allclose(found.scores(X[:7]), (rest**2).sum(axis=1), rtol=1e-6, atol=1e-9)


WHOLE = {
    "components": ("components",),
    "variances": ("values", "total", "factor"),
    "means": ("mean", "mean_exponents"),
    "deviations": ("inverse", "power"),
}
FILES = {
    "components": "components.csv",
    "variances": "explained_variance.csv",
    "means": "means.csv",
    "deviations": "deviations.csv",
}


@pytest.mark.parametrize("standardize", [False, True], ids=["raw", "standardised"])
@pytest.mark.parametrize("got", WHOLE)
def test_a_receiver_of_one_part_has_that_part(got: str, standardize: bool) -> None:
    """In the same units as in the whole model, whatever else it did not get."""
    whole, keys = model(3, standardize), [key for part, keys in WHOLE.items() if part != got for key in keys]
    result = {key: value for key, value in answer(3, standardize).items() if key not in keys}
    if got == "deviations" and not standardize:
        assert Parts.of(result, SCALE).tables(list("abcd")) == {}
        return
    with pytest.raises(ValueError, match="so it does not have a whole model; what it got can be had as tables"):
        PCAModel.from_result(result, scale=SCALE, names=None, audit=[])
    parts = Parts.of(result, SCALE)
    assert got not in parts.missing
    (name,) = parts.tables(list("abcd"))
    assert name == FILES[got]
    table = parts.tables(list("abcd"))[name]
    expected: Any = {
        "components": whole.components.T,
        "variances": whole.explained_variance,
        "means": whole.mean,
        "deviations": whole.scale,
    }[got]
    found = {
        "components": lambda: list(table.values()),
        "variances": lambda: table["explained_variance"],
        "means": lambda: table["mean"],
        "deviations": lambda: table["deviation"],
    }[got]()
    np.testing.assert_array_equal(found, expected)


def test_a_matrix_of_zeros_has_no_variance() -> None:
    zero = answer(2, False) | {"factor": 0.0, "values": np.zeros(2), "total": 0.0}
    found = PCAModel.from_result(zero, scale=SCALE, names=None, audit=[])
    assert found.total_variance == 0
    assert found.explained_variance_ratio.tolist() == [0, 0]


def test_a_saved_model_is_the_same_to_the_last_digit(tmp_path: Path) -> None:
    first = model(2, True)
    first.save(tmp_path / "model.json")
    again = PCAModel.load(tmp_path / "model.json")
    for name, value in vars(first).items():
        np.testing.assert_array_equal(getattr(again, name), value)
    assert [path.name for path in tmp_path.iterdir()] == ["model.json"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "ppca-model-1"}', '{"format": "ppca-shared-1"}', "\xff"])
def test_something_else_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(text, encoding="latin-1")
    for kind in (PCAModel, SharedFacts):
        with pytest.raises(ValueError, match=f"cannot read {path}"):
            kind.load(path)
    with pytest.raises(ValueError, match="cannot read"):
        PCAModel.load(tmp_path / "absent.json")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("name", 7), ("name", ""), ("scale_exponents", "12"), ("scale_exponents", [1, 2.0]), ("scale_exponents", [])),
        *(
            ("scale_exponents", [1, 10**20]),
            ("standardized", "no"),
            ("components", True),
            ("components", 3),
            ("rows", 1.5),
        ),
        *(
            ("rows", 10**20),
            ("feature_names", ["a"]),
            ("feature_names", ["a", 2]),
            ("solver", None),
            ("iterations", -1),
        ),
        *(
            ("verified", 1),
            ("tolerance", "small"),
            ("tolerance", 2.0),
            ("fell_back", None),
            ("allowed", ["flags"]),
            ("allowed", {"flags": "client"}),
        ),
        *(("audit", {}), ("audit", [{"what": "means"}]), ("audit", [{**OPENING, "shape": 3}])),
    ],
)
def test_facts_of_a_wrong_type_are_refused_by_name(field: str, value: Any, tmp_path: Path) -> None:
    path = tmp_path / "shared.json"
    good = SharedFacts(
        "m", [1, 2], False, 2, 9, ["a", "b"], "allpairs", 9, True, False, {"flags": ["client"]}, 1e-9, [OPENING]
    )
    good.save(path)
    assert SharedFacts.load(path) == good
    replace(good, **{field: value}).save(path)
    with pytest.raises(ValueError, match=rf"cannot read {path}: {field} cannot be of a model.* fit again"):
        SharedFacts.load(path)


def test_four_equal_answers_become_one() -> None:
    assert unsealed([{"a": [1, (2.5, None)], "b": "x"}] * 4) == {"a": [1, [2.5, None]], "b": "x"}


def test_flags_from_scores_in_the_clear() -> None:
    scores = np.array([3.0, 1.0, 2.0, 5.0, 4.0])
    assert flags_of(scores, None, None) is None
    threshold, largest = flags_of(scores, 3.0, None), flags_of(scores, None, 0.3)
    assert threshold is not None
    assert largest is not None
    assert threshold.tolist() == [False, False, False, True, True]
    assert largest.tolist() == [False, False, False, True, True]  # 0.3 of five rows: two
