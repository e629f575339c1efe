"""The sums against exact rational arithmetic and extended precision; merging; ranges; speed-neutral choices; memory."""

from __future__ import annotations

import subprocess
import sys
import threading
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from threadpoolctl import threadpool_info, threadpool_limits

from ppca.owner.errors import BadColumns, BadValue, OwnerError
from ppca.owner.moments import Moments, moments, pass_over
from ppca.owner.tables.opening import open_table
from ppca.owner.tables.table import ChunkWithRest, Table

U = 2.0**-53


def sums_of(rows: NDArray[np.float64]) -> Moments:
    return moments(open_table(rows))


def bound(rows: int, gram: NDArray[np.float64]) -> NDArray[np.float64]:
    """The bound of moments.py for chunks of `rows` rows, for every entry of the Gram matrix."""
    scale = np.sqrt(np.diagonal(gram))
    return ((rows + 3) * 18 + 8) * U * np.outer(scale, scale)


def exact(x: NDArray[np.float64]) -> tuple[list[Fraction], NDArray[np.float64]]:
    """Mean and Gram matrix in rational arithmetic; the latter rounded once."""
    columns = [[Fraction(float(value)) for value in column] for column in x.T]
    means = [sum(column, Fraction(0)) / len(column) for column in columns]
    centred = [[value - mean for value in column] for column, mean in zip(columns, means, strict=True)]
    gram = [[float(sum(a * b for a, b in zip(p, q, strict=True))) for q in centred] for p in centred]
    return means, np.array(gram)


magnitudes = st.floats(1e-18, 1e18)
values = st.one_of(st.just(0.0), magnitudes, magnitudes.map(lambda value: -value), st.integers(-9, 9).map(float))
tables = hnp.arrays(np.float64, st.tuples(st.integers(1, 12), st.integers(1, 3)), elements=values)


@given(x=tables, chunk_rows=st.integers(1, 13), offset=st.sampled_from([0.0, 1.0, 1e6, 1e15]))
def test_agrees_with_exact_fractions(x: NDArray[np.float64], chunk_rows: int, offset: float) -> None:
    x = x + offset
    sums = moments(open_table(x), chunk_rows=chunk_rows)
    means, gram = exact(x)
    assert sums.count == len(x)
    assert (np.abs(sums.gram - gram) <= bound(len(x), gram)).all()
    assert (sums.gram == sums.gram.T).all()
    spread = np.abs(x - sums.mean).max(axis=0)
    for mean, value, rest, wide in zip(means, sums.mean, sums.rest, spread, strict=True):
        # What is left of the mean after rounding is sent, too: the error is one of the deviations, not of the mean.
        assert abs(Fraction(float(value)) + Fraction(float(rest)) - mean) <= 64 * Fraction(U) * Fraction(float(wide))


def exact_integers(columns: list[list[int]]) -> tuple[list[Fraction], NDArray[np.float64]]:
    means = [Fraction(sum(column), len(column)) for column in columns]
    centred = [[value - mean for value in column] for column, mean in zip(columns, means, strict=True)]
    return means, np.array([[float(sum(a * b for a, b in zip(p, q, strict=True))) for q in centred] for p in centred])


def check_integers(sums: Moments, x: NDArray[Any]) -> None:
    means, gram = exact_integers(x.T.tolist())
    assert (np.abs(sums.gram - gram) <= bound(len(x), gram)).all()
    for mean, value, rest, spread in zip(means, sums.mean, sums.rest, np.diagonal(gram), strict=True):
        assert abs(Fraction(float(value)) + Fraction(float(rest)) - mean) <= 2.0**-43 + 64 * U * np.sqrt(spread)


INTEGERS = {
    "about 2^62": (np.int64, 2**62),
    "about -2^63": (np.int64, -(2**63) + 2**23),
    "across 2^63": (np.uint64, 2**63),
    "to 2^64": (np.uint64, 2**64 - 2**23),
}


