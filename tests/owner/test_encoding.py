"""What an owner sends, against exact arithmetic: sums as ring elements, scales, rows for inference, and refusals."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ppca.algorithms.covariance import MEAN_FRAC, MOMENT_FRAC
from ppca.native import ring
from ppca.owner.errors import BadValue, OwnerError
from ppca.owner.moments import moments
from ppca.owner.rows import (
    NO_EXPONENT,
    check_within,
    declared_scale,
    encode_moments,
    exponents,
    joint_scale,
    new_rows,
    refuse_beyond,
)
from ppca.owner.tables.opening import open_table
from ppca.protocol.inputs import receive


def integers(words: ring.Ring) -> list[int]:
    """Elements of the 128-bit ring as signed integers."""
    whole = [int(low) + (int(high) << 64) for low, high in words.reshape(-1, 2)]
    return [value - (1 << 128) if value >> 127 else value for value in whole]


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    rows=st.integers(1, 9),
    ratio=st.sampled_from([0.0, 1.0, 1e4, 1e7]),
    others=st.integers(0, 1000),
)
def test_sums_are_those_of_exact_arithmetic(seed: int, rows: int, ratio: float, others: int) -> None:
    """Second moments M = G/n + m (m c/n) and means m c/n, for c of n rows, in units of 2^-112 and 2^-56.

    G comes from doubles: its error is 2^-50 of its size. Means are rounded to 2^-56, so the product of means errs by 2^-55.
    """
    x = np.random.default_rng(seed).standard_normal((rows, 3)) + ratio
    sums = moments(open_table(x))
    scale = exponents(sums.largest, True)
    packed, means = encode_moments(sums, rows + others, scale)
    exact = [[Fraction(float(value)) / Fraction(2) ** int(e) for value, e in zip(row, scale, strict=True)] for row in x]
    n = rows + others
    for j, found in enumerate(integers(means)):
        wanted = sum(row[j] for row in exact) / n
        assert abs(Fraction(found, 1 << MEAN_FRAC) - wanted) <= Fraction(2, 1 << 52)
    i, j = np.triu_indices(3)
    for a, b, found in zip(i.tolist(), j.tolist(), integers(packed), strict=True):
        wanted = sum(row[a] * row[b] for row in exact) / n
        assert abs(Fraction(found, 1 << MOMENT_FRAC) - wanted) <= Fraction(4, 1 << 50)


def test_exponents() -> None:
    largest = np.array([0.0, 1.0, 0.999, 2.0**-1074, 1e150])
    assert exponents(largest, True).tolist() == [NO_EXPONENT, 1, 0, -1073, 499]
    assert exponents(largest, False).tolist() == [499]
    assert joint_scale([3], 2).tolist() == [3, 3]
    assert joint_scale([NO_EXPONENT, 5], 2).tolist() == [0, 5]


def test_declared_bounds() -> None:
    assert declared_scale(100.0, 2, False).tolist() == [7, 7]
    assert declared_scale([1.0, 100.0], 2, True).tolist() == [1, 7]
    assert declared_scale([1.0, 100.0], 2, False).tolist() == [7, 7]
    for wrong in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="positive and finite"):
            declared_scale(wrong, 2, False)
    with pytest.raises(ValueError, match="3 numbers for 2 columns"):
        declared_scale([1.0, 2.0, 3.0], 2, False)
    check_within("north", ["a"], np.array([2.0]), np.array([2.0]))
    with pytest.raises(OwnerError, match="north: b reaches 3, beyond its declared bound"):
        check_within("north", ["a", "b"], np.array([1.0, 3.0]), np.array([2.0, 2.0]))


def test_new_rows_come_in_batches_that_share_to_the_same_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ppca.owner.rows.BATCH", 6)
    rows, scale = np.random.default_rng(1).standard_normal((11, 3)), np.array([3, 0, -2])
    rows *= 2.0**scale
    batches = list(new_rows([rows[:5], rows[5:]], scale, False, None))
    assert [packets[0].shape for packets in batches] == [(2, 3), (2, 3), (1, 3)] + [(2, 3)] * 3
    plain = []
    for packets in batches:  # seats (0,0) and (1,1) together hold both summands of both splits
        first, second = receive(packets[0], 0, 0), receive(packets[3], 1, 1)
        for split in (0, 1):
            plain.append(ring.decode(ring.add(first[split], second[split]), packets[0].dtype.frac))
    ulp = 2.0**-40
    np.testing.assert_allclose(np.vstack(plain[0::2]), rows / 2.0**scale, rtol=0, atol=ulp)
    np.testing.assert_array_equal(np.vstack(plain[0::2]), np.vstack(plain[1::2]))


def test_rows_beyond_the_model_are_refused() -> None:
    with pytest.raises(BadValue, match=r"column 'b' has 40 in row 13, its limit is 32: this model takes") as caught:
        list(new_rows([np.zeros((12, 2)), np.array([[0, 40.0]])], np.array([0, 0]), False, ["a", "b"]))
    assert (caught.value.column, caught.value.row) == ("b", 13)
    with pytest.raises(BadValue, match="north: column '2' has nan in row 1"):
        refuse_beyond(np.array([[0, np.nan]]), np.ones(2), None, "north: ", "hint")
    with pytest.raises(ValueError, match="must have 2 columns"):
        list(new_rows([np.zeros((2, 3))], np.array([0, 0]), False, None))
