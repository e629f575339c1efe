"""The sums of tables with missing values against exact rational arithmetic; merging; chunks; refusals."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from ppca.owner.errors import BadColumns, BadValue, OwnerError
from ppca.owner.missing_moments import MissingMoments, moments_with_missing
from ppca.owner.moments import moments
from ppca.owner.rows import missing_moments_of
from ppca.owner.tables.opening import open_table

Floats = NDArray[np.float64]
U = 2.0**-53


def sums_of(x: Floats, chunk_rows: int | None = None) -> MissingMoments:
    return moments_with_missing(open_table(x, missing="mean"), chunk_rows=chunk_rows)


def exact(x: Floats) -> tuple[list[Fraction], Floats]:
    """Means of the present values (0 without any) and K in rational arithmetic; the latter rounded once."""
    columns = [[None if np.isnan(value) else Fraction(value) for value in column] for column in x.T.tolist()]
    present = [[value for value in column if value is not None] for column in columns]
    means = [sum(values, Fraction(0)) / max(1, len(values)) for values in present]
    Z = [[0 if v is None else v - mean for v in column] for column, mean in zip(columns, means, strict=True)]
    P = [[int(value is not None) for value in column] for column in columns]
    K = [[float(sum(a * b for a, b in zip(p, q, strict=True))) for q in (*Z, *P)] for p in (*Z, *P)]
    return means, np.array(K)


def bound(x: Floats, gram: Floats, chunk_rows: int) -> Floats:
    """The bound of gaps.py for every entry of K."""
    loss = [1.0] * len(gram)
    for column, values in enumerate(x.T):
        counts = [int(np.isfinite(values[at : at + chunk_rows]).sum()) for at in range(0, len(x), chunk_rows)]
        loss[column] = 1 + sum(counts) / next((count for count in counts if count), 1)
    size = np.sqrt(np.diagonal(gram))
    return ((min(chunk_rows, len(x)) + 3) + 24 * np.sqrt(np.outer(loss, loss))) * U * np.outer(size, size)


magnitudes = st.floats(1e-18, 1e18)
values = st.one_of(
    st.just(np.nan), st.just(0.0), magnitudes, magnitudes.map(lambda value: -value), st.integers(-9, 9).map(float)
)
tables = hnp.arrays(np.float64, st.tuples(st.integers(1, 12), st.integers(1, 3)), elements=values)


@given(x=tables, chunk_rows=st.integers(1, 13), offset=st.sampled_from([0.0, 1.0, 1e6, 1e15]))
def test_agrees_with_exact_fractions(x: Floats, chunk_rows: int, offset: float) -> None:
    x = x + offset
    sums = sums_of(x, chunk_rows)
    means, gram = exact(x)
    assert sums.count == len(x)
    assert sums.counts.tolist() == np.isfinite(x).sum(axis=0).tolist()
    assert (np.abs(sums.gram - gram) <= bound(x, gram, chunk_rows)).all()
    assert (sums.gram == sums.gram.T).all()
    spread = np.max(np.abs(x - sums.mean), axis=0, where=np.isfinite(x), initial=0.0)
    for mean, value, rest, wide in zip(means, sums.mean, sums.rest, spread, strict=True):
        assert abs(Fraction(float(value)) + Fraction(float(rest)) - mean) <= 64 * Fraction(U) * Fraction(float(wide))


@pytest.mark.parametrize("ratio", [0.0, 1e3, 1e7])
@pytest.mark.parametrize("drift", [0.0, 3.0])
def test_error_does_not_grow_with_chunks_nor_with_the_mean(ratio: float, drift: float) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(60_000, 3)) @ rng.normal(size=(3, 3)) + ratio
    x += drift * np.linspace(-1, 1, len(x))[:, None]  # rows in order of time: the first chunk is not like the others
    x[rng.random(x.shape) < [0.0, 0.1, 0.9]] = np.nan
    wide = x.astype(np.longdouble) - ratio  # exact, so that the sums are, too
    mean = np.nanmean(wide, axis=0)
    both = np.hstack([np.nan_to_num(wide - mean), np.isfinite(wide)])
    true = (both.T @ both).astype(np.float64)
    size = np.sqrt(np.diagonal(true))
    found = sums_of(x, 64)
    assert (np.abs(found.gram - true) <= 32 * U * np.outer(size, size)).all()
    assert (np.abs((found.mean - ratio - mean) + found.rest) <= 2.0**-50).all()


def test_whole_rows_have_the_sums_of_moments() -> None:
    x = np.random.default_rng(2).normal(size=(3000, 4)) + 100
    found, wanted = sums_of(x, 700), moments(open_table(x))
    assert np.abs(found.gram[:4, :4] - wanted.gram).max() <= 32 * U * wanted.gram.max()
    assert (found.gram[4:, 4:] == 3000).all()
    assert np.abs(found.gram[:4, 4:]).max() <= 1e-10
    assert np.abs(found.mean - wanted.mean).max() <= 1e-13


@pytest.mark.parametrize("constant", [0.0, 0.1, 1e18, -1 / 3])
def test_constant_column_is_exactly_zero(constant: float) -> None:
    x = np.random.default_rng(3).normal(size=(3001, 3))
    x[:, 1] = constant
    x[np.random.default_rng(4).random(x.shape) < 0.3] = np.nan
    x[:1500, 1] = np.nan
    sums = sums_of(x, 1000)
    for one in (sums, sums.merge(sums_of(x[1600:1700])), sums_of(x[:50]).merge(sums)):
        assert (one.gram[1] == 0).all()
        assert one.mean[1] == constant


def test_merge_is_that_of_all_rows_in_any_order() -> None:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(900, 4)) + np.array([0, 1, 1e3, 1e6])
    x[rng.random(x.shape) < 0.4] = np.nan
    x[:300, 2] = np.nan  # two parts without a value
    parts = [sums_of(part) for part in np.split(x, [1, 300])]
    a, b, c = parts
    _, gram = exact(x)
    size = np.sqrt(np.diagonal(gram))
    for merged in (a.merge(b).merge(c), a.merge(b.merge(c)), c.merge(b).merge(a)):
        assert merged.count == 900
        assert merged.counts.tolist() == np.isfinite(x).sum(axis=0).tolist()
        assert (np.abs(merged.gram - gram) <= (903 + 3 * 24) * U * np.outer(size, size)).all()
    with pytest.raises(BadColumns, match="different columns"):
        a.merge(sums_of(np.ones((2, 3))))


def test_result_does_not_depend_on_threads_or_precision_of_exact_input() -> None:
    x = np.random.default_rng(6).normal(size=(20_000, 5)).astype(np.float32)
    x[::3, 1] = np.nan
    first = moments_with_missing(open_table(x, missing="mean"), chunk_rows=1000, threads=1)
    for table in (x.astype(np.float64), np.asfortranarray(x)):
        other = moments_with_missing(open_table(table, missing="mean"), chunk_rows=1000, threads=3)
        assert (other.gram == first.gram).all()
        assert (other.mean == first.mean).all()


@pytest.mark.parametrize("kind", ["csv", "parquet", "folder"])
def test_files_with_gaps(tmp_path: Path, kind: str) -> None:
    frame = pd.DataFrame(np.random.default_rng(7).normal(size=(40, 3)), columns=["a", "b", "c"])
    frame.iloc[::4, 1] = np.nan
    path = tmp_path / f"x.{kind}"
    if kind == "folder":
        path.mkdir()
        frame[:10].to_csv(path / "1.csv", index=False)
        frame[10:].to_csv(path / "2.csv", index=False)
    else:
        getattr(frame, f"to_{kind}")(path, index=False)
    table = open_table(path, columns=["b", "a"], missing="mean").choose(["a", "b"])
    found, wanted = moments_with_missing(table), sums_of(frame[["a", "b"]].to_numpy())
    assert found.counts.tolist() == [40, 30]
    np.testing.assert_allclose(found.gram, wanted.gram, rtol=0, atol=1e-13)


def test_what_is_refused() -> None:
    x = np.ones((5000, 3))
    x[1:, 1] = np.nan
    with pytest.raises(BadValue, match=r"column 2 has a missing value .* in row 2 "):
        moments_with_missing(open_table(x), chunk_rows=1000)  # this owner refuses them, whatever others do
    x[4321, 0] = -np.inf
    with pytest.raises(BadValue, match=r"column 1 has an infinite value \(-inf\) in row 4,322"):
        sums_of(x, 1000)
    x[4321, 0] = 2e150
    with pytest.raises(BadValue, match=r"column 1 has 2e\+150 in row 4,322.*larger unit"):
        sums_of(x, 1000)
    with pytest.raises(OwnerError, match="column 1 varies by less than 1e-145"):
        sums_of(np.array([[1e-160], [2e-160], [np.nan]]))
    x[:, 1] = np.nan
    x[4321, 0] = 1.0
    with pytest.raises(BadValue, match="column 2 has no value in any row, and so no mean") as caught:
        missing_moments_of(open_table(x, missing="mean"))
    assert (caught.value.columns, caught.value.options) == (("2",), ("drop",))


@pytest.mark.parametrize("chunk_rows", [3, 5000])
@pytest.mark.parametrize("deviation", [1, 1000])
def test_integers_that_doubles_do_not_tell_apart(deviation: int, chunk_rows: int) -> None:
    """As the same integers about zero; a constant column stays exactly constant."""
    random = np.random.default_rng(6)
    near, holes = random.integers(-deviation, deviation + 1, (300, 3)), random.random((300, 3)) < 0.3
    near[:, 2] = 0
    for kind, middle in ((np.int64, 2**62 + 1), (np.uint64, 2**63)):
        far = np.ma.masked_array((near.astype(object) + middle).astype(kind), holes)
        wanted = sums_of(np.where(holes, np.nan, near))
        whole = moments_with_missing(open_table(far, missing="mean"), chunk_rows=chunk_rows)
        parts = [moments_with_missing(open_table(part, missing="mean")) for part in (far[:100], far[100:])]
        for found in (whole, parts[0].merge(parts[1])):
            assert found.counts.tolist() == wanted.counts.tolist()
            assert np.abs(found.gram - wanted.gram).max() <= 1e-12 * wanted.gram.max()
            assert not found.gram[2, :3].any()
            away = [
                Fraction(float(m)) + Fraction(float(r)) - middle for m, r in zip(found.mean, found.rest, strict=True)
            ]
            assert np.abs(np.array(away, float) - (wanted.mean + wanted.rest)).max() <= 2.0**-41