@pytest.mark.parametrize("deviation", [0.5, 10, 1e6])
@pytest.mark.parametrize("kind", INTEGERS)
@pytest.mark.parametrize("chunk_rows", [7, 5000])
def test_integers_that_doubles_do_not_tell_apart(kind: str, deviation: float, chunk_rows: int) -> None:
    dtype, middle = INTEGERS[kind]
    away = np.rint(np.random.default_rng(3).normal(size=(2000, 2)) * deviation).astype(int)
    away[:, 1] += away[:, 0]
    x = (away.astype(object) + middle).astype(dtype)
    whole = moments(open_table(x), chunk_rows=chunk_rows)
    check_integers(whole, x)
    parts = [moments(open_table(part)) for part in np.split(x, [1, 300])]
    check_integers(parts[0].merge(parts[1]).merge(parts[2]), x)
    beside = np.random.default_rng(4).normal(size=2000)
    frame = moments(open_table(pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": beside})), chunk_rows=chunk_rows)
    alone = moments(open_table(beside[:, None]), chunk_rows=chunk_rows)
    assert (frame.mean[2], frame.rest[2]) == (alone.mean[0], alone.rest[0])  # other columns are as ever
    assert (frame.gram[:2, :2] == whole.gram).all()


@pytest.mark.parametrize("first", [-(2**63), 2**63 - 1, 0])
def test_integers_of_both_signs_and_one_that_is_far_away(first: int) -> None:
    x = np.array([[first, 2**62 + k % 3] for k in range(900)])
    x[1:, 0] = 2**63 - 1 - np.arange(899) % 5
    check_integers(moments(open_table(x)), x)
    check_integers(moments(open_table(x), chunk_rows=4), x)


def test_a_constant_integer_is_exactly_constant() -> None:
    x = np.full((3000, 1), 2**62 + 1)
    for sums in (moments(open_table(x)), moments(open_table(x), chunk_rows=64)):
        assert not sums.gram.any()
        assert int(sums.mean[0]) + int(sums.rest[0]) == 2**62 + 1


@pytest.mark.parametrize("ratio", [0.0, 1e3, 1e6])
@pytest.mark.parametrize("drift", [0.0, 3.0])
def test_error_does_not_grow_with_chunks_nor_with_the_mean(ratio: float, drift: float) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(60_000, 3)) @ rng.normal(size=(3, 3)) + ratio
    x += drift * np.linspace(-1, 1, len(x))[:, None]  # rows in order of time: the first chunk is not like the others
    wide = x.astype(np.longdouble)
    mean = wide.mean(axis=0)
    true = ((wide - mean).T @ (wide - mean)).astype(np.float64)
    sums = moments(open_table(x), chunk_rows=64)
    assert (np.abs(sums.gram - true) <= bound(64, true)).all()
    assert np.abs(sums.gram - true).max() <= 16 * U * true.max()  # in practice: a few ulps after a thousand chunks
    assert (np.abs(sums.mean - mean) <= 4 * U * np.maximum(1, np.abs(mean))).all()


def test_columns_of_very_different_size_side_by_side() -> None:
    rng = np.random.default_rng(2)
    scale = np.array([1e18, 1.0, 1e-18, 1e140, 1e-120])
    z = rng.normal(size=(5000, 5))
    sums = moments(open_table(z * scale), chunk_rows=512)
    plain = moments(open_table(z), chunk_rows=512)
    assert np.allclose(sums.gram / scale / scale[:, None], plain.gram, rtol=0, atol=1e-14 * plain.gram.max())


@pytest.mark.parametrize("constant", [0.0, 0.1, 1e18, -1 / 3])
def test_constant_column_is_exactly_zero(constant: float) -> None:
    x = np.random.default_rng(3).normal(size=(3001, 3))
    x[:, 1] = constant
    sums = moments(open_table(x), chunk_rows=1500)
    assert (sums.gram[1] == 0).all()
    assert (sums.gram[:, 1] == 0).all()
    assert sums.mean[1] == constant
    again = sums.merge(sums_of(x[:17]))
    assert (again.gram[1] == 0).all()
    assert again.mean[1] == constant


def test_almost_constant_column_is_not_zero() -> None:
    x = np.full((3000, 2), 0.1)
    x[1233, 1] += 1.0  # not among the rows from which the centre is taken
    gram = moments(open_table(x)).gram
    assert gram[0, 0] == 0
    assert gram[1, 1] == pytest.approx(1 - 1 / 3000, rel=8 * U)


def test_one_row() -> None:
    sums = sums_of(np.array([[1.5, -2.0]]))
    assert sums.count == 1
    assert sums.mean.tolist() == [1.5, -2.0]
    assert not sums.gram.any()


def test_result_does_not_depend_on_threads_or_precision_of_exact_input() -> None:
    x = np.random.default_rng(4).normal(size=(20_000, 5)).astype(np.float32)
    first = moments(open_table(x), chunk_rows=1000, threads=1)
    for table in (x.astype(np.float64), np.asfortranarray(x)):
        for threads in (1, 3):
            other = moments(open_table(table), chunk_rows=1000, threads=threads)
            assert (other.gram == first.gram).all()
            assert (other.mean == first.mean).all()


@pytest.mark.parametrize(("rows", "columns"), [(1, 3), (1025, 40), (30_000, 17), (3, 500)])
def test_result_does_not_depend_on_the_order_in_memory(rows: int, columns: int) -> None:
    """By rows or by columns, whole chunks and the rest of one."""
    x = np.random.default_rng(rows).normal(size=(rows, columns)) + 1e3
    first, other = moments(open_table(x)), moments(open_table(np.asfortranarray(x)))
    assert (other.gram == first.gram).all()
    assert (other.mean == first.mean).all()
    assert (other.rest == first.rest).all()


@pytest.mark.parametrize("rows", [10, 5000])
def test_one_thread_is_the_callers_and_has_one_of_blas(rows: int) -> None:
    """As on a worker of a cluster that has one thread; also for a part of one chunk."""
    seen = []

    def sum_chunk(table: Table, chunk_with_rest: ChunkWithRest, buffers: list[Any]) -> int:
        seen.append((threading.get_ident(), *_blas_threads()))
        return len(chunk_with_rest[0])

    with threadpool_limits(2, user_api="blas"):
        pass_over(open_table(np.ones((rows, 2))), sum_chunk, lambda done: done, 2000, None, 1)
        assert set(_blas_threads()) == {2}
    here = threading.get_ident()
    assert seen == [(here, *[1] * len(_blas_threads()))] * len(range(0, rows, 2000))


def _blas_threads() -> list[int]:
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def test_merge_is_that_of_all_rows_in_any_order() -> None:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(900, 4)) + np.array([0, 1, 1e3, 1e6])
    a, b, c = (sums_of(part) for part in np.split(x, [1, 300]))
    whole = sums_of(x)
    # A merged mean is rounded to U |mean|; that moves the term n D D' by at most 2 n |D| U |mean| on each side.
    rounding = U * np.abs(whole.mean)
    deviation = np.sqrt(np.diagonal(whole.gram) / len(x))
    slack = bound(len(x), whole.gram) + 8 * len(x) * (np.outer(rounding, deviation) + np.outer(deviation, rounding))
    for merged in (a.merge(b).merge(c), a.merge(b.merge(c)), c.merge(b).merge(a)):
        assert merged.count == 900
        assert (np.abs(merged.gram - whole.gram) <= slack).all()
        assert (np.abs(merged.mean - whole.mean) <= 4 * (rounding + U * deviation)).all()


