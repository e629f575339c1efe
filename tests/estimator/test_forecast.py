"""The forecast of a fit's cost is right where it can be counted, and its seconds are those of the benchmarks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from harness.jobs import make_plan
from harness.lockstep import LockstepServers
from ppca import PCA, Columns
from ppca.estimator.forecast import BYTE_SECONDS, ROUND_SECONDS, VALUE_BYTES, forecast, forecast_of, forecast_wide

UNITS = {"kB": 1e3, "MB": 1e6, "GB": 1e9, "ms": 1e-3, "s": 1.0, "min": 60.0}


def owned(width: int, owners: int, by_columns: bool) -> list[Any]:
    rows = np.random.default_rng(width).normal(size=(3 * width + 40, width)) * np.linspace(1, 3, width)
    if not by_columns:
        return np.array_split(rows, owners)
    parts = np.array_split(np.arange(width), owners)
    return [pd.DataFrame({"id": np.arange(len(rows)), **{f"c{j}": rows[:, j] for j in part}}) for part in parts]


@pytest.mark.parametrize(
    ("width", "k", "owners", "more"),
    [
        (4, 2, 2, {}),
        (9, None, 7, {}),
        (17, 0.8, 3, {"standardize": True}),
        (31, 4, 5, {}),
        (31, 12, 2, {"fixed_iterations": 22}),
        (27, 5, 3, {"partition": Columns("id")}),
        (62, 62, 2, {"standardize": True}),
        (13, 3, 2, {"tol": 1e-4}),
    ],
)
def test_rounds_and_bytes_of_a_fit(
    lockstep_servers: LockstepServers, width: int, k: int | float | None, owners: int, more: dict[str, Any]
) -> None:
    pca = PCA(k, servers=lockstep_servers, **more).fit(owned(width, owners, "partition" in more))
    expected = forecast(make_plan(k, **more), width, owners, iterations=pca.n_iter_)
    assert not pca.fell_back_
    assert expected is not None
    assert expected.rounds == pytest.approx(pca.account_.rounds, rel=0.1)
    assert expected.bytes == pytest.approx(max(pca.account_.bytes_sent), rel=0.15)
    guessed = forecast(make_plan(k, **more), width, owners)
    assert guessed is not None
    assert 0.5 < guessed.rounds / pca.account_.rounds < 2


@pytest.mark.parametrize(("width", "k", "standardize"), [(220, 4, False), (250, 9, True)])
def test_rounds_and_bytes_of_the_largest_pairs(
    lockstep_servers: LockstepServers, width: int, k: int, standardize: bool
) -> None:
    rng = np.random.default_rng(width)
    turn = np.linalg.qr(rng.normal(size=(width, width)))[0]
    rows = (rng.normal(size=(2 * width, width)) / np.arange(1, width + 1) ** 0.5) @ turn
    pca = PCA(k, servers=lockstep_servers, standardize=standardize).fit(np.array_split(rows, 3))
    assert pca.solver_ == "topk"
    assert pca.n_iter_ in (1, 2)
    expected = forecast(make_plan(k, standardize=standardize), width, 3, iterations=pca.n_iter_)
    assert expected is not None
    assert expected.rounds == pytest.approx(pca.account_.rounds, rel=0.1)
    assert expected.bytes == pytest.approx(max(pca.account_.bytes_sent), rel=0.1)


@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("by_columns", [False, True])
@pytest.mark.parametrize(("rows", "width", "k"), [(25, 150, None), (50, 300, 7)])
def test_rounds_and_bytes_of_more_columns_than_rows(
    lockstep_servers: LockstepServers, rows: int, width: int, k: int | None, by_columns: bool, standardize: bool
) -> None:
    X = np.random.default_rng(width).normal(size=(rows, width)) / np.arange(1, width + 1) ** 0.5
    partition: Any = Columns(alignment="aligned") if by_columns else "rows"
    pca = PCA(k, servers=lockstep_servers, standardize=standardize, partition=partition)
    pca.fit(np.array_split(X, 2, axis=int(by_columns)))
    plan = make_plan(k, standardize, partition=partition)
    joint = rows if by_columns else 64  # owners of up to 32 rows upload 32
    expected = forecast_wide(plan, width, joint, pca.n_iter_)
    assert expected is not None
    assert expected.rounds == pytest.approx(pca.account_.rounds, rel=0.1)
    assert expected.bytes - joint * width * VALUE_BYTES == pytest.approx(max(pca.account_.bytes_sent), rel=0.15)


def test_a_table_is_wide_if_the_fit_takes_it_so() -> None:
    """Rows that owners upload count with those of zeros; means are of the covariance."""
    wide = forecast_wide(make_plan(), 100, 64)
    assert forecast_of(make_plan(), [100, 100], [20, 20]) == wide
    assert forecast_of(make_plan(), [100, 100], [20, 20], means=True) == forecast(make_plan(), 100, 2)
    assert forecast_of(make_plan(), [64, 64], [20, 20]) == forecast(make_plan(), 64, 2)
    assert forecast_of(make_plan(), [100, 100], [20, None]) == forecast(make_plan(), 100, 2)


def test_seconds_follow_from_rounds_and_bytes() -> None:
    """Within a factor of two of every job in the accuracy table, and so are guesses of most of them."""
    text = (Path(__file__).parents[2] / "docs" / "evaluation" / "benchmarks.md").read_text()
    table = text.partition("<!-- accuracy-table:begin -->")[2].partition("<!-- accuracy-table:end -->")[0]
    cells = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if re.search(r"\d x \d", line)
    ]
    assert len(cells) > 10
    guesses = []
    for data, shape, owners, rounds, sent, time, *_ in cells:
        measured = _number(time)
        assert 0.5 < (_number(rounds) * ROUND_SECONDS + _number(sent) * BYTE_SECONDS) / measured < 2, data
        expected = forecast(make_plan(standardize="standard" in data), int(shape.split(" x ")[1]), int(owners))
        assert expected is not None
        guesses.append(expected.seconds / measured)
    assert np.quantile(guesses, 0.1) > 0.5
    assert np.quantile(guesses, 0.9) < 2


def _number(text: str) -> float:
    figure, _, unit = text.replace(",", "").partition(" ")
    return float(figure) * UNITS.get(unit, 1.0)


def test_what_makes_a_job_long() -> None:
    small, large = forecast(make_plan(), 20, 2), forecast(make_plan(), 1000, 2)
    fixed, uploaded = forecast(make_plan(fixed_iterations=40), 1000, 2), forecast(make_plan(), 20, 2, 10**9)
    assert small is not None
    assert small.seconds < 1
    assert large is not None
    assert fixed is not None
    assert small.seconds < large.seconds < fixed.seconds
    assert uploaded is not None
    assert uploaded.bytes > 10**10
    assert forecast(make_plan(solver="qr"), 20, 2) is None