def test_merged_means_are_doubles_and_a_rest_below_their_last_bit() -> None:
    """Also where means cancel: what is shared as a mantissa must stay below one."""
    ulp = 2.0**-32  # of numbers about 2^20
    one, zero = np.ones(1), np.zeros((1, 1))
    left = Moments(1, (2.0**20 + ulp) * one, -ulp / 2 * one, zero)
    right = Moments(1, -(2.0**20) * one, 0 * one, zero)
    for one_sum, mean in ((left, 0.25 * ulp), (Moments(1, 2.0**20 * one, 0.3 * ulp * one, zero), 0.15 * ulp)):
        merged = one_sum.merge(right)
        assert abs(merged.rest[0]) <= np.spacing(abs(merged.mean[0])) / 2
        assert abs(merged.mean[0] + merged.rest[0] - mean) <= ulp / 2  # of the differences of the means


def test_merge_refuses_other_columns() -> None:
    one = moments(open_table(pd.DataFrame(np.ones((2, 2)), columns=["a", "b"]), label="north"))
    with pytest.raises(BadColumns, match="north and south have different columns"):
        one.merge(moments(open_table(pd.DataFrame(np.ones((2, 2)), columns=["a", "c"]), label="south")))
    with pytest.raises(BadColumns, match="different columns"):
        one.merge(sums_of(np.ones((2, 3))))


@pytest.mark.parametrize(("value", "what"), [(np.nan, "missing value"), (np.inf, "infinite value"), (-np.inf, "-inf")])
def test_not_finite_is_located(value: float, what: str) -> None:
    x = np.ones((5000, 3))
    x[[4321, 4400], 2] = value
    with pytest.raises(BadValue, match=what) as caught:
        moments(open_table(x, label="north"), chunk_rows=1000)
    assert "north: column 3" in str(caught.value)
    assert "row 4,322 (2 such values in all)" in str(caught.value)
    assert (caught.value.row, caught.value.columns) == (4322, ("3",))


def test_too_large_and_too_small_are_refused() -> None:
    x = np.ones((10, 2))
    x[6, 1] = -2e150
    with pytest.raises(BadValue, match=r"column 2 has -2e\+150 in row 7.*larger unit"):
        sums_of(x)
    x[6, 1] = -1e150
    assert np.isfinite(sums_of(x).gram).all()
    with pytest.raises(OwnerError, match="column 1 varies by less than 1e-145"):
        sums_of(np.array([[1e-160], [2e-160]]))


def test_progress_reports_every_chunk() -> None:
    seen: list[tuple[int, int | None]] = []
    moments(open_table(np.ones((2500, 2))), chunk_rows=1000, progress=lambda *step: seen.append(step))
    assert seen == [(1000, 2500), (2000, 2500), (2500, 2500)]


def test_blas_threads_are_given_back_after_passes_at_the_same_time() -> None:
    before = _blas_threads()
    x = np.random.default_rng(6).normal(size=(30_000, 8))
    passes = [
        threading.Thread(target=moments, args=(open_table(x),), kwargs={"chunk_rows": 100 * n}) for n in (3, 5, 9)
    ]
    for one in passes:
        one.start()
    for one in passes:
        one.join()
    assert _blas_threads() == before


PASS_IN_A_PROCESS = """
import re, sys
from ppca.owner.moments import moments
from ppca.owner.tables.opening import open_table
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) // 1024
before = peak()
sums = moments(open_table(sys.argv[1]), threads=2)
print(sums.count, before, peak())
"""


@pytest.mark.processes
def test_memory_is_bounded(tmp_path: Path) -> None:
    """A pass over 400 MB takes less memory than the file has: at most 128 MB mapped and a few chunks of 32 MB."""
    path = tmp_path / "large.npy"
    rows = 870_000
    table = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(rows, 115))
    table.reshape(-1, 1000, 115)[:] = np.random.default_rng(7).normal(size=(1000, 115))
    table.flush()
    assert path.stat().st_size > 400e6
    answer = subprocess.run([sys.executable, "-c", PASS_IN_A_PROCESS, path], capture_output=True, text=True, check=True)
    path.unlink()
    count, before, after = map(int, answer.stdout.split())
    assert count == rows
    assert after - before < 350
    assert after < 1024
